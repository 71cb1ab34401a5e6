"""Knows how a whole daemon lives through days of the lab in seconds: the same app, probes, store and physics.

    week = play(Scenario(link=worlds.REGIONAL.link, days=7, changes=(At(days=2, link=slower),)))
    week.fraction_of_best(64 * MiB, at_days=7)

Reads have a truth of their own (`inbound=worlds.REGIONAL.inbound`); without one, downloads are not probed.

Time is virtual and chance is seeded, so the same scenario gives the same week. Only the sockets are missing: the
probes reach the lab's services through their seams, and the fits run in place. Advice stands at the sizes that are
probed alone: at those of the ladder it moves nothing, and takes as long as all the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from penstock.daemon import assembly
from penstock.daemon.assembly import App, Surroundings, assembled
from penstock.daemon.config import AdviceSection, BudgetSection, Configuration, DaemonSection, ProbesSection
from penstock.daemon.cycle.conductor import Cycle
from penstock.daemon.cycle.thinker import Thinker
from penstock.daemon.host import HostSample
from penstock.daemon.instance import HostIdentity
from penstock.daemon.memory.store import Store
from penstock.daemon.yielding.host_watch import HostWatch
from penstock.lab.link import LinkTruth
from penstock.lab.s3 import S3Service
from penstock.lab.sqs import Counts, QueueTruth, SqsService
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.operations.operation import Operation, SectionT, Service
from penstock.operations.s3.upload import UPLOAD
from penstock.operations.sections.section import Section
from penstock.operations.table import OPERATIONS, setting_types
from penstock.probes.outside import MessageQueues, ObjectStore
from penstock.trial.simulated_aws import SimulatedMessageQueues, SimulatedObjectStore
from penstock.units import KiB, MiB
from penstock.vocabulary import Context, Inconclusive, Observation, Place, Recommendation, Spend
from tests.inline_thinker import InlineThinker
from tests.transfers import TRANSFERS

START_AT = datetime(2026, 1, 5, tzinfo=UTC)
REGION = "lab-1"
BUCKET = "lab-bucket"
_ADVICE_COUNT_MAX = 100_000
_NEIGHBOURS_PIECE_BYTES = 256 * KiB  # small beside what is moved between two looks at the counters
_LOOK_SECONDS = 10.0
_OF_SERVICE: Mapping[Service, Mapping[str, Any]] = {
    Service.S3: {
        "bucket": BUCKET,
        "object_size_bytes": (64 * MiB,),
        "network_path": "gateway-endpoint",
        "usd_per_day": 0.05,
    },
    Service.SQS: {"message_size_bytes": (KiB,), "network_path": "public-address"},
}
_BUDGET = BudgetSection()
# Days of hourly probes; a fit of 100 takes three times as long.
_ADVICE = AdviceSection(fit_observation_count_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """From this moment on the world is another one; what is None stays as it was."""

    days: float
    link: LinkTruth | None = None
    inbound: LinkTruth | None = None
    queue: QueueTruth | None = None
    is_restart: bool = False  # the daemon stops at this moment, and starts again
    clock_step_seconds: float = 0.0  # somebody sets the host's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """An application on the same host, which uploads over the same link without a pause, from then to then."""

    connection_count: int
    from_days: float
    to_days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A world, what happens in it, and how the daemon is configured. None: that is not there."""

    link: LinkTruth | None = None  # of writes to S3
    inbound: LinkTruth | None = None  # of reads
    # To S3 in other regions; they do not change.
    far_links: Mapping[str, LinkTruth] = field(default_factory=dict)
    queue: QueueTruth | None = None
    days: float = 7.0
    seed: int = 0
    changes: tuple[At, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    instance_type: str = "lab"
    sections: Mapping[str, Section] | None = None  # of the operations that are probed; None: of all, hourly
    budget: BudgetSection = _BUDGET
    quiet_hours: tuple[str, ...] = ()
    thinker: Callable[[], Thinker] = InlineThinker
    advice: AdviceSection = _ADVICE
    each_hour: Callable[[App, float], None] = lambda _app, _days: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """What happened. `advice` holds every recommendation that was put up, oldest first."""

    scenario: Scenario
    cycles: tuple[Cycle, ...]
    advice: tuple[Recommendation[Any], ...]
    spends: tuple[Spend, ...]
    leftover_names: tuple[str, ...]  # objects, uploads and queues that are still outside at the end
    lingering_names: tuple[str, ...]  # what was outside at the end of an hour, and still is ten minutes later
    lingering_hours: tuple[int, ...]  # in which that was so
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

    def link_at(self, days: float, operation: str = UPLOAD.name) -> LinkTruth | None:
        """The truth of the way of its bytes at that moment."""
        changes = [c for c in self.scenario.changes if c.days <= days]
        steps: list[Scenario | At] = [self.scenario, *changes]
        truths = [step.inbound if _reads(operation) else step.link for step in steps]
        return next((truth for truth in reversed(truths) if truth is not None), None)

    def fraction_of_best(
        self, object_size_bytes: int, *, at_days: float, operation: str = UPLOAD.name
    ) -> float:
        """What the standing advice reaches of the best setting there is, on the calm link of that moment."""
        truth = self.link_at(at_days, operation)
        advised = self.advised(operation, object_size_bytes, at_days=at_days)
        if advised is None or truth is None:
            return 0.0
        return TRANSFERS[operation].fraction_of_best(truth, object_size_bytes, advised.setting)


def hourly(row: Operation[SectionT, Any]) -> SectionT:
    """A section with which an operation is probed once an hour in the lab."""
    return row.section_type(mean_interval_seconds=3600.0, **_OF_SERVICE[row.service])


def play(scenario: Scenario, *, keep: Path | None = None) -> Week:
    """Live through the scenario; a copy of the database may be kept. Not from within a running event loop."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-scenario-") as directory,
        mock.patch.object(assembly, "standing_contexts", _probed_contexts),
    ):
        week = run_virtually(lambda clock: _Play(scenario, Path(directory), clock).run(), start_at=START_AT)
        if keep is not None:
            for file in Path(directory).glob("penstock.db*"):
                shutil.copy(file, keep)
    return week


_standing_contexts = assembly.standing_contexts


def _probed_contexts(configuration: Configuration, home: Place) -> list[Context]:
    """Those of the sizes that are configured, where anything is probed there."""
    probed = {name: configuration.section_of(row).payload_size_bytes for name, row in OPERATIONS.items()}
    standing = _standing_contexts(configuration, home)
    return [context for context in standing if context.payload_size_bytes in probed[context.operation]]


class _Lab:
    """The two services, and `penstock.operations.operation.Outside` on them."""

    def __init__(self, scenario: Scenario, clock: VirtualClock) -> None:
        home = scenario.link or scenario.inbound
        links = {**({REGION: home} if home else {}), **scenario.far_links}
        self.s3 = {
            region: S3Service(
                link,
                clock=clock,
                seed=scenario.seed + number,
                inbound=scenario.inbound if region == REGION else None,
            )
            for number, (region, link) in enumerate(links.items())
        }
        self.sqs = SqsService(scenario.queue, clock=clock, seed=scenario.seed) if scenario.queue else None
        self._neighbours_bytes = 0
        for region, service in self.s3.items():
            for bucket in (BUCKET, f"{BUCKET}-{region}"):
                service.shelf.create_bucket(bucket)

    async def object_store(self, region: str, _endpoint_url: str | None = None) -> ObjectStore:
        return SimulatedObjectStore(self.s3[region])

    async def message_queues(self, region: str, _endpoint_url: str | None = None) -> MessageQueues:  # noqa: ARG002  # the lab has one
        assert self.sqs is not None
        return SimulatedMessageQueues(self.sqs)

    async def upload_beside(self) -> None:
        """Be one connection of an application."""
        while True:
            await self.s3[REGION].uplink.carry(_NEIGHBOURS_PIECE_BYTES)
            self._neighbours_bytes += _NEIGHBOURS_PIECE_BYTES

    def sample_host(self) -> HostSample:
        """What the host's counters say: those of the link."""
        sent = sum(int(service.uplink.carried_bytes) for service in self.s3.values())
        received = sum(int(service.downlink.carried_bytes) for service in self.s3.values())
        return HostSample(
            received_bytes=received,
            own_received_bytes=received,
            transmitted_bytes=sent,
            own_transmitted_bytes=max(0, sent - self._neighbours_bytes),
        )

    def become(self, change: At) -> None:
        if change.link is not None or change.inbound is not None:
            self.s3[REGION].become(change.link, inbound=change.inbound)
        if change.queue is not None and self.sqs is not None:
            self.sqs.become(change.queue)

    def leftover_names(self) -> tuple[str, ...]:
        return (*self._object_names(), *(self.sqs.queue_names("") if self.sqs is not None else ()))

    def passing_names(self) -> set[str]:
        """What no probe keeps between two runs: all but the queues themselves, and what is there to be read."""
        queues = [self.sqs.queue(name) for name in self.sqs.queue_names("")] if self.sqs is not None else []
        objects = (name for name in self._object_names() if "-reads-" not in name)
        return {*objects, *(id_ for queue in queues for id_ in queue.message_ids)}

    def _object_names(self) -> Iterator[str]:
        for service in self.s3.values():
            for bucket, _ in service.shelf.buckets():
                yield from (stored.key for stored in service.shelf.objects(bucket))
                yield from (upload_id for _, upload_id, _ in service.shelf.uploads(bucket))


class _Play:
    """One run of a scenario: lives of the daemon, between crashes, in one lab."""

    def __init__(self, scenario: Scenario, directory: Path, clock: VirtualClock) -> None:
        self._scenario = scenario
        self._clock = clock
        self._lab = _Lab(scenario, clock)
        self._configuration = _configuration(scenario, directory)
        self._cycles: list[Cycle] = []
        self._lingering: list[str] = []
        self._lingering_hours: list[int] = []
        self._app: App | None = None

    async def run(self) -> Week:
        beside = asyncio.gather(
            self._change_the_world(),
            self._look_each_hour(),
            *(self._live_beside(neighbour) for neighbour in self._scenario.neighbours),
        )
        ends = [*sorted(c.days for c in self._scenario.changes if c.is_restart), self._scenario.days]
        for end_days in ends:
            await self._live_until(end_days * 86400.0)
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)
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
            lingering_names=tuple(self._lingering),
            lingering_hours=tuple(self._lingering_hours),
            sqs_counts=self._lab.sqs.counts if self._lab.sqs is not None else None,
        )

    async def _live_until(self, end_seconds: float) -> None:
        surroundings = Surroundings(
            clock=self._clock,
            outside=self._lab,
            thinker=self._scenario.thinker(),
            identity=HostIdentity(
                region=REGION, instance_type=self._scenario.instance_type, sentence="", is_instance=True
            ),
            host_name="lab",
            seed=self._scenario.seed,
            sample_host=self._lab.sample_host if self._scenario.neighbours else HostSample,
            loop_tick_seconds=1.0,  # a virtual loop is never late: no need to look often
        )
        opened = assembled(self._configuration, surroundings, on_cycle=self._cycles.append)
        async with opened as app:
            self._app = app
            await app.conductor.prepare()
            looking = asyncio.create_task(self._look_at_host(app.host_watch))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(end_seconds - self._clock.monotonic_seconds()):
                    await app.conductor.run()
            looking.cancel()

    async def _look_at_host(self, host_watch: HostWatch) -> None:
        while self._scenario.neighbours:
            host_watch.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _live_beside(self, neighbour: Neighbour) -> None:
        await asyncio.sleep(neighbour.from_days * 86400.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout((neighbour.to_days - neighbour.from_days) * 86400.0):
                await asyncio.gather(*(self._lab.upload_beside() for _ in range(neighbour.connection_count)))

    async def _look_each_hour(self) -> None:
        for hour in itertools.count(1):
            await asyncio.sleep(hour * 3600.0 - self._clock.monotonic_seconds())
            if self._app is not None:
                self._scenario.each_hour(self._app, self._clock.monotonic_seconds() / 86400.0)
            names = self._lab.passing_names()
            await asyncio.sleep(600.0)
            lingering = sorted(names & self._lab.passing_names())
            self._lingering += lingering
            self._lingering_hours += [hour] * bool(lingering)

    async def _change_the_world(self) -> None:
        for change in sorted(self._scenario.changes, key=lambda c: c.days):
            await asyncio.sleep(change.days * 86400.0 - self._clock.monotonic_seconds())
            self._lab.become(change)
            self._clock.step(change.clock_step_seconds)


def _truth(scenario: Scenario, row: Operation[Any, Any]) -> object:
    """Of what the operation meets; None: it is not there."""
    if row.service is Service.SQS:
        return scenario.queue
    return scenario.inbound if _reads(row.name) else scenario.link


def _reads(operation: str) -> bool:
    """Whether its bytes come by the link of reads; all else on objects, also what moves none, meets that of writes."""
    return operation in TRANSFERS and TRANSFERS[operation].reads


def _configuration(scenario: Scenario, directory: Path) -> Configuration:
    stated = scenario.sections or {name: hourly(row) for name, row in OPERATIONS.items()}
    sections = {
        name: msgspec.structs.replace(section, is_enabled=_truth(scenario, OPERATIONS[name]) is not None)
        for name, section in stated.items()
    }
    return Configuration(
        daemon=DaemonSection(state_directory=str(directory), runtime_directory=str(directory)),
        probes=msgspec.structs.replace(ProbesSection(**sections), quiet_hours=scenario.quiet_hours),
        budget=scenario.budget,
        advice=scenario.advice,
    )
