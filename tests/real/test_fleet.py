"""Hosts that write one object together, in stores that others wrote: conditions hold, and one of many racers wins."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from penstock.clock import SystemClock
from penstock.daemon.config import FleetSection
from penstock.daemon.fleet.exchange import Fleet
from penstock.fleet import prior
from penstock.fleet.prior import Evidence
from penstock.probes.aws.access import Access
from penstock.probes.aws.objects import AwsObjectStore, open_object_store
from penstock.probes.outside import Changed, Missing, NoBucket
from penstock.vocabulary import FREE, Place
from tests.factories import PLACE, an_observation
from tests.real.servers import KEY, REGION, plain_client
from tests.seams import OneStore

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the build

RACER_COUNT = 16


@contextlib.asynccontextmanager
async def store_at(url: str) -> AsyncIterator[tuple[AwsObjectStore, str]]:
    """A client, and an empty bucket."""
    bucket = f"real-{uuid.uuid4().hex[:12]}"
    plain_client("s3", url).create_bucket(Bucket=bucket)
    async with open_object_store(Access(region=REGION, endpoint_url=url, credentials=KEY)) as store:
        yield store, bucket


async def test_conditions_are_told_apart(store_url: str) -> None:
    """Not there, still the same, another one, and no bucket: each by its own name."""
    async with store_at(store_url) as (store, bucket):
        with pytest.raises(Missing) as missing:
            await store.get_unless(bucket, "one", None, size_bytes_max=100)
        assert type(missing.value) is Missing
        first = await store.put_if(bucket, "one", b"first", None)
        assert await store.get_unless(bucket, "one", first, size_bytes_max=100) is None
        with pytest.raises(Changed):
            await store.put_if(bucket, "one", b"second", None)
        second = await store.put_if(bucket, "one", b"second", first)
        with pytest.raises(Changed):
            await store.put_if(bucket, "one", b"third", first)
        found = await store.get_unless(bucket, "one", first, size_bytes_max=3)
        assert found is not None
        assert (found.body, found.etag) == (b"seco", second)
        with pytest.raises(NoBucket):
            await store.get_unless(f"{bucket}-gone", "one", None, size_bytes_max=100)


@pytest.mark.parametrize(
    "round_count",
    [pytest.param(100, id="hundred"), pytest.param(1_000, id="thousand", marks=pytest.mark.long)],
)
async def test_of_many_racers_one_wins(store_url: str, round_count: int) -> None:
    """In every round, whoever reads after it finds what the winner wrote."""
    async with store_at(store_url) as (store, bucket):
        etag: str | None = None
        for number in range(round_count):

            async def race(racer: int, known: str | None = etag, number: int = number) -> str | None:
                try:
                    return await store.put_if(bucket, "lease", f"{number} {racer}".encode(), known)
                except Changed:
                    return None

            tags = await asyncio.gather(*map(race, range(RACER_COUNT)))
            winners = [racer for racer, tag in enumerate(tags) if tag is not None]
            found = await store.get_unless(bucket, "lease", etag, size_bytes_max=100)
            assert found is not None
            assert len(winners) == 1, number
            assert found.body == f"{number} {winners[0]}".encode()
            etag = found.etag


async def test_hosts_tell_each_other(store_url: str) -> None:
    """Eight at once, until each of them is heard by a host that only reads."""
    clock = SystemClock()
    async with store_at(store_url) as (store, bucket):

        def a_host(name: str, *, may_write: bool) -> Fleet:
            return Fleet(
                FleetSection(bucket=bucket, may_write=may_write),
                OneStore(store),
                clock,
                places=[PLACE],
                region=REGION,
                tariff=FREE,
                host_name=name,
                seed=1,
            )

        async def visit(host: Fleet) -> None:
            async def own(_place: Place) -> Sequence[Evidence[Any]]:
                now = clock.now()
                found = [an_observation(started_at=now - timedelta(minutes=1))]
                return prior.measured_here(host.host, found, fit=None, now=now)

            await host.visit(own)
            assert host.document()["trouble"] is None, host.sentence

        writers, reader = [a_host(str(n), may_write=True) for n in range(8)], a_host("r", may_write=False)
        for _ in range(12):
            await asyncio.gather(*map(visit, writers))
            await visit(reader)
            if reader.document()["places"] and reader.document()["places"][0]["host_count"] == len(writers):
                return
        pytest.fail(f"only {reader.document()['places']}; {writers[0].sentence}")
