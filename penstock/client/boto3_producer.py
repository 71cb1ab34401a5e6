"""Knows how to send messages to an SQS queue with boto3 as advised, many at a time, and what became of each.

    from penstock.client.boto3_producer import QueueProducer

    with QueueProducer(sqs, queue_url, message_rate_per_second=200) as producer:
        for order in orders:
            producer.send(json.dumps(order)).add_done_callback(note)

`send` takes a message and returns a `concurrent.futures.Future` of what SQS says of it; it may be called by many
threads, and waits while too many are held. What is accepted is sent, or its future says why not. Of a message group of
a FIFO queue one message at a time is on its way: SQS may refuse one of a batch and take those behind it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from concurrent.futures import Future

from penstock.client.arguments import advised
from penstock.client.attention import ATTENTION_SECONDS
from penstock.client.boto3_queue import place_of_queue
from penstock.client.complaint import complain
from penstock.client.crew import run_missing
from penstock.client.operations import SQS_DELIVERY
from penstock.client.pace import Pace
from penstock.client.queue_figures import THROTTLED
from penstock.client.sdk_client import advise_in, pool_count_of, refusal_of

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from typing_extensions import Unpack

    from penstock.client.advice import Advice
    from penstock.client.demand import DeliveryDemand

BATCH_BYTES_MAX = 1 << 20  # of one message, and of all of a request together
HELD_COUNT_MAX = 10_000  # messages that were accepted and have not ended
HELD_BYTES_MAX = 64 << 20
TRY_SECONDS_MAX = 60.0  # for a message that is not refused for what it is
_LINGER_SECONDS = 0.02  # where none is advised: a message waits so long for others to share its request
_PAUSE_SECONDS = 0.5  # after what failed
_FOLLOW_SECONDS = 60.0  # after which the advice is asked for again
_EXIT_SECONDS_MAX = 5.0  # at the end of a process that has not closed it


class SendFailedError(Exception):
    """SQS did not take a message; `code` is its word for why."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(f"{code}: {sentence}")
        self.code = code


class _Message:
    """One that was accepted."""

    __slots__ = ("accepted_at", "entry", "future", "size_bytes")

    def __init__(self, entry: dict[str, Any]) -> None:
        self.entry, self.size_bytes = entry, _size_bytes(entry)
        self.accepted_at = time.monotonic()
        self.future: Future[Mapping[str, Any]] = Future()
        self.future.set_running_or_notify_cancel()  # what was accepted cannot be cancelled


class QueueProducer:
    """Sends with the advised threads, batches and rate.

    `advice` replaces asking; `demand` is that of `penstock.client.advice.advise`. The client needs a connection for
    each thread: `penstock.client.boto3.connection_pool_count(producer.advice)`. A message that fails for no fault of
    its own is sent again for `try_seconds_max`.
    """

    def __init__(
        self,
        sqs_client: Any,
        queue_url: str,
        *,
        message_size_bytes: int = 1024,
        advice: Advice | None = None,
        try_seconds_max: float = TRY_SECONDS_MAX,
        **demand: Unpack[DeliveryDemand],
    ) -> None:
        self._place = place_of_queue(sqs_client, queue_url, demand)
        self._question = None if advice else (message_size_bytes, demand)
        self._client, self._url, self._try_seconds_max = sqs_client, queue_url, try_seconds_max
        self._obey(advice or advise_in(self._place, SQS_DELIVERY, message_size_bytes, demand))
        self._is_closed = False
        self._begin()

    def send(self, body: str, **entry: Any) -> Future[Mapping[str, Any]]:
        """Accept a message; `entry` has what else boto3 takes of one: MessageGroupId, MessageAttributes, ...

        Raises ValueError for what no request can hold, and RuntimeError when it is closed. The future's result is what
        SQS said, with the MessageId; its exception is SendFailedError, or what boto3 raised.
        """
        message = _Message({"MessageBody": body, **entry})
        if message.size_bytes > BATCH_BYTES_MAX:
            raise ValueError(f"a message has {message.size_bytes} bytes, and SQS takes {BATCH_BYTES_MAX}")
        self._notice_fork()
        with self._changed:
            while not self._is_closed and not self._has_room(message):
                self._changed.wait(ATTENTION_SECONDS)
            if self._is_closed:
                raise RuntimeError("the producer is closed")
            if not self._threads:
                self._start()
            self._held_count += 1
            self._held_bytes += message.size_bytes
            behind = self._behind.get(self._group_of(message))
            if behind is None:
                self._behind.update({group: deque() for group in [self._group_of(message)] if group})
                self._waiting.append(message)
                self._changed.notify_all()
            else:
                behind.append(message)
        return message.future

    def flush(self, *, timeout_seconds: float | None = None) -> bool:
        """Wait until all that was accepted has ended; whether it has, in time."""
        self._notice_fork()
        end_seconds = time.monotonic() + (float("inf") if timeout_seconds is None else timeout_seconds)
        with self._changed:
            self._hurried_count += 1
            self._changed.notify_all()
            try:
                while self._held_count and (left := end_seconds - time.monotonic()) > 0:
                    self._changed.wait(min(left, ATTENTION_SECONDS))
            finally:
                self._hurried_count -= 1
            return not self._held_count

    def close(self, *, timeout_seconds: float | None = None) -> None:
        """Accept no more, and send what was accepted. What was not in time, or until an interrupt, its future says."""
        import atexit

        self._notice_fork()
        with self._changed:
            self._is_closed = True
        try:
            self.flush(timeout_seconds=timeout_seconds)
        finally:
            atexit.unregister(self._finish)
            self._give_up()

    def __enter__(self) -> QueueProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        self._process_id = os.getpid()
        self._changed = threading.Condition()  # which who holds it may enter again
        self._waiting: deque[_Message] = deque()
        # Of each message group one message waits or is on its way, and these are behind it.
        self._behind: dict[str, deque[_Message]] = {}
        self._held_count = self._held_bytes = self._hurried_count = 0
        self._threads: dict[tuple[str, int], threading.Thread] = {}
        self._pace = Pace(self._rate)

    def _notice_fork(self) -> None:
        """What a parent accepted is its own to send."""
        if self._process_id != os.getpid():
            self._begin()

    def _obey(self, advice: Advice) -> None:
        self.advice, self._asked_at = advice, time.monotonic()
        told = advised(SQS_DELIVERY, advice, advice.payload_size_bytes)
        self.sender_thread_count = min(told.sender_thread_count, pool_count_of(self._client))
        self.batch_message_count = told.batch_message_count
        self._linger_seconds = told.batch_linger_seconds or _LINGER_SECONDS
        self._rate = told.send_rate_limit_messages_per_second

    def _follow(self) -> None:
        """Send as is advised now, unless the advice was given. What the SDK does by itself is nothing to go back to."""
        with self._changed:
            if self._question is None or time.monotonic() - self._asked_at < _FOLLOW_SECONDS:
                return
            self._asked_at = time.monotonic()
        advice = advise_in(self._place, SQS_DELIVERY, *self._question)
        if advice.basis != "default":
            self._obey(advice)
            self._pace.per_second = self._rate
            with self._changed:
                self._start()

    def _start(self) -> None:
        """The threads that do not run yet, or as many as there can be. Raises RuntimeError where there can be none."""
        import atexit

        atexit.unregister(self._finish)  # there may be threads already
        atexit.register(self._finish)
        works = [(self._send_all, number) for number in range(self.sender_thread_count)]
        try:
            run_missing(self._threads, works, "penstock-producer")
        except RuntimeError as trouble:
            if not self._threads:
                raise
            complain("not all advised threads send to %s: %s", self._url, trouble)

    def _finish(self) -> None:
        if self._process_id == os.getpid():
            self.close(timeout_seconds=_EXIT_SECONDS_MAX)

    def _has_room(self, message: _Message) -> bool:
        """Who hears of a message and sends another is a thread of ours, and would wait for himself."""
        if threading.current_thread() in self._threads.values():
            return True
        fits = self._held_bytes + message.size_bytes <= HELD_BYTES_MAX
        return fits and self._held_count < HELD_COUNT_MAX

    def _group_of(self, message: _Message) -> str:
        """Which keeps its order; in a standard queue a group is a tenant, and has none."""
        return str(message.entry.get("MessageGroupId", "")) if self._url.endswith(".fifo") else ""

    def _send_all(self, number: int) -> None:
        while number < self.sender_thread_count and (batch := self._take()) is not None:
            if batch:
                self._follow()
                time.sleep(self._pace.pause_seconds(len(batch)))
                if self._send(batch):
                    time.sleep(_PAUSE_SECONDS)

    def _take(self) -> list[_Message] | None:
        """Messages for one request; None when there will be no more."""
        with self._changed:
            while not self._waiting:
                if self._is_closed and not self._held_count:
                    return None
                self._changed.wait(ATTENTION_SECONDS)
            self._changed.wait_for(self._is_full, self._linger_seconds)
            batch, size_bytes = list[_Message](), 0
            while self._waiting and len(batch) < self.batch_message_count:
                size_bytes += self._waiting[0].size_bytes
                if size_bytes > BATCH_BYTES_MAX:
                    break
                batch.append(self._waiting.popleft())
            return batch

    def _is_full(self) -> bool:
        return bool(self._hurried_count) or len(self._waiting) >= self.batch_message_count

    def _send(self, batch: list[_Message]) -> bool:
        """Whether some are to be sent again. One that SQS cannot take must not take others along."""
        entries = [{"Id": str(index), **message.entry} for index, message in enumerate(batch)]
        failed: Mapping[int, tuple[BaseException, bool]]
        answer: Mapping[str, Any] = {}
        try:
            answer = self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
            failed = {int(told["Id"]): _refusal(told) for told in answer.get("Failed") or ()}
        except Exception as trouble:  # noqa: BLE001 - whatever botocore raises is for who waits for the message
            is_final = _is_final(trouble)
            if is_final and len(batch) > 1:
                are_left = [self._send([message]) for message in batch]
                return any(are_left)
            failed = dict.fromkeys(range(len(batch)), (trouble, is_final))
        taken = {int(told["Id"]): told for told in answer.get("Successful") or ()}
        again = list[_Message]()
        for index, message in enumerate(batch):
            why, is_final = failed.get(index, _UNSAID)
            if index in taken:
                self._end(message, taken[index])
            elif is_final or time.monotonic() - message.accepted_at > self._try_seconds_max:
                self._end(message, why)
            else:
                again.append(message)
        with self._changed:
            self._waiting.extendleft(reversed(again))
        return bool(again)

    def _end(self, message: _Message, outcome: Any) -> None:
        """It was sent, or was not; what is behind it in its group may follow."""
        if isinstance(outcome, BaseException):
            message.future.set_exception(outcome)
        else:
            message.future.set_result(outcome)
        with self._changed:
            self._held_count -= 1
            self._held_bytes -= message.size_bytes
            behind = self._behind.get(group := self._group_of(message))
            if behind:
                self._waiting.append(behind.popleft())
            else:
                self._behind.pop(group, None)
            self._changed.notify_all()

    def _give_up(self) -> None:
        """What was not sent until now, if there is any."""
        with self._changed:
            held_count, left = self._held_count, list(self._waiting)
            self._waiting.clear()
            for behind in self._behind.values():
                left.extend(behind)
                behind.clear()
        if held_count:
            complain(
                "%s messages for %s were accepted, and it is not known that they were sent",
                held_count,
                self._url,
            )
        for message in left:
            self._end(message, SendFailedError("NotSent", "the producer was closed before it could be"))


_UNSAID = (SendFailedError("Unsaid", "SQS said nothing of it"), False)


def _refusal(told: Mapping[str, Any]) -> tuple[SendFailedError, bool]:
    """Of one message, and whether it is for what the message is."""
    code = str(told.get("Code", ""))
    return SendFailedError(code, str(told.get("Message", ""))), told.get(
        "SenderFault", True
    ) and code not in THROTTLED


def _is_final(trouble: BaseException) -> bool:
    """Whether to ask again would be answered alike: SQS answers a caller's mistakes below 500."""
    from botocore.exceptions import ParamValidationError

    code, status = refusal_of(trouble)
    is_refused = 400 <= status < 500 and code not in THROTTLED
    return is_refused or isinstance(trouble, (ParamValidationError, TypeError))


def _size_bytes(entry: Mapping[str, Any]) -> int:
    """As SQS counts it: the body, and of attributes their names, types and values."""
    attributes: Iterable[tuple[str, Mapping[str, Any]]] = entry.get("MessageAttributes", {}).items()
    told = [entry["MessageBody"]]
    for name, value in attributes:
        told += [name, *value.values()]
    return sum(len(word.encode() if isinstance(word, str) else word) for word in told)
