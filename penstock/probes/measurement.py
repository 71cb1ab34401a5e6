"""Knows how a measurement judges itself: by its latencies, the lateness of its event loop, and its CPU time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.clock import Clock

LOOP_TICK_SECONDS = 0.005
LATENESS_FRACTION_MAX = 0.25  # of a typical latency: beyond it, numbers describe the loop, not the service
CPU_BOUND_FRACTION = 0.9  # of the time: a busier loop has no time left to wait for answers
_SCHEDULING = Path("/proc/thread-self/schedstat")  # ns run, ns waited for a processor, number of switches


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """The moments and percentiles of latencies; all 0 without any."""

    count: int = 0
    mean_seconds: float = 0.0
    p50_seconds: float = 0.0
    p90_seconds: float = 0.0
    p99_seconds: float = 0.0
    variation: float = 0.0  # standard deviation over mean


def summarize(latencies_seconds: Sequence[float]) -> LatencySummary:
    """The summary of latencies, which may be in any order."""
    if not latencies_seconds:
        return LatencySummary()
    ordered = sorted(latencies_seconds)
    mean = math.fsum(ordered) / len(ordered)
    variance = math.fsum((value - mean) ** 2 for value in ordered) / len(ordered)
    return LatencySummary(
        count=len(ordered),
        mean_seconds=mean,
        p50_seconds=percentile(ordered, 0.50),
        p90_seconds=percentile(ordered, 0.90),
        p99_seconds=percentile(ordered, 0.99),
        variation=math.sqrt(variance) / mean if mean > 0 else 0.0,
    )


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The smallest value that at least `fraction` of the values do not exceed; `ordered` is ascending and not empty."""
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


@dataclass(slots=True)
class Effort:
    """What a measured block took; complete when the block ends. Fractions are of one processor.

    Under a virtual clock CPU time means nothing, and the fractions are 0.
    """

    duration_seconds: float = 0.0
    client_cpu_fraction: float = 0.0
    client_cpu_wait_fraction: float = 0.0  # the loop was ready to run, but others had the processors
    loop_lag_seconds_mean: float = 0.0
    loop_lag_seconds_max: float = 0.0
    standstill_seconds_max: float = 0.0  # the longest lag that was not the loop's own work

    @property
    def client_cpu_demand_fraction(self) -> float:
        """The fraction of time that the process ran or wanted to: near 1, the client is the limit, not the network."""
        return min(1.0, self.client_cpu_fraction + self.client_cpu_wait_fraction)

    def disturbance(self, latency_seconds_typical: float, *, may_be_cpu_bound: bool = False) -> str | None:
        """Why the numbers of this block are useless, as a sentence; None if they are fine.

        Lateness of the loop by its own work spoils latencies only where it is late on average: to begin sixty requests
        at once takes as long as a fast host takes to transfer them, and applications pay that, too. The throughput is
        then what this client can do: probes that measure throughput allow it by `may_be_cpu_bound`.
        """
        if self.standstill_seconds_max > LATENESS_FRACTION_MAX * self.duration_seconds:
            return (
                f"this process stood still for {self.standstill_seconds_max:.3f} s of the probe's "
                f"{self.duration_seconds:.3f} s: find what else keeps this host busy"
            )
        is_late = self.loop_lag_seconds_mean > LATENESS_FRACTION_MAX * latency_seconds_typical
        if is_late and not (may_be_cpu_bound and self.client_cpu_fraction >= CPU_BOUND_FRACTION):
            return (
                f"the event loop was late by {self.loop_lag_seconds_mean * 1e3:.1f} ms on average, too much "
                f"for requests of {latency_seconds_typical * 1e3:.1f} ms: the host is busy, or short of CPU"
            )
        return None


def busiest(efforts: Iterable[Effort], duration_seconds: float) -> Effort:
    """Combines processes that worked together: the longest lags, and the CPU fractions of the busiest one."""
    found = list(efforts)
    most = max(found, key=lambda effort: effort.client_cpu_demand_fraction)
    return Effort(
        duration_seconds=duration_seconds,
        client_cpu_fraction=most.client_cpu_fraction,
        client_cpu_wait_fraction=most.client_cpu_wait_fraction,
        loop_lag_seconds_mean=max(effort.loop_lag_seconds_mean for effort in found),
        loop_lag_seconds_max=max(effort.loop_lag_seconds_max for effort in found),
        standstill_seconds_max=max(effort.standstill_seconds_max for effort in found),
    )


@contextlib.asynccontextmanager
async def effort_of_block(clock: Clock, *, tick_seconds: float = LOOP_TICK_SECONDS) -> AsyncIterator[Effort]:
    """Measure what the block takes; the numbers are complete even if it raises."""
    effort = Effort()
    started_seconds, ran_before, waited_before = (
        clock.monotonic_seconds(),
        time.process_time(),
        _waited_seconds(),
    )
    ticking = asyncio.create_task(_tick(effort, clock, tick_seconds))
    try:
        yield effort
    finally:
        effort.duration_seconds = clock.monotonic_seconds() - started_seconds
        if effort.duration_seconds > 0 and _is_real_time():
            effort.client_cpu_fraction = (time.process_time() - ran_before) / effort.duration_seconds
            if waited_before is not None and (waited := _waited_seconds()) is not None:
                effort.client_cpu_wait_fraction = (waited - waited_before) / effort.duration_seconds
        ticking.cancel()
        await asyncio.wait({ticking})


async def _tick(effort: Effort, clock: Clock, tick_seconds: float) -> None:
    """Measure how late the event loop wakes a task after each tick: the loop adds that to every latency."""
    is_real_time, lag_seconds_total = _is_real_time(), 0.0
    due, worked_before_seconds = clock.monotonic_seconds(), time.thread_time()
    for tick_count in itertools.count(1):
        due += tick_seconds
        await asyncio.sleep(tick_seconds)
        now, worked_seconds = clock.monotonic_seconds(), time.thread_time()
        lag_seconds = max(0.0, now - due)
        own_seconds = worked_seconds - worked_before_seconds if is_real_time else 0.0
        due, worked_before_seconds = now, worked_seconds
        lag_seconds_total += lag_seconds
        effort.loop_lag_seconds_mean = lag_seconds_total / tick_count
        effort.loop_lag_seconds_max = max(effort.loop_lag_seconds_max, lag_seconds)
        effort.standstill_seconds_max = max(effort.standstill_seconds_max, lag_seconds - own_seconds)


def _waited_seconds() -> float | None:
    """How long this thread has waited for a processor; None if the kernel does not tell, or too many files are open."""
    try:
        return int(_SCHEDULING.read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def _is_real_time() -> bool:
    """Whether the loop uses the machine's clock; a virtual clock begins at 0."""
    return abs(asyncio.get_running_loop().time() - time.monotonic()) < 1.0
