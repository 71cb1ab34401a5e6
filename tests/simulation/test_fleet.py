"""Hours of several daemons beside one bucket: what one measured serves the next, and the bucket is nobody's need."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.api.leases import appetite
from penstock.api.wire import Claim, Question
from penstock.daemon.assembly import App
from penstock.daemon.config import FleetSection
from penstock.fleet import prior
from penstock.lab import worlds
from penstock.lab.virtual_time import VirtualClock
from penstock.operations.s3.upload import UPLOAD
from penstock.probes.outside import NoBucket
from penstock.vocabulary import Context, Demand, Place
from tests.fleet_of_hosts import REGION, SHARED, SIZE, START_AT, Host, Shared, all_of, fleetwise
from tests.unit.models.s3.upload_world import UploadWorld, history

LINK = worlds.CROSS_REGION.link
READING = FleetSection(bucket=SHARED)
HERE = Place(operation=UPLOAD.name, region=REGION, instance_type="lab")
KEY = prior.key(READING.key_prefix, HERE)


@pytest.fixture
async def clock() -> VirtualClock:
    """Where it begins decides what chance brings."""
    return VirtualClock(asyncio.get_running_loop(), START_AT)


async def test_a_new_host_begins_where_an_older_one_has_come_to(clock: VirtualClock, tmp_path: Path) -> None:
    """Its first two probes are enough, and only what was measured travels."""
    shared = Shared(clock)
    older = Host(tmp_path, clock, shared, LINK, seed=1)
    async with older.opened() as app:
        await older.live(app, until=lambda: len(older.observations) >= 6)
        await older.live(app, hours=0.4)  # until its next visit
    said = prior.read(shared.get(KEY), UPLOAD.model, HERE, clock.now())
    assert {one.observation.started_at for one in said.evidence} >= {
        observation.started_at for observation in older.observations[:6]
    }

    new = Host(tmp_path, clock, shared, LINK, seed=2)
    async with new.opened() as app:
        reached: list[float] = []

        def is_over() -> bool:
            reached.append(new.fraction_of_best(app))
            return len(new.observations) >= 2

        await new.live(app, until=is_over)
        assert min(reached) >= 0.97
        assert new.observations[0].setting.thread_count > 4  # what another one bore needs no ramp
        assert app.conductor.ledger.spent(clock.now(), "fleet").usd > 0


async def test_a_new_instance_type_takes_four_probes_of_the_whole_fleet(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Of three hosts that begin together one measures for all, and who measured once himself is no worse off for it."""
    probing = FleetSection(bucket=SHARED, may_write=True, prober_count=1)

    shared = Shared(clock)
    hosts = [Host(tmp_path, clock, shared, LINK, seed=100 + n, fleet=probing) for n in range(3)]
    async with contextlib.AsyncExitStack() as opened:
        apps = [await opened.enter_async_context(host.opened()) for host in hosts]
        living = [asyncio.create_task(host.live(app)) for host, app in zip(hosts, apps, strict=True)]
        fractions = [0.0]
        while min(fractions) < 0.97 and sum(len(host.observations) for host in hosts) <= 4:
            await asyncio.sleep(500.0)
            fractions = [host.fraction_of_best(app) for host, app in zip(hosts, apps, strict=True)]
        counts = [len(host.observations) for host in hosts]
        for task in living:
            task.cancel()
        await asyncio.gather(*living, return_exceptions=True)
    assert min(fractions) >= 0.97, (counts, fractions)
    assert sum(counts) <= 4
    assert sum(count > 0 for count in counts) <= 1


@pytest.mark.days
async def test_what_leases_want_is_what_hosts_divide(clock: VirtualClock, tmp_path: Path) -> None:
    """Of two daemons one has most while nobody holds a lease at the other, and half afterwards; advice follows."""
    limit = 8.0
    sharing = FleetSection(
        bucket=SHARED, may_write=True, shared_limits=(f"uploads: s3_upload at {limit:.0f}/s",)
    )
    context = Context(place=HERE, payload_size_bytes=SIZE)

    shared = Shared(clock)
    hosts = [Host(tmp_path, clock, shared, LINK, seed=200 + n, fleet=sharing) for n in range(2)]
    async with contextlib.AsyncExitStack() as opened:
        apps = [await opened.enter_async_context(host.opened()) for host in hosts]
        await all_of(
            [
                host.live(app, until=lambda host=host: len(host.observations) >= 2)  # type: ignore[misc]
                for host, app in zip(hosts, apps, strict=True)
            ]
        )
        rates = [
            app.board.request_rate_per_second(app.board.alone(context, Demand(), clock.now())) for app in apps
        ]
        assert min(rates) > limit / 2

        async def parts(*holders: App) -> list[float]:
            for app in holders:
                alone = app.board.alone(context, Demand(), clock.now())
                question = Question(
                    operation=UPLOAD.name,
                    payload_size_bytes=SIZE,
                    region=None,
                    instance_type=None,
                    service_class=HERE.service_class,
                    demand=Demand(),
                )
                app.leases.grant(
                    Claim(question=question), appetite(alone, alone), process_id=1, uid=1001, now=clock.now()
                )
            await all_of([host.live(app, hours=0.1) for host, app in zip(hosts, apps, strict=True)])
            advice = [app.board.recommend(context, Demand(), clock.now()) for app in apps]
            return [one.derived["fleet_request_rate_per_second"] for one in advice]

        one, none = await parts(apps[0])
        assert apps[0].conductor.limits is not None
        wanted = apps[0].conductor.limits.document()[0]["wanted_per_second"]
        assert wanted > limit / 2  # and what nobody wants is for both
        assert [one, none] == pytest.approx([(limit + wanted) / 2, (limit - wanted) / 2], rel=0.1)
        assert await parts(apps[1]) == pytest.approx([limit / 2] * 2, rel=0.1)


@pytest.mark.days
async def test_a_prior_that_is_wrong_is_overruled_by_few_measurements(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Sixteen forged observations of a host three hundred times as slow: as with any neighbour, own probes count."""
    slow = UploadWorld(
        place=HERE, size=SIZE, connection_bytes_per_second=1e5, host_bytes_per_second=2e5, request_seconds=3.0
    )

    shared = Shared(clock)
    forged = [
        prior.Evidence(
            host="forger",
            observation=replace(o, started_at=clock.now() - timedelta(minutes=i), measures={}, histograms={}),
        )
        for i, o in enumerate(history(slow, 16))
    ]
    shared.put(KEY, prior.written(HERE, forged))
    host = Host(tmp_path, clock, shared, LINK, seed=3, fleet=READING)
    async with host.opened() as app:
        await host.live(app, hours=0.001)
        assert app.conductor.fleet is not None
        assert len(app.conductor.fleet.told(HERE, [])) > 8
        await host.live(app, until=lambda: len(host.observations) >= 5)
        assert host.fraction_of_best(app) >= 0.97


def test_without_the_bucket_a_host_does_what_it_would_do_alone(tmp_path: Path) -> None:
    """The same probes, and the same advice."""

    async def tried(clock: VirtualClock, folder: Path, fleet: FleetSection) -> list[object]:
        shared = Shared(clock)
        shared.trouble = NoBucket("it is gone")
        host = Host(folder, clock, shared, LINK, seed=4, fleet=fleet)
        async with host.opened() as app:
            await host.live(app, until=lambda: len(host.observations) >= 3)
        return [observation.setting for observation in host.observations]

    alone = fleetwise(lambda clock: tried(clock, tmp_path / "alone", FleetSection()))
    lost = fleetwise(
        lambda clock: tried(clock, tmp_path / "lost", FleetSection(bucket=SHARED, may_write=True))
    )
    assert alone == lost
