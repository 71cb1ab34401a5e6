"""Knows how to work off an SQS queue with boto3 as advised, and to tell the daemon how that goes.

    from penstock.client.boto3_queue import QueueConsumer

    consumer = QueueConsumer(sqs, queue_url, handle, message_rate_per_second=200, work_seconds=0.02)
    consumer.run()          # until consumer.stop() is called in another thread or in a signal handler

`handle(message)` gets each message as boto3 returns it and is called by many threads. A message is deleted when it
returns, and comes back after the visibility timeout when it raises. Copies of a message that this process still works
on, or has worked off lately, are deleted without being handled again.

The receive window is what keeps a queue from collapsing: no more messages are received and not yet deleted than the
deletes can keep up with, and receiving pauses while the oldest of them is too old.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque

from penstock.client.advice import Advice, advise
from penstock.client.reporting import Reporter, default_reporter

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

MESSAGE_COUNT_MAX = 10  # of one request
WINDOW_MESSAGE_COUNT_MAX = 10_000  # where none is advised
LONG_POLL_SECONDS = 20  # the longest: it ends as soon as a message is there
_LINGER_SECONDS = 0.02  # a deletion waits so long for others to share its request
_LOOK_SECONDS = 0.1  # between looks at what changes without a word: a stop, the age of a message
_PAUSE_SECONDS = 0.5  # after a request that failed
_END_SECONDS_MAX = 30.0  # for the deletions that are left at the end
_KNOWN_COUNT_MAX = 10_000  # messages that were worked off, by which later copies are known
_REPORT_SECONDS = 60.0
_THROTTLED = frozenset({"RequestThrottled", "ThrottlingException", "Throttling"})


class QueueConsumer:
    """Receives, hands over and deletes, with the advised threads, batches and window.

    `advice` replaces asking; `demand` is that of `penstock.client.advice.advise` (message_rate_per_second,
    work_seconds, visibility_timeout_seconds, ...). The client needs a connection for each thread:
    `penstock.client.boto3.connection_pool_count(consumer.advice)`.
    """

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
        **demand: object,
    ) -> None:
        self._place = _place_of(sqs_client, queue_url, demand)
        self.advice = advice or _advise(self._place, message_size_bytes, demand)
        setting = self.advice.setting
        self._client, self._url, self._handle = sqs_client, queue_url, handle
        self._reporter, self._report_seconds = reporter or default_reporter(), report_seconds
        self._long_poll_seconds = long_poll_seconds
        self._receiver_count = max(1, int(setting["receiver_thread_count"]))
        self._deleter_count = max(1, int(setting["deleter_thread_count"]))
        self._batch = min(max(1, int(setting["batch_message_count"])), MESSAGE_COUNT_MAX)
        self._messages = _Messages(
            window=int(setting["receive_window_message_count"]) or WINDOW_MESSAGE_COUNT_MAX,
            pause_at_seconds=float(
                self.advice.derived.get("receive_pause_at_oldest_undeleted_seconds") or float("inf")
            ),
        )
        self._figures = _Figures()
        self._lock = threading.Lock()  # of the figures
        self._stopped = threading.Event()
        self._has_complained = False  # since the last answer

    @property
    def undeleted_count(self) -> int:
        """Messages that were received and not yet deleted."""
        return self._messages.undeleted_count

    @property
    def oldest_undeleted_seconds(self) -> float:
        """How long ago the oldest of them was received; 0 when there is none."""
        return self._messages.oldest_seconds()

    def run(self) -> None:
        """Work until `stop`; then what was received is worked off and deleted. Returns when all threads have ended.

        An exception of a signal handler here, such as KeyboardInterrupt, ends it in the same way before it is raised.
        """
        receivers = [threading.Thread(target=self._receive_all) for _ in range(self._receiver_count)]
        deleters = [threading.Thread(target=self._delete_all) for _ in range(self._deleter_count)]
        started: list[threading.Thread] = []
        try:
            for thread in (*deleters, *receivers):
                thread.start()
                started.append(thread)
            while not self._stopped.wait(self._report_seconds):
                self._report()
        finally:
            self.stop()
            _join(thread for thread in receivers if thread in started)
            self._messages.end(_END_SECONDS_MAX)
            _join(thread for thread in deleters if thread in started)
        self._report()

    def stop(self) -> None:
        """Receive nothing more; a long poll that is under way ends with its answer. Signal handlers may call it."""
        self._stopped.set()

    # --- Receiving

    def _receive_all(self) -> None:
        while not self._stopped.is_set():
            room = self._messages.take_room(self._batch, wait_seconds=_LOOK_SECONDS)
            for message in self._receive(room) if room else ():
                self._work_off(message)

    def _receive(self, room: int) -> Sequence[Mapping[str, Any]]:
        """The messages that are new here."""
        answer, seconds = self._ask(
            self._client.receive_message,
            MaxNumberOfMessages=room,
            WaitTimeSeconds=self._long_poll_seconds,
        )
        received = (answer or {}).get("Messages") or []
        fresh = [message for message in received if self._messages.is_new(message)]
        self._messages.give_back_room(room)
        if answer is not None:
            with self._lock:
                self._figures.note_receive(received, seconds, new_count=len(fresh))
        return fresh

    def _work_off(self, message: Mapping[str, Any]) -> None:
        try:
            self._handle(message)
        except Exception:
            import logging

            logging.getLogger("penstock.client").exception(
                "message %s was not handled and comes back", message["MessageId"]
            )
            self._messages.give_up(message["MessageId"])
        else:
            self._messages.note_handled(message["MessageId"])

    # --- Deleting

    def _delete_all(self) -> None:
        while (receipts := self._messages.take_handled(self._batch)) is not None:
            if receipts:
                self._delete(receipts)

    def _delete(self, receipts: Sequence[tuple[str, str]]) -> None:
        entries = [{"Id": str(i), "ReceiptHandle": handle} for i, (_, handle) in enumerate(receipts)]
        answer, seconds = self._ask(self._client.delete_message_batch, Entries=entries)
        if answer is None:
            for number, _ in receipts:
                self._messages.note_handled(number)  # to be tried again, or it would come back
            return
        refused = {int(entry["Id"]): entry.get("SenderFault", True) for entry in answer.get("Failed") or ()}
        deleted_count = 0
        for index, (number, handle) in enumerate(receipts):
            if refused.get(index) is False:
                self._messages.note_handled(number)
            elif index in refused:
                self._messages.give_up(number)  # its handle is too old: it comes back
            else:
                deleted_count += self._messages.note_deleted(number, handle)
        with self._lock:
            self._figures.note_delete(deleted_count, seconds)

    # --- Both

    def _ask(self, request: Callable[..., Any], **parameters: object) -> tuple[Any, float]:
        """The answer and its seconds; None when there is none, after a pause."""
        began = time.perf_counter()
        try:
            answer = request(QueueUrl=self._url, **parameters)
        except Exception as trouble:  # noqa: BLE001 - whatever botocore raises: the consumer goes on
            with self._lock:
                self._figures.note_trouble(trouble)
            self._complain(trouble)
            time.sleep(
                _PAUSE_SECONDS
            )  # also when it was stopped: what is left to delete is tried no more often
            return None, 0.0
        self._has_complained = False
        with self._lock:
            self._figures.retried_count += answer.get("ResponseMetadata", {}).get("RetryAttempts", 0)
            self._figures.oldest_seconds_max = max(
                self._figures.oldest_seconds_max, self._messages.oldest_seconds()
            )
        return answer, time.perf_counter() - began

    def _complain(self, trouble: Exception) -> None:
        """Once until there is an answer again: a role that may not receive would else be a queue that is empty."""
        if not self._has_complained:
            import logging

            self._has_complained = True
            logging.getLogger("penstock.client").warning(
                "%s does not answer as it should: %s", self._url, trouble
            )

    def _report(self) -> None:
        with self._lock:
            figures, self._figures = self._figures, _Figures()
        if figures.received_count and figures.deleted_count:
            self._reporter.report("sqs_delivery", **self._place, **figures.report(self._setting()))

    def _setting(self) -> dict[str, float]:
        return {
            **self.advice.setting,
            "receiver_thread_count": self._receiver_count,
            "deleter_thread_count": self._deleter_count,
            "batch_message_count": self._batch,
        }


def _place_of(sqs_client: Any, queue_url: str, demand: Mapping[str, object]) -> dict[str, Any]:
    """Where the queue is and of which class, as far as it is not where and what a queue usually is."""
    place = {name: demand[name] for name in ("region", "service_class") if demand.get(name)}
    if queue_url.endswith(".fifo"):
        place.setdefault("service_class", "fifo")
    place.setdefault("region", sqs_client.meta.region_name)
    return place


def _advise(place: Mapping[str, Any], message_size_bytes: int, demand: Mapping[str, object]) -> Advice:
    """For the daemon's own region where that is the queue's, which the snapshot may answer; else for the other one."""
    asked = {**demand, **{name: value for name, value in place.items() if name != "region" or name in demand}}
    advice = advise("sqs_delivery", message_size_bytes, **asked)
    if advice.document.get("region", place["region"]) == place["region"]:
        return advice
    return advise("sqs_delivery", message_size_bytes, **asked, region=place["region"])


def _join(threads: Iterable[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


class _Messages:
    """What was received and is not yet deleted: how many, how old, and by which handle each is deleted.

    Safe to share between threads. A handle is replaced when a copy of its message is received, and then deletes
    nothing any more.
    """

    def __init__(self, *, window: int, pause_at_seconds: float) -> None:
        self._window = window
        self._pause_at_seconds = pause_at_seconds
        self._changed = threading.Condition()
        self._expected_count = 0  # that requests under way may bring
        self._handles: dict[str, str] = {}  # by message, undeleted, oldest first
        self._received_seconds: dict[str, float] = {}  # on the monotonic clock
        self._handled: deque[str] = deque()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._end_seconds = float("inf")

    @property
    def undeleted_count(self) -> int:
        return len(self._handles)

    def oldest_seconds(self) -> float:
        with self._changed:
            return self._oldest_seconds()

    def take_room(self, count: int, *, wait_seconds: float) -> int:
        """Room for so many messages or fewer; 0 when there was none within this time."""
        with self._changed:
            self._changed.wait_for(lambda: self._room() > 0, wait_seconds)
            taken = max(0, min(count, self._room()))
            self._expected_count += taken
            return taken

    def give_back_room(self, count: int) -> None:
        """The request has ended; what it brought takes its room by itself."""
        with self._changed:
            self._expected_count -= count
            self._changed.notify_all()

    def is_new(self, message: Mapping[str, Any]) -> bool:
        """Take it in; whether it is to be handled. A copy only brings the handle that deletes it now."""
        number = message["MessageId"]
        with self._changed:
            is_pending, is_known = number in self._handles, number in self._known
            self._handles[number] = message["ReceiptHandle"]
            self._received_seconds.setdefault(number, time.monotonic())
            if is_known and not is_pending:
                self._handled.append(number)
                self._changed.notify_all()
            return not is_pending and not is_known

    def note_handled(self, number: str) -> None:
        """It can be deleted."""
        with self._changed:
            self._handled.append(number)
            self._known[number] = None
            while len(self._known) > _KNOWN_COUNT_MAX:
                self._known.popitem(last=False)
            self._changed.notify_all()

    def take_handled(self, count: int) -> list[tuple[str, str]] | None:
        """Messages to delete and their handles, up to so many; None when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._handled), _LOOK_SECONDS)
            if not self._handled:
                return None if self._is_over() else []
            self._changed.wait_for(lambda: len(self._handled) >= count, _LINGER_SECONDS)
            taken = [self._handled.popleft() for _ in range(min(count, len(self._handled)))]
            if time.monotonic() >= self._end_seconds:
                return None
            return [
                (number, self._handles[number]) for number in dict.fromkeys(taken) if number in self._handles
            ]

    def note_deleted(self, number: str, handle: str) -> bool:
        """It was deleted by this handle; False when a copy came meanwhile, which is deleted next, or was already."""
        with self._changed:
            newest = self._handles.get(number)
            if newest == handle:
                self._forget(number)
            elif newest is not None:
                self._handled.append(number)
                self._changed.notify_all()
            return newest == handle

    def give_up(self, number: str) -> None:
        """It is not deleted here: it comes back after its timeout, to be handled again."""
        with self._changed:
            self._known.pop(number, None)
            self._forget(number)

    def end(self, seconds_max: float) -> None:
        """Nothing more is received: what is handled is deleted within this time."""
        with self._changed:
            self._end_seconds = time.monotonic() + seconds_max
            self._changed.notify_all()

    def _forget(self, number: str) -> None:
        self._handles.pop(number, None)
        self._received_seconds.pop(number, None)
        self._changed.notify_all()

    def _room(self) -> int:
        if self._oldest_seconds() >= self._pause_at_seconds:
            return 0
        return self._window - len(self._handles) - self._expected_count

    def _oldest_seconds(self) -> float:
        oldest = next(iter(self._received_seconds.values()), None)  # in the order of their coming
        return 0.0 if oldest is None else time.monotonic() - oldest

    def _is_over(self) -> bool:
        is_ending = self._end_seconds < float("inf")
        return is_ending and (not self._handles or time.monotonic() >= self._end_seconds)


class _Figures:
    """What happened since the last report."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.received_count = self.received_bytes = self.duplicate_count = self.deleted_count = 0
        self.receive_request_count = self.empty_receive_count = self.delete_request_count = 0
        self.throttled_count = self.failed_count = self.retried_count = 0
        self.receive_seconds = self.delete_seconds = self.oldest_seconds_max = 0.0

    def note_receive(self, messages: Sequence[Mapping[str, Any]], seconds: float, *, new_count: int) -> None:
        if not messages:
            self.empty_receive_count += 1
            return
        self.receive_request_count += 1
        self.receive_seconds += seconds
        self.received_count += len(messages)
        self.received_bytes += sum(len(message.get("Body") or "") for message in messages)
        self.duplicate_count += len(messages) - new_count

    def note_delete(self, deleted_count: int, seconds: float) -> None:
        self.delete_request_count += 1
        self.delete_seconds += seconds
        self.deleted_count += deleted_count

    def note_trouble(self, trouble: Exception) -> None:
        response = getattr(trouble, "response", None) or {}
        is_throttled = response.get("Error", {}).get("Code") in _THROTTLED
        self.throttled_count += is_throttled
        self.failed_count += not is_throttled

    def report(self, setting: Mapping[str, float]) -> dict[str, Any]:
        """In the words of the protocol. The senders are not ours: what they sent is what arrived."""
        duration_seconds = time.perf_counter() - self._began
        mean_bytes = self.received_bytes / self.received_count
        failed_count = self.failed_count + self.retried_count
        requests = self.receive_request_count + self.empty_receive_count + self.delete_request_count
        return {
            "payload_size_bytes": max(1, round(mean_bytes)),
            "setting": {
                **setting,
                "send_rate_limit_messages_per_second": self.received_count / duration_seconds,
            },
            "duration_seconds": duration_seconds,
            "transferred_bytes": max(1, round(self.deleted_count * mean_bytes)),
            "request_count": requests + failed_count + self.throttled_count,
            "throttled_count": self.throttled_count,
            "failed_count": failed_count,
            "client": "boto3",
            "measures": {
                "goodput_messages_per_second": self.deleted_count / duration_seconds,
                "receive_seconds_mean": self.receive_seconds / max(1, self.receive_request_count),
                "receive_request_count": self.receive_request_count,
                "received_count": self.received_count,
                "empty_receive_count": self.empty_receive_count,
                "delete_seconds_mean": self.delete_seconds / max(1, self.delete_request_count),
                "delete_request_count": self.delete_request_count,
                "deleted_count": self.deleted_count,
                "duplicate_count": self.duplicate_count,
                "oldest_undeleted_seconds_max": self.oldest_seconds_max,
            },
        }
