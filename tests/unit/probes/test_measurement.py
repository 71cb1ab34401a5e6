"""A measurement judges itself by rules that can be checked by hand."""

from __future__ import annotations

import asyncio

import pytest

from penstock.lab.virtual_time import VirtualClock
from penstock.probes.measurement import Effort, LoopLagMeter, effort_of_block, summarize
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


def test_lag_is_what_the_loop_was_late() -> None:
    """A loop held once for 80 ms was late by 80 ms at worst, and by little on average."""

    async def story(clock: VirtualClock) -> LoopLagMeter:
        slipping = SlippingClock(clock)
        meter = LoopLagMeter(slipping, tick_seconds=0.005)
        async with meter.running():
            await asyncio.sleep(0.1)
            slipping.slipped_seconds += 0.08
            await asyncio.sleep(0.1)
        return meter

    meter = virtually(story)
    assert meter.lag_seconds_max == pytest.approx(0.08, abs=1e-6)
    assert meter.lag_seconds_mean == pytest.approx(0.08 / 39, rel=0.05)


def test_effort_is_known_also_when_the_block_raises() -> None:
    """A failed block took its time all the same."""

    async def story(clock: VirtualClock) -> Effort:
        efforts: list[Effort] = []
        with pytest.raises(TimeoutError):
            await exceed(clock, efforts)
        return efforts[0]

    async def exceed(clock: VirtualClock, efforts: list[Effort]) -> None:
        async with asyncio.timeout(2.0), effort_of_block(clock) as effort:
            efforts.append(effort)
            await asyncio.sleep(3.0)

    assert virtually(story).duration_seconds == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("mean", "worst", "says"),
    [(0.001, 0.02, None), (0.004, 0.02, "late by 4.0 ms"), (0.001, 3.0, "stood still for 3.000 s")],
)
def test_disturbance_is_relative_to_what_is_measured(mean: float, worst: float, says: str | None) -> None:
    """The same lateness that ruins 10 ms requests would not matter for parts of a second."""
    effort = Effort(duration_seconds=10.0, loop_lag_seconds_mean=mean, loop_lag_seconds_max=worst)
    reason = effort.disturbance(0.010)
    assert reason is None if says is None else says in str(reason)
    assert worst > 1 or effort.disturbance(1.0) is None
