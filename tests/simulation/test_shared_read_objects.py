"""Hosts that share a probe bucket read one object for days: it stays as long as anybody reads it, and goes then."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.daemon.assembly import App, Surroundings, assembled
from penstock.daemon.config import AdviceSection, Configuration, DaemonSection, ProbesSection
from penstock.daemon.host import HostSample
from penstock.daemon.instance import HostIdentity
from penstock.lab import worlds
from penstock.lab.s3 import S3Service
from penstock.lab.virtual_time import VirtualClock
from penstock.models.model import Fit, PerformanceModel
from penstock.models.s3.download import S3DownloadSetting
from penstock.operations.s3.download import DOWNLOAD
from penstock.trial.simulated_aws import SimulatedObjectStore
from penstock.units import MiB
from penstock.vocabulary import Context, Cost, ProbePlan, Reason, Tariff
from tests.fleet_of_hosts import BUCKET, REGION, fleetwise
from tests.inline_thinker import DiceThinker
from tests.seams import OneStore

SIZE = MiB
DAY_SECONDS = 86_400.0


class SteadyThinker(DiceThinker):
    """Proposes the same again and again, and learns nothing."""

    def plan(
        self,
        model: PerformanceModel[Any],  # noqa: ARG002 - nothing is asked of it
        fit: Fit,  # noqa: ARG002
        context: Context,
        tariff: Tariff,
    ) -> ProbePlan[Any]:
        return ProbePlan(
            context=context,
            setting=S3DownloadSetting(thread_count=4, range_size_bytes=4 * MiB),
            reason=Reason.EXPLORE,
            cost_max=Cost(transferred_bytes=64 * MiB, request_count=200, usd=0.001, duration_seconds=10.0),
            tariff=tariff,
        )


class Bucket:
    """What all hosts share, and how often an object to be read was put into it."""

    def __init__(self, clock: VirtualClock) -> None:
        link = worlds.REGIONAL
        self.service = S3Service(link.link, clock=clock, seed=1, inbound=link.inbound)
        self.service.shelf.create_bucket(BUCKET)
        self.put_count = 0
        self.clock = clock

    @property
    def keys(self) -> list[str]:
        return [stored.key for stored in self.service.shelf.objects(BUCKET)]


class _Counted(SimulatedObjectStore):
    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.service)
        self._bucket = bucket

    async def put_object(self, bucket: str, key: str, body: bytes) -> str:
        self._bucket.put_count += len(body) >= SIZE
        return await super().put_object(bucket, key, body)


@contextlib.asynccontextmanager
async def a_host(bucket: Bucket, folder: Path, number: int) -> AsyncIterator[App]:
    """A daemon that downloads every six hours, until it is told to stop."""
    configuration = Configuration(
        daemon=DaemonSection(state_directory=str(folder / str(number)), runtime_directory=str(folder)),
        probes=ProbesSection(
            s3_download=DOWNLOAD.section_type(
                is_enabled=True,
                mean_interval_seconds=21_600.0,
                bucket=BUCKET,
                object_size_bytes=(SIZE,),
                network_path="gateway-endpoint",
                usd_per_day=0.05,
            )
        ),
        advice=AdviceSection(fit_observation_count_max=10),
    )
    surroundings = Surroundings(
        clock=bucket.clock,
        outside=OneStore(_Counted(bucket)),
        thinker=SteadyThinker(),
        identity=HostIdentity(
            region=REGION, instance_type="lab", sentence="", is_instance=True, machine=str(number)
        ),
        host_name=f"host-{number}",
        seed=number,
        sample_host=HostSample,
        loop_tick_seconds=1.0,
    )
    async with assembled(configuration, surroundings) as app:
        await app.conductor.prepare()
        running = asyncio.create_task(app.conductor.run())
        try:
            yield app
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.mark.days
def test_what_hosts_read_together_is_put_once_and_goes_with_the_last_of_them(tmp_path: Path) -> None:
    """It was removed each day by those who had not put it, and with its maker, and was put and paid for again."""

    async def story(clock: VirtualClock) -> None:
        bucket = Bucket(clock)
        async with contextlib.AsyncExitStack() as others:
            async with a_host(bucket, tmp_path, 1):  # which puts it
                await asyncio.sleep(DAY_SECONDS / 4)
                for number in (2, 3):
                    await others.enter_async_context(a_host(bucket, tmp_path, number))
                await asyncio.sleep(4 * DAY_SECONDS)
                assert bucket.put_count == 1
            await asyncio.sleep(2 * DAY_SECONDS)
            assert bucket.put_count == 1
            assert sum(key.endswith("/object") for key in bucket.keys) == 1
        assert bucket.keys == []

    fleetwise(story)


def test_copies_of_a_host_leave_to_it_what_it_reads(tmp_path: Path) -> None:
    """Started from a snapshot of its disk, they removed its object and its sign, for the journal in it lists both."""

    async def story(clock: VirtualClock) -> None:
        bucket = Bucket(clock)
        async with a_host(bucket, tmp_path, 1), contextlib.AsyncExitStack() as copies:
            await asyncio.sleep(DAY_SECONDS / 4)
            its_own = set(bucket.keys)
            for number in (2, 3):
                shutil.copytree(tmp_path / "1", tmp_path / str(number))
                copy = await copies.enter_async_context(a_host(bucket, tmp_path, number))
                await asyncio.sleep(60.0)
                assert its_own <= set(bucket.keys)
                assert copy.conductor.sweeper.count == 0
            await asyncio.sleep(1.5 * DAY_SECONDS)
            assert its_own <= set(bucket.keys)
            assert bucket.put_count == 1
        assert bucket.keys == []

    fleetwise(story)


def test_what_nobody_reads_any_more_is_removed_by_whoever_is_there(tmp_path: Path) -> None:
    """A host that was lost with its disk leaves it and its sign; days after, another's daily sweep removes both."""

    async def story(clock: VirtualClock) -> None:
        bucket = Bucket(clock)
        lost = f"penstock-probe/20260105T000000Z-{'0' * 32}-reads-{SIZE - 1}/"
        for name in ("object", "used-by-somebody"):
            await _Counted(bucket).put_object(BUCKET, lost + name, b"x")
        async with a_host(bucket, tmp_path, 1):
            await asyncio.sleep(2.5 * DAY_SECONDS)
            assert sum(key.startswith(lost) for key in bucket.keys) == 2
            await asyncio.sleep(2 * DAY_SECONDS)
            assert sum(key.startswith(lost) for key in bucket.keys) == 0

    fleetwise(story)
