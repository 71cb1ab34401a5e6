"""Knows how an experiment runs in the lab: the ordinary probes in calibrated worlds, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from penstock.experiments.calibrations import ADDRESS_COUNT, WORLDS
from penstock.experiments.experiment import CONDITION, DOWNLOAD, QUEUE, Record, Step
from penstock.lab.s3 import S3Service
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.probes.outside import Reading
from penstock.probes.probe import NoJournal, Probe
from penstock.probes.s3.download import S3DownloadProbe
from penstock.probes.s3.upload import S3UploadProbe
from penstock.probes.s3.workspace import Workspace
from penstock.probes.sqs.application import DrivenEnoughError
from penstock.probes.sqs.queue_application import QueueApplicationProbe
from penstock.probes.sqs.tally import Sample
from penstock.trial.simulated_aws import SimulatedObjectStore
from penstock.trial.simulated_host import UNRESPONSIVE_SLOWDOWN, Host, World
from penstock.vocabulary import (
    FREE,
    Context,
    Inconclusive,
    Observation,
    Outcome,
    Place,
    ProbePlan,
    Reason,
    Tariff,
)

_START_AT = datetime(2026, 1, 1, tzinfo=UTC)
_BUCKET = "lab"
_PLACE = Place(operation="", region="lab", instance_type="simulated")
_TICK_SECONDS = 3600.0  # in virtual time no loop is late
_READ_KEY = "read"
_SEED = 1


def run_in_lab(steps: Sequence[Step], tell: Callable[[Record], None] = lambda _: None) -> list[Record]:
    """Run all steps, each world with a clock of its own; call `tell` after each. Not from a running event loop."""
    records: dict[str, Record] = {}
    for world in dict.fromkeys(step.world for step in steps):
        mine = [step for step in steps if step.world == world]

        async def story(clock: VirtualClock, mine: Sequence[Step] = mine, world: str = world) -> None:
            laboratory = _Laboratory(world, clock)
            for step in mine:
                await asyncio.sleep(step.wait_seconds)
                records[step.label] = await laboratory.record(step)
                tell(records[step.label])

        run_virtually(story, start_at=_START_AT)
    return [records[step.label] for step in steps]


class _WeightlessStore(SimulatedObjectStore):
    """Bodies have a size but no bytes, which nobody reads here; the bucket's address changes every hour."""

    def __init__(self, service: S3Service, clock: VirtualClock, answered_by: Counter[str]) -> None:
        super().__init__(service)
        self._lab = service
        self._clock = clock
        self._answered_by = answered_by

    async def put_object(self, bucket: str, key: str, body: bytes) -> str:
        stored = await self._lab.put_object(bucket, key, len(body))
        self._note_address()
        return stored.body.etag

    async def read_range(
        self, bucket: str, key: str, start: int, stop: int, *, object_size_bytes: int
    ) -> Reading:
        reading = await super().read_range(bucket, key, start, stop, object_size_bytes=object_size_bytes)
        self._note_address()
        return reading

    def _note_address(self) -> None:
        hour = int(self._clock.monotonic_seconds() // 3600)
        self._answered_by[f"192.0.2.{1 + hour * 7 % ADDRESS_COUNT}"] += 1


class _Laboratory:
    """One calibrated world and the probes in it."""

    def __init__(self, world: str, clock: VirtualClock) -> None:
        self._name = world
        self._world = WORLDS[world]
        self._clock = clock
        self._stores: dict[int, S3Service] = {}
        self._queue_count = 0

    async def record(self, step: Step) -> Record:
        """Run all copies at the same time."""
        addresses: Counter[str] = Counter()
        probes = [self._probe(step, index, addresses) for index in range(step.copy_count)]
        outcomes = await asyncio.gather(*(probe.run(plan_of(step, _PLACE)) for probe in probes))
        for probe in probes:
            await probe.close()
        return record_of(step, outcomes, probes, addresses)

    def _probe(self, step: Step, index: int, addresses: Counter[str]) -> Probe[Any]:
        if step.operation == QUEUE:
            return self._queue_probe()
        service = self._service(index)
        store = _WeightlessStore(service, self._clock, addresses)
        workspace = Workspace(store, self._clock, NoJournal(), _BUCKET, loop_tick_seconds=_TICK_SECONDS)
        if step.operation == DOWNLOAD:
            service.shelf.put(_BUCKET, _READ_KEY, service.shelf.body(step.payload_size_bytes, None))
            return S3DownloadProbe(workspace, object_key=_READ_KEY)
        return S3UploadProbe(workspace, payload_source=lambda size, _: bytes(size))

    def _service(self, index: int) -> S3Service:
        """Each copy of a step has a host of its own."""
        if index not in self._stores:
            assert not isinstance(self._world, World)
            outbound, inbound = self._world
            self._stores[index] = S3Service(outbound, clock=self._clock, seed=_SEED + index, inbound=inbound)
            self._stores[index].shelf.create_bucket(_BUCKET)
        return self._stores[index]

    def _queue_probe(self) -> QueueApplicationProbe:
        assert isinstance(self._world, World)
        host = Host(self._world, self._clock, seed=_SEED + self._queue_count)
        self._queue_count += 1

        def tell(sample: Sample) -> None:
            host.collect(sample.unreceived_count + sample.undeleted_count)
            if host.slowdown >= UNRESPONSIVE_SLOWDOWN:
                raise DrivenEnoughError

        return QueueApplicationProbe(
            host, self._clock, NoJournal(), loop_tick_seconds=_TICK_SECONDS, tell=tell
        )


def plan_of(step: Step, place: Place, tariff: Tariff = FREE) -> ProbePlan[Any]:
    """The step as a probe's plan."""
    return ProbePlan(
        context=Context(
            place=replace(place, operation=step.operation), payload_size_bytes=step.payload_size_bytes
        ),
        setting=step.setting,
        reason=Reason.REQUESTED,
        cost_max=replace(step.cost_max, usd=step.usd(tariff)),
        tariff=tariff,
        body_count=step.body_count,
    )


def record_of(
    step: Step, outcomes: Sequence[Outcome[Any]], probes: Sequence[Probe[Any]], addresses: Mapping[str, int]
) -> Record:
    """The copies as one record: amounts are summed, everything else is averaged."""
    measured = [outcome for outcome in outcomes if isinstance(outcome, Observation)]
    started_at = min(outcome.started_at for outcome in outcomes).isoformat(timespec="seconds")
    for outcome in outcomes:
        if isinstance(outcome, Inconclusive):
            return Record(label=step.label, started_at=started_at, reason=outcome.reason)
    names = set.intersection(*(set(outcome.measures) for outcome in measured))
    values = {name: fmean([outcome.measures[name] for outcome in measured]) for name in sorted(names)}
    values["duration_seconds"] = max(outcome.duration_seconds for outcome in measured)
    values |= {name: sum(getattr(outcome, name) for outcome in measured) for name in _ADDED}
    values |= {name: fmean([getattr(outcome, name) for outcome in measured]) for name in _AVERAGED}
    record = Record(label=step.label, started_at=started_at, values=values, addresses=dict(addresses))
    course = probes[0].course if isinstance(probes[0], QueueApplicationProbe) else None
    if course is None:
        return record
    document = course.document()
    conditions = document["conditions"] or {}  # those that a plan was made for
    values |= {f"{CONDITION}{k}": float(v) for k, v in conditions.items() if isinstance(v, (int, float))}
    samples = [{k: v for k, v in sample.items() if k in _KEPT} for sample in document["samples"]]
    return replace(record, samples=samples, arrivals=document["first_arrivals"])


_ADDED = (
    "transferred_bytes",
    "throughput_bytes_per_second",
    "request_count",
    "throttled_count",
    "failed_count",
)
_AVERAGED = ("latency_seconds_mean", "latency_seconds_p50", "latency_seconds_p99")
_KEPT = frozenset(
    {"at_seconds", "sent_count", "received_count", "duplicate_count", "deleted_count", "latency_seconds_mean"}
)
