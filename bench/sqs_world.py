"""Knows how to hold an application, or a probe, against a simulated queue: in virtual time, with a host of its own.

The service and its client's host are the lab's, the application and the probe are penstock's own.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from penstock.lab.sqs import ActionTruth, QueueTruth
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.models.sqs.delivery import SqsDeliverySetting
from penstock.probes.probe import NoJournal
from penstock.probes.sqs.application import DrivenEnoughError, MeasurementApplication
from penstock.probes.sqs.conduct import Conduct
from penstock.probes.sqs.delivery import SqsDeliveryProbe
from penstock.probes.sqs.run import BoundQueue
from penstock.probes.sqs.tally import Sample, Tally
from penstock.trial.simulated_host import UNRESPONSIVE_SLOWDOWN, Host, World
from penstock.vocabulary import Context, Cost, Observation, Place, ProbePlan, Reason

PLACE = Place(operation="sqs_delivery", region="lab", instance_type="simulated")
CONTEXT = Context(place=PLACE, payload_size_bytes=1024)
_PROBE_COST = Cost(transferred_bytes=10**9, request_count=10**6, duration_seconds=6.0)
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def play(world: World, conduct: Conduct, duration_seconds: float, *, seed: int) -> Tally:
    """The measuring application in this world, until it is unresponsive."""

    async def story(clock: VirtualClock) -> Tally:
        host = Host(world, clock, seed=seed)
        url = await host.create_queue("played", {})
        application = MeasurementApplication(
            BoundQueue(host, url),
            clock,
            conduct,
            visibility_timeout_seconds=world.queue.visibility_timeout_seconds,
        )

        def collect(sample: Sample) -> None:
            host.collect(sample.unreceived_count + sample.undeleted_count)
            if host.slowdown >= UNRESPONSIVE_SLOWDOWN:
                raise DrivenEnoughError

        await application.drive(duration_seconds, collect)
        return application.tally

    return run_virtually(story, start_at=_EPOCH)


def observe(
    world: World, setting: SqsDeliverySetting, *, seed: int, number: int = 0
) -> Observation[SqsDeliverySetting]:
    """What a probe of this setting records in this world."""

    async def story(clock: VirtualClock) -> Observation[SqsDeliverySetting]:
        probe = SqsDeliveryProbe(
            Host(world, clock, seed=seed),
            clock,
            NoJournal(),
            queue_name="observed",
            visibility_timeout_seconds=world.queue.visibility_timeout_seconds,
            loop_tick_seconds=1.0,
        )
        plan = ProbePlan(
            context=CONTEXT, setting=setting, reason=Reason.EXPLORE, cost_max=_PROBE_COST, seed=seed
        )
        outcome = await probe.run(plan)
        if not isinstance(outcome, Observation):
            raise TypeError(f"the probe did not measure: {outcome.reason}")
        return outcome

    outcome = run_virtually(story, start_at=_EPOCH + timedelta(minutes=number))
    busy_seconds = outcome.request_count * world.client_seconds_per_request
    return replace(outcome, client_cpu_fraction=min(1.0, busy_seconds / outcome.duration_seconds))


def a_world(seed: int) -> World:
    """A queue and a client as they may be: request times, batches, chance, propagation and the client's core."""
    rng = random.Random(seed)
    typical_seconds = 10 ** rng.uniform(-2.2, -1.4)  # 6 to 40 ms
    variation = rng.uniform(0.2, 0.7)

    def action() -> ActionTruth:
        fixed_seconds = typical_seconds * rng.uniform(0.7, 1.3)
        each_seconds = fixed_seconds * rng.uniform(0.02, 0.25)
        return ActionTruth(request_seconds=fixed_seconds, message_seconds=each_seconds, variation=variation)

    queue = QueueTruth(
        send=action(),
        receive=action(),
        delete=action(),
        spread_seconds_median=rng.uniform(0.003, 0.016),
        spread_sigma=0.4,
    )
    return World(queue=queue, client_seconds_per_request=rng.uniform(0.2e-3, 0.9e-3))


def a_setting(seed: int) -> SqsDeliverySetting:
    """A stable setting that nobody chose for a reason."""
    rng = random.Random(seed)
    senders = round(2 ** rng.uniform(0.0, 3.6))
    batch = rng.choice((1, 2, 4, 7, 10))
    return SqsDeliverySetting(
        sender_thread_count=senders,
        receiver_thread_count=max(1, round(senders * rng.uniform(0.6, 1.8))),
        deleter_thread_count=max(1, round(senders * rng.uniform(0.6, 2.0))),
        batch_message_count=batch,
        send_rate_limit_messages_per_second=0.0,
        send_window_message_count=batch * round(senders * rng.uniform(1.5, 6.0) + 4),
        receive_window_message_count=batch * senders * 40,
    )


def limited(setting: SqsDeliverySetting, rate_per_second: float) -> SqsDeliverySetting:
    """The same with a send rate limit."""
    return replace(setting, send_rate_limit_messages_per_second=rate_per_second)
