"""Knows what a consumer of a queue decides: the same for threads and for tasks.

That is: which advice it follows and how, what it asks of SQS in which order, what the answers mean, and what it logs
and reports. `boto3_queue` and `aiobotocore_queue` know how to wait, how to send a request, and how to call the handler;
in a thread these calls block, so that its coroutines never suspend.
"""

from __future__ import annotations

import threading
import time

from penstock.client.arguments import advised
from penstock.client.complaint import complain
from penstock.client.operations import BATCH_MESSAGE_COUNT_MAX, SQS_DELIVERY
from penstock.client.queues.advised import QueueAdvice
from penstock.client.queues.answers import by_place, whole
from penstock.client.queues.figures import Figures
from penstock.client.queues.messages import Messages
from penstock.client.reporting import Reporter, default_reporter

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from typing_extensions import Unpack

    from penstock.client.advice import Advice
    from penstock.client.demand import DeliveryDemand
    from penstock.client.queues.messages import Wait

    Work = tuple[Callable[[int], Any], int]  # and the number of the worker

WINDOW_MESSAGE_COUNT_MAX = 10_000  # if none is advised
LONG_POLL_SECONDS = 20  # the longest that SQS allows; a poll ends as soon as there is a message
_PAUSE_SECONDS = 0.5  # after a request that failed
_QUIET_SECONDS = 60.0  # between two log lines about requests of one kind
_REPORT_SECONDS = 60.0
_BUSY_FRACTION = 0.9  # of all receivers' time: from here on, handling limits the rate
_WORK_RATIO_MIN = 2.0  # of measured to stated handling time, before the log mentions it
HOLD_SECONDS_MAX = 3600.0  # a message that is handled for longer counts as hung
_NOT_WHOLE = (
    "a message came without its id or its receipt handle, and can be neither handled once nor deleted"
)
_HIDE_AGAIN_FRACTION = 0.5  # of the visibility timeout, after which it is extended
_TIMEOUT_UNKNOWN_SECONDS = 180.0  # assumed for how often to ask the queue for its own


class Consuming:
    """A consumer of a queue, except for its way of waiting."""

    _library: str
    _condition_of: type[Any] = threading.Condition  # that signals changes to waiters
    _asks_at_once = True
    _end_seconds_max = 30.0  # for the remaining deletions at the end

    def __init__(
        self,
        sqs_client: Any,
        queue_url: str,
        handle: Callable[[Mapping[str, Any]], object],
        *,
        message_size_bytes: int = 1024,
        advice: Advice | None = None,
        reporter: Reporter | None = None,
        report_seconds: float = _REPORT_SECONDS,
        long_poll_seconds: int = LONG_POLL_SECONDS,
        hold_seconds_max: float = HOLD_SECONDS_MAX,
        **demand: Unpack[DeliveryDemand],
    ) -> None:
        self._asking = QueueAdvice(sqs_client, queue_url, message_size_bytes, advice, demand)
        self._client, self._url, self._handle = sqs_client, queue_url, handle
        self._reporter, self._report_seconds = reporter or default_reporter(), report_seconds
        self._long_poll_seconds, self._hold_seconds_max = long_poll_seconds, hold_seconds_max
        self._timeout_seconds = 0  # the queue's visibility timeout; 0 while unknown
        self._begin()
        self._is_stopped = self._has_said_what_work_takes = False
        self._complained: set[str] = set()  # kinds of requests, logged as failing since they last succeeded
        # By kind of request: throttling alternates with successes, which would allow a line each time.
        self._quiet_until: dict[str, float] = {}
        self._take(self._asking.first(is_to_ask=self._asks_at_once))

    def _begin(self) -> None:
        self._changed = self._condition_of()
        self._messages = Messages(self._changed)
        self._figures = Figures()
        self._lock = threading.Lock()  # guards the figures

    def _say_if_stopped(self) -> None:
        """Log that a stopped consumer receives nothing: a rerun notebook cell would take that for an empty queue."""
        if self._is_stopped:
            complain("the consumer of %s was stopped and receives no more: make another", self._url)

    @property
    def undeleted_count(self) -> int:
        """Messages that were received and not yet deleted."""
        return self._messages.undeleted_count

    @property
    def oldest_undeleted_seconds(self) -> float:
        """How long the oldest of them has been hidden, in seconds; 0 when there is none."""
        return self._messages.oldest_seconds()

    # --- What is advised

    def _take(self, advice: Advice) -> None:
        self.advice = advice
        self._told = told = advised(SQS_DELIVERY, advice, advice.payload_size_bytes)
        self._receiver_count, self._deleter_count = told.receiver_thread_count, told.deleter_thread_count
        self._batch = told.batch_message_count
        self._note_limits()

    def _note_limits(self) -> None:
        """Limit the messages and their age; the advised age is scaled to the queue's own visibility timeout."""
        pause_at = self._told.receive_pause_at_oldest_undeleted_seconds or float("inf")
        assumed = self._told.visibility_timeout_seconds
        if self._timeout_seconds and assumed:
            pause_at *= self._timeout_seconds / assumed
        window = self._told.receive_window_message_count or WINDOW_MESSAGE_COUNT_MAX
        self._messages.note_limits(window, pause_at)

    # --- What is done, and by whom

    async def _wait(self, waits: Iterable[Wait]) -> None:
        """Wait for one after another, each until it holds or its seconds have passed."""
        raise NotImplementedError

    async def _pause(self, seconds: float) -> None:
        raise NotImplementedError

    async def _answer(self, request: Callable[..., Any], **parameters: object) -> Any:
        raise NotImplementedError

    async def _work_off(self, message: Mapping[str, Any]) -> None:
        """Have a message handled, whatever comes of it."""
        raise NotImplementedError

    def _works(self) -> Sequence[Work]:
        """The work to run at a time; a deleter and a receiver come first, in case not all threads can be started."""
        keepers = [(self._keep_all, 0)] if self._hold_seconds_max > 0 else []
        deleters = [(self._delete_all, number) for number in range(self._deleter_count)]
        receivers = [(self._receive_all, number) for number in range(self._receiver_count)]
        return (deleters[0], receivers[0], *keepers, *deleters[1:], *receivers[1:])

    async def _receive_all(self, number: int) -> None:
        while not self._is_stopped and number < self._receiver_count:
            await self._wait(self._messages.waits_for_room())
            room = self._messages.take_room(
                self._batch, poll_seconds=self._long_poll_seconds, receiver=number
            )
            if room:
                try:
                    received, seconds = await self._receive(room)
                except BaseException:  # a task of its own may be cancelled
                    self._messages.end_poll(room, receiver=number)
                    raise
                fresh = self._note_received(number, room, received, seconds)
                for message in self._messages.turns(fresh):
                    await self._work_off(message)
        await self._give_back()
        if late := self._messages.pop_handled(self._batch):  # copies that came after the deleters ended
            await self._delete(late)

    async def _receive(self, room: int) -> tuple[list[Mapping[str, Any]] | None, float]:
        """The messages, and the seconds that it took; None, after a pause, if the request failed."""
        began = time.perf_counter()
        answer, seconds = await self._ask(self._client.receive_message, **self._poll(room))
        if answer is None:
            return None, seconds
        messages, are_all = whole(answer.get("Messages"))
        if not are_all:
            await self._pause(self._note_trouble("messages", began, ValueError(_NOT_WHOLE)))
        return messages, seconds

    async def _give_back(self) -> None:
        """Make visible again what was received and will not be handled here."""
        while handles := self._messages.take_unbegun(BATCH_MESSAGE_COUNT_MAX):
            entries = _visibility_entries(handles)
            await self._ask(self._client.change_message_visibility_batch, Entries=entries)
            self._messages.note_given_back()

    async def _keep_all(self, _: int) -> None:
        """Extend the visibility timeout of messages that take longer than it, so that nobody else receives them."""
        await self._visibility_timeout_seconds()
        while True:
            await self._wait(self._messages.waits_for_age(self._age_to_hide()))
            aging = self._messages.take_aging(self._age_to_hide(), self._hold_seconds_max)
            if aging is None:
                return
            seconds = self._timeout_seconds or await self._visibility_timeout_seconds()
            for begin in range(0, len(aging) if seconds else 0, BATCH_MESSAGE_COUNT_MAX):
                await self._hide(aging[begin : begin + BATCH_MESSAGE_COUNT_MAX], seconds)

    async def _visibility_timeout_seconds(self) -> int:
        """The queue's visibility timeout, which then scales the pause limit; 0 if unknown, or if the queue has none."""
        request = getattr(self._client, "get_queue_attributes", None)
        answer = (await self._ask(request, AttributeNames=["VisibilityTimeout"]))[0] if request else None
        told = str((answer or {}).get("Attributes", {}).get("VisibilityTimeout"))
        self._timeout_seconds = int(told) if told.isdecimal() else 0
        self._note_limits()
        return self._timeout_seconds

    async def _hide(self, receipts: Sequence[tuple[str, str]], seconds: int) -> None:
        entries = _visibility_entries((handle, seconds) for _, handle in receipts)
        answer, _ = await self._ask(self._client.change_message_visibility_batch, Entries=entries)
        if answer is not None:
            refused = by_place(answer.get("Failed"))
            self._messages.note_hidden(number for i, (number, _) in enumerate(receipts) if i not in refused)

    async def _delete_all(self, _: int) -> None:
        while True:
            await self._wait(self._messages.waits_for_handled(self._batch))
            receipts = self._messages.take_handled(self._batch)
            if receipts is None:
                return
            if receipts:
                await self._delete(receipts)
            await self._give_back()

    async def _delete(self, receipts: Sequence[tuple[str, str]]) -> None:
        entries = [{"Id": str(i), "ReceiptHandle": handle} for i, (_, handle) in enumerate(receipts)]
        try:
            answer, seconds = await self._ask(self._client.delete_message_batch, Entries=entries)
        except BaseException:  # this task was cancelled
            self._messages.put_back(receipts)
            raise
        await self._pause(self._note_deleted(receipts, answer, seconds))

    async def _ask(self, request: Callable[..., Any], **parameters: object) -> tuple[Any, float]:
        """The answer and its seconds; None, after a pause, if the request failed."""
        began, name = time.perf_counter(), getattr(request, "__name__", "")
        try:
            answer = await self._answer(request, QueueUrl=self._url, **parameters)
        except Exception as trouble:  # noqa: BLE001 - whatever botocore raises: the consumer goes on
            await self._pause(self._note_trouble(name, began, trouble))
            return None, 0.0
        return answer, self._note_answer(name, began, answer)

    # --- What the answers mean

    def _poll(self, room: int) -> dict[str, Any]:
        """Arguments of a poll; a FIFO queue is also asked for message groups."""
        groups = {"AttributeNames": ["MessageGroupId"]} if self._url.endswith(".fifo") else {}
        return {"MaxNumberOfMessages": room, "WaitTimeSeconds": self._long_poll_seconds, **groups}

    def _note_received(
        self, receiver: int, room: int, messages: list[Mapping[str, Any]] | None, seconds: float
    ) -> Sequence[Mapping[str, Any]]:
        """The messages that are new here; copies only add a receipt handle."""
        fresh = [message for message in messages or () if self._messages.is_new(message)]
        self._messages.end_poll(room, receiver=receiver)
        if messages is not None:
            with self._lock:
                self._figures.note_receive(messages, seconds, new_count=len(fresh))
        return fresh

    def _note_unhandled(self, number: str, trouble: BaseException | None) -> None:
        self._messages.give_up(number)
        with self._lock:
            self._figures.unhandled_count += 1
        complain("message %s was not handled and comes back", number, trouble=trouble)

    def _note_work(self, began: float) -> None:
        with self._lock:
            self._figures.note_work(time.perf_counter() - began)
        self._messages.note_end()

    def _age_to_hide(self) -> float:
        """How many seconds a message may have been hidden before its timeout is extended."""
        return _HIDE_AGAIN_FRACTION * (self._timeout_seconds or _TIMEOUT_UNKNOWN_SECONDS)

    def _note_deleted(self, receipts: Sequence[tuple[str, str]], answer: Any, seconds: float) -> float:
        """Note what became of each; returns for how many seconds to pause."""
        if answer is None:
            self._messages.put_back(receipts)  # tried again, or the messages would come back
            return 0.0
        told = by_place(answer.get("Failed"))
        refused = {place: entry.get("SenderFault", True) for place, entry in told.items()}
        deleted_count = 0
        for index, receipt in enumerate(receipts):
            if refused.get(index) is False:
                self._messages.put_back([receipt])
            else:  # if refused, its handle is too old: the message has a newer one, or comes back
                deleted_count += self._messages.note_spent(*receipt) and index not in refused
        with self._lock:
            self._figures.note_delete(deleted_count, seconds)
        return _PAUSE_SECONDS if False in refused.values() else 0.0

    def _note_trouble(self, name: str, began: float, trouble: Exception) -> float:
        """Note a failed request; returns for how many seconds to pause, which holds after a stop, too."""
        is_left_behind = self._is_stopped and name == "receive_message"  # its client may be closed by now
        with self._lock:
            self._figures.note_trouble(trouble)
            # Logged once until a request succeeds: otherwise a missing permission would look like an empty queue.
            is_known = name in self._complained or began < self._quiet_until.get(name, began)
            if not is_known and not is_left_behind:
                self._complained.add(name)
                self._quiet_until[name] = began + _QUIET_SECONDS
        if not is_known and not is_left_behind:
            complain("%s does not answer as it should: %s", self._url, trouble)
        return _PAUSE_SECONDS

    def _note_answer(self, name: str, began: float, answer: Mapping[str, Any]) -> float:
        """Note a successful request; returns the seconds that it took."""
        self._complained.discard(name)
        with self._lock:
            self._figures.retried_count += answer.get("ResponseMetadata", {}).get("RetryAttempts", 0)
            self._figures.oldest_seconds_max = max(
                self._figures.oldest_seconds_max, self._messages.oldest_seconds()
            )
        return time.perf_counter() - began

    # --- What is reported

    def _report(self) -> None:
        with self._lock:
            figures = self._figures
            # Else what was received is still being handled.
            if figures.deleted_count or figures.unhandled_count or not figures.received_count:
                self._figures = Figures()
        self._say_what_work_takes(figures)
        if figures.received_count and figures.deleted_count:
            setting = {
                **self.advice.setting,
                "receiver_thread_count": self._receiver_count,
                "deleter_thread_count": self._deleter_count,
                "batch_message_count": self._batch,
            }
            self._reporter.report(
                SQS_DELIVERY, **self._asking.place, **figures.report(setting, client=self._library)
            )

    def _say_what_work_takes(self, figures: Figures) -> None:
        """Log, once, if unstated handling time keeps all receivers busy: stating it brings advice for more of them."""
        stated = self.advice.document.get("demand")
        if self._has_said_what_work_takes or not stated:  # the SDK's defaults have no demand
            return
        work_seconds = figures.work_seconds / max(1, figures.worked_count)
        busy_seconds = _BUSY_FRACTION * self._receiver_count * figures.duration_seconds
        is_more = work_seconds > _WORK_RATIO_MIN * float(stated.get("work_seconds") or 0.0)
        if figures.work_seconds > busy_seconds and is_more:
            complain(
                "%s receivers are busy handling the messages of %s, each for %.3g s: with work_seconds=%.3g as many "
                "are advised as that takes",
                self._receiver_count,
                self._url,
                work_seconds,
                work_seconds,
            )
            self._has_said_what_work_takes = True


def _visibility_entries(handles: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """Entries that set in how many seconds others may receive each handle's message."""
    return [
        {"Id": str(i), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
        for i, (handle, seconds) in enumerate(handles)
    ]
