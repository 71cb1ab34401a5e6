"""The contest on a real queue, played in virtual time: what is measured, who collapses, and what is called ahead."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bench.sqs_real import (
    ADAPTIVE,
    COURSES,
    PENSTOCK,
    SECONDS_MAX,
    Course,
    Score,
    compete,
    is_ahead,
    policies,
)
from penstock.lab.sqs import ActionTruth, QueueTruth, SqsService
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.probes.sqs.conduct import BLAST
from penstock.trial.simulated_aws import SimulatedMessageQueues

QUICK = ActionTruth(request_seconds=0.002, message_seconds=0.0002)
# As a server on the loopback interface.
QUEUE = QueueTruth(send=QUICK, receive=QUICK, delete=QUICK, spread_seconds_median=0.003, spread_sigma=0.2)
COURSE = COURSES[False]
CALM = replace(COURSE, deletes_stop_at_seconds=30.0, deletes_go_on_at_seconds=30.0, seconds=30.0)


def played(name: str, course: Course = COURSE) -> Score:
    """One policy on a simulated SQS; no queue is left."""

    async def story(clock: VirtualClock) -> Score:
        service = SqsService(QUEUE, clock=clock, seed=3)
        (contender,) = (entry for entry in policies(course) if entry.name == name)
        found = await compete(SimulatedMessageQueues(service), clock, contender, course)
        assert service.queue_names() == []
        return found

    return run_virtually(story, start_at=datetime(2026, 1, 1, tzinfo=UTC))


def a_score(*, goodput: float = 40.0, latency: float = 0.010, duplicates: float = 0.0) -> Score:
    """A score of which a test names what it is about."""
    return Score(
        name="somebody",
        why="",
        goodput_messages_per_second=goodput,
        goodput_before_the_stop=goodput,
        goodput_at_the_end=goodput,
        latency_seconds_mean=latency,
        latency_seconds_p99=latency,
        latency_seconds_mean_before_the_stop=latency,
        duplicate_count=0,
        duplicates_per_second_at_the_end=duplicates,
        backlog_message_count=0,
        request_count=1,
        failed_count=0,
        conduct=BLAST,
    )


def test_the_stop_of_the_deletes_is_survived_by_advice_and_not_by_a_pool() -> None:
    """The same capacity before the stop; after it only a window on what is received keeps copies away."""
    ours, pool = played(PENSTOCK), played("pool of 10")
    assert pool.goodput_before_the_stop == pytest.approx(ours.goodput_before_the_stop, rel=0.02)
    assert pool.has_collapsed
    assert not ours.has_collapsed
    assert ours.duplicate_count == 0
    assert is_ahead(ours, pool)
    assert not is_ahead(pool, ours)


@pytest.mark.parametrize("name", ["published rules", "Spring-like window"])
def test_advice_is_ahead_of_what_users_pick_instead(name: str) -> None:
    """After the stop of the deletes it works off what piled up; nobody carries more, or comes sooner before."""
    assert is_ahead(played(PENSTOCK), played(name))


def test_a_stated_rate_above_the_offered_one_is_what_catches_up() -> None:
    """Planned for twice the rate, all that the stop held back is delivered before the end, and none of it twice."""
    found = played(PENSTOCK, replace(COURSE, stated_per_second=2.0 * COURSE.offered_per_second))
    assert found.goodput_messages_per_second > 49.5
    assert found.duplicate_count == 0


def test_waiting_for_a_batch_counts_as_latency() -> None:
    """Ten messages at fifty a second: the first waits 180 ms for the last, the mean half of that."""
    batches, single = (
        played(name, replace(CALM, seconds=10.0)) for name in ("SDK v2 batching", "pool of 10")
    )
    waited = batches.latency_seconds_mean - single.latency_seconds_mean
    assert waited == pytest.approx(0.090, abs=0.010)


def test_several_senders_send_no_more_than_is_offered() -> None:
    """No message leaves before it was offered, however many senders wait for it."""
    found = played("pool of 10", replace(CALM, seconds=10.0))
    assert found.latency_seconds_mean > 0.004  # a send, the way through the queue and a receive
    assert found.goodput_messages_per_second == pytest.approx(50.0, rel=0.02)


def test_deletes_cost_their_messages_also_for_the_calibration() -> None:
    """Where a delete takes a tenth of a second, advice deletes with as many as it takes."""
    slow = replace(CALM, seconds=10.0, delete=ActionTruth(request_seconds=0.100))
    found = played(PENSTOCK, slow)
    assert found.conduct.deleter_count * found.conduct.delete_batch >= 6
    assert found.goodput_messages_per_second > 48.0


def test_ahead_is_more_and_no_later() -> None:
    """More has to be carried, beyond chance, and no latency may be paid for it."""
    assert is_ahead(a_score(goodput=41.0), a_score(goodput=40.0))
    assert is_ahead(a_score(goodput=41.0, latency=0.012), a_score(goodput=40.0))
    assert not is_ahead(a_score(goodput=41.0, latency=0.020), a_score(goodput=40.0))
    assert not is_ahead(a_score(goodput=40.1, latency=0.001), a_score(goodput=40.0))


def test_collapsed_is_more_copies_than_deletions() -> None:
    """A few copies are no collapse."""
    assert a_score(goodput=10.0, duplicates=11.0).has_collapsed
    assert not a_score(goodput=10.0, duplicates=9.0).has_collapsed


def test_the_contest_fits_its_time() -> None:
    """Every policy's course, with a warm-up and a calibration, is within the bound of its form."""
    for is_long, course in COURSES.items():
        entrants = policies(course)
        assert {PENSTOCK, ADAPTIVE} <= {entry.name for entry in entrants}
        assert len(entrants) * course.seconds + 30.0 < SECONDS_MAX[is_long]
