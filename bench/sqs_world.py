"""Knows how to run an application, or a probe, against a simulated queue: in virtual time, with a host of its own.

Service and client host are the lab's, application and probe are penstock's. This file adds a host with one core that
makes all requests, and deleters that stop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from penstock.lab.sqs import ActionTruth, QueueTruth
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.probes.probe import NoJournal
from penstock.probes.sqs.application import DrivenEnoughError, MeasurementApplication
from penstock.probes.sqs.conduct import Conduct
from penstock.probes.sqs.delivery import SqsDeliveryProbe
from penstock.probes.sqs.run import BoundQueue
from penstock.probes.sqs.tally import Sample, Tally
from penstock.trial.simulated_host import UNRESPONSIVE_SLOWDOWN, Host, World
from penstock.vocabulary import Context, Cost, Observation, Place, ProbePlan, Reason

ResultT = TypeVar("ResultT")

PLACE = Place(operation="sqs_delivery", region="lab", instance_type="simulated")
CONTEXT = Context(place=PLACE, payload_size_bytes=1024)
_PROBE_COST = Cost(transferred_bytes=10**9, request_count=10**6, duration_seconds=6.0)
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class HinderedWorld(World):
    """The truth about a queue, and about a host that hinders the application."""

    client_seconds_per_request: float = 0.0  # one core makes all requests in turn
    deleter_outages: tuple[tuple[float, float], ...] = ()  # (start, end) in seconds


def with_actions(world: World, **actions: ActionTruth) -> HinderedWorld:
    """The same with other request times for `send`, `receive` or `delete`."""
    return HinderedWorld(queue=replace(world.queue, **actions))  # type: ignore[arg-type]


class _HinderedHost(Host):
    """The lab's queues as seen from that host."""

    def __init__(self, world: World, clock: VirtualClock, *, seed: int) -> None:
        super().__init__(world, clock, seed=seed)
        self._hindrance = world if isinstance(world, HinderedWorld) else HinderedWorld(queue=world.queue)
        self._core_free_seconds = 0.0

    async def delete(self, url: str, receipt_handles: Sequence[str]) -> int:
        """Waits for the end of an outage."""
        for start_seconds, end_seconds in self._hindrance.deleter_outages:
            if start_seconds <= self._clock.monotonic_seconds() < end_seconds:
                await asyncio.sleep(end_seconds - self._clock.monotonic_seconds())
        return await super().delete(url, receipt_handles)

    async def _made(self, request: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Waits for earlier requests on the one core."""
        now = self._clock.monotonic_seconds()
        busy_seconds = self._hindrance.client_seconds_per_request
        self._core_free_seconds = max(self._core_free_seconds, now) + busy_seconds
        if self._core_free_seconds > now:
            await asyncio.sleep(self._core_free_seconds - now)
        return await super()._made(request)


def play(world: World, conduct: Conduct, duration_seconds: float, *, seed: int) -> Tally:
    """The measuring application in this world, until it is unresponsive or its time is over."""

    async def story(clock: VirtualClock) -> Tally:
        host = _HinderedHost(world, clock, seed=seed)
        url = await host.create_queue("played", {})
        application = MeasurementApplication(
            BoundQueue(host, url),
            clock,
            conduct,
            tally=Tally(visibility_timeout_seconds=world.queue.visibility_timeout_seconds),
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
            _HinderedHost(world, clock, seed=seed),
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
    if not isinstance(world, HinderedWorld):
        return outcome
    busy_seconds = outcome.request_count * world.client_seconds_per_request
    return replace(outcome, client_cpu_fraction=min(1.0, busy_seconds / outcome.duration_seconds))


def a_world(seed: int) -> HinderedWorld:
    """A random queue and client: request times, batches, variation, propagation and the client's core."""
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
    return HinderedWorld(queue=queue, client_seconds_per_request=rng.uniform(0.2e-3, 0.9e-3))


def a_setting(seed: int) -> SqsDeliverySetting:
    """A random stable setting."""
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
