"""Knows how a fleet lives through hours of the lab in seconds: many daemons in one virtual time, beside one bucket.

Each host has a link of its own with the same physics, and other noise; only the fleet's objects are shared.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from penstock.daemon.assembly import App, Surroundings, assembled
from penstock.daemon.config import AdviceSection, Configuration, DaemonSection, FleetSection, ProbesSection
from penstock.daemon.host import HostSample
from penstock.daemon.instance import HostIdentity
from penstock.lab.link import LinkTruth
from penstock.lab.s3 import S3Service
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.operations.s3.upload import UPLOAD
from penstock.probes.outside import Listed, RequestError, Tagged
from penstock.trial.simulated_aws import SimulatedObjectStore
from penstock.units import MiB
from penstock.vocabulary import Context, Demand, Inconclusive, Observation, Place
from tests.inline_thinker import InlineThinker
from tests.seams import OneStore
from tests.transfers import TRANSFERS

START_AT = datetime(2026, 1, 5, tzinfo=UTC)
REGION, BUCKET, SHARED = "lab-1", "lab-bucket", "fleet-bucket"
SIZE = 64 * MiB
ResultT = TypeVar("ResultT")


def fleetwise(story: Callable[[VirtualClock], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Run a story in virtual time."""
    return run_virtually(story, start_at=START_AT)


class Shared:
    """The fleet's bucket. `trouble` is what every request to it meets."""

    def __init__(self, clock: VirtualClock) -> None:
        fast = LinkTruth(
            round_trip_seconds=0.01,
            connection_rate_bytes_per_second=1e8,
            host_rate_bytes_per_second=1e9,
            service_latency_seconds_median=0.02,
        )
        self.service = S3Service(fast, clock=clock, seed=0)
        self.service.shelf.create_bucket(SHARED)
        self.store = SimulatedObjectStore(self.service)
        self.trouble: RequestError | None = None

    @property
    def keys(self) -> list[str]:
        """Of the documents."""
        return [stored.key for stored in self.service.shelf.objects(SHARED)]

    def put(self, key: str, body: bytes) -> None:
        """As anybody may who has the rights."""
        self.service.shelf.put(SHARED, key, self.service.shelf.body(len(body), body))

    def get(self, key: str) -> bytes:
        """As it is there."""
        body = self.service.shelf.get(SHARED, key).body
        return body.read(0, body.size_bytes)


class _Store(SimulatedObjectStore):
    """A host's own link to its bucket, and the shared one beside it."""

    def __init__(self, service: S3Service, shared: Shared) -> None:
        super().__init__(service)
        self._shared = shared

    async def get_unless(
        self, bucket: str, key: str, etag: str | None, *, size_bytes_max: int
    ) -> Tagged | None:
        if self._shared.trouble is not None:
            raise self._shared.trouble
        return await self._shared.store.get_unless(bucket, key, etag, size_bytes_max=size_bytes_max)

    async def put_if(self, bucket: str, key: str, body: bytes, etag: str | None) -> str:
        if self._shared.trouble is not None:
            raise self._shared.trouble
        return await self._shared.store.put_if(bucket, key, body, etag)

    async def put_object(self, bucket: str, key: str, body: bytes) -> str:
        if bucket == SHARED:
            return await self._shared.store.put_object(bucket, key, body)
        return await super().put_object(bucket, key, body)

    async def list_shared(self, bucket: str, prefix: str) -> list[Listed]:
        return await self._shared.store.list_shared(bucket, prefix)


class Host:
    """One daemon, and what the lab is to it."""

    def __init__(
        self,
        directory: Path,
        clock: VirtualClock,
        shared: Shared,
        link: LinkTruth,
        *,
        seed: int,
        fleet: FleetSection | None = None,
    ) -> None:
        self.link, self._clock, self._seed = link, clock, seed
        self._shared = shared
        self._service = S3Service(link, clock=clock, seed=seed)
        self._service.shelf.create_bucket(BUCKET)
        folder = directory / f"host-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        section = UPLOAD.section_type(
            is_enabled=True,
            mean_interval_seconds=3600.0,
            bucket=BUCKET,
            object_size_bytes=(SIZE,),
            network_path="gateway-endpoint",
            usd_per_day=0.05,
        )
        self.configuration = Configuration(
            daemon=DaemonSection(state_directory=str(folder), runtime_directory=str(folder)),
            probes=ProbesSection(s3_upload=section),
            fleet=fleet or FleetSection(bucket=SHARED, may_write=True),
            advice=AdviceSection(fit_observation_count_max=40),
        )
        self.observations: list[Observation[Any]] = []

    @property
    def place(self) -> Place:
        """Where it measures."""
        return Place(operation=UPLOAD.name, region=REGION, instance_type="lab")

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[App]:
        """The daemon, before its first cycle."""
        surroundings = Surroundings(
            clock=self._clock,
            outside=OneStore(_Store(self._service, self._shared)),
            thinker=InlineThinker(),
            identity=HostIdentity(region=REGION, instance_type="lab", sentence="", is_instance=True),
            host_name=f"host-{self._seed}",
            seed=self._seed + 1,
            sample_host=HostSample,
            loop_tick_seconds=1.0,
        )
        async with assembled(self.configuration, surroundings, on_cycle=self._note) as app:
            await app.conductor.prepare()
            yield app

    async def live(self, app: App, *, hours: float = 1e6, until: Callable[[], bool] = lambda: False) -> None:
        """Run for so long, or until that is so after a cycle."""
        self._until, self._ended = until, asyncio.Event()
        running = asyncio.create_task(app.conductor.run())
        ending = asyncio.create_task(self._ended.wait())
        await asyncio.wait({running, ending}, timeout=hours * 3600.0, return_when=asyncio.FIRST_COMPLETED)
        for task in (running, ending):
            task.cancel()
        await asyncio.gather(running, ending, return_exceptions=True)

    def fraction_of_best(self, app: App) -> float:
        """Of what is advised now, on the calm link."""
        context = Context(place=self.place, payload_size_bytes=SIZE)
        advised = app.board.recommend(context, Demand(), self._clock.now()).setting
        fraction = TRANSFERS[UPLOAD.name].fraction_of_best
        with ThreadPoolExecutor(1) as beside:  # it runs in a virtual time of its own
            return beside.submit(fraction, self.link, SIZE, advised).result()

    def _note(self, cycle: Any) -> None:
        if cycle.outcome is not None and not isinstance(cycle.outcome, Inconclusive):
            self.observations.append(cycle.outcome)
            if self._until():
                self._ended.set()


async def all_of(stories: Sequence[Awaitable[ResultT]]) -> list[ResultT]:
    """At the same time."""
    return list(await asyncio.gather(*stories))
