"""Knows what becomes of messages that are sent to a queue: the same for threads and for tasks.

That is: what is pending and in which order it goes, what shares a request, what an answer means for each message, and
how advice is followed. `boto3_producer` and `aiobotocore_producer` send the requests and wait.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from penstock.client.arguments import advised
from penstock.client.attention import ATTENTION_SECONDS
from penstock.client.complaint import complain
from penstock.client.operations import SQS_DELIVERY
from penstock.client.pace import Pace
from penstock.client.queues.advised import QueueAdvice
from penstock.client.queues.answers import by_place
from penstock.client.queues.figures import THROTTLED
from penstock.client.sdk_client import pool_count_of, refusal_of

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from typing_extensions import Unpack

    from penstock.client.advice import Advice
    from penstock.client.demand import DeliveryDemand
    from penstock.client.queues.messages import Wait

BATCH_BYTES_MAX = 1 << 20  # of one message, and of all messages in a request together
HELD_COUNT_MAX = 10_000  # pending messages: accepted, and neither sent nor failed
HELD_BYTES_MAX = 64 << 20
TRY_SECONDS_MAX = 60.0  # how long a message is tried that is not itself at fault
EXIT_SECONDS_MAX = 5.0  # for pending messages when the process ends, or the caller is cancelled
_LINGER_SECONDS = 0.02  # if none is advised: how long a message waits for others to share its request
_PAUSE_SECONDS = 0.5  # after a failure
_FOLLOW_SECONDS = 60.0  # between requests for advice


class SendFailedError(Exception):
    """A message was not sent, as far as is known; `code` is SQS's error code, "NotSent" or "Unsaid"."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(code, sentence)  # pickle restores exceptions from their arguments
        self.code = code

    def __str__(self) -> str:
        return ": ".join(self.args)


class Message:
    """An accepted message, and the future of SQS's answer about it. Raises ValueError if it is too large."""

    __slots__ = ("accepted_at", "entry", "future", "is_alone", "size_bytes", "was_cut_off")

    def __init__(self, entry: dict[str, Any]) -> None:
        self.entry, self.size_bytes = entry, _size_bytes(entry)
        if self.size_bytes > BATCH_BYTES_MAX:
            raise ValueError(f"a message has {self.size_bytes} bytes, and SQS takes {BATCH_BYTES_MAX}")
        self.accepted_at = time.monotonic()
        self.future: Any = None
        self.is_alone = False  # in its request, after SQS refused a whole batch for one message in it
        self.was_cut_off = False  # its request was cancelled before the answer came


class Sending:
    """A producer for a queue, except for its way of waiting."""

    _condition_of: type[Any] = threading.Condition  # that signals changes to waiters
    _asks_at_once = True

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
        self._asking = QueueAdvice(sqs_client, queue_url, message_size_bytes, advice, demand)
        self._client, self._url, self._try_seconds_max = sqs_client, queue_url, try_seconds_max
        self._is_closed = False
        self._begin()
        self._obey(self._asking.first(is_to_ask=self._asks_at_once))

    def _begin(self) -> None:
        self._changed = self._condition_of()  # reentrant
        self._waiting: deque[Message] = deque()
        # By message group: the messages behind the one that waits or is in flight.
        self._behind: dict[str, deque[Message]] = {}
        self._held_count = self._held_bytes = self._hurried_count = 0
        self._pace = Pace()

    # --- What is advised

    def _obey(self, advice: Advice) -> None:
        self.advice, self._asked_at = advice, time.monotonic()
        told = advised(SQS_DELIVERY, advice, advice.payload_size_bytes)
        self.sender_thread_count = min(told.sender_thread_count, pool_count_of(self._client))
        self.batch_message_count = told.batch_message_count
        self._linger_seconds = told.batch_linger_seconds or _LINGER_SECONDS
        self._pace.per_second = told.send_rate_limit_messages_per_second

    def _is_to_ask(self) -> bool:
        """Whether it is time to ask for advice; True for only one caller each time."""
        with self._changed:
            is_due = time.monotonic() - self._asked_at >= _FOLLOW_SECONDS
            if is_due:
                self._asked_at = time.monotonic()
            return is_due

    # --- What is accepted

    def _has_room(self, message: Message) -> bool:
        fits = self._held_bytes + message.size_bytes <= HELD_BYTES_MAX
        return self._is_closed or (fits and self._held_count < HELD_COUNT_MAX)

    def _accept(self, message: Message) -> None:
        """Queue a message. Raises RuntimeError if the producer is closed."""
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        group, behind_it = self._group_of(message), deque[Message]()
        behind = self._behind.get(group)
        # No calls until it is queued: Ctrl-C in one would leave a message that is counted and never ends.
        self._held_count += 1
        self._held_bytes += message.size_bytes
        if behind is not None:
            behind.append(message)
            return
        if group:
            self._behind[group] = behind_it
        self._waiting.append(message)
        self._changed.notify_all()

    def _group_of(self, message: Message) -> str:
        """The message group, whose order is kept; "" in a standard queue, where groups are tenants without order."""
        return str(message.entry.get("MessageGroupId", "")) if self._url.endswith(".fifo") else ""

    # --- What shares a request

    def _waits_to_send(self) -> Iterator[Wait]:
        """What to wait for before `_take`: a message, and then a moment for others to share its request."""
        yield lambda: self._waiting or self._is_over(), ATTENTION_SECONDS
        if self._waiting:
            yield self._is_full, self._linger_seconds

    def _take(self) -> list[Message] | None:
        """Messages for one request, none if there are none just now; None when there will be no more."""
        with self._changed:
            batch, size_bytes = list[Message](), 0
            while self._waiting and len(batch) < self.batch_message_count:
                size_bytes += self._waiting[0].size_bytes
                if batch and (
                    size_bytes > BATCH_BYTES_MAX or batch[-1].is_alone or self._waiting[0].is_alone
                ):
                    break
                batch.append(self._waiting.popleft())
            return batch or (None if self._is_over() else [])

    def _is_over(self) -> bool:
        return self._is_closed and not self._held_count

    def _is_full(self) -> object:
        is_enough = len(self._waiting) >= self.batch_message_count
        return is_enough or self._hurried_count or not self._waiting or self._waiting[0].is_alone

    def _request(self, batch: list[Message]) -> dict[str, Any]:
        entries = [{"Id": str(index), **message.entry} for index, message in enumerate(batch)]
        return {"QueueUrl": self._url, "Entries": entries}

    # --- What became of it

    def _note(self, batch: list[Message], answer: Mapping[str, Any] | Exception) -> float:
        """Note what became of each message, by the answer or for lack of one; returns for how many seconds to pause.

        If SQS refuses the whole request, its messages are sent again one by one, so that only the one at fault fails.
        """
        failed: Mapping[int, tuple[BaseException, bool]]
        if isinstance(answer, Exception):
            is_final = _is_final(answer)
            if is_final and len(batch) > 1:
                for message in batch:
                    message.is_alone = True
                self._put_back(batch)
                return 0.0
            failed, answer = dict.fromkeys(range(len(batch)), (answer, is_final)), {}
        else:
            failed = {place: _refusal(told) for place, told in by_place(answer.get("Failed")).items()}
        taken = by_place(answer.get("Successful"))
        again = list[Message]()
        for index, message in enumerate(batch):
            if index in taken:
                self._end(message, taken[index])
                continue
            why, is_final = failed.get(index) or (_unsaid(), False)
            if is_final or time.monotonic() - message.accepted_at > self._try_seconds_max:
                self._end(message, why)
            else:
                again.append(message)
        self._put_back(again)
        return _PAUSE_SECONDS if again else 0.0

    def _put_back(self, batch: list[Message]) -> None:
        """Queue the messages again, before those accepted later."""
        with self._changed:
            self._waiting.extendleft(reversed(batch))
            self._changed.notify_all()

    def _end(self, message: Message, outcome: Any) -> None:
        """Settle a message's future, and let the next one of its group follow."""
        try:
            if message.future.done():
                pass  # its waiter was cancelled, and the future with it
            elif isinstance(outcome, BaseException):
                message.future.set_exception(outcome)
            else:
                message.future.set_result(outcome)
        except BaseException as trouble:  # noqa: BLE001 - from a callback, even SystemExit: others follow
            complain("who was told what became of a message was in trouble", trouble=trouble)
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
        """Fail what has not been sent, if there is any."""
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
            unsent = SendFailedError("NotSent", "the producer was closed before it could be")
            self._end(message, _unsaid() if message.was_cut_off else unsent)


def _unsaid() -> SendFailedError:
    return SendFailedError("Unsaid", "SQS said nothing of it")


def _refusal(told: Mapping[str, Any]) -> tuple[SendFailedError, bool]:
    """The error for one message, and whether it is final, because the message itself is at fault."""
    code = str(told.get("Code", ""))
    return SendFailedError(code, str(told.get("Message", ""))), told.get(
        "SenderFault", True
    ) and code not in THROTTLED


def _is_final(trouble: BaseException) -> bool:
    """Whether a retry would fail the same way: SQS answers a caller's mistakes with a status below 500."""
    from botocore.exceptions import ParamValidationError

    code, status = refusal_of(trouble)
    is_refused = 400 <= status < 500 and code not in THROTTLED
    return is_refused or isinstance(trouble, (ParamValidationError, TypeError))


def _size_bytes(entry: Mapping[str, Any]) -> int:
    """A message's size as SQS counts it: the body, and the names, types and values of attributes."""
    attributes: Iterable[tuple[str, Mapping[str, Any]]] = entry.get("MessageAttributes", {}).items()
    told = [entry["MessageBody"]]
    for name, value in attributes:
        told += [name, *value.values()]
    return sum(len(word.encode() if isinstance(word, str) else word) for word in told)
