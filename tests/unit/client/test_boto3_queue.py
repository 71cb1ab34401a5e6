"""The SQS consumer: each message once, no more at a time than the window, and a report of how it went."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.client import boto3_queue
from penstock.client.advice import Advice
from penstock.client.boto3_queue import QueueConsumer
from penstock.daemon import wire
from penstock.models.sqs_delivery import SqsDeliverySetting
from tests.factories import NOON

URL = "http://queue"


class FakeQueue:
    """An SQS queue behind the three calls of a boto3 client: copies come when they are told to."""

    meta = SimpleNamespace(region_name="eu-west-2")

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

    def receive_message(self, *, QueueUrl: str, MaxNumberOfMessages: int, WaitTimeSeconds: int) -> Any:  # noqa: N803
        assert (QueueUrl, WaitTimeSeconds) == (URL, 1)
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


class FakeReporter:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []

    def report(
        self, operation: str, payload_size_bytes: int, setting: Mapping[str, float], **what: Any
    ) -> bool:
        self.reports.append(
            {"operation": operation, "payload_size_bytes": payload_size_bytes, "setting": setting, **what}
        )
        return True


def advice(*, window: int = 0, batch: int = 10, pause_at_seconds: float | None = None) -> Advice:
    """Three receivers and two deleters."""
    setting = {
        "sender_thread_count": 4,
        "receiver_thread_count": 3,
        "deleter_thread_count": 2,
        "batch_message_count": batch,
        "send_rate_limit_messages_per_second": 0.0,
        "send_window_message_count": 0,
        "receive_window_message_count": window,
    }
    derived = (
        {} if pause_at_seconds is None else {"receive_pause_at_oldest_undeleted_seconds": pause_at_seconds}
    )
    return Advice(
        {
            "operation": "sqs_delivery",
            "payload_size_bytes": 1024,
            "setting": setting,
            "derived": derived,
            "basis": "measured",
            "explanation": "a test",
        }
    )


def consumed(
    queue: FakeQueue,
    handle: Callable[[Mapping[str, Any]], object],
    *,
    given: Advice | None = None,
    until: Callable[[], bool] | None = None,
) -> FakeReporter:
    """Run a consumer until the queue is empty, or something else has happened."""
    reporter = FakeReporter()
    told: Any = reporter
    consumer = QueueConsumer(queue, URL, handle, advice=given or advice(), reporter=told, long_poll_seconds=1)
    running = threading.Thread(target=consumer.run)
    running.start()
    limit = time.monotonic() + 20.0
    while not (until or (lambda: not queue.left))() and time.monotonic() < limit:
        time.sleep(0.002)
    consumer.stop()
    running.join(20.0)
    assert not running.is_alive()
    return reporter


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits."""
    monkeypatch.setattr(boto3_queue, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(boto3_queue, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(boto3_queue, "_LINGER_SECONDS", 0.005)


def test_every_message_is_handled_once_and_deleted() -> None:
    """Also where every third comes as a copy, before or after it was worked off."""
    queue, handled = FakeQueue(300, copy_every=3), Counter[str]()
    reporter = consumed(queue, lambda message: handled.update([message["MessageId"]]))
    assert queue.left == set()
    assert set(handled.values()) == {1}
    assert len(handled) == 300
    (report,) = reporter.reports
    measures = report["measures"]
    assert measures["duplicate_count"] == measures["received_count"] - 300
    assert 300 <= measures["deleted_count"] <= measures["received_count"]
    assert measures["received_count"] <= 400


def test_the_report_is_what_the_daemon_reads() -> None:
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
    read = wire.read_reports(
        body, {"sqs_delivery": SqsDeliverySetting}, region="eu-west-1", instance_type="lab", now=NOON
    )
    assert read.mistakes == {}
    assert read.readable[0].measures["deleted_count"] == 100
    assert report["measures"]["delete_request_count"] >= 10


def test_the_receive_window_is_honoured() -> None:
    """Never more received and not deleted than advised, however fast the receivers are."""
    queue = FakeQueue(200)
    consumed(queue, lambda _message: time.sleep(0.0005), given=advice(window=12))
    assert queue.left == set()
    assert queue.in_flight_count_max <= 12
    assert queue.asked_count_max == 10


def test_receiving_pauses_while_the_oldest_is_too_old() -> None:
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


def test_what_cannot_be_handled_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    """It is not deleted, takes no room of the window, and is said in the log."""
    queue = FakeQueue(60)

    def handle(message: Mapping[str, Any]) -> None:
        if message["MessageId"] in {"m1", "m2"}:
            raise ValueError("not mine")

    consumed(queue, handle, given=advice(window=10), until=lambda: queue.left == {"m1", "m2"})
    assert queue.left == {"m1", "m2"}
    assert "message m1 was not handled" in caplog.text


def test_refused_requests_and_deletions_are_tried_again() -> None:
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


def test_a_deletion_that_never_works_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the message is left to its timeout."""
    monkeypatch.setattr(boto3_queue, "_END_SECONDS_MAX", 0.1)
    queue = FakeQueue(5)
    queue.entry_refusal = lambda _number: False
    consumed(queue, lambda _message: None, until=lambda: len(queue.in_flight) == 5)
    assert len(queue.left) == 5


def test_a_queue_that_may_not_be_received_from_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """An application that is denied every receive must not look like one whose queue is empty."""
    queue = FakeQueue(5)
    queue.refusals.extend(ConnectionError("access denied") for _ in range(6))
    consumed(queue, lambda _message: None)
    complaints = [record for record in caplog.records if "access denied" in record.getMessage()]
    assert 1 <= len(complaints) < 6
    assert queue.left == set()


def test_deletions_that_fail_after_the_stop_are_not_tried_in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQS is not asked more often than before, though nobody waits for a stop any more."""
    monkeypatch.setattr(boto3_queue, "_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(boto3_queue, "_END_SECONDS_MAX", 0.5)
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
    before = threading.active_count()
    told: Any = FakeReporter()
    consumer = QueueConsumer(
        queue,
        URL,
        lambda _message: None,
        advice=advice(),
        reporter=told,
        long_poll_seconds=1,
        report_seconds=0.2,
    )

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(consumer, "_report", interrupt)
    with pytest.raises(KeyboardInterrupt):
        consumer.run()
    assert threading.active_count() == before
    assert queue.in_flight == set()


def test_a_queue_is_advised_and_reported_for_where_and_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO queue of another region is nothing to learn a standard queue of this one from; nor is it advised so."""
    asked: list[dict[str, object]] = []

    def advised(_operation: str, _size: int, **demand: object) -> Advice:
        asked.append(demand)
        return Advice({**advice().document, "region": demand.get("region", "eu-west-1")})

    monkeypatch.setattr(boto3_queue, "advise", advised)
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


def test_a_queue_that_is_empty_reports_nothing() -> None:
    """There is nothing to learn from waiting."""
    assert consumed(FakeQueue(0), lambda _message: None).reports == []
