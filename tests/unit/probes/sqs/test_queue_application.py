"""The measurement application in virtual time: blast collapses, rules prevent it, advice carries more too."""

# ruff: noqa: ARG002  # fakes keep the signatures of the seam

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.lab.sqs import ActionTruth, QueueTruth, SqsService
from penstock.lab.virtual_time import VirtualClock
from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.models.sqs.learning import mean_costs
from penstock.models.sqs.physics import request_seconds
from penstock.models.sqs.plan import plan, read_conditions
from penstock.models.sqs.setting import PROBED_BYTES_MIN, VISIBILITY_TIMEOUT_SECONDS
from penstock.optimizer import evidence
from penstock.probes.outside import Denied, MessageQueues, ReceivedMessage, Throttled
from penstock.probes.sqs.application import (
    TROUBLE_COUNT_MAX,
    Means,
    MeasurementApplication,
)
from penstock.probes.sqs.conduct import BLAST, RATE_CONTROLLED
from penstock.probes.sqs.queue_application import (
    Course,
    QueueApplicationProbe,
    QueueDrive,
    as_delivery,
    drive_of,
)
from penstock.probes.sqs.run import Bodies, BoundQueue, DeleteBrake, HopelessError
from penstock.probes.sqs.tally import Sample
from penstock.trial.simulated_aws import SimulatedMessageQueues
from penstock.vocabulary import Context, Cost, Demand, Observation, Place, ProbePlan, Reason
from tests.unit.probes.fakes import MemoryJournal, reason_of, virtually

PAGE = Path(__file__).parents[4] / "docs" / "measure.md"
QUEUE = QueueTruth(  # the published server, with a deleter that is 20 % too slow
    send=ActionTruth(request_seconds=0.018, message_seconds=0.002),
    receive=ActionTruth(request_seconds=0.020, message_seconds=0.002),
    delete=ActionTruth(request_seconds=0.023, message_seconds=0.001),
    spread_seconds_median=0.090,
    spread_sigma=0.2,
)
BODIES = Bodies()
THREE = ("blast", "rate-controlled", "advised")


def a_plan(
    mode: str, seconds: float = 120.0, request_count: int = 10**9, **slowness: float
) -> ProbePlan[QueueDrive]:
    """A way to drive a queue whose copies come back after five seconds."""
    return ProbePlan(
        context=Context(
            place=Place(operation="sqs_application", region="lab", instance_type="simulated"),
            payload_size_bytes=PROBED_BYTES_MIN,
        ),
        setting=drive_of(mode, visibility_timeout_seconds=5, **slowness),
        reason=Reason.REQUESTED,
        cost_max=Cost(request_count=request_count, duration_seconds=seconds),
    )


def a_probe(service: SqsService, clock: VirtualClock, journal: MemoryJournal) -> QueueApplicationProbe:
    """On a simulated SQS."""
    return QueueApplicationProbe(
        SimulatedMessageQueues(service), clock, journal, queue_prefix="measured", loop_tick_seconds=1.0
    )


def measured(*modes: str, queue: QueueTruth = QUEUE, seed: int = 0, **plan: Any) -> list[Course]:
    """The modes, one after another, on a simulated SQS; no queue is left, and no entry."""

    async def story(clock: VirtualClock) -> list[Course]:
        service, journal = SqsService(queue, clock=clock, seed=seed), MemoryJournal()
        courses = []
        for mode in modes:
            probe = a_probe(service, clock, journal)
            outcome = await probe.run(a_plan(mode, **plan))
            assert isinstance(outcome, Observation)
            assert probe.course is not None
            assert outcome.measures["sent_count"] == probe.course.tally.total.sent_count
            courses.append(probe.course)
        assert service.queue_names() == []
        assert await journal.open_entries() == []
        return courses

    return virtually(story)


@pytest.fixture(scope="module")
def results() -> dict[str, Course]:
    """All three on the same server."""
    return dict(zip(THREE, measured(*THREE), strict=True))


async def test_a_run_ends_when_its_requests_are_spent(clock: VirtualClock) -> None:
    """No request more than the plan pays for, those that make and remove the queue included."""
    service = SqsService(QUEUE, clock=clock, seed=0)
    probe = a_probe(service, clock, MemoryJournal())
    outcome = await probe.run(a_plan("blast", request_count=500))
    assert isinstance(outcome, Observation)
    assert outcome.duration_seconds < 20.0
    assert outcome.request_count == probe.used.request_count == 500
    assert service.counts.request_count <= 500


async def test_so_many_messages_and_no_more(clock: VirtualClock) -> None:
    """All are sent before any is received where that is asked, and the run ends when the last is deleted."""
    plan = a_plan("stated")
    conduct = dataclasses.replace(BLAST, fills_first=True, deleter_count=2)
    plan = dataclasses.replace(
        plan, setting=dataclasses.replace(plan.setting, conduct=conduct, message_count_max=200)
    )

    probe = a_probe(SqsService(QUEUE, clock=clock, seed=0), clock, MemoryJournal())
    await probe.run(plan)
    assert probe.course is not None
    tally = probe.course.tally
    assert tally.total.sent_count == tally.total.deleted_count == 200
    assert tally.sent_after_seconds == pytest.approx(200 * 0.020, rel=0.1)
    assert tally.sent_after_seconds < tally.duration_seconds < 20.0
    assert sorted(tally.first_arrivals) == list(range(200))


def test_blast_collapses(results: dict[str, Course]) -> None:
    """Once the oldest undeleted message is as old as the timeout, copies grow and deletes achieve nothing."""
    tally = results["blast"].tally
    onset = tally.overdue_at_seconds
    assert onset == pytest.approx(5.0 / (24 / 20 - 1.0), rel=0.3)
    assert tally.rate_between("duplicate_count", 0.0, onset) < 1.0
    assert tally.rate_between("deleted_count", 0.0, onset) == pytest.approx(1 / 0.024, rel=0.05)
    early = tally.rate_between("duplicate_count", onset, onset + 20.0)
    assert tally.rate_between("duplicate_count", 100.0, 120.0) > early > 20.0
    assert tally.rate_between("deleted_count", 100.0, 120.0) < 1.0


def test_the_published_rules_prevent_it_at_a_price(results: dict[str, Course]) -> None:
    """No copies, and never more than the lone deleter carries."""
    tally = results["rate-controlled"].tally
    assert tally.total.duplicate_count == 0
    assert tally.total.deleted_in_vain_count == 0
    assert tally.oldest_undeleted_seconds_max < 5.0
    assert tally.total.deleted_count / 120.0 < 1 / 0.024


def test_advice_prevents_it_and_carries_more(results: dict[str, Course]) -> None:
    """No copies, and as much goodput as a sender sends."""
    advised, published = results["advised"].tally, results["rate-controlled"].tally
    assert advised.total.duplicate_count == 0
    assert advised.total.deleted_count / 120.0 > 48.0
    assert advised.total.deleted_count > 1.15 * published.total.deleted_count
    assert advised.total.latency_seconds_mean < published.total.latency_seconds_mean * 1.2


def test_what_was_measured_for_the_advice_is_the_truth(results: dict[str, Course]) -> None:
    """The conditions found with fifty messages are those of the server, and a what-if reads them."""
    conditions = results["advised"].conditions
    assert conditions is not None
    assert conditions.send_seconds == pytest.approx(0.020, rel=0.15)
    assert conditions.receive_seconds == pytest.approx(0.022, rel=0.15)
    assert conditions.delete_seconds == pytest.approx(0.024, rel=0.15)
    assert conditions.delete_seconds_per_message == pytest.approx(0.001, abs=0.001)
    assert conditions.delivery_latency_seconds == pytest.approx(0.113, rel=0.15)
    assert read_conditions(json.loads(json.dumps(dataclasses.asdict(conditions)))) == conditions


@pytest.mark.parametrize("spread_seconds", [0.001, 0.03, 0.09])
def test_messages_come_as_soon_as_the_plan_for_what_was_measured_says(spread_seconds: float) -> None:
    """Its polls wait already when a message is sent: a poll that begins after the send adds most of a request."""
    queue = dataclasses.replace(QUEUE, spread_seconds_median=spread_seconds)
    (course,) = measured("advised", queue=queue, seconds=60.0, offered_per_second=45.0)
    assert course.conditions is not None
    found = plan(course.conditions)
    since_offered = course.tally.total.latency_seconds_mean + found.batch_linger_seconds / 2.0
    assert found.delivery_latency_seconds_mean.expected == pytest.approx(since_offered, rel=0.1)


def test_a_message_may_be_there_before_its_sender_is_answered() -> None:
    """Its latency ends with the poll that brings it, also where sends take long."""
    slow = dataclasses.replace(QUEUE.send, request_seconds=0.100)
    queue = dataclasses.replace(QUEUE, send=slow, spread_seconds_median=0.001)
    (course,) = measured("advised", queue=queue, seconds=5.0, offered_per_second=5.0)
    assert course.conditions is not None
    latency_seconds = course.conditions.delivery_latency_seconds
    assert latency_seconds == pytest.approx(0.051 + 0.001 + 0.010 + 0.002, rel=0.1)


def test_one_straggler_is_not_how_a_queue_is() -> None:
    """Of ten round trips one would be most of the mean; a plan for it has batches that nobody needs."""
    queue = dataclasses.replace(QUEUE, straggler_fraction=0.03, straggler_seconds=2.0)
    (course,) = measured("advised", queue=queue, seconds=5.0, offered_per_second=5.0)
    assert (conditions := course.conditions) is not None
    assert conditions.send_seconds == pytest.approx(0.020, rel=0.2)
    assert conditions.receive_seconds == pytest.approx(0.022, rel=0.2)
    assert conditions.delete_seconds == pytest.approx(0.024, rel=0.2)
    assert conditions.delivery_latency_seconds == pytest.approx(0.112, rel=0.2)


async def test_a_run_teaches_how_long_requests_take_and_nothing_of_a_setting(clock: VirtualClock) -> None:
    """Also one that collapsed: the fit knows the server's times, and no setting counts as measured.

    Nor is the timeout of the experiment's queue, 5 s here, advised for another.
    """
    probe = a_probe(SqsService(QUEUE, clock=clock, seed=0), clock, MemoryJournal())
    lessons = []
    for mode in ("blast", "rate-controlled", "rescued"):
        outcome = await probe.run(a_plan(mode, seconds=60.0))
        assert isinstance(outcome, Observation)
        assert probe.course is not None
        lessons.append(as_delivery(outcome, probe.course, outcome.context.place))
    place = lessons[0].context.place
    assert (place.operation, place.service_class) == ("sqs_delivery", "standard")
    model = SqsDeliveryModel()
    fit = evidence.attach(model.fit(place, lessons, prior=None, seed=1), model, lessons)
    assert fit.cells == ()
    assert not fit.drift_count
    costs = mean_costs(fit)
    for action, messages, seconds in (("send", 1, 0.020), ("receive", 1, 0.022), ("delete", 1, 0.024)):
        found = request_seconds(costs, action, np.array([messages]), PROBED_BYTES_MIN, np.array([3.0]))
        assert found == pytest.approx(seconds, rel=0.1)
    derived = model.derive(fit, lessons[0].context, lessons[0].setting, Demand())
    assert derived["visibility_timeout_seconds"] == VISIBILITY_TIMEOUT_SECONDS


def test_a_brake_that_all_deleters_share_is_answered_with_batches() -> None:
    """Where more deleters cannot delete more, the plan deletes in batches: no copies, all goodput."""
    blast, advised = measured("blast", "advised", seconds=60.0, delete_requests_per_second_max=20.0)
    assert blast.tally.total.duplicate_count > 1000
    assert advised.conduct.deleter_count == 1
    assert advised.conduct.delete_batch > 2
    assert advised.tally.total.duplicate_count == 0
    assert advised.tally.total.deleted_count / 60.0 > 47.0


def test_a_collapsed_queue_is_rescued_while_the_sender_goes_on() -> None:
    """No new copies within the timeout and a second, and soon as much goodput as is sent."""
    (result,) = measured("rescued")
    at_seconds = result.rescued_at_seconds
    assert at_seconds is not None
    assert at_seconds == pytest.approx(result.tally.overdue_at_seconds + 10.0, abs=1.1)
    assert result.tally.rate_between("duplicate_count", at_seconds - 5.0, at_seconds) > 20.0
    assert result.tally.rate_between("duplicate_count", at_seconds + 6.0, 120.0) == 0.0
    assert result.tally.rate_between("sent_count", at_seconds, 120.0) > 45.0
    assert result.recovered_after_seconds is not None
    assert result.recovered_after_seconds < 30.0
    assert result.tally.rate_between("deleted_count", 100.0, 120.0) > 45.0


def test_the_document_has_every_second(results: dict[str, Course]) -> None:
    """The counts of the seconds add up to the totals, and the page names every key."""
    document = results["blast"].document()
    assert len(document["samples"]) in {119, 120}
    for name in ("sent_count", "received_count", "duplicate_count", "deleted_count"):
        assert sum(s[name] for s in document["samples"]) == pytest.approx(document[name], abs=500), name
    assert document["collapsed_after_seconds"] > 10
    assert results["advised"].document()["collapsed_after_seconds"] is None
    assert document["last_goodput_messages_per_second"] < 1.0
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in document if f"`{name}`" not in page] == []


@pytest.mark.parametrize("seconds", [0.6, 1.2, 3.4, 20.0])
def test_the_end_of_a_run_is_whole_seconds_or_is_not_told(seconds: float) -> None:
    """Cut short it is neither said to have deleted nothing in the end, nor thrice what it did."""
    (calm,) = measured("rate-controlled", seconds=seconds)
    last = calm.document()["last_goodput_messages_per_second"]
    assert (last is None) == (seconds < 1.0)
    if last is not None:
        at_the_most = max(sample.counts.deleted_count for sample in calm.tally.samples)
        assert 0.0 < last <= at_the_most


def test_the_same_seed_gives_the_same_run() -> None:
    """Chance is an argument of the world."""
    first, second = (measured("blast", seconds=20.0, seed=3)[0].tally for _ in range(2))
    assert first == second


def test_the_rules_follow_the_queues_own_timeout() -> None:
    """Half of the visibility timeout, ten in the server, polls only when there is something."""
    conduct = drive_of("rate-controlled", visibility_timeout_seconds=5).conduct
    assert conduct == dataclasses.replace(RATE_CONTROLLED, oldest_undeleted_seconds_max=2.5)
    assert (conduct.send_window, conduct.polls_only_when_sent) == (10, True)
    limited = drive_of("blast", visibility_timeout_seconds=5, offered_per_second=7.0)
    assert limited.conduct == dataclasses.replace(BLAST, offered_per_second=7.0)


def test_an_offered_rate_is_kept() -> None:
    """No mode sends more than there is."""
    for result in measured(*THREE, seconds=30.0, offered_per_second=10.0):
        total = result.tally.total
        assert total.sent_count / 30.0 == pytest.approx(10.0, rel=0.05)
        assert total.duplicate_count == 0


async def test_an_interrupted_run_keeps_its_counts_and_removes_its_queue(clock: VirtualClock) -> None:
    """Ctrl-C in the middle: what was counted so far is told, and nothing stays behind."""
    service = SqsService(QUEUE, clock=clock, seed=0)
    journal = MemoryJournal()
    probe = a_probe(service, clock, journal)
    running = asyncio.create_task(probe.run(a_plan("rate-controlled")))
    await asyncio.sleep(10.0)
    assert len(service.queue_names("measured-rate-controlled-")) == 1
    assert len(await journal.open_entries()) == 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert service.queue_names() == []
    assert await journal.open_entries() == []
    assert probe.course is not None
    tally = probe.course.tally
    assert tally.duration_seconds == pytest.approx(10.0, abs=0.1)
    assert probe.used.request_count > tally.total.deleted_count > 300


@pytest.mark.parametrize("after_seconds", [0.001, 0.5, 2.0])
async def test_an_interruption_at_any_moment_removes_the_queue(
    clock: VirtualClock, after_seconds: float
) -> None:
    """While it is made, while conditions are measured, while it runs."""
    service = SqsService(QUEUE, clock=clock, seed=0)
    running = asyncio.create_task(a_probe(service, clock, MemoryJournal()).run(a_plan("advised")))
    await asyncio.sleep(after_seconds)
    running.cancel()
    await asyncio.wait([running])
    await asyncio.sleep(1.0)
    assert service.queue_names() == []


class Failing(SimulatedMessageQueues):
    """Fails its sends and receives in one way."""

    trouble: Exception = Denied("sending to the queue: not allowed")

    async def send(self, url: str, bodies: object, *, group_ids: object = ()) -> int:
        await asyncio.sleep(0.01)
        raise self.trouble

    async def receive(self, url: str, *, message_count_max: int, wait_seconds: int) -> list[ReceivedMessage]:
        await asyncio.sleep(0.01)
        raise self.trouble


async def test_what_is_not_allowed_ends_the_run_with_its_reason(clock: VirtualClock) -> None:
    """A refusal for lack of rights is not tried again, and the queue is removed."""
    service = SqsService(QUEUE, clock=clock, seed=0)
    probe = QueueApplicationProbe(Failing(service), clock, MemoryJournal(), loop_tick_seconds=1.0)
    outcome = await probe.run(a_plan("blast"))
    assert "not allowed" in reason_of(outcome)
    assert service.queue_names() == []


class Scripted(SimulatedMessageQueues):
    """Accepts every send and every delete at once, and receives what the script says."""

    def __init__(self, copies: list[list[int]]) -> None:
        self.copies = copies
        self.handle = 0

    async def send(self, url: str, bodies: object, *, group_ids: object = ()) -> int:
        await asyncio.sleep(0.1)
        return 1

    async def receive(self, url: str, *, message_count_max: int, wait_seconds: int) -> list[ReceivedMessage]:
        await asyncio.sleep(0.35)
        received = []
        for sequence in self.copies.pop(0) if self.copies else []:
            self.handle += 1
            body = BODIES.body(sequence)
            received.append(ReceivedMessage(message_id="m", receipt_handle=f"h{self.handle}", body=body))
        return received

    async def delete(self, url: str, receipt_handles: object) -> int:
        await asyncio.sleep(0.2)
        return 1


def a_blast(queues: MessageQueues, clock: VirtualClock) -> MeasurementApplication:
    """Nothing bounded, on these queues."""
    return MeasurementApplication(BoundQueue(queues, "url"), clock, BLAST, means=Means(bodies=BODIES))


def counted(copies: list[list[int]]) -> tuple[int, ...]:
    """Received, duplicates, deleted, deleted in vain."""

    async def story(clock: VirtualClock) -> tuple[int, ...]:
        application = a_blast(Scripted(copies), clock)
        await application.drive(5.0, lambda _: None)
        total = application.tally.total
        return total.received_count, total.duplicate_count, total.deleted_count, total.deleted_in_vain_count

    return virtually(story)


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        ([[0, 1]], (2, 0, 2, 0)),
        ([[0], [], [0]], (1, 1, 1, 1)),  # it came back although it was deleted: at least once
        ([[0, 1, 2], [2], []], (3, 1, 3, 1)),  # by an old handle: the first copy of 2 was still waiting
        ([[0, 0]], (1, 1, 1, 1)),
    ],
)
def test_copies_and_deletes_are_told_apart(copies: list[list[int]], expected: tuple[int, ...]) -> None:
    """A message counts once as received and once as deleted, by its newest handle; all else is counted apart."""
    assert counted(copies) == expected


async def test_troubles_without_end_end_the_run(clock: VirtualClock) -> None:
    """A server that refuses everything is given up after a bounded number of tries."""
    queues = Failing(SqsService(QUEUE, clock=clock, seed=0))
    queues.trouble = Throttled("slow down")
    application = a_blast(queues, clock)
    with pytest.raises(HopelessError, match="slow down"):
        await application.drive(3600.0, lambda _: None)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()  # or a time limit around it would not be one
    assert application.tally.total.failed_count == TROUBLE_COUNT_MAX


class Crowded(SimulatedMessageQueues):
    """Knows how many sends were under way at a time."""

    sending_count = most_sending_count = 0

    async def send(self, url: str, bodies: Sequence[str], *, group_ids: Sequence[str] = ()) -> int:
        """Counted."""
        self.sending_count += 1
        self.most_sending_count = max(self.most_sending_count, self.sending_count)
        try:
            return await super().send(url, bodies, group_ids=group_ids)
        finally:
            self.sending_count -= 1


async def test_surplus_senders_rest(clock: VirtualClock) -> None:
    """A conduct with fewer senders holds from then on, also for those that have started."""
    queues = Crowded(SqsService(QUEUE, clock=clock, seed=0))
    application = MeasurementApplication(
        BoundQueue(queues, await queues.create_queue("crowded", {})),
        clock,
        dataclasses.replace(BLAST, sender_count=4),
    )
    crowds = []

    def each_second(_: Sample) -> None:
        crowds.append(queues.most_sending_count)
        queues.most_sending_count = queues.sending_count
        application.adopt(dataclasses.replace(BLAST, sender_count=1))

    await application.drive(3.5, each_second)
    # The four of the second second were under way.
    assert crowds == [4, 4, 1]


@pytest.mark.parametrize("sequence", [0, 1, 2**32 - 1])
def test_a_body_has_37_bytes_and_says_which_message_it_is(sequence: int) -> None:
    """Whose it is, and its sequence; another run's is nobody's."""
    body = BODIES.body(sequence)
    assert len(body.encode()) == PROBED_BYTES_MIN
    assert BODIES.sequence_of(body) == sequence
    assert Bodies().sequence_of(body) == -1
    assert BODIES.sequence_of("something else") == -1


async def test_a_shared_brake_spaces_requests_and_a_delay_does_not(clock: VirtualClock) -> None:
    """Four requests at two a second take a second and a half; with a delay of half a second they end together."""
    seconds = []
    for brake in (DeleteBrake(clock, requests_per_second_max=2.0), DeleteBrake(clock, delay_seconds=0.5)):
        began = clock.monotonic_seconds()
        await asyncio.gather(*(brake.hold() for _ in range(4)))
        seconds.append(clock.monotonic_seconds() - began)
    assert seconds == pytest.approx([1.5, 0.5])
