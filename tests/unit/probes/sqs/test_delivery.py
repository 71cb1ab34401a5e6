"""The SQS probe measures what it says, pays no more than it may, and empties its queue."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import Mapping

import pytest

from penstock.clock import Clock
from penstock.lab.virtual_time import VirtualClock
from penstock.models.sqs.setting import PROBED_BYTES_MIN, SqsDeliverySetting
from penstock.operations.sections.queues import QueueSection
from penstock.operations.sqs.delivery import DELIVERY
from penstock.optimizer.choice import from_tables
from penstock.probes.outside import Denied, Failed, Missing, Refused, RequestError, Throttled, Unreachable
from penstock.probes.probe import Leftover, LeftoverKind
from penstock.probes.sqs.delivery import SqsDeliveryProbe
from penstock.probes.sqs.tally import steady_goodput
from penstock.vocabulary import Cost, Inconclusive, Observation, Outcome, ProbePlan
from tests.unit.probes.fakes import (
    MemoryJournal,
    MemoryQueues,
    StandingStill,
    a_delivery_plan,
    reason_of,
    virtually,
)

NAME = "penstock-host"


def a_probe(queues: MemoryQueues, clock: Clock, journal: MemoryJournal | None = None) -> SqsDeliveryProbe:
    """On a queue of its own."""
    return SqsDeliveryProbe(queues, clock, journal or MemoryJournal(), queue_name=NAME, loop_tick_seconds=0.1)


def outcome_of(plan: ProbePlan[SqsDeliverySetting], queues: MemoryQueues) -> Outcome[SqsDeliverySetting]:
    """Run one probe in virtual time."""
    return virtually(lambda clock: a_probe(queues, clock).run(plan))


def observed(plan: ProbePlan[SqsDeliverySetting], queues: MemoryQueues) -> Observation[SqsDeliverySetting]:
    """Run one probe that must measure."""
    outcome = outcome_of(plan, queues)
    assert isinstance(outcome, Observation), outcome
    return outcome


def left_inside(queues: MemoryQueues) -> int:
    """Messages that are still in the queue."""
    return len(queues.visible) + len(queues.in_flight)


@pytest.mark.parametrize("batch", [1, 4, 10])
def test_every_message_is_delivered_and_deleted(batch: int) -> None:
    """After a probe the queue is empty, and every message was counted once at every step."""
    queues = MemoryQueues()
    measures = observed(a_delivery_plan(batch_message_count=batch), queues).measures
    assert measures["sent_count"] == measures["received_count"] == measures["deleted_count"] > 100
    assert measures["left_count"] == measures["duplicate_count"] == left_inside(queues) == 0


def test_the_smallest_messages_are_paid_for_and_counted() -> None:
    """What tells a message takes more than a byte: the plan has room for it, and the rate is that of messages."""
    plan, model = a_delivery_plan(size=1), DELIVERY.model
    (cost_max,) = model.probe_costs(
        from_tables(model, plan.context.place), plan.context, [plan.setting], plan.tariff
    )
    tariff = dataclasses.replace(plan.tariff, usd_per_sent_byte=1e-6)
    smallest, sent = (
        QueueSection(message_size_bytes=(size,)).cost_max(tariff) for size in (1, PROBED_BYTES_MIN)
    )
    assert smallest == sent
    queues = MemoryQueues(send_seconds=0.03, receive_seconds=0.01, delete_seconds=0.02)
    outcome = observed(dataclasses.replace(plan, cost_max=cost_max), queues)
    assert outcome.transferred_bytes == outcome.measures["deleted_count"] > 100


def test_request_times_are_those_of_the_service() -> None:
    """Each action's mean is the service's own time, however long receivers wait for messages to come."""
    queues = MemoryQueues(send_seconds=0.03, receive_seconds=0.01, delete_seconds=0.02)
    measures = observed(a_delivery_plan(send_rate_limit_messages_per_second=20), queues).measures
    assert measures["send_seconds_mean"] == pytest.approx(0.03)
    assert measures["delete_seconds_mean"] == pytest.approx(0.02)
    assert measures.get("receive_seconds_mean", 0.01) == pytest.approx(0.01)
    assert measures["send_seconds_variation"] == pytest.approx(0.0, abs=1e-6)


def test_idle_requests_tell_the_price_of_each_batch() -> None:
    """Before the threads start every action is timed at 1, 2, 5 and 10 messages, whatever the plan's own batch is."""
    queues = MemoryQueues(send_seconds=0.003, receive_seconds=0.001, delete_seconds=0.002)
    measures = observed(a_delivery_plan(batch_message_count=10), queues).measures
    expected = {"send": 0.003, "receive": 0.001, "delete": 0.002}
    assert {name: value for name, value in measures.items() if name.startswith("idle_")} == {
        f"idle_{action}_seconds_batch_{batch}": pytest.approx(expected[action])
        for action in expected
        for batch in (1, 2, 5, 10)
    }


def test_idle_requests_take_a_tenth_of_the_time_at_most() -> None:
    """On a slow queue a run measures fewer batches, another one first each time; what is billed twice is left out."""
    plan = a_delivery_plan(size=9000, batch_message_count=1)
    seen = set()
    for seed in range(3):
        queues = MemoryQueues(send_seconds=0.06, receive_seconds=0.06, delete_seconds=0.06)
        measures = observed(dataclasses.replace(plan, seed=seed), queues).measures
        batches = {int(name.rpartition("_")[2]) for name in measures if name.startswith("idle_send_")}
        assert len(batches) == 2  # of 0.18 s each, in a tenth of 4 s
        seen |= batches
    assert seen == {1, 2, 5}


async def test_a_cold_delivery_is_timed_when_connections_were_idle(clock: VirtualClock) -> None:
    """The first message after a pause goes over a connection of its own; right after a run none is cold."""
    probe = a_probe(MemoryQueues(send_seconds=0.03, receive_seconds=0.01), clock)
    outcomes = [await probe.run(a_delivery_plan()), await probe.run(a_delivery_plan())]
    await asyncio.sleep(60.0)
    measures = [
        outcome.measures
        for outcome in [*outcomes, await probe.run(a_delivery_plan())]
        if isinstance(outcome, Observation)
    ]
    cold = [measured.get("cold_delivery_seconds") for measured in measures]
    assert cold == [pytest.approx(0.04), None, pytest.approx(0.04)]


async def test_a_slow_start_is_within_the_plans_time(clock: VirtualClock) -> None:
    """Making the queue ready and measuring share one limit of time."""

    class SlowToStart(MemoryQueues):
        async def find_queue(self, name: str) -> str:
            await asyncio.sleep(3.0)
            return await super().find_queue(name)

    queues = SlowToStart()
    queues.attributes[NAME] = {}

    await a_probe(queues, clock).run(a_delivery_plan())
    assert clock.monotonic_seconds() <= 4.0 + 1e-6
    assert queues.counts["send"] > 0


async def test_a_service_that_does_not_answer_in_time_is_no_matter_of_the_budget(clock: VirtualClock) -> None:
    """Nothing was sent either way, and only one of the two helps."""
    outcome = await a_probe(MemoryQueues(receive_seconds=1e3), clock).run(a_delivery_plan())
    assert "allow more time" in reason_of(outcome)


async def test_a_process_that_stood_still_blames_nobody_else(clock: VirtualClock) -> None:
    """More time, or more receivers, would not have helped."""
    probe = a_probe(MemoryQueues(receive_seconds=1e3), StandingStill(clock, at_seconds=0.7))
    outcome = await probe.run(a_delivery_plan())
    assert "stood still for 10.0" in reason_of(outcome)


async def test_a_cancelled_run_says_what_it_used(clock: VirtualClock) -> None:
    """What a stopped daemon did not spend can be given back."""
    queues = MemoryQueues()

    probe = a_probe(queues, clock)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2.0):
            await probe.run(a_delivery_plan())
    used = probe.used
    assert used.request_count == pytest.approx(queues.request_count, abs=6)  # those under way, once each
    assert 0 < used.transferred_bytes <= 2 * queues.sent_bytes + 2 * 2 * 100


def test_latency_is_from_send_to_receive() -> None:
    """A message that finds a parked receiver takes the send and the receive, nothing more."""
    observation = observed(a_delivery_plan(send_rate_limit_messages_per_second=10), MemoryQueues())
    assert observation.latency_seconds_p50 == pytest.approx(0.04, abs=0.001)


def test_goodput_is_the_bottleneck_of_the_loop() -> None:
    """With deleters half as fast as the rest, goodput is theirs."""
    queues = MemoryQueues(delete_seconds=0.04)
    goodput = observed(a_delivery_plan(), queues).measures["goodput_messages_per_second"]
    assert goodput == pytest.approx(2 / 0.04, rel=0.02)


def test_rate_limit_is_kept() -> None:
    """Senders together send no faster than the limit."""
    queues = MemoryQueues()
    observed(a_delivery_plan(sender_thread_count=8, send_rate_limit_messages_per_second=25), queues)
    gaps = [later - earlier for earlier, later in itertools.pairwise(queues.send_times)]
    assert min(gaps) == pytest.approx(0.04, abs=1e-6)


def test_send_window_is_kept() -> None:
    """No more messages than the window are sent and not received, however slow the receivers."""
    queues = MemoryQueues(receive_seconds=0.2)
    observed(a_delivery_plan(sender_thread_count=8, send_window_message_count=5), queues)
    assert queues.unreceived_count_max <= 5


def test_receive_window_is_kept() -> None:
    """No more copies than the window are received and not deleted, however slow the deleters."""
    queues = MemoryQueues(delete_seconds=0.2)
    observed(a_delivery_plan(receiver_thread_count=8, receive_window_message_count=6), queues)
    assert queues.undeleted_count_max <= 6


def test_age_of_the_oldest_undeleted() -> None:
    """A slow deleter shows in the age, long before it shows as duplicates."""
    slow = MemoryQueues(delete_seconds=0.1)
    age = observed(a_delivery_plan(deleter_thread_count=1), slow).measures["oldest_undeleted_seconds_max"]
    assert age > 0.5


def test_duplicates_are_counted_and_deleted() -> None:
    """A second copy is no goodput, and is deleted too."""
    queues = MemoryQueues()
    queues.deliver_twice_at = 30
    measures = observed(a_delivery_plan(), queues).measures
    assert measures["duplicate_count"] == 1
    assert measures["received_count"] == measures["sent_count"] + 1
    assert left_inside(queues) == 0


def test_messages_of_former_runs_are_deleted_and_not_counted() -> None:
    """What a killed probe left in the queue disturbs no later one."""
    queues = MemoryQueues()
    queues.attributes[NAME] = {}
    queues.visible = ["0123456789ab:00000001:000000000000001", "hello"]
    measures = observed(a_delivery_plan(), queues).measures
    assert measures["foreign_count"] == 2
    assert measures["sent_count"] == measures["received_count"] == measures["deleted_count"]
    assert left_inside(queues) == 0


def test_bodies_have_the_size_of_the_context() -> None:
    """A message is as large as the context says, and never smaller than what identifies it."""
    for size, expected in ((1, 37), (1000, 1000)):
        queues = MemoryQueues()
        observed(a_delivery_plan(size=size), queues)
        assert queues.sent_sizes == {expected}


def test_throttles_are_counted_and_borne() -> None:
    """A throttled request is evidence; the probe goes on and still empties the queue."""
    queues = MemoryQueues(
        trouble=lambda action, n: Throttled("slow") if n == 5 and action != "find" else None
    )
    observation = observed(a_delivery_plan(), queues)
    assert (observation.throttled_count, observation.failed_count) == (3, 0)
    assert left_inside(queues) == 0


def test_sends_without_an_answer_are_looked_for() -> None:
    """A send that got no answer may have arrived: the probe waits for an empty receive before it ends."""
    queues = MemoryQueues(
        trouble=lambda action, n: Unreachable("lost") if (action, n) == ("send", 3) else None
    )
    observation = observed(a_delivery_plan(), queues)
    assert observation.failed_count == 1
    assert observation.measures["empty_receive_count"] >= 1


@pytest.mark.parametrize("action", ["create", "send", "receive", "delete"])
def test_nothing_succeeded(action: str) -> None:
    """When nothing goes all the way the outcome repeats the operator's sentence, and nobody hammers."""
    queues = MemoryQueues(
        trouble=lambda asked, _: Denied("not allowed: see the policy") if asked == action else None
    )
    outcome = outcome_of(a_delivery_plan(), queues)
    assert "not allowed: see the policy" in reason_of(outcome)
    assert queues.counts[action] <= 2


def test_budget_too_small_sends_nothing() -> None:
    """What cannot be taken out again is not sent."""
    queues = MemoryQueues()
    plan = a_delivery_plan(cost_max=Cost(transferred_bytes=10_000, request_count=4, duration_seconds=4.0))
    outcome = outcome_of(plan, queues)
    assert "raise the budget" in reason_of(outcome)
    assert queues.counts["send"] == 0


async def run_twice_and_close(probe: SqsDeliveryProbe) -> None:
    """Do what a daemon does in its life."""
    await probe.run(a_delivery_plan())
    await probe.run(a_delivery_plan())
    await probe.close()


async def test_queue_is_made_once_and_removed_in_the_end(clock: VirtualClock) -> None:
    """The queue is journalled before it is made, reused, and struck out after it is gone."""
    queues = MemoryQueues()
    journal = MemoryJournal(queues.log)
    await run_twice_and_close(a_probe(queues, clock, journal))
    assert queues.log.index("record") < queues.log.index("create")
    assert queues.counts["create"] == 1
    assert queues.log[-2:] == ["remove", "strike"]
    assert (queues.attributes, journal.entries) == ({}, [])


async def test_what_a_run_could_not_take_out_goes_with_its_queue(clock: VirtualClock) -> None:
    """Nothing waits for the next run, or for its retention to end; the next run makes the queue anew."""
    are_lost = True
    queues = MemoryQueues(
        trouble=lambda action, n: (
            Unreachable("lost") if are_lost and (action, n > 5) == ("delete", True) else None
        )
    )
    journal = MemoryJournal(queues.log)
    probe = a_probe(queues, clock, journal)
    outcome = await probe.run(a_delivery_plan())
    assert probe.used.request_count <= a_delivery_plan().cost_max.request_count
    assert isinstance(outcome, Inconclusive)
    assert (queues.attributes, journal.entries) == ({}, [])
    are_lost = False
    again = await probe.run(a_delivery_plan())
    assert isinstance(again, Observation)
    assert (again.measures["left_count"], queues.counts["create"]) == (0, 2)
    await probe.close()


class SlowlyMade(MemoryQueues):
    """A queue appears a second after it was asked for, whether or not somebody still waits."""

    async def create_queue(self, name: str, attributes: Mapping[str, str]) -> str:
        asyncio.get_running_loop().call_later(1.0, self.attributes.__setitem__, name, dict(attributes))
        await asyncio.sleep(1.5)
        return name


async def test_queue_whose_making_was_cancelled_is_removed(clock: VirtualClock) -> None:
    """A stop while the queue is being made leaves neither the queue nor an entry in the journal."""
    queues, journal = SlowlyMade(), MemoryJournal()

    probe = a_probe(queues, clock, journal)
    running = asyncio.create_task(probe.run(a_delivery_plan()))
    await asyncio.sleep(0.5)
    running.cancel()
    await asyncio.wait({running})
    await probe.close()
    await asyncio.sleep(5.0)
    assert (queues.attributes, journal.entries) == ({}, [])


async def test_closing_does_not_wait_for_ever(clock: VirtualClock) -> None:
    """A service that does not answer keeps nobody from stopping: the entry stays for the next start."""

    class Silent(MemoryQueues):
        async def delete_queue(self, url: str) -> None:  # noqa: ARG002  # the signature of the seam
            await asyncio.sleep(3600.0)

    journal = MemoryJournal()
    probe = a_probe(Silent(), clock, journal)
    await probe.run(a_delivery_plan())
    started_seconds = clock.monotonic_seconds()
    await probe.close()
    assert clock.monotonic_seconds() - started_seconds <= 10.0
    assert len(journal.entries) == 1


async def test_queue_of_somebody_else_stays(clock: VirtualClock) -> None:
    """A queue that the operator made, and no journal knows, is used and not removed."""
    queues = MemoryQueues()
    queues.attributes[NAME] = {"VisibilityTimeout": "45"}
    await run_twice_and_close(a_probe(queues, clock, MemoryJournal()))
    assert list(queues.attributes) == [NAME]


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"MessageRetentionPeriod": "345600"}, "keeps messages for 345600 s"),
        ({"MessageRetentionPeriod": "3600", "DelaySeconds": "900"}, "delays messages by 900 s"),
        ({"RedrivePolicy": "{}", "DelaySeconds": "0"}, "moves messages to another queue"),
    ],
)
async def test_an_applications_queue_of_that_name_keeps_its_messages(
    clock: VirtualClock, attributes: dict[str, str], told: str
) -> None:
    """It is told by what it does with them; what a probe receives it deletes, and what it sends would stay."""
    queues, visible = MemoryQueues(), ["an order", "another one"]
    queues.attributes[NAME] = attributes
    queues.visible = visible[:]
    outcome = await a_probe(queues, clock).run(a_delivery_plan())
    assert f"{NAME} {told}" in reason_of(outcome)
    assert (queues.visible, queues.log) == (visible, ["find", "attributes"])


async def test_queue_of_a_former_life_is_ours(clock: VirtualClock) -> None:
    """A queue that the journal still lists is used again, and removed in the end."""
    queues, journal = MemoryQueues(), MemoryJournal()
    queues.attributes[NAME] = {}
    journal.entries.append(
        Leftover(kind=LeftoverKind.SQS_QUEUE, service="sqs_delivery", container="eu-west-1", name=NAME)
    )
    await run_twice_and_close(a_probe(queues, clock, journal))
    assert (queues.attributes, journal.entries, queues.counts["create"]) == ({}, [], 0)


async def test_name_that_was_just_deleted_gets_a_suffix(clock: VirtualClock) -> None:
    """SQS refuses a name for 60 s after its deletion: the probe takes another one and journals that."""
    cooling = Refused("deleted less than 60 s ago")
    queues = MemoryQueues(trouble=lambda action, n: cooling if (action, n) == ("create", 0) else None)
    journal = MemoryJournal()
    assert isinstance(await a_probe(queues, clock, journal).run(a_delivery_plan()), Observation)
    (name,) = queues.attributes
    assert name.startswith(f"{NAME}-")
    assert [entry.name for entry in journal.entries] == [name]


async def test_queue_that_vanished_is_made_again(clock: VirtualClock) -> None:
    """When somebody deletes the queue under the probe, one run is lost and the next has a new queue."""
    queues, journal = MemoryQueues(), MemoryJournal()
    probe = a_probe(queues, clock, journal)
    assert isinstance(await probe.run(a_delivery_plan()), Observation)
    queues.attributes.clear()
    assert isinstance(await probe.run(a_delivery_plan()), Inconclusive)
    assert isinstance(await probe.run(a_delivery_plan()), Observation)
    assert len(journal.entries) == 1


@pytest.mark.parametrize(
    ("error", "is_kept"), [(Denied("no"), False), (Failed("no"), True), (Unreachable("no"), True)]
)
async def test_journal_of_a_queue_that_was_not_made(
    clock: VirtualClock, error: RequestError, is_kept: bool
) -> None:
    """Only a queue that may have been made all the same stays in the journal."""
    journal = MemoryJournal()
    queues = MemoryQueues(trouble=lambda action, _: error if action == "create" else None)
    await a_probe(queues, clock, journal).run(a_delivery_plan())
    assert bool(journal.entries) is is_kept


async def test_queue_that_cannot_be_removed_stays_in_the_journal(clock: VirtualClock) -> None:
    """Shutting down without a network leaves the entry for the next start."""
    journal = MemoryJournal()
    queues = MemoryQueues(trouble=lambda action, _: Unreachable("no route") if action == "remove" else None)
    await run_twice_and_close(a_probe(queues, clock, journal))
    assert len(journal.entries) == 1


def test_visibility_timeout_is_the_queues_own() -> None:
    """What the queue says is reported, not what was asked for."""
    queues = MemoryQueues()
    queues.attributes[NAME] = {"VisibilityTimeout": "45"}
    assert observed(a_delivery_plan(), queues).measures["visibility_timeout_seconds"] == 45.0


def test_bytes_of_both_directions_are_told() -> None:
    """The budget pays for sending and for receiving."""
    queues = MemoryQueues()
    outcome = observed(a_delivery_plan(size=1000), queues)
    assert outcome.measures["attempted_bytes"] == 2 * queues.sent_bytes > 0


def test_steady_goodput_leaves_out_ramp_and_drain() -> None:
    """Only what was deleted after the first deletion and during the sending counts."""
    deletions = [(2.0, 1)] + [(2.0 + 0.1 * k, 1) for k in range(1, 21)] + [(9.0, 100)]
    assert steady_goodput(deletions, 4.05) == pytest.approx(10.0)
    assert steady_goodput([(1.0, 5)], 4.0) is None


def test_missing_queue_is_said() -> None:
    """A refusal while looking for the queue is the reason of the outcome."""
    queues = MemoryQueues(trouble=lambda action, _: Missing("vanished") if action == "attributes" else None)
    outcome = outcome_of(a_delivery_plan(), queues)
    assert "no queue to measure with: vanished" in reason_of(outcome)
