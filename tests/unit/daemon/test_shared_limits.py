"""A limit that hosts share: who comes or goes is felt within two heartbeats, and without the bucket refusals teach."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from bench.shared_limit import OPERATION, Outside, heartbeats, host_limits
from penstock.daemon.shared_limits import ALONE_FRACTION, PAUSE_SECONDS, SharedLimits
from penstock.lab.virtual_time import VirtualClock
from tests.unit.probes.fakes import virtually

LIMIT = 1000.0


def a_host(number: int, clock: VirtualClock, outside: Outside, wanted: float = 900.0) -> SharedLimits:
    return host_limits(number, clock, outside, LIMIT, lambda _: wanted)


def part(host: SharedLimits) -> float:
    share = host.share(OPERATION)
    assert share is not None
    return share.requests_per_second


@contextlib.contextmanager
def living(*hosts: SharedLimits) -> Iterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(heartbeats(host)) for host in hosts]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()


def test_who_comes_and_who_dies_is_felt_within_two_heartbeats() -> None:
    """Clocks ten minutes apart; nobody hands parts out, and what a host that died had goes to the others."""

    async def told(clock: VirtualClock) -> None:
        outside = Outside(clock)
        old = [a_host(number, clock, outside) for number in range(3)]
        with living(*old):
            await asyncio.sleep(2.1 * PAUSE_SECONDS)
            assert [part(host) for host in old] == pytest.approx([LIMIT / 3] * 3, rel=0.03)
            new = a_host(3, clock, outside)
            with living(new):
                await asyncio.sleep(2.0 * PAUSE_SECONDS + 1.0)
                assert [part(host) for host in (*old, new)] == pytest.approx([LIMIT / 4] * 4, rel=0.03)
            await asyncio.sleep(2.0 * PAUSE_SECONDS + 1.0)
            assert [part(host) for host in old] == pytest.approx([LIMIT / 3] * 3, rel=0.03)

    virtually(told)


def test_a_newcomer_is_gentle_until_the_others_know_of_it() -> None:
    """What it would take is still used by those who have not read its heartbeat."""

    async def told(clock: VirtualClock) -> None:
        outside = Outside(clock)
        old = [a_host(number, clock, outside) for number in range(3)]
        with living(*old):
            await asyncio.sleep(3 * PAUSE_SECONDS)
            new = a_host(3, clock, outside)
            assert part(new) <= ALONE_FRACTION * LIMIT
            await new.visit()
            assert sum(map(part, (*old, new))) <= 1.02 * LIMIT

    virtually(told)


def test_without_the_bucket_refusals_lower_a_part_and_success_raises_it() -> None:
    """From what there was when it was lost; and the others are seen again when it is back."""

    async def told(clock: VirtualClock) -> None:
        outside = Outside(clock)
        hosts = [a_host(number, clock, outside) for number in range(2)]
        with living(*hosts):
            await asyncio.sleep(2.5 * PAUSE_SECONDS)
            outside.is_lost = True
            await asyncio.sleep(1.1 * PAUSE_SECONDS)
            before = part(hosts[0])
            assert before == pytest.approx(LIMIT / 2, rel=0.03)
            document = hosts[0].document()[0]
            assert document["is_alone"]
            assert "it is gone" in document["trouble"]
            hosts[0].note(OPERATION, 1000, 50)
            await asyncio.sleep(20.0)
            lowered = part(hosts[0])
            assert lowered <= 0.85 * before
            hosts[0].note(OPERATION, 1000, 0)
            await asyncio.sleep(20.0)
            assert part(hosts[0]) > lowered
            outside.is_lost = False
            await asyncio.sleep(16 * 60.0)
            assert part(hosts[0]) == pytest.approx(LIMIT / 2, rel=0.03)
            assert not hosts[0].document()[0]["is_alone"]

    virtually(told)


def test_a_visit_costs_no_more_than_was_said_before() -> None:
    """Of requests and bytes."""

    async def told(clock: VirtualClock) -> None:
        outside = Outside(clock)
        hosts = [a_host(number, clock, outside) for number in range(40)]
        await asyncio.gather(*(host.visit() for host in hosts))
        for _ in range(2):
            most = hosts[0].cost_max
            await hosts[0].visit()
            assert hosts[0].used.request_count <= most.request_count
            assert hosts[0].used.transferred_bytes <= most.transferred_bytes
        share = hosts[0].share(OPERATION)
        assert share is not None
        assert share.host_count == 40

    virtually(told)


def test_an_operation_of_no_limit_has_no_share() -> None:
    """Its advice is as it was."""

    async def told(clock: VirtualClock) -> None:
        assert a_host(0, clock, Outside(clock)).share("s3_download") is None

    virtually(told)
