"""The SQS consumer: each message once, no more at a time than the window, and a report of how it went."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from types import FrameType
from typing import Any, cast

import pytest

from penstock.api import wire
from penstock.client import sdk_client
from penstock.client.advice import Advice, default_advice
from penstock.client.queues import boto3_queue, consuming
from penstock.client.queues import messages as queue_messages
from penstock.client.queues.aiobotocore_queue import AsyncQueueConsumer
from penstock.client.queues.boto3_queue import QueueConsumer
from penstock.client.queues.figures import Figures
from tests.advice import a_queue_advice, an_advice
from tests.factories import NOON
from tests.sdk import KeptReports, a_meta
from tests.waiting import until

URL = "http://queue"


class FakeQueue:
    """An SQS queue behind the three calls of a boto3 client: copies come when they are told to."""

    meta = a_meta(50, region="eu-west-2")

    def __init__(self, message_count: int, *, copy_every: int = 0) -> None:
        self._lock = threading.Lock()
        self._visible = deque(f"m{n}" for n in range(message_count))
        self._handles: dict[str, str] = {}
        self._copy_every = copy_every
        self.left = set(self._visible)
        self.in_flight: set[str] = set()
        self.in_flight_count_max = 0
        self.asked_count_max = 0
        self.refusals: deque[Exception] = deque()
        self.entry_refusal: Callable[[str], bool | None] = lambda _number: None
        self._received = Counter[str]()
        self.is_answering = threading.Event()  # a poll of the empty queue waits for it
        self.is_answering.set()
        self.waiting_poll_count = 0
        self.given_back: list[tuple[str, int]] = []
        self.hidden = Counter[str]()  # anew
        self.visibility_timeout_seconds = 30

    def get_queue_attributes(self, *, QueueUrl: str, AttributeNames: list[str]) -> Any:  # noqa: N803
        assert (QueueUrl, AttributeNames) == (URL, ["VisibilityTimeout"])
        return {"Attributes": {"VisibilityTimeout": str(self.visibility_timeout_seconds)}}

    def receive_message(self, *, QueueUrl: str, MaxNumberOfMessages: int, WaitTimeSeconds: int) -> Any:  # noqa: N803
        assert (QueueUrl, WaitTimeSeconds) == (URL, 1)
        if not self._visible:
            self.waiting_poll_count += 1
            self.is_answering.wait(30.0)
        with self._lock:
            self.asked_count_max = max(self.asked_count_max, MaxNumberOfMessages)
            if self.refusals:
                raise self.refusals.popleft()
            taken = [self._visible.popleft() for _ in range(min(MaxNumberOfMessages, len(self._visible)))]
            messages = []
            for number in taken:
                self._received[number] += 1
                handle = self._handles[number] = f"{number}/{self._received[number]}"
                messages.append({"MessageId": number, "ReceiptHandle": handle, "Body": "x" * 100})
                if (
                    self._copy_every
                    and self._received[number] == 1
                    and int(number[1:]) % self._copy_every == 0
                ):
                    self._visible.append(number)
            self.in_flight |= set(taken)
            self.in_flight_count_max = max(self.in_flight_count_max, len(self.in_flight))
        if not messages:
            time.sleep(0.005)
        return {"Messages": messages, "ResponseMetadata": {"RetryAttempts": 0}}

    def delete_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> Any:  # noqa: N803
        assert QueueUrl == URL
        assert 1 <= len(Entries) <= 10
        failed = []
        with self._lock:
            for entry in Entries:
                number = entry["ReceiptHandle"].partition("/")[0]
                fault = self.entry_refusal(number)
                if fault is not None:
                    failed.append({"Id": entry["Id"], "SenderFault": fault, "Code": "InternalError"})
                elif self._handles[number] == entry["ReceiptHandle"]:
                    self.left.discard(number)
                    self.in_flight.discard(number)
        return {"Successful": [], "Failed": failed}

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        assert QueueUrl == URL
        with self._lock:
            for entry in Entries:
                number = entry["ReceiptHandle"].partition("/")[0]
                assert self._handles[number] == entry["ReceiptHandle"]
                if entry["VisibilityTimeout"] == self.visibility_timeout_seconds:
                    self.hidden[number] += 1
                    continue
                self.given_back.append((number, entry["VisibilityTimeout"]))
                self.in_flight.discard(number)
                if not entry["VisibilityTimeout"]:
                    self._visible.append(number)
        return {"Successful": []}

    def put(self, *numbers: str) -> None:
        """More messages, or copies."""
        self._visible.extend(numbers)


class BrokenQueue(FakeQueue):
    """One whose answers lack, at first, what SQS always says."""

    def receive_message(self, **words: Any) -> Any:
        answer = super().receive_message(**words)
        if len(self.left) == 100:
            answer["Messages"] += [{"MessageId": "none"}, {"ReceiptHandle": "none"}]
        return answer

    def delete_message_batch(self, **words: Any) -> Any:
        answer = super().delete_message_batch(**words)
        return {**answer, "Failed": [*answer["Failed"], {"Code": "InternalError"}, {"Id": "one"}]}


def advice(
    *, window: int = 0, batch: int = 10, pause_at_seconds: float | None = None, work_seconds: float = 0.0
) -> Advice:
    """Three receivers and two deleters."""
    derived = (
        {} if pause_at_seconds is None else {"receive_pause_at_oldest_undeleted_seconds": pause_at_seconds}
    )
    demand = {"work_seconds": work_seconds}
    return a_queue_advice(deleters=2, batch=batch, window=window, derived=derived, demand=demand)


Consumed = Callable[..., KeptReports]


@pytest.fixture(params=["boto3", "aiobotocore"])
def consumed(request: pytest.FixtureRequest) -> Consumed:
    """By threads, and by tasks."""
    return partial(consumed_by, in_threads if request.param == "boto3" else in_a_loop)


def consumed_by(
    work: Callable[..., contextlib.AbstractContextManager[Callable[[], None]]],
    queue: FakeQueue,
    handle: Callable[[Mapping[str, Any]], object],
    *,
    given: Advice | None = None,
    until: Callable[[], bool] | None = None,
) -> KeptReports:
    """Run a consumer until the queue is empty, or something else has happened."""
    reporter = KeptReports()
    options = {"advice": given or advice(), "reporter": reporter, "long_poll_seconds": 1}
    with work(queue, handle, options) as stop:
        limit = time.monotonic() + 20.0
        while not (until or (lambda: not queue.left))() and time.monotonic() < limit:
            time.sleep(0.002)
        stop()
    return reporter


@contextlib.contextmanager
def in_threads(
    queue: FakeQueue, handle: Callable[[Mapping[str, Any]], object], options: Any
) -> Iterator[Callable[[], None]]:
    with running(queue, handle, **options) as consumer:
        yield consumer.stop


@contextlib.contextmanager
def in_a_loop(
    queue: FakeQueue, handle: Callable[[Mapping[str, Any]], object], options: Any
) -> Iterator[Callable[[], None]]:
    """What is blocking here is called in threads, as it would be in an application."""
    stops: list[Any] = []

    async def run() -> None:
        def works(message: Mapping[str, Any]) -> Awaitable[object]:
            return asyncio.to_thread(handle, message)

        consumer = AsyncQueueConsumer(Awaited(queue), URL, works, **options)
        stops.append(partial(asyncio.get_running_loop().call_soon_threadsafe, consumer.stop))
        await consumer.run()

    with a_thread(lambda: asyncio.run(run())):
        until(lambda: stops)
        yield stops[0]


class Awaited:
    """A queue as a client of aiobotocore has it."""

    def __init__(self, queue: FakeQueue) -> None:
        self._queue, self.meta = queue, a_meta(50, region="eu-west-2")

    def __getattr__(self, name: str) -> Any:
        async def request(**parameters: Any) -> Any:
            return await asyncio.to_thread(getattr(self._queue, name), **parameters)

        request.__name__ = name
        return request


@contextlib.contextmanager
def a_thread(work: Callable[[], None]) -> Iterator[None]:
    """Which has ended soon after the context."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(20.0)
    assert not thread.is_alive()


def a_consumer(
    queue: FakeQueue, handle: Callable[[Mapping[str, Any]], object] = print, **options: Any
) -> QueueConsumer:
    """Advised and reporting to nobody, unless something else is stated."""
    usual: Any = {"advice": advice(), "reporter": KeptReports(), "long_poll_seconds": 1}
    return QueueConsumer(queue, URL, handle, **usual | options)


@contextlib.contextmanager
def running(
    queue: FakeQueue, handle: Callable[[Mapping[str, Any]], object], **options: Any
) -> Iterator[QueueConsumer]:
    """A consumer at work, which has ended when the context has."""
    consumer = a_consumer(queue, handle, **options)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        yield consumer
        consumer.stop()
        thread.join(20.0)
        assert not thread.is_alive()
    finally:
        consumer.stop()
        queue.is_answering.set()


def some_messages() -> queue_messages.Messages:
    """Room for ten."""
    messages = queue_messages.Messages(threading.Condition())
    messages.note_limits(10, 1.0)
    return messages


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits."""
    monkeypatch.setattr(consuming, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(queue_messages, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(queue_messages, "_LINGER_SECONDS", 0.005)
    monkeypatch.setattr(queue_messages, "_POLL_END_SECONDS_MAX", 0.05)


def test_an_answer_that_lacks_what_sqs_always_says_ends_nobody(
    consumed: Consumed, caplog: pytest.LogCaptureFixture
) -> None:
    """A message without its handle ended who received, and a refusal without its place who deleted: without a word."""
    queue, handled = BrokenQueue(100), Counter[str]()
    queue.visibility_timeout_seconds = cast("int", "soon")
    consumed(queue, lambda message: handled.update([message["MessageId"]]))
    assert not queue.left
    assert handled == Counter(f"m{n}" for n in range(100))
    assert caplog.text.count("without its id or its receipt handle") == 1


def test_every_message_is_handled_once_and_deleted(consumed: Consumed) -> None:
    """Also where every third comes as a copy, before or after it was worked off."""
    queue, handled = FakeQueue(300, copy_every=3), Counter[str]()
    reporter = consumed(
        queue,
        lambda message: handled.update([message["MessageId"]]),
        until=lambda: not queue.left and not queue._visible,
    )
    assert queue.left == set()
    assert set(handled.values()) == {1}
    assert len(handled) == 300
    (report,) = reporter.reports
    measures = report["measures"]
    assert measures["duplicate_count"] == measures["received_count"] - 300
    assert 300 <= measures["deleted_count"] <= measures["received_count"]
    assert measures["received_count"] == 400


def test_the_report_is_what_the_daemon_reads(consumed: Consumed) -> None:
    """The names of the protocol, the threads that were in force, and the load that there was."""
    reporter = consumed(FakeQueue(100), lambda _message: None)
    (report,) = reporter.reports
    assert report["operation"] == "sqs_delivery"
    assert report["payload_size_bytes"] == 100
    assert report["transferred_bytes"] == 100 * 100
    assert report["setting"]["receiver_thread_count"] == 3
    rate = report["setting"]["send_rate_limit_messages_per_second"]
    assert rate == pytest.approx(report["measures"]["goodput_messages_per_second"])
    assert rate == pytest.approx(100 / report["duration_seconds"])
    assert report["request_count"] >= 20
    body = json.dumps({"observations": [report | {"started_at": NOON.isoformat()}]}).encode()
    read = wire.read_reports(body, region="eu-west-1", instance_type="lab", now=NOON)
    assert read.mistakes == {}
    assert read.readable[0].measures["deleted_count"] == 100
    assert report["measures"]["delete_request_count"] >= 10


def test_the_receive_window_is_honoured(consumed: Consumed) -> None:
    """Never more received and not deleted than advised, however fast the receivers are."""
    queue = FakeQueue(200)
    consumed(queue, lambda _message: time.sleep(0.0005), given=advice(window=12))
    assert queue.left == set()
    assert queue.in_flight_count_max <= 12
    assert queue.asked_count_max == 10


def test_receiving_pauses_while_the_oldest_is_too_old(consumed: Consumed) -> None:
    """A message that is stuck stops receiving before the timeout brings all the others back."""
    queue, is_stuck = FakeQueue(500), threading.Event()

    def handle(message: Mapping[str, Any]) -> None:
        if message["MessageId"] == "m0":
            is_stuck.wait(20.0)
        time.sleep(0.002)

    counts: list[int] = []

    def has_settled() -> bool:
        counts.append(len(queue.left))
        return len(counts) > 50 and counts[-1] == counts[-50]

    threading.Timer(1.5, is_stuck.set).start()
    consumed(queue, handle, given=advice(pause_at_seconds=0.05), until=has_settled)
    assert 300 < len(queue.left) < 500


def test_what_takes_longer_than_the_timeout_is_hidden_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else others handle it, too: what is being handled, and what waits for that, but nothing that was handled."""
    monkeypatch.setattr(consuming, "_HIDE_AGAIN_FRACTION", 0.02)
    queue, is_done = FakeQueue(30), threading.Event()
    queue.visibility_timeout_seconds = 1

    def handle(message: Mapping[str, Any]) -> None:
        if message["MessageId"] == "m0":
            is_done.wait(20.0)

    with running(queue, handle) as consumer:
        until(lambda: len(queue.left) == 10)  # those behind it wait for it
        queue.hidden.clear()
        until(lambda: len(queue.hidden) == 10 and min(queue.hidden.values()) > 3)
        assert queue.hidden.keys() == queue.left
        assert consumer.oldest_undeleted_seconds < 20 * 0.02
        consumer.stop()
        is_done.set()
    assert queue.left == {number for number, _ in queue.given_back}


def test_what_hangs_is_not_held_for_ever() -> None:
    """From then on it is left to its timeout, as is all where nothing is to be held."""
    messages = some_messages()
    for number in ("m1", "m2"):
        messages.is_new(an_answer(f"{number}/1"))
    messages.note_handled("m2")  # which is about to be deleted
    assert messages.take_aging(0.0, 3600.0) == [("m1", "m1/1")]
    assert messages.take_aging(0.0, 0.0) == []
    messages.end(0.0)
    assert messages.take_aging(3600.0, 3600.0) is None


def test_receiving_pauses_by_the_timeout_of_the_queue() -> None:
    """Advice takes that of most queues for this one's."""
    derived = {"receive_pause_at_oldest_undeleted_seconds": 18.0, "visibility_timeout_seconds": 30.0}
    queue = FakeQueue(0)
    queue.visibility_timeout_seconds = 5
    consumer = a_consumer(queue, advice=a_queue_advice(derived=derived))
    assert asyncio.run(consumer._visibility_timeout_seconds()) == 5
    assert consumer._messages._pause_at_seconds == pytest.approx(3.0)


@pytest.mark.parametrize("answer", [None, {}, {"Attributes": {"VisibilityTimeout": "0"}}], ids=str)
def test_a_queue_that_does_not_tell_its_timeout_is_consumed_all_the_same(
    answer: object, monkeypatch: pytest.MonkeyPatch, consumed: Consumed
) -> None:
    """Nothing is hidden anew, and nothing fails."""
    queue = FakeQueue(30)
    monkeypatch.setattr(queue, "get_queue_attributes", answer and (lambda **_: answer))
    monkeypatch.setattr(consuming, "_TIMEOUT_UNKNOWN_SECONDS", 0.01)
    consumed(queue, lambda _message: time.sleep(0.005))
    assert queue.left == set()
    assert not queue.hidden


def test_what_cannot_be_handled_comes_back(caplog: pytest.LogCaptureFixture, consumed: Consumed) -> None:
    """It is not deleted, takes no room of the window, and is said in the log."""
    queue = FakeQueue(60)

    def handle(message: Mapping[str, Any]) -> None:
        if message["MessageId"] in {"m1", "m2"}:
            raise ValueError("not mine")

    consumed(queue, handle, given=advice(window=10), until=lambda: queue.left == {"m1", "m2"})
    assert queue.left == {"m1", "m2"}
    assert "message m1 was not handled" in caplog.text


@pytest.mark.parametrize("trouble", [SystemExit(1), asyncio.CancelledError()], ids=repr)
def test_what_would_end_a_thread_ends_no_receiver(trouble: BaseException) -> None:
    """Nobody would miss it: a consumer without receivers looks like one whose queue is empty."""
    queue = FakeQueue(100)
    refused = {"m0", "m10", "m20", "m30", "m40"}

    def handle(message: Mapping[str, Any]) -> None:
        if message["MessageId"] in refused:
            raise trouble

    consumed_by(in_threads, queue, handle, until=lambda: queue.left == refused)
    assert queue.left == refused


def test_neither_a_log_that_fails_nor_a_message_that_was_changed_ends_a_receiver(consumed: Consumed) -> None:
    """Both are the application's own."""
    queue, log = FakeQueue(50), logging.getLogger("penstock.client")

    class Broken(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            raise OSError("the disk is full")

    def handle(message: dict[str, Any]) -> None:
        number = message["MessageId"]
        message.clear()
        if number in {"m0", "m10", "m20", "m30"}:
            raise ValueError("not mine")

    log.addHandler(broken := Broken())
    try:
        consumed(queue, handle, until=lambda: len(queue.left) == 4)
    finally:
        log.removeHandler(broken)
    assert queue.left == {"m0", "m10", "m20", "m30"}


@pytest.mark.filterwarnings("ignore:.*never awaited")
def test_what_nobody_awaits_is_not_deleted() -> None:
    """A coroutine that is given for a function has not handled anything."""
    queue = FakeQueue(5)

    async def handle(_message: Mapping[str, Any]) -> None: ...

    consumed_by(in_threads, queue, handle, until=lambda: sum(queue._received.values()) == 5)
    assert len(queue.left) == 5


def test_what_was_handled_and_could_not_be_deleted_in_time_is_not_handled_again(consumed: Consumed) -> None:
    """A FIFO queue refuses a handle whose time is over: the message comes back, and is deleted by its new one."""
    queue, handled, refused = FakeQueue(20), Counter[str](), set[str]()

    def refuse_once(number: str) -> bool | None:
        if number in refused:
            return None
        refused.add(number)
        queue.put(number)
        return True

    queue.entry_refusal = refuse_once
    consumed(queue, lambda message: handled.update([message["MessageId"]]))
    assert queue.left == set()
    assert set(handled.values()) == {1}


def test_refused_requests_and_deletions_are_tried_again(consumed: Consumed) -> None:
    """What SQS could not do just now; and the report counts it."""
    queue = FakeQueue(50)
    throttled = RuntimeError("slow down")
    throttled.response = {"Error": {"Code": "RequestThrottled"}}  # type: ignore[attr-defined]
    queue.refusals.extend([throttled, ConnectionError("gone")])
    refused = Counter[str]()

    def refuse_once(number: str) -> bool | None:
        refused[number] += 1
        return False if refused[number] == 1 and number in {"m3", "m4"} else None

    queue.entry_refusal = refuse_once
    reporter = consumed(queue, lambda _message: None)
    assert queue.left == set()
    (report,) = reporter.reports
    assert (report["throttled_count"], report["failed_count"]) == (1, 1)
    assert report["measures"]["deleted_count"] == 50


def test_a_deletion_that_never_works_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, consumed: Consumed
) -> None:
    """After a while the message is left to its timeout."""
    monkeypatch.setattr(consuming.Consuming, "_end_seconds_max", 0.1)
    queue = FakeQueue(5)
    queue.entry_refusal = lambda _number: False
    consumed(queue, lambda _message: None, until=lambda: len(queue.in_flight) == 5)
    assert len(queue.left) == 5


@pytest.mark.parametrize(("stated", "line_count"), [(0.0, 1), (10.0, 0)])
def test_work_that_was_not_stated_and_keeps_all_threads_busy_is_said_once(
    stated: float, line_count: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two threads worked off four of twenty messages a second, and nobody said why."""
    monkeypatch.setattr(consuming, "_BUSY_FRACTION", 0.01)  # however long the rest takes here
    told = KeptReports()
    options = {"advice": advice(work_seconds=stated), "reporter": told, "report_seconds": 0.05}
    with running(FakeQueue(200), lambda _message: time.sleep(0.02), **options):
        until(lambda: len(told.reports) >= 3)
    assert sum("with work_seconds=" in record.getMessage() for record in caplog.records) == line_count


def test_work_that_was_not_stated_is_said_once_there_is_advice_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer that began before its daemon; also where the advice is what the SDK does by itself."""
    monkeypatch.setattr(consuming, "_BUSY_FRACTION", 0.01)
    none = default_advice("sqs_delivery", 1024, "no daemon")
    some = an_advice(
        operation="sqs_delivery",
        payload_size_bytes=1024,
        setting=dict(none.setting),
        demand={"work_seconds": 0.0},
    )
    said = [none]
    monkeypatch.setattr(sdk_client, "advise", lambda *_, **__: said[-1])
    told = KeptReports()
    options = {"advice": None, "reporter": told, "report_seconds": 0.05}
    with running(FakeQueue(500), lambda _message: time.sleep(0.02), **options):
        until(lambda: len(told.reports) >= 3)
        assert "with work_seconds=" not in caplog.text
        said.append(some)
        until(lambda: "with work_seconds=" in caplog.text)


def test_a_queue_that_may_not_be_received_from_is_said_once(
    caplog: pytest.LogCaptureFixture, consumed: Consumed
) -> None:
    """An application that is denied every receive must not look like one whose queue is empty."""
    queue = FakeQueue(5)
    queue.refusals.extend(ConnectionError("access denied") for _ in range(6))
    consumed(queue, lambda _message: None)
    complaints = [record for record in caplog.records if "access denied" in record.getMessage()]
    assert 1 <= len(complaints) < 6
    assert queue.left == set()


def test_a_queue_that_may_not_be_deleted_from_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, consumed: Consumed
) -> None:
    """However often it answers what it is asked beside that."""
    monkeypatch.setattr(consuming.Consuming, "_end_seconds_max", 0.1)
    queue, asked = FakeQueue(300), Counter[str]()

    def delete_message_batch(**_: object) -> None:
        asked["delete"] += 1
        raise ConnectionError("access denied")

    monkeypatch.setattr(queue, "delete_message_batch", delete_message_batch)
    consumed(queue, lambda _message: time.sleep(0.001), until=lambda: asked["delete"] > 10)
    assert sum("access denied" in record.getMessage() for record in caplog.records) == 1


def test_a_queue_that_is_throttled_now_and_then_is_not_said_each_time(
    monkeypatch: pytest.MonkeyPatch, consumed: Consumed
) -> None:
    """Answers in between end the silence: a line a minute, also where a log is slow and all threads are refused."""
    monkeypatch.setattr(consuming, "_PAUSE_SECONDS", 0.001)
    queue, asked, said = FakeQueue(300), Counter[str](), list[str]()

    def complain(sentence: str, *parts: object) -> None:
        said.append(sentence % parts)
        time.sleep(0.05)

    monkeypatch.setattr(consuming, "complain", complain)
    receive = queue.receive_message

    def receive_every_other_time(**parameters: Any) -> Any:
        asked["receive"] += 1
        if asked["receive"] % 2:
            raise ConnectionError("too many requests")
        return receive(**parameters)

    monkeypatch.setattr(queue, "receive_message", receive_every_other_time)
    consumed(queue, lambda _message: None)
    assert asked["receive"] > 10
    assert sum("too many requests" in line for line in said) == 1


def test_deletions_that_are_refused_one_by_one_are_not_tried_in_a_hurry(
    monkeypatch: pytest.MonkeyPatch, consumed: Consumed
) -> None:
    """By five threads at most: a service that is in trouble is not asked as often as it can answer."""
    monkeypatch.setattr(consuming, "_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(consuming.Consuming, "_end_seconds_max", 0.1)
    queue, asked, began = FakeQueue(100), Counter[str](), time.monotonic()
    delete = queue.delete_message_batch

    def delete_message_batch(**parameters: Any) -> Any:
        asked["delete"] += 1
        return delete(**parameters)

    monkeypatch.setattr(queue, "delete_message_batch", delete_message_batch)
    queue.entry_refusal = lambda _number: False
    consumed(queue, lambda _message: None, until=lambda: time.monotonic() > began + 0.5)
    assert asked["delete"] <= 5 * (1 + (time.monotonic() - began) / 0.1)


def test_deletions_that_fail_after_the_stop_are_not_tried_in_a_hurry(
    monkeypatch: pytest.MonkeyPatch, consumed: Consumed
) -> None:
    """SQS is not asked more often than before, though nobody waits for a stop any more."""
    monkeypatch.setattr(consuming, "_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(consuming.Consuming, "_end_seconds_max", 0.5)
    queue, asked = FakeQueue(100), Counter[str]()

    def refuse(**_: object) -> None:
        asked["delete"] += 1
        raise ConnectionError("gone")

    monkeypatch.setattr(queue, "delete_message_batch", refuse)
    consumed(queue, lambda _message: None, until=lambda: len(queue.in_flight) == 100)
    assert 2 <= asked["delete"] <= 24


def test_an_interrupt_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the consumer waits: what was received is deleted, and the process can end."""
    queue = FakeQueue(20)
    before = set(threading.enumerate())
    consumer = a_consumer(queue, lambda _message: None, report_seconds=0.2)

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(consumer, "_report", interrupt)
    with pytest.raises(KeyboardInterrupt):
        consumer.run()
    assert set(threading.enumerate()) <= before
    assert queue.in_flight == set()


def test_a_queue_is_advised_and_reported_for_where_and_what_it_is(
    monkeypatch: pytest.MonkeyPatch, consumed: Consumed
) -> None:
    """A FIFO queue of another region is nothing to learn a standard queue of this one from; nor is it advised so."""
    asked: list[dict[str, object]] = []

    def advised(_operation: str, _size: int, **demand: object) -> Advice:
        asked.append(demand)
        return Advice({**advice().document, "region": demand.get("region", "eu-west-1")})

    monkeypatch.setattr(sdk_client, "advise", advised)
    queue = FakeQueue(0)
    QueueConsumer(queue, URL, print)
    QueueConsumer(queue, f"{URL}.fifo", print, message_rate_per_second=5, region="eu-west-1")
    QueueConsumer(queue, f"{URL}.fifo", print, service_class="fifo-high-throughput", region="eu-north-1")
    assert asked == [
        {},
        {"region": "eu-west-2"},
        {"message_rate_per_second": 5, "region": "eu-west-1", "service_class": "fifo"},
        {"region": "eu-north-1", "service_class": "fifo-high-throughput"},
    ]
    (report,) = consumed(FakeQueue(10), lambda _message: None).reports
    assert report["region"] == "eu-west-2"


def test_a_consumer_follows_the_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that began before its daemon would else have one thread for as long as it lives."""
    none, some = default_advice("sqs_delivery", 1024, "no daemon"), a_queue_advice(receivers=3, window=50)
    said = [none]
    monkeypatch.setattr(sdk_client, "advise", lambda *_, **__: said[-1])
    queue, together, is_over = FakeQueue(20), threading.Barrier(4), threading.Event()

    def handle(_message: Mapping[str, Any]) -> None:
        if not is_over.is_set():
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait(20.0)

    with running(queue, handle, advice=None, report_seconds=0.01) as consumer:
        try:
            until(lambda: together.n_waiting == 1)
            said.append(some)
            until(lambda: together.n_waiting == 3)
            assert queue.asked_count_max == 10
            said.append(none)
            is_over.set()
            together.wait(20.0)
            until(lambda: not queue.left)
            assert consumer.advice is some
            receivers = [one for (name, _), one in consumer._threads.items() if name == "_receive_all"]
            assert sum(one.is_alive() for one in receivers) == 3
            said.append(a_queue_advice(receivers=1))
            until(lambda: sum(one.is_alive() for one in receivers) == 1)
        finally:
            is_over.set()
            together.abort()


def test_advice_that_was_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever states it has asked for himself."""
    monkeypatch.setattr(sdk_client, "advise", lambda *_, **__: a_queue_advice(receivers=9))
    given, told = advice(), KeptReports()
    options = {"advice": given, "reporter": told, "report_seconds": 0.001}
    with running(FakeQueue(30), lambda _message: None, **options) as consumer:
        until(lambda: told.reports)
    assert consumer.advice is given


def test_work_that_outlasts_a_report_is_reported_when_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """One report after another saw only receives, or only deletes, which alone tell nothing."""
    seen: list[Figures] = []
    monkeypatch.setattr(
        consuming.Consuming, "_say_what_work_takes", lambda _self, figures: seen.append(figures)
    )
    queue, told, is_over = FakeQueue(5), KeptReports(), threading.Event()
    with running(queue, lambda _message: is_over.wait(20.0), reporter=told, report_seconds=0.001):
        try:
            until(lambda: any(figures.received_count for figures in seen))
            before_count = len(seen)
            until(lambda: len(seen) > before_count + 2)
        finally:
            is_over.set()
        until(lambda: told.reports)


def test_messages_that_nobody_could_handle_lengthen_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours in which a handler failed would else count as the time that the first deleted messages took."""
    seen: list[Figures] = []
    monkeypatch.setattr(
        consuming.Consuming, "_say_what_work_takes", lambda _self, figures: seen.append(figures)
    )

    def handle(_message: Mapping[str, Any]) -> None:
        raise ValueError("not mine")

    told = KeptReports()
    with running(FakeQueue(5), handle, reporter=told, report_seconds=0.001):
        until(lambda: any(figures.received_count for figures in seen))
        until(lambda: not seen[-1].received_count)
    assert told.reports == []


def test_a_queue_that_is_empty_reports_nothing(consumed: Consumed) -> None:
    """There is nothing to learn from waiting."""
    assert consumed(FakeQueue(0), lambda _message: None).reports == []


def test_a_stop_waits_for_no_poll_and_gives_back_what_it_brings() -> None:
    """An empty queue answers after twenty seconds; what comes until then is left to others, at once."""
    queue, handled = FakeQueue(0), Counter[str]()
    queue.is_answering.clear()
    with running(queue, lambda message: handled.update([message["MessageId"]])):
        until(lambda: queue.waiting_poll_count == 3)
    queue.put("m1", "m2")
    assert queue.in_flight == set()  # it ended while its polls were still waiting
    queue.is_answering.set()
    until(lambda: len(queue.given_back) >= 2)
    assert queue.given_back[:2] == [("m1", 0), ("m2", 0)]
    assert not handled


def test_a_stop_gives_back_what_was_not_begun_while_the_rest_is_finished() -> None:
    """Of three batches three messages are being handled: they are deleted, and the others need not wait for that."""
    queue, handled, is_done = FakeQueue(30), Counter[str](), threading.Event()

    def handle(message: Mapping[str, Any]) -> None:
        handled.update([message["MessageId"]])
        is_done.wait(20.0)

    with running(queue, handle) as consumer:
        until(lambda: len(handled) == 3 and len(queue.in_flight) == 30)
        consumer.stop()
        until(lambda: len(queue.given_back) == 27)
        assert len(queue.in_flight) == 3
        is_done.set()
    assert {seconds for _, seconds in queue.given_back} == {0}
    assert set(handled.values()) == {1}
    assert queue.left == {number for number, _ in queue.given_back}
    assert consumer.undeleted_count == 0


def test_what_polls_of_our_own_bring_again_is_given_back_for_when_they_are_over() -> None:
    """Else one message would go through all of them, and into a dead-letter queue after so many receives."""
    messages = some_messages()
    assert messages.take_room(1, poll_seconds=20.0, receiver=0) == 1  # and the poll does not end
    messages.stop()
    seconds = []
    for n in range(3):
        assert messages.is_new({"MessageId": "m1", "ReceiptHandle": f"m1/{n}"})
        seconds += [seconds for _, seconds in messages.take_unbegun(10)]
    assert seconds == [0, 21, 21]


def an_answer(handle: str) -> dict[str, str]:
    """A message, or a copy of it."""
    return {"MessageId": handle.partition("/")[0], "ReceiptHandle": handle}


def test_a_message_is_deleted_by_the_handles_of_all_its_copies() -> None:
    """The newest alone deletes it, and a thread that was held up may note an older one last."""
    messages = some_messages()
    assert messages.is_new(an_answer("m1/2"))
    assert not messages.is_new(an_answer("m1/1"))
    messages.note_handled("m1")
    assert not messages.is_new(an_answer("m1/3"))
    receipts = messages.pop_handled(10)
    assert receipts == [("m1", "m1/2"), ("m1", "m1/1"), ("m1", "m1/3")]
    assert [messages.note_spent(*receipt) for receipt in receipts] == [False, False, True]
    assert messages.undeleted_count == 0


def test_a_handle_that_comes_twice_is_spent_once() -> None:
    """A receive of a FIFO queue that is asked for once more answers with the same handles, also amid a deletion."""
    messages = some_messages()
    assert messages.is_new(an_answer("m1/1"))
    messages.note_handled("m1")
    (receipt,) = messages.pop_handled(10)
    assert not messages.is_new(an_answer("m1/1"))
    assert messages.note_spent(*receipt)
    assert messages.pop_handled(10) == []
    assert messages.undeleted_count == 0


def test_a_handle_that_is_too_old_gives_up_no_message_that_has_another() -> None:
    """A FIFO queue refuses it; the message is deleted by its newer one, and counted once."""
    queue, refusals = FakeQueue(1), iter([True])
    queue.entry_refusal = lambda _number: next(refusals, None)

    def handle(_message: Mapping[str, Any]) -> None:
        queue.put("m0")
        until(lambda: consumer._figures.duplicate_count == 1)

    with running(queue, handle) as consumer:
        until(lambda: not queue.left and consumer.undeleted_count == 0)
        assert consumer._figures.deleted_count == 1


def test_a_message_that_waits_to_be_deleted_is_known_for_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its copies would be neither handled nor deleted, and hold their room for ever."""
    monkeypatch.setattr(queue_messages, "_KNOWN_COUNT_MAX", 2)
    messages = some_messages()
    for number in ("m1", "m2", "m3", "m4", "m5"):
        messages.is_new(an_answer(f"{number}/1"))
        messages.note_handled(number)
        if number != "m1":
            (*_, newest) = messages.pop_handled(10)
            messages.note_spent(*newest)
            messages.put_back([("m1", "m1/1")])
    assert not messages.is_new(an_answer("m1/2"))
    for receipt in messages.pop_handled(10):
        messages.note_spent(*receipt)
    assert messages.undeleted_count == 0


def test_a_late_copy_of_what_was_handled_is_deleted() -> None:
    """A poll that was left behind must not give back what this process has worked off."""
    queue, handled = FakeQueue(1), Counter[str]()
    queue.is_answering.clear()
    with running(queue, lambda message: handled.update([message["MessageId"]])):
        until(lambda: not queue.left and queue.waiting_poll_count == 3)
    queue.left.add("m0")
    queue.put("m0")
    queue.is_answering.set()
    until(lambda: not queue.left)
    assert queue.given_back == []
    assert handled == {"m0": 1}


def test_a_signal_handler_may_stop_it_at_any_moment() -> None:
    """Also while the waiting thread holds the lock of what it waits on, where setting an Event waits for ever."""
    queue = FakeQueue(0)
    consumer = a_consumer(queue)
    inside: list[int] = []

    def interrupt(frame: FrameType, event: str, _: object) -> Any:
        caller = frame.f_back and frame.f_back.f_globals["__name__"]
        if frame.f_code.co_name == "wait" and event == "line" and caller == boto3_queue.__name__:
            inside.append(frame.f_lineno)
            if len(inside) == 2:  # the first line of it takes the lock
                consumer.stop()
        return interrupt

    def run() -> None:
        sys.settrace(interrupt)
        consumer.run()

    with a_thread(run):
        until(lambda: inside or queue.waiting_poll_count > 20)
        if not inside:
            consumer.stop()


def test_a_consumer_that_was_stopped_runs_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """Its stop had been heard already: it would have gone on for ever, and received nothing.

    Who runs the same cell of a notebook again is told, and does not take the queue for an empty one.
    """
    consumer = a_consumer(FakeQueue(9))
    consumer.stop()
    for _ in range(2):
        with a_thread(consumer.run):
            pass
    assert consumer.undeleted_count == 0
    assert "was stopped and receives no more: make another" in caplog.text
