"""A measurement judges itself by rules that can be checked by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from penstock.clock import SystemClock
from penstock.lab.virtual_time import VirtualClock
from penstock.probes import measurement
from penstock.probes.measurement import Effort, busiest, effort_of_block, summarize
from tests.unit.probes.fakes import virtually


class SlippingClock:
    """A clock on which time passes while the loop is held."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.now = clock.now
        self.slipped_seconds = 0.0

    def monotonic_seconds(self) -> float:
        return self._clock.monotonic_seconds() + self.slipped_seconds


def test_summary_of_known_latencies() -> None:
    """Percentiles are nearest ranks: values that did occur."""
    summary = summarize([k / 100 for k in range(100, 0, -1)])
    assert summary.count == 100
    assert summary.mean_seconds == pytest.approx(0.505)
    assert (summary.p50_seconds, summary.p90_seconds, summary.p99_seconds) == (0.5, 0.9, 0.99)


def test_summary_of_nothing_is_zero() -> None:
    """No latencies are no trouble."""
    assert summarize([]).mean_seconds == 0.0


def test_variation_is_scale_free() -> None:
    """The coefficient of variation does not know the unit."""
    assert summarize([1, 2, 3]).variation == pytest.approx(summarize([10, 20, 30]).variation)


async def test_lag_is_what_the_loop_was_late(clock: VirtualClock) -> None:
    """A loop held once for 80 ms was late by 80 ms at worst, and by little on average."""
    slipping = SlippingClock(clock)
    async with effort_of_block(slipping, tick_seconds=0.005) as effort:
        await asyncio.sleep(0.1)
        slipping.slipped_seconds += 0.08
        await asyncio.sleep(0.1)
    assert effort.loop_lag_seconds_max == pytest.approx(0.08, abs=1e-6)
    assert effort.loop_lag_seconds_mean == pytest.approx(0.08 / 39, rel=0.05)


async def test_effort_is_known_also_when_the_block_raises(clock: VirtualClock) -> None:
    """A failed block took its time all the same."""

    async def exceed(clock: VirtualClock, efforts: list[Effort]) -> None:
        async with asyncio.timeout(2.0), effort_of_block(clock) as effort:
            efforts.append(effort)
            await asyncio.sleep(3.0)

    efforts: list[Effort] = []
    with pytest.raises(TimeoutError):
        await exceed(clock, efforts)
    assert efforts[0].duration_seconds == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("mean", "worst", "says"),
    [(0.001, 0.02, None), (0.004, 0.02, "late by 4.0 ms"), (0.001, 3.0, "stood still for 3.000 s")],
)
def test_disturbance_is_relative_to_what_is_measured(mean: float, worst: float, says: str | None) -> None:
    """The same lateness that ruins 10 ms requests would not matter for parts of a second."""
    effort = Effort(duration_seconds=10.0, loop_lag_seconds_mean=mean, standstill_seconds_max=worst)
    reason = effort.disturbance(0.010)
    assert reason is None if says is None else says in str(reason)
    assert worst > 1 or effort.disturbance(1.0) is None


def test_a_loop_that_is_late_by_its_own_work_spoils_latencies_but_no_throughput() -> None:
    """As much as this client can do is worth knowing; a loop that others hold up measures nothing."""
    late = Effort(duration_seconds=10.0, loop_lag_seconds_mean=0.1, client_cpu_fraction=0.97)
    assert late.disturbance(0.01, may_be_cpu_bound=True) is None
    assert late.disturbance(0.01) is not None
    held = replace(late, client_cpu_fraction=0.5, client_cpu_wait_fraction=0.5)
    assert held.disturbance(0.01, may_be_cpu_bound=True) is not None


def test_a_loop_that_works_does_not_stand_still() -> None:
    """Who begins many requests at once is late by that alone: only what nobody worked in is a standstill."""

    async def held_up(by: Callable[[], None]) -> Effort:
        async with effort_of_block(SystemClock()) as effort:
            await asyncio.sleep(0.01)
            by()
            await asyncio.sleep(0.01)
        return effort

    def work() -> None:
        ends = time.thread_time() + 0.1
        while time.thread_time() < ends:
            pass

    stood = asyncio.run(held_up(partial(time.sleep, 0.1)))
    assert stood.standstill_seconds_max > 0.08
    assert stood.disturbance(10.0) is not None
    worked = asyncio.run(held_up(work))
    assert worked.standstill_seconds_max <= worked.loop_lag_seconds_max - 0.08


def test_the_processor_is_measured_in_real_time_alone() -> None:
    """In virtual time a fraction of elapsed seconds would be chance."""

    async def spin(seconds: float) -> Effort:
        async with effort_of_block(SystemClock()) as effort:
            ends = time.thread_time() + seconds
            while time.thread_time() < ends:
                pass
        return effort

    async def sleep(clock: VirtualClock) -> Effort:
        async with effort_of_block(clock) as effort:
            await asyncio.sleep(1.0)
        return effort

    spinning = asyncio.run(spin(0.05))
    assert spinning.client_cpu_fraction > 0
    assert spinning.client_cpu_demand_fraction >= min(1.0, spinning.client_cpu_fraction)
    assert virtually(sleep).client_cpu_fraction == 0.0


@pytest.mark.parametrize("readable", [(), ("before",), ("after",)])
def test_a_wait_that_cannot_be_read_is_no_wait(
    readable: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where too many files are open it is read at one end of the block only, or at none."""
    file = tmp_path / "schedstat"
    monkeypatch.setattr(measurement, "_SCHEDULING", file)

    async def block() -> Effort:
        if "before" in readable:
            file.write_text("1 9000000000 1")
        async with effort_of_block(SystemClock()) as effort:
            file.unlink(missing_ok=True)
            await asyncio.sleep(0.01)
            if "after" in readable:
                file.write_text("1 9000000000 1")
        return effort

    assert asyncio.run(block()).client_cpu_wait_fraction == 0.0


def test_the_busiest_process_speaks_for_those_that_worked_together() -> None:
    """One that is full is the limit, however idle the others are."""
    idle = Effort(
        duration_seconds=1.0,
        client_cpu_fraction=0.2,
        loop_lag_seconds_max=0.3,
        standstill_seconds_max=0.2,
    )
    full = Effort(duration_seconds=1.0, client_cpu_fraction=0.6, client_cpu_wait_fraction=0.35)
    together = busiest([idle, full], duration_seconds=2.0)
    assert together.client_cpu_demand_fraction == pytest.approx(0.95)
    assert (together.duration_seconds, together.loop_lag_seconds_max) == (2.0, 0.3)
    assert together.standstill_seconds_max == 0.2
