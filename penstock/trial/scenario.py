"""Knows how a whole daemon lives through days of the lab in seconds: the same app, probes, store and physics.

    week = play(Scenario(link=worlds.REGIONAL.link, days=7, changes=(At(days=2, link=slower),)))
    week.fraction_of_best(64 * MiB, at_days=7)

Time is virtual and chance is seeded, so the same scenario gives the same week. Only the sockets are missing: the
probes reach the lab's services through their seams, and the fits run in place.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from penstock.daemon import budget
from penstock.daemon.app import Surroundings, assembled, sweep
from penstock.daemon.conductor import Cycle
from penstock.daemon.config import (
    AdviceSection,
    BudgetSection,
    Configuration,
    DaemonSection,
    ProbesSection,
    S3UploadSection,
    SqsDeliverySection,
)
from penstock.daemon.services import setting_types
from penstock.daemon.store import Store
from penstock.daemon.thinker import InlineThinker, Thinker
from penstock.lab.link import LinkTruth
from penstock.lab.optimum import calm, upload_optimum, upload_throughput_bytes_per_second
from penstock.lab.s3 import S3Service
from penstock.lab.sqs import Counts, QueueTruth, SqsService
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.probes.outside import MessageQueues, ObjectStore
from penstock.trial.simulated_aws import SimulatedMessageQueues, SimulatedObjectStore
from penstock.units import KiB, MiB
from penstock.vocabulary import Inconclusive, Observation, Recommendation

START_AT = datetime(2026, 1, 5, tzinfo=UTC)
REGION = "lab-1"
BUCKET = "lab-bucket"
_ADVICE_COUNT_MAX = 100_000
_HOURLY_UPLOADS = S3UploadSection(object_size_bytes=(64 * MiB,), mean_interval_seconds=3600.0)
_HOURLY_DELIVERIES = SqsDeliverySection(message_size_bytes=(KiB,), mean_interval_seconds=3600.0)
_BUDGET = BudgetSection()
_FIT_OBSERVATION_COUNT_MAX = 40  # days of hourly probes; a fit of 100 takes three times as long


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """From this moment on the world is another one; what is None stays as it was."""

    days: float
    link: LinkTruth | None = None
    queue: QueueTruth | None = None
    is_restart: bool = False  # the daemon stops at this moment, and starts again


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A world, what happens in it, and how the daemon is configured. None: that operation is not probed."""

    link: LinkTruth | None = None
    queue: QueueTruth | None = None
    days: float = 7.0
    seed: int = 0
    changes: tuple[At, ...] = ()
    instance_type: str = "lab"
    s3_upload: S3UploadSection = _HOURLY_UPLOADS
    sqs_delivery: SqsDeliverySection = _HOURLY_DELIVERIES
    budget: BudgetSection = _BUDGET
    thinker: Callable[[], Thinker] = InlineThinker


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """What happened. `advice` holds every recommendation that was put up, oldest first."""

    scenario: Scenario
    cycles: tuple[Cycle, ...]
    advice: tuple[Recommendation[Any], ...]
    spends: tuple[budget.Spend, ...]
    leftover_names: tuple[str, ...]  # objects, uploads and queues that are still outside at the end
    sqs_counts: Counts | None  # what the service counted, and bills

    @property
    def observations(self) -> list[Observation[Any]]:
        """Of all cycles that measured something, oldest first."""
        return [
            c.outcome
            for c in self.cycles
            if c.outcome is not None and not isinstance(c.outcome, Inconclusive)
        ]

    def advised(
        self, operation: str, payload_size_bytes: int, *, at_days: float
    ) -> Recommendation[Any] | None:
        """What stood at that moment; None when nothing did."""
        moment = START_AT + timedelta(days=at_days)
        standing = [
            r
            for r in self.advice
            if r.context.operation == operation
            and r.context.payload_size_bytes == payload_size_bytes
            and r.issued_at <= moment
        ]
        return standing[-1] if standing else None

    def link_at(self, days: float) -> LinkTruth | None:
        """The truth at that moment."""
        changed = [c.link for c in self.scenario.changes if c.days <= days and c.link is not None]
        return changed[-1] if changed else self.scenario.link

    def fraction_of_best(self, object_size_bytes: int, *, at_days: float) -> float:
        """What the standing upload advice reaches of the best setting there is, on the calm link of that moment."""
        advised, truth = self.advised("s3_upload", object_size_bytes, at_days=at_days), self.link_at(at_days)
        if advised is None or truth is None:
            return 0.0
        reached = upload_throughput_bytes_per_second(
            calm(truth),
            object_size_bytes,
            thread_count=advised.setting.thread_count,
            part_size_bytes=advised.setting.part_size_bytes,
        )
        return reached / upload_optimum(truth, object_size_bytes).throughput_bytes_per_second


def play(scenario: Scenario) -> Week:
    """Live through the scenario. Not from within a running event loop."""
    with tempfile.TemporaryDirectory(prefix="penstock-scenario-") as directory:
        return run_virtually(lambda clock: _Play(scenario, Path(directory), clock).run(), start_at=START_AT)


class _Lab:
    """The two services, and `penstock.daemon.services.Outside` on them."""

    def __init__(self, scenario: Scenario, clock: VirtualClock) -> None:
        self.s3 = S3Service(scenario.link, clock=clock, seed=scenario.seed) if scenario.link else None
        self.sqs = SqsService(scenario.queue, clock=clock, seed=scenario.seed) if scenario.queue else None
        if self.s3 is not None:
            self.s3.shelf.create_bucket(BUCKET)

    async def object_store(self, region: str) -> ObjectStore:  # noqa: ARG002  # the lab is one region
        assert self.s3 is not None
        return SimulatedObjectStore(self.s3)

    async def message_queues(self, region: str) -> MessageQueues:  # noqa: ARG002  # as above
        assert self.sqs is not None
        return SimulatedMessageQueues(self.sqs)

    def become(self, change: At) -> None:
        if change.link is not None and self.s3 is not None:
            self.s3.become(change.link)
        if change.queue is not None and self.sqs is not None:
            self.sqs.become(change.queue)

    def leftover_names(self) -> tuple[str, ...]:
        names: list[str] = []
        if self.s3 is not None:
            names += [stored.key for stored in self.s3.shelf.objects(BUCKET, "")]
            names += [key for key, _, _ in self.s3.shelf.uploads(BUCKET, "")]
        if self.sqs is not None:
            names += self.sqs.queue_names("")
        return tuple(names)


class _Play:
    """One run of a scenario: lives of the daemon, between crashes, in one lab."""

    def __init__(self, scenario: Scenario, directory: Path, clock: VirtualClock) -> None:
        self._scenario = scenario
        self._clock = clock
        self._lab = _Lab(scenario, clock)
        self._configuration = _configuration(scenario, directory)
        self._cycles: list[Cycle] = []

    async def run(self) -> Week:
        weather = asyncio.create_task(self._change_the_world())
        ends = [*sorted(c.days for c in self._scenario.changes if c.is_restart), self._scenario.days]
        for end_days in ends:
            await self._live_until(end_days * 86400.0)
        weather.cancel()
        database_path = self._configuration.daemon.database_path
        with contextlib.closing(Store.open_read_only(database_path, setting_types())) as store:
            contexts = {r.context for r in store.recommendations()}
            advice = [
                r for c in contexts for r in store.recommendation_history(c, count_max=_ADVICE_COUNT_MAX)
            ]
            spends = store.spend()
        return Week(
            scenario=self._scenario,
            cycles=tuple(self._cycles),
            advice=tuple(sorted(advice, key=lambda r: (r.issued_at, r.context.payload_size_bytes))),
            spends=tuple(spends),
            leftover_names=self._lab.leftover_names(),
            sqs_counts=self._lab.sqs.counts if self._lab.sqs is not None else None,
        )

    async def _live_until(self, end_seconds: float) -> None:
        surroundings = Surroundings(
            clock=self._clock,
            outside=self._lab,
            thinker=self._scenario.thinker(),
            region=REGION,
            instance_type=self._scenario.instance_type,
            host_name="lab",
            host_verdict=lambda _now: budget.ALLOWED,
            seed=self._scenario.seed,
            loop_tick_seconds=1.0,  # a virtual loop is never late: no need to look often
        )
        opened = assembled(self._configuration, surroundings, on_cycle=self._cycles.append)
        async with opened as app:
            await sweep(self._configuration, app, self._lab, self._clock.now())
            await app.conductor.prepare()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(end_seconds - self._clock.monotonic_seconds()):
                    await app.conductor.run()

    async def _change_the_world(self) -> None:
        for change in sorted(self._scenario.changes, key=lambda c: c.days):
            await asyncio.sleep(change.days * 86400.0 - self._clock.monotonic_seconds())
            self._lab.become(change)


def _configuration(scenario: Scenario, directory: Path) -> Configuration:
    s3_upload = msgspec.structs.replace(
        scenario.s3_upload, is_enabled=scenario.link is not None, bucket=BUCKET
    )
    sqs_delivery = msgspec.structs.replace(scenario.sqs_delivery, is_enabled=scenario.queue is not None)
    return Configuration(
        daemon=DaemonSection(state_directory=str(directory), runtime_directory=str(directory)),
        probes=ProbesSection(s3_upload=s3_upload, sqs_delivery=sqs_delivery),
        budget=scenario.budget,
        advice=AdviceSection(fit_observation_count_max=_FIT_OBSERVATION_COUNT_MAX),
    )
