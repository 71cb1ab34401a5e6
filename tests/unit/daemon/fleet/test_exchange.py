"""How a host reads and writes the fleet's bucket, and what a bucket cannot do to it."""

# ruff: noqa: ARG002  # a fake takes what its seam is given

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from penstock.clock import Clock
from penstock.daemon.config import FleetSection
from penstock.daemon.fleet import exchange as fleet_of
from penstock.daemon.fleet.exchange import SOON_SECONDS, VISIT_SECONDS_MAX, Fleet
from penstock.fleet import prior, probers
from penstock.fleet.prior import Evidence
from penstock.lab.virtual_time import VirtualClock
from penstock.operations.table import OPERATIONS
from penstock.probes.outside import (
    Changed,
    Denied,
    NoBucket,
    NotOffered,
    Refused,
    RequestError,
    Tagged,
    Unreachable,
)
from penstock.vocabulary import Place
from tests.factories import CONTEXT, PLACE, S3_TARIFF, an_observation
from tests.unit.daemon.house import House, Outside
from tests.unit.probes.fakes import MemoryStore, no_trouble

KEY = prior.key("penstock-fleet/", PLACE)


def a_fleet(
    clock: Clock,
    store: MemoryStore,
    *,
    name: str = "a",
    may_write: bool = True,
    probed: Mapping[Place, float] | None = None,
) -> Fleet:
    """One host's way to the bucket; of what is probed, by one of them at a time."""
    outside = Outside()
    outside.objects = store
    return Fleet(
        FleetSection(bucket="b", may_write=may_write, prober_count=1),
        outside,
        clock,
        places=[PLACE],
        probed=probed or {},
        region="r",
        tariff=S3_TARIFF,
        host_name=name,
        seed=1,
    )


def measured(
    fleet: Fleet, clock: VirtualClock, count: int
) -> Callable[[Place], Awaitable[Sequence[Evidence[Any]]]]:
    """What the host may tell: one probe a minute until now."""
    found = [an_observation(started_at=clock.now() - timedelta(minutes=i)) for i in range(count)]

    async def own(_place: Place) -> Sequence[Evidence[Any]]:
        return prior.measured_here(fleet.host, found, fit=None, now=clock.now())

    return own


async def test_what_one_host_measured_another_is_told(clock: VirtualClock) -> None:
    """Once; a second visit brings no news and moves no body."""
    store = MemoryStore()
    writer, reader = a_fleet(clock, store), a_fleet(clock, store, name="z", may_write=False)
    await writer.visit(measured(writer, clock, 3))
    await reader.visit(measured(reader, clock, 0))
    assert reader.news == {PLACE}
    reader.news.clear()
    assert len(reader.told(PLACE, [])) == 3
    before = reader.used
    await reader.visit(measured(reader, clock, 0))
    assert not reader.news
    assert reader.used.transferred_bytes < before.transferred_bytes
    assert store.counts["put_if"] == 4  # three tries of the conditions, and the document


async def test_what_is_measured_after_a_clock_was_ahead_is_told(clock: VirtualClock) -> None:
    """What was told then is dated later than all that comes, for as long as the clock was ahead."""
    store = MemoryStore()
    writer, reader = a_fleet(clock, store), a_fleet(clock, store, name="z", may_write=False)
    clock.step(86400.0)
    await writer.visit(measured(writer, clock, 1))
    clock.step(-86400.0)
    await writer.visit(measured(writer, clock, 1))
    await reader.visit(measured(reader, clock, 0))
    assert len(reader.told(PLACE, [])) == 1


async def test_hosts_that_write_at_once_lose_nothing_of_each_other(clock: VirtualClock) -> None:
    """Who comes second reads again, adds its own, and writes that."""
    store = MemoryStore()
    hosts = [a_fleet(clock, store, name=name) for name in "abc"]
    for _ in range(4):  # who was too slow, also in trying the conditions, comes again
        await asyncio.gather(*(host.visit(measured(host, clock, 2)) for host in hosts))
    seen = prior.read(store.shared[KEY].body, OPERATIONS["s3_upload"].model, PLACE, clock.now())
    assert {one.host for one in seen.evidence} == {host.host for host in hosts}


class Careless(MemoryStore):
    """A store that does as if there were no conditions."""

    ignores: str = ""

    async def put_if(self, bucket: str, key: str, body: bytes, etag: str | None) -> str:
        there = self.shared[key].etag if key in self.shared else None
        if self.ignores == ("If-None-Match" if etag is None else "If-Match"):
            etag = there
        return await super().put_if(bucket, key, body, etag)


class Refusing(MemoryStore):
    """A store that answers each conditional write alike."""

    answer: RequestError = NotOffered("not here")

    async def put_if(self, bucket: str, key: str, body: bytes, etag: str | None) -> str:
        raise self.answer


@pytest.mark.parametrize("ignores", ["If-Match", "If-None-Match"])
async def test_a_store_that_ignores_conditions_is_only_read(clock: VirtualClock, ignores: str) -> None:
    """Hosts would overwrite each other: no document is written, and why is said."""
    store = Careless()
    store.ignores = ignores
    host = a_fleet(clock, store)
    await host.visit(measured(host, clock, 3))
    assert KEY not in store.shared
    assert ignores in host.sentence
    assert host.document()["trouble"] is None


@pytest.mark.parametrize("answer", [NotOffered("501"), Refused("400"), Denied("403"), Changed("412")])
async def test_a_store_that_refuses_conditions_is_read(clock: VirtualClock, answer: RequestError) -> None:
    """Also by a host whose policy lets it do no more than that."""
    store = Refusing()
    store.answer = answer
    host = a_fleet(clock, store)
    store.shared[KEY] = Tagged(prior.written(PLACE, await measured(host, clock, 2)(PLACE)), "1")
    for _ in range(3):
        await host.visit(measured(host, clock, 3))
    assert len(host.told(PLACE, [])) == 2
    assert not host.document()["is_writing"]
    assert "not written" in host.sentence


async def test_a_right_that_is_given_back_is_used_again(clock: VirtualClock) -> None:
    """A bucket's policy was wrong for an hour: not all hosts of a fleet are to fall silent until they are restarted."""
    store = MemoryStore()
    host = a_fleet(clock, store)
    await host.visit(measured(host, clock, 1))
    store.trouble = lambda action, _count: Denied("read-only") if action == "put_if" else None
    await asyncio.sleep(3600.0)
    await host.visit(measured(host, clock, 1))
    assert not host.document()["is_writing"]
    store.trouble = no_trouble
    for _ in range(20):
        await asyncio.sleep(900.0)
        cost_max = host.cost_max
        await host.visit(measured(host, clock, 1))
        assert host.used.request_count <= cost_max.request_count
    assert host.document()["is_writing"]
    model = OPERATIONS[PLACE.operation].model
    *_, newest = prior.read(store.shared[KEY].body, model, PLACE, clock.now()).evidence
    assert clock.now() - newest.observation.started_at < timedelta(minutes=20)


@pytest.mark.parametrize("trouble", [NoBucket("gone"), Unreachable("silent"), Denied("no"), Refused("500")])
async def test_a_bucket_that_is_gone_is_asked_ever_more_rarely_until_it_is_back(
    clock: VirtualClock, trouble: RequestError
) -> None:
    """What was heard stands; nothing raises."""
    store = MemoryStore()
    host = a_fleet(clock, store, may_write=False)
    store.shared[KEY] = Tagged(prior.written(PLACE, await measured(host, clock, 2)(PLACE)), "1")
    await host.visit(measured(host, clock, 0))
    pauses = []
    store.trouble = lambda _action, _count: trouble
    for _ in range(6):
        await host.visit(measured(host, clock, 0))
        pauses.append(host.due_in_seconds)
    assert len(host.told(PLACE, [])) == 2
    assert str(trouble) in host.sentence
    assert pauses[-1] > 8 * pauses[0]
    assert pauses[-1] <= 1.2 * fleet_of.PAUSE_SECONDS_MAX
    store.trouble = no_trouble
    await host.visit(measured(host, clock, 0))
    assert host.document()["trouble"] is None
    assert host.due_in_seconds < 1.2 * fleet_of.PAUSE_SECONDS


async def test_a_slow_bucket_holds_nobody_up_for_long(clock: VirtualClock) -> None:
    """A visit ends, whatever the bucket does."""
    store = MemoryStore(small_seconds=3600.0)
    host = a_fleet(clock, store)
    began_seconds = clock.monotonic_seconds()
    await host.visit(measured(host, clock, 1))
    assert clock.monotonic_seconds() - began_seconds <= VISIT_SECONDS_MAX
    assert "did not answer" in host.sentence


async def test_a_document_of_a_newer_format_is_not_overwritten(clock: VirtualClock) -> None:
    """And one that is broken is written anew."""
    store = MemoryStore()
    host = a_fleet(clock, store)
    for body, is_kept in ((b'{"format": 7}', True), (b'{"format": 1, "pl', False)):
        store.shared[KEY] = Tagged(body, str(is_kept))
        await host.visit(measured(host, clock, 1))
        assert (store.shared[KEY].body == body) is is_kept


async def test_a_visit_costs_no_more_than_it_said(clock: VirtualClock) -> None:
    """Also the first one, which tries the conditions, while another host always writes in between."""

    class Contested(MemoryStore):
        async def get_unless(
            self, bucket: str, key: str, etag: str | None, *, size_bytes_max: int
        ) -> Tagged | None:
            found = await super().get_unless(bucket, key, etag, size_bytes_max=size_bytes_max)
            if key == KEY:
                self.shared[KEY] = Tagged(self.shared[KEY].body, f"{self.counts.total()}")
            return found

    store = Contested()
    host = a_fleet(clock, store)
    store.shared[KEY] = Tagged(b"{}", "0")
    cost_max = host.cost_max
    await host.visit(measured(host, clock, 2))
    assert host.used.request_count == store.request_count
    for name in ("request_count", "usd", "transferred_bytes"):
        assert 0 < getattr(host.used, name) <= getattr(cost_max, name)
    assert host.document()["trouble"] is None


async def test_of_hosts_that_begin_together_all_but_one_are_spared_soon(clock: VirtualClock) -> None:
    """Whoever is too late for the seat looks who has it, and whoever met others while he tried looks again soon."""
    store = MemoryStore()
    hosts = [a_fleet(clock, store, name=f"h{number}", probed={PLACE: 3600.0}) for number in range(8)]

    async def live(host: Fleet) -> None:
        while True:
            await host.visit(measured(host, clock, 0))
            await asyncio.sleep(host.due_in_seconds)

    tasks = [asyncio.create_task(live(host)) for host in hosts]
    await asyncio.sleep(5 * SOON_SECONDS)
    for task in tasks:
        task.cancel()
    assert sum(host.spared_until(PLACE) is None for host in hosts) == 1


async def test_a_host_is_spared_its_probes_while_another_measures(house: House) -> None:
    """Unless an operator asks; and when nothing is heard of the other for an hour, it measures by itself."""
    store = MemoryStore()
    seat = probers.Seat(host="another", renewal=1)
    document = probers.written(probers.Probers(generation=1, seats=(seat,)))
    store.shared[prior.key("penstock-fleet/", PLACE, kind="probers")] = Tagged(document, "1")
    house.conductor.fleet = a_fleet(house.clock, store, may_write=False, probed={PLACE: 600.0})
    await house.live(3000.0)
    assert house.probe.run_count == 0
    house.conductor.request(CONTEXT)
    await house.live(10.0)
    assert house.probe.run_count == 1
    await house.live(7200.0)
    assert house.probe.run_count > 1


async def test_a_visit_that_fails_unforeseen_keeps_no_probe_waiting(house: House) -> None:
    """The bucket is visited again when it would have been."""

    class Broken(MemoryStore):
        async def get_unless(
            self, bucket: str, key: str, etag: str | None, *, size_bytes_max: int
        ) -> Tagged | None:
            self.counts["get_unless"] += 1
            raise ZeroDivisionError

    store = Broken()
    house.conductor.fleet = a_fleet(house.clock, store)
    await house.live(3600.0)
    assert house.probe.run_count > 0
    assert 1 < store.counts["get_unless"] < 8
