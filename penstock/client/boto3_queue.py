"""Knows how to work off an SQS queue with boto3 as advised, and to tell the daemon how that goes.

    from penstock.client.boto3_queue import QueueConsumer

    consumer = QueueConsumer(sqs, queue_url, handle, message_rate_per_second=200, work_seconds=0.02)
    consumer.run()          # until consumer.stop() is called in another thread or in a signal handler

`handle(message)` gets each message as boto3 returns it and is called by many threads. A message is deleted when it
returns, and comes back after the visibility timeout when it raises; in a FIFO queue with what follows it in its group.
Copies of a message that this process still works on, or has worked off lately, are deleted without being handled again.

A stop waits for no long poll. What was received and not begun is given back by making it visible again; so is what a
long poll brings that was under way, as long as the process lives. What is given back counts as received once for SQS.

The receive window is what keeps a queue from collapsing: no more messages are received and not yet deleted than the
deletes can keep up with, and receiving pauses while the oldest of them is too old.
"""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue

from penstock.client.advice import Advice
from penstock.client.arguments import advised
from penstock.client.complaint import complain
from penstock.client.crew import run_missing
from penstock.client.operations import SQS_DELIVERY
from penstock.client.queue_figures import Figures
from penstock.client.queue_messages import Messages
from penstock.client.reporting import Reporter, default_reporter
from penstock.client.sdk_client import advise_in, region_of

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from typing_extensions import Unpack

    from penstock.client.demand import DeliveryDemand

MESSAGE_COUNT_MAX = 10  # of one request
WINDOW_MESSAGE_COUNT_MAX = 10_000  # where none is advised
LONG_POLL_SECONDS = 20  # the longest: it ends as soon as a message is there
_PAUSE_SECONDS = 0.5  # after a request that failed
_QUIET_SECONDS = 60.0  # between two lines in the log about requests of one kind
_END_SECONDS_MAX = 30.0  # for the deletions that are left at the end
_REPORT_SECONDS = 60.0
_BUSY_FRACTION = 0.9  # of the time of all that receive: from here on they have none for more messages
_WORK_RATIO_MIN = 2.0  # of what handling takes over what was stated
HOLD_SECONDS_MAX = 3600.0  # for a message that is handled, beyond which it is taken for one that hangs
_HIDE_AGAIN_FRACTION = 0.5  # of the visibility timeout
_TIMEOUT_UNKNOWN_SECONDS = 180.0  # as often as for such a one the queue is asked for its own


class QueueConsumer:
    """Receives, hands over and deletes, with the advised threads, batches and window.

    It asks at the beginning and once in `report_seconds`; `advice` replaces that. `demand` is that of
    `penstock.client.advice.advise` (message_rate_per_second, work_seconds, visibility_timeout_seconds, ...). The client
    needs a connection for each thread: `penstock.client.boto3.connection_pool_count(consumer.advice)`.

    A message that is being handled, or waits for it here, is kept from others for `hold_seconds_max`, whatever the
    queue's visibility timeout is; 0 leaves it to that.
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
        hold_seconds_max: float = HOLD_SECONDS_MAX,
        **demand: Unpack[DeliveryDemand],
    ) -> None:
        self._place = place_of_queue(sqs_client, queue_url, demand)
        self._question = None if advice else (message_size_bytes, demand)
        self.advice = advice or advise_in(self._place, SQS_DELIVERY, message_size_bytes, demand)
        self._client, self._url, self._handle = sqs_client, queue_url, handle
        self._reporter, self._report_seconds = reporter or default_reporter(), report_seconds
        self._long_poll_seconds, self._hold_seconds_max = long_poll_seconds, hold_seconds_max
        self._timeout_seconds = 0  # of the queue, as it says
        self._messages = Messages()
        self._take(self.advice)
        self._threads: dict[tuple[str, int], threading.Thread] = {}
        self._figures = Figures()
        self._lock = threading.Lock()  # of the figures
        self._is_stopped = False
        # Unlike an Event it may be touched by a signal handler.
        self._stops: SimpleQueue[None] = SimpleQueue()
        self._is_work_told = False
        self._complained: set[str] = set()  # of requests, since the last answer to each
        # Of requests: those that are throttled are answered in between.
        self._quiet_until: dict[str, float] = {}

    @property
    def undeleted_count(self) -> int:
        """Messages that were received and not yet deleted."""
        return self._messages.undeleted_count

    @property
    def oldest_undeleted_seconds(self) -> float:
        """How long ago the oldest of them was received; 0 when there is none."""
        return self._messages.oldest_seconds()

    def run(self) -> None:
        """Work until `stop`; then what is being handled is finished and deleted, and the rest is given back.

        A long poll that is under way is left behind: its thread ends with its answer, and gives that back. An
        exception of a signal handler here, such as KeyboardInterrupt, ends it in the same way before it is raised.
        """
        try:
            self._start()
            while not self._waits_for_stop(self._report_seconds):
                self._report()
                self._follow()
        finally:
            self.stop()
            self._end()
        self._report()

    def _follow(self) -> None:
        """Work as is advised now, unless the advice was given. What the SDK does by itself is nothing to go back to."""
        if self._question is None:
            return
        advice, before = advise_in(self._place, SQS_DELIVERY, *self._question), self.advice
        if advice.basis != "default":
            self.advice = advice
            if dict(advice.setting) != dict(before.setting):
                self._take(advice)
                self._start()

    def _take(self, advice: Advice) -> None:
        self.advice = advice
        self._told = told = advised(SQS_DELIVERY, advice, advice.payload_size_bytes)
        self._receiver_count, self._deleter_count = told.receiver_thread_count, told.deleter_thread_count
        self._batch = told.batch_message_count
        self._note_limits()

    def _note_limits(self) -> None:
        """How many messages, and how old: the age that is advised is for the visibility timeout that it assumes."""
        pause_at = self._told.receive_pause_at_oldest_undeleted_seconds or float("inf")
        assumed = self._told.visibility_timeout_seconds
        if self._timeout_seconds and assumed:
            pause_at *= self._timeout_seconds / assumed
        window = self._told.receive_window_message_count or WINDOW_MESSAGE_COUNT_MAX
        self._messages.note_limits(window, pause_at)

    def _start(self) -> None:
        """The threads that do not run yet. They hold up no process that ends.

        Each a first one before the others: a process that may have no more threads works with those that it has.
        """
        keepers = [(self._keep_all, 0)] if self._hold_seconds_max > 0 else []
        deleters = [(self._delete_all, number) for number in range(self._deleter_count)]
        receivers = [(self._receive_all, number) for number in range(self._receiver_count)]
        works = (deleters[0], receivers[0], *keepers, *deleters[1:], *receivers[1:])
        try:
            run_missing(self._threads, works, "penstock-queue")
        except RuntimeError as trouble:
            self._deleter_count = self._running_count(self._delete_all)
            self._receiver_count = self._running_count(self._receive_all)
            if not self._deleter_count or not self._receiver_count:
                raise
            complain("not all advised threads work on %s: %s", self._url, trouble)

    def _running_count(self, work: Callable[[int], None]) -> int:
        return sum(name == work.__name__ and thread.is_alive() for (name, _), thread in self._threads.items())

    def stop(self) -> None:
        """Let `run` return as soon as no message is being handled. Returns at once; signal handlers may call it."""
        if not self._is_stopped:
            self._is_stopped = True
            self._stops.put(None)

    def _waits_for_stop(self, seconds: float) -> bool:
        try:
            self._stops.get(timeout=seconds)
        except Empty:
            return False
        return True

    def _end(self) -> None:
        """Each step is bounded but one: what is being handled has the time that it takes."""
        try:
            self._messages.stop()
            self._messages.wait_until_idle()
        finally:
            self._messages.end(_END_SECONDS_MAX)
        end_seconds = time.monotonic() + _END_SECONDS_MAX
        for (name, _), thread in self._threads.items():
            if name != self._receive_all.__name__ and thread.ident is not None:  # it was started
                thread.join(max(0.0, end_seconds - time.monotonic()))

    # --- Receiving

    def _receive_all(self, number: int) -> None:
        while not self._is_stopped and number < self._receiver_count:
            room = self._messages.take_room(self._batch, poll_seconds=self._long_poll_seconds)
            if room:
                self._work_off_all(self._receive(room))
        self._give_back()
        if late := self._messages.pop_handled(self._batch):  # copies, when nobody else deletes any more
            self._delete(late)

    def _give_back(self) -> None:
        """Make visible again what was received and will not be handled here."""
        while entries := self._messages.take_unbegun(MESSAGE_COUNT_MAX):
            self._ask(
                self._client.change_message_visibility_batch,
                Entries=[
                    {"Id": str(i), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
                    for i, (handle, seconds) in enumerate(entries)
                ],
            )
            self._messages.note_given_back()

    def _receive(self, room: int) -> Sequence[Mapping[str, Any]]:
        """The messages that are new here; those of a FIFO queue with their groups."""
        groups = {"AttributeNames": ["MessageGroupId"]} if self._url.endswith(".fifo") else {}
        answer, seconds = self._ask(
            self._client.receive_message,
            MaxNumberOfMessages=room,
            WaitTimeSeconds=self._long_poll_seconds,
            **groups,
        )
        received = (answer or {}).get("Messages") or []
        fresh = [message for message in received if self._messages.is_new(message)]
        self._messages.end_poll(room)
        if answer is not None:
            with self._lock:
                self._figures.note_receive(received, seconds, new_count=len(fresh))
        return fresh

    def _work_off_all(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """In their order: what follows what comes back in its message group comes back behind it."""
        stuck: set[str] = set()
        for message in messages:
            number, group = message["MessageId"], message.get("Attributes", {}).get("MessageGroupId")
            if group in stuck:
                self._messages.give_up(number)
            elif self._messages.begin(number) and not self._work_off(number, message) and group:
                stuck.add(group)

    def _work_off(self, number: str, message: Mapping[str, Any]) -> bool:
        """Whether it was handled. What ends a thread (SystemExit) or a task does not end the one that receives."""
        began = time.perf_counter()
        try:
            self._call_handler(message)
        except BaseException as trouble:  # noqa: BLE001 - whatever the application raises: others follow
            self._messages.give_up(number)
            complain("message %s was not handled and comes back", number, trouble=trouble)
            return False
        else:
            self._messages.note_handled(number)
            return True
        finally:
            with self._lock:
                self._figures.note_work(time.perf_counter() - began)
            self._messages.note_end()

    def _call_handler(self, message: Mapping[str, Any]) -> None:
        if hasattr(self._handle(message), "__await__"):
            raise TypeError(
                "what handles messages is called in a thread, where nobody awaits what it returns"
            )

    # --- Keeping

    def _keep_all(self, _: int) -> None:
        """Hide anew what takes longer than the queue hides it: else others handle it, too."""
        seconds = self._visibility_timeout_seconds()
        while True:
            age = _HIDE_AGAIN_FRACTION * (seconds or _TIMEOUT_UNKNOWN_SECONDS)
            aging = self._messages.take_aging(age, self._hold_seconds_max)
            if aging is None:
                return
            seconds = seconds or self._visibility_timeout_seconds()
            for begin in range(0, len(aging) if seconds else 0, MESSAGE_COUNT_MAX):
                self._hide(aging[begin : begin + MESSAGE_COUNT_MAX], seconds)

    def _visibility_timeout_seconds(self) -> int:
        """That of the queue, by which receiving pauses from now on; 0 where it does not say, or has none."""
        request = getattr(self._client, "get_queue_attributes", None)
        answer = self._ask(request, AttributeNames=["VisibilityTimeout"])[0] if request else None
        self._timeout_seconds = int((answer or {}).get("Attributes", {}).get("VisibilityTimeout", 0))
        self._note_limits()
        return self._timeout_seconds

    def _hide(self, receipts: Sequence[tuple[str, str]], seconds: int) -> None:
        entries = [
            {"Id": str(i), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
            for i, (_, handle) in enumerate(receipts)
        ]
        answer, _ = self._ask(self._client.change_message_visibility_batch, Entries=entries)
        if answer is not None:
            refused = {int(entry["Id"]) for entry in answer.get("Failed") or ()}
            self._messages.note_hidden(number for i, (number, _) in enumerate(receipts) if i not in refused)

    # --- Deleting

    def _delete_all(self, _: int) -> None:
        while (receipts := self._messages.take_handled(self._batch)) is not None:
            if receipts:
                self._delete(receipts)
            self._give_back()

    def _delete(self, receipts: Sequence[tuple[str, str]]) -> None:
        entries = [{"Id": str(i), "ReceiptHandle": handle} for i, (_, handle) in enumerate(receipts)]
        answer, seconds = self._ask(self._client.delete_message_batch, Entries=entries)
        if answer is None:
            self._messages.put_back(receipts)  # to be tried again, or they would come back
            return
        refused = {int(entry["Id"]): entry.get("SenderFault", True) for entry in answer.get("Failed") or ()}
        deleted_count = 0
        for index, receipt in enumerate(receipts):
            if refused.get(index) is False:
                self._messages.put_back([receipt])
            else:  # where it was refused, its handle is too old: the message has a newer one, or comes back
                deleted_count += self._messages.note_spent(*receipt) and index not in refused
        with self._lock:
            self._figures.note_delete(deleted_count, seconds)
        if False in refused.values():
            time.sleep(_PAUSE_SECONDS)

    # --- Both

    def _ask(self, request: Callable[..., Any], **parameters: object) -> tuple[Any, float]:
        """The answer and its seconds; None when there is none, after a pause."""
        began, name = time.perf_counter(), getattr(request, "__name__", "")
        try:
            answer = request(QueueUrl=self._url, **parameters)
        except Exception as trouble:  # noqa: BLE001 - whatever botocore raises: the consumer goes on
            with self._lock:
                self._figures.note_trouble(trouble)
                # Once until there is an answer again: else a role that may not receive would be a queue that is empty.
                is_news = name not in self._complained and began >= self._quiet_until.get(name, began)
                if is_news:
                    self._complained.add(name)
                    self._quiet_until[name] = began + _QUIET_SECONDS
            if is_news:
                complain("%s does not answer as it should: %s", self._url, trouble)
            # Also when it was stopped: what is left to delete is tried no more often.
            time.sleep(_PAUSE_SECONDS)
            return None, 0.0
        self._complained.discard(name)
        with self._lock:
            self._figures.retried_count += answer.get("ResponseMetadata", {}).get("RetryAttempts", 0)
            self._figures.oldest_seconds_max = max(
                self._figures.oldest_seconds_max, self._messages.oldest_seconds()
            )
        return answer, time.perf_counter() - began

    def _report(self) -> None:
        with self._lock:
            figures, self._figures = self._figures, Figures()
        self._say_what_work_takes(figures)
        if figures.received_count and figures.deleted_count:
            setting = {
                **self.advice.setting,
                "receiver_thread_count": self._receiver_count,
                "deleter_thread_count": self._deleter_count,
                "batch_message_count": self._batch,
            }
            self._reporter.report(SQS_DELIVERY, **self._place, **figures.report(setting))

    def _say_what_work_takes(self, figures: Figures) -> None:
        """Once: where work that was not stated keeps all threads busy, more of them would be advised for it.

        What the SDK does by itself was asked for nothing: whoever has no advice is told nothing.
        """
        stated = self.advice.document.get("demand")
        if self._is_work_told or stated is None:
            return
        work_seconds = figures.work_seconds / max(1, figures.worked_count)
        busy_seconds = _BUSY_FRACTION * self._receiver_count * figures.duration_seconds
        least_seconds = _WORK_RATIO_MIN * float(stated.get("work_seconds") or 0.0)
        if figures.work_seconds > busy_seconds and work_seconds > least_seconds:
            complain(
                "%s threads are busy handling the messages of %s, each for %.3g s: with work_seconds=%.3g as many are "
                "advised as that takes",
                self._receiver_count,
                self._url,
                work_seconds,
                work_seconds,
            )
            self._is_work_told = True


def place_of_queue(sqs_client: Any, queue_url: str, demand: Mapping[str, object]) -> dict[str, Any]:
    """Where the queue is and of which class, as far as it is not where and what a queue usually is."""
    place = {name: demand[name] for name in ("region", "service_class") if demand.get(name)}
    if queue_url.endswith(".fifo"):
        place.setdefault("service_class", "fifo")
    place.setdefault("region", region_of(sqs_client))
    return place
