"""The link against cases that were worked out by hand."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from penstock.lab.link import Drift, Episodes, Link, LinkTruth, Stream, shared_rate
from penstock.lab.virtual_time import VirtualClock, run_virtually
from tests.factories import NOON

A_LINK = LinkTruth(
    round_trip_seconds=0.01,
    connection_rate_bytes_per_second=10.0,
    host_rate_bytes_per_second=20.0,
    service_latency_seconds_median=0.0,
)


def a_link(**changes: object) -> LinkTruth:
    """Make a link that differs in what is named."""
    return dataclasses.replace(A_LINK, **changes)  # type: ignore[arg-type]  # the names are checked at run time


def end_times(truth: LinkTruth, flows: list[tuple[float, float]]) -> list[float]:
    """Return when each flow of (start, size) ends."""

    async def story(clock: VirtualClock) -> list[float]:
        link = Link(truth, seed=0)

        async def flow(start: float, size: float) -> float:
            await asyncio.sleep(start)
            await link.carry(size)
            return clock.monotonic_seconds()

        return list(await asyncio.gather(*(flow(*one) for one in flows)))

    return run_virtually(story, start_at=NOON)


def test_one_flow_gets_the_rate_of_a_connection() -> None:
    """Alone, a flow is limited by its connection, not by the host."""
    assert end_times(A_LINK, [(0, 100)]) == [pytest.approx(10.0)]


def test_flows_share_the_host_equally() -> None:
    """Four flows on a host of 20 B/s get 5 each."""
    assert end_times(A_LINK, [(0, 100)] * 4) == [pytest.approx(20.0)] * 4


def test_what_a_flow_leaves_the_others_get() -> None:
    """Two of 50 and two of 100 bytes: 5 B/s each until 10 s, then 10 B/s each for the other 50 bytes."""
    ends = end_times(A_LINK, [(0, 50), (0, 100), (0, 50), (0, 100)])
    assert ends == [pytest.approx(e) for e in (10.0, 15.0, 10.0, 15.0)]


def test_a_late_flow_slows_the_others() -> None:
    """Two at 10 B/s; from 5 s three at 20/3: both have 50 left, which take 7.5 s; the third then has 50 left."""
    ends = end_times(A_LINK, [(0, 100), (0, 100), (5, 100)])
    assert ends == [pytest.approx(e) for e in (12.5, 12.5, 17.5)]


def test_the_window_limits_a_far_connection() -> None:
    """A window of 2 bytes over a round trip of 0.4 s is 5 B/s."""
    assert end_times(a_link(window_bytes=2.0, round_trip_seconds=0.4), [(0, 100)]) == [pytest.approx(20.0)]


def test_crowding_costs_past_twice_the_knee() -> None:
    """The knee is at 2 flows; 6 are one more time the knee than twice: 20 / (1 + 1 * 1) for all."""
    assert end_times(a_link(oversubscription_loss=1.0), [(0, 10)] * 4)[0] == pytest.approx(2.0)
    assert end_times(a_link(oversubscription_loss=1.0), [(0, 10)] * 6)[0] == pytest.approx(6.0)


def test_credits_buy_a_burst_and_run_out() -> None:
    """Two flows at 10 B/s above a baseline of 5: 30 credits last 2 s (40 bytes), the other 60 bytes take 12 s."""
    truth = a_link(host_rate_bytes_per_second=5.0, burst_rate_bytes_per_second=20.0, credit_bytes=30.0)
    assert end_times(truth, [(0, 50), (0, 50)]) == [pytest.approx(14.0)] * 2


async def test_credits_come_back_while_it_is_quiet(clock: VirtualClock) -> None:
    """After the burst, 4 s of quiet at a baseline of 5 bring 20 credits."""
    truth = a_link(host_rate_bytes_per_second=5.0, burst_rate_bytes_per_second=20.0, credit_bytes=30.0)

    link = Link(truth, seed=0)
    await asyncio.gather(link.carry(20), link.carry(20))
    spent = link.credit_bytes
    await asyncio.sleep(4)
    assert [spent, link.credit_bytes] == [pytest.approx(0.0, abs=1.0), pytest.approx(20.0, abs=1.0)]


async def test_what_is_pushed_to_one_stream_moves_as_one(clock: VirtualClock) -> None:
    """Two chunks on one stream take their turn at the rate of one connection."""
    link = Link(A_LINK, seed=0)
    stream = Stream(link)
    first, second = stream.push(30), stream.push(20)
    await first
    middle = clock.monotonic_seconds()
    await second
    assert [middle, clock.monotonic_seconds()] == [pytest.approx(3.0), pytest.approx(5.0)]


async def test_a_stream_that_leaves_gives_back_its_share(clock: VirtualClock) -> None:
    """Four share 20 B/s; when two break off at 2 s, the others have 90 left and 10 B/s each."""
    link = Link(A_LINK, seed=0)
    leaving = [asyncio.create_task(link.carry(1000)) for _ in range(2)]
    staying = asyncio.gather(link.carry(100), link.carry(100))
    await asyncio.sleep(2)
    for task in leaving:
        task.cancel()
    await staying
    assert [clock.monotonic_seconds(), link.stream_count] == [pytest.approx(11.0), 0]


async def test_a_late_timer_changes_nothing(clock: VirtualClock) -> None:
    """If the loop was held up, what happened meanwhile is worked out as if it had not been."""
    link = Link(A_LINK, seed=0)
    flows = [asyncio.create_task(link.carry(size)) for size in (50, 100, 50, 100)]
    await asyncio.sleep(1)
    loop = asyncio.get_running_loop()
    loop._virtual_seconds += 11.0  # type: ignore[attr-defined]  # asleep through the first two ends
    await asyncio.gather(*flows)
    assert clock.monotonic_seconds() == pytest.approx(15.0)


def test_dips_slow_everything_and_pass() -> None:
    """A link that is at half its rate half of the time carries three quarters of its best over a long time."""
    dips = Episodes(gap_seconds_mean=10, duration_seconds_mean=10, fraction_low=0.5, fraction_high=0.5)
    (end,) = end_times(a_link(dips=dips), [(0, 100_000)])
    assert 10_000 / end == pytest.approx(0.75, abs=0.03)


def test_a_tenant_takes_from_the_host_alone() -> None:
    """A neighbour with half of the host slows four connections and not a single one."""
    tenant = Episodes(gap_seconds_mean=1, duration_seconds_mean=5, fraction_low=0.5, fraction_high=0.5)
    assert end_times(a_link(tenant=tenant), [(0, 1000)]) == [pytest.approx(100.0)]
    assert end_times(a_link(tenant=tenant), [(0, 1000)] * 4)[3] > 250.0


async def test_a_link_can_become_another(clock: VirtualClock) -> None:
    """After the change, the rest moves at the new rate: 50 bytes at 10 B/s, 50 at 2."""
    link = Link(A_LINK, seed=0)
    flow = asyncio.create_task(link.carry(100))
    await asyncio.sleep(5)
    link.become(a_link(connection_rate_bytes_per_second=2.0))
    await flow
    assert [clock.monotonic_seconds(), link.carried_bytes] == [pytest.approx(30.0), pytest.approx(100.0)]


async def test_real_time_has_the_same_physics() -> None:
    """On a real loop flows end in the same order, never earlier than the physics allows."""
    truth = a_link(connection_rate_bytes_per_second=1e6, host_rate_bytes_per_second=2e6)
    link, loop = Link(truth, seed=0), asyncio.get_running_loop()
    began = loop.time()

    async def flow(size: float) -> float:
        await link.carry(size)
        return loop.time() - began

    ends = await asyncio.gather(*(flow(size) for size in (50e3, 100e3, 50e3, 100e3)))
    assert [end >= law - 1e-3 for end, law in zip(ends, (0.1, 0.15, 0.1, 0.15), strict=True)] == [True] * 4
    assert link.carried_bytes == pytest.approx(300e3)


def test_a_disk_that_seeks_is_slower_with_every_reader() -> None:
    """40 B/s for one, 40 / 1.5 for two: the disk limits what the host would carry."""
    disk = a_link(
        host_rate_bytes_per_second=1e6,
        connection_rate_bytes_per_second=100.0,
        disk_rate_bytes_per_second=40.0,
        disk_seek_fraction=0.5,
    )
    assert end_times(disk, [(0, 400)]) == [pytest.approx(10.0)]
    assert end_times(disk, [(0, 400)] * 2) == [pytest.approx(30.0)] * 2


def test_processors_limit_what_the_network_would_carry() -> None:
    """The lower one of the two ceilings counts."""
    assert end_times(a_link(cpu_rate_bytes_per_second=5.0), [(0, 100)]) == [pytest.approx(20.0)]
    assert end_times(a_link(cpu_rate_bytes_per_second=1e6), [(0, 100)]) == [pytest.approx(10.0)]


def test_a_soft_knee_satisfies_its_equation() -> None:
    """Two streams of 10 B/s below a ceiling of 20, v = 0.5: 1/r = 1/10 + u / (1 - u) / 20 with u = r / 20."""
    (rate,) = {round(shared_rate(2, 10.0, [20.0], 0.5), 9)}
    used = 0.5 * 2 * rate / 20.0
    assert 1 / rate == pytest.approx(1 / 10.0 + used / (1 - used) / 20.0)
    assert shared_rate(2, 10.0, [20.0], 0.0) == 10.0
    assert shared_rate(8, 10.0, [20.0], 0.9) <= 20.0 / 8


def test_a_drift_changes_the_path_for_a_while() -> None:
    """Transfers of one spell take the same time, and those of other spells another."""
    drifting = a_link(drift=Drift(seconds_mean=1e4, rate_sigma=0.5))
    ends = end_times(drifting, [(start, 100) for start in (0, 100, 1_000_000, 1_000_100)])
    taken = [end - start for end, start in zip(ends, (0, 100, 1_000_000, 1_000_100), strict=True)]
    assert taken[0] == pytest.approx(taken[1])
    assert taken[2] == pytest.approx(taken[3])
    assert taken[0] != pytest.approx(taken[2])
