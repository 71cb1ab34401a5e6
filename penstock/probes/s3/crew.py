"""Knows how the threads of a probe share its requests: which goes next, what an error means, and when to stop.

A subclass says what a request does (`move`): send a part, or read a range. The measures of an observation about such
requests are the same for both (`<noun>` is `part` or `range`):

- `<noun>_count`: requests with a body that succeeded.
- `connection_count`: the most such requests in flight at a time, at most the thread count.
- `<noun>_seconds_mean`, `<noun>_seconds_p50`, `<noun>_seconds_p90`: the time of one such request.
- `steady_throughput_bytes_per_second`, `steady_seconds`: throughput while every thread was busy, after each had
  finished its first request (which pays for the connection) and before the first found nothing left to do; the bytes of
  a request count evenly over its time. With a single wave of requests it is that wave. So it includes neither the ramp
  nor the last wave, which a model adds itself. If requests were throttled, it is what went through afterwards, without
  those that had been admitted at once; it is absent if that was soon over.
- `admitted_count`, `refusing_seconds`: if requests were throttled, how many were admitted during a time in which no
  more could have been (`admitted_while_refusing`); 0 if that is not known.
- `worker_count`: processes that moved the bodies; `client_cpu_demand_fraction`: the fraction of time that the busiest
  of them ran or waited for a processor, while every thread had something to do. Near 1, this host's processors are the
  limit, not the network.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Generic

from penstock.clock import Clock, Stopwatch
from penstock.models.inference.histogram import histogram_of, pairs_of
from penstock.models.s3.directions import S3SettingT
from penstock.probes.measurement import Effort, LatencySummary, summarize
from penstock.probes.outside import (
    Denied,
    Missing,
    RequestError,
    Throttled,
    Unreachable,
    Unsent,
    pause_seconds,
)
from penstock.probes.probe import inconclusive
from penstock.units import format_bytes
from penstock.vocabulary import Cost, Observation, Outcome, ProbePlan

WAVE_COUNT_ENOUGH = 8  # requests for each thread: enough for a steady state
PART_COUNT_ENOUGH_MIN = 16
OBJECT_COUNT_ENOUGH_MIN = 64
FAILURE_COUNT_MAX = 8  # and two for each thread: beyond this, a probe would only burden the service


def count_enough(thread_count: int, object_part_count: int, *, wanted_count: int | None = None) -> int:
    """How many requests are enough to measure: parts or ranges, or whole objects where `object_part_count` is 1."""
    if wanted_count is not None:
        return wanted_count if object_part_count == 1 else min(wanted_count, object_part_count)
    if object_part_count == 1:
        return max(WAVE_COUNT_ENOUGH * thread_count, OBJECT_COUNT_ENOUGH_MIN)
    return min(max(WAVE_COUNT_ENOUGH * thread_count, PART_COUNT_ENOUGH_MIN), object_part_count)


def too_little(cost_max: Cost, has: str, noun: str, body_bytes: int) -> str:
    """The sentence about a plan that pays for no part or range at all; `has` is the verb, "allows" or "leaves"."""
    return (
        f"the plan {has} {format_bytes(cost_max.transferred_bytes)} in {cost_max.request_count} requests, too little "
        f"for one {noun} of {format_bytes(body_bytes)}: raise the budget or probe smaller {noun}s"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotment:
    """The part of a plan that is carried out."""

    object_request_count: int  # parts or ranges of the whole object; 1 for whole objects
    request_count: int  # requests to make; a whole object is one
    body_bytes: int
    tail_bytes: int  # of the object's last part or range
    cost_max: Cost  # of the requests with a body, including failed ones
    refusal: str | None = None  # why nothing can be carried out

    def size_bytes(self, number: int) -> int:
        """The size of the body of the request with this number, from 0."""
        return self.tail_bytes if number == self.object_request_count - 1 else self.body_bytes


@dataclass(frozen=True, slots=True)
class Sample:
    """One request with a body that succeeded; times are seconds since the transfer began."""

    thread: int
    started_seconds: float
    ended_seconds: float
    size_bytes: int


@dataclass(kw_only=True)
class Crew(ABC, Generic[S3SettingT]):
    """The threads of one run, what is left for them to do, and what they did; subclasses define a request."""

    noun: ClassVar[str]  # what a request moves

    plan: ProbePlan[S3SettingT]
    clock: Clock
    allotment: Allotment
    reserve_seconds: float = 0.0  # needed after the last request
    samples: list[Sample] = field(default_factory=list)
    first_byte_seconds: list[float] = field(default_factory=list)  # until answers began, where measured
    attempt_count: int = 0
    attempted_bytes: int = 0
    failed_count: int = 0
    lost_count: int = 0  # requests without an answer, which may be carried out later
    trouble: RequestError | None = None  # the last one
    is_hopeless: bool = False
    connection_count: int = 0  # the most requests in flight
    _left: list[int] = field(default_factory=list)  # a heap: failed ones come back and go first
    _in_flight_count: int = 0
    _idle_from_seconds: float | None = None
    _refused_at_seconds: list[float] = field(default_factory=list)
    _stopwatch: Stopwatch = field(init=False)
    _request_seconds_max: float = 0.0

    @abstractmethod
    async def move(self, thread: int, number: int) -> None:
        """Make the request with this number, from 0. Raises RequestError."""

    @property
    @abstractmethod
    def used(self) -> Cost:
        """The cost of the whole run so far."""

    @abstractmethod
    def measures(self) -> Mapping[str, float]:
        """The further measures of the run."""

    @abstractmethod
    def why_nothing(self) -> str:
        """A sentence for when not even one request ended in time."""

    async def transfer(self) -> None:
        """Do everything that is measured, within the allotted time."""
        self._stopwatch = Stopwatch(self.clock)
        try:
            async with asyncio.timeout(self.allotment.cost_max.duration_seconds):
                await self.carry_out()
        except TimeoutError:
            pass  # the requests that have ended are the measurement
        except RequestError as error:
            self.count_trouble(error)

    async def carry_out(self) -> None:
        """Do all the work. Raises RequestError."""
        await self.work()

    async def work(self) -> None:
        """Make all requests with a body, as far as the plan pays for them."""
        self._left = list(range(self.allotment.request_count))
        async with asyncio.TaskGroup() as group:
            for thread in range(min(self.plan.setting.thread_count, len(self._left))):
                group.create_task(self._work_as(thread))

    async def _work_as(self, thread: int) -> None:
        """Work as one thread: request after request, until nothing is left to do or to spend."""
        trouble_count = 0  # in a row
        while (number := self._claim()) is not None:
            try:
                await self._make(thread, number)
                trouble_count = 0
            except RequestError as error:
                heapq.heappush(self._left, number)
                self.count_trouble(error)
                trouble_count += 1
                if not self.is_hopeless:
                    await asyncio.sleep(pause_seconds(trouble_count))
        if self._idle_from_seconds is None:
            self._idle_from_seconds = self.elapsed_seconds()

    def _claim(self) -> int | None:
        """The next request that the plan still pays for; None ends the thread."""
        if self.is_hopeless or not self._left or self._is_late():
            return None
        size_bytes, cost_max = self.allotment.size_bytes(self._left[0]), self.allotment.cost_max
        if self.attempt_count >= cost_max.request_count:
            return None
        if self.attempted_bytes + size_bytes > cost_max.transferred_bytes:
            return None
        self.attempt_count += 1
        self.attempted_bytes += size_bytes
        return heapq.heappop(self._left)

    def _is_late(self) -> bool:
        """Whether another request, and what has to follow, might not end in time."""
        needed_seconds = self._request_seconds_max + self.reserve_seconds
        return self.elapsed_seconds() + needed_seconds >= self.allotment.cost_max.duration_seconds

    async def _make(self, thread: int, number: int) -> None:
        self._in_flight_count += 1
        self.connection_count = max(self.connection_count, self._in_flight_count)
        started_seconds = self.elapsed_seconds()
        try:
            await self.move(thread, number)
        finally:
            self._in_flight_count -= 1
        ended_seconds = self.elapsed_seconds()
        self._request_seconds_max = max(self._request_seconds_max, ended_seconds - started_seconds)
        size_bytes = self.allotment.size_bytes(number)
        self.samples.append(Sample(thread, started_seconds, ended_seconds, size_bytes))

    def count_trouble(self, error: RequestError) -> None:
        """Count a failed request; too many of them, or one that can never succeed, end the run."""
        self.trouble = error
        self.lost_count += isinstance(error, Unreachable) and not isinstance(error, Unsent)
        if isinstance(error, Throttled):
            self._refused_at_seconds.append(self.elapsed_seconds())
        else:
            self.failed_count += 1
        most = FAILURE_COUNT_MAX + 2 * self.plan.setting.thread_count
        too_many = self.throttled_count + self.failed_count >= most
        self.is_hopeless = self.is_hopeless or too_many or isinstance(error, (Denied, Missing))

    def elapsed_seconds(self) -> float:
        """Seconds since the transfer began."""
        return self._stopwatch.elapsed_seconds()

    @property
    def throttled_count(self) -> int:
        """The count of throttled requests."""
        return len(self._refused_at_seconds)

    @property
    def moved_bytes(self) -> int:
        """The bytes of requests that succeeded."""
        return sum(sample.size_bytes for sample in self.samples)

    def while_busy(self, effort: Effort) -> Effort:
        """The effort during the time in which every thread had something to do: waiting for a straggler takes no CPU.

        CPU time is attributed evenly to the bytes.
        """
        moved_bytes, until = self.moved_bytes, self._idle_from_seconds
        if not moved_bytes or not until:
            return effort
        ratio = self._bytes_within((0.0, until)) / moved_bytes * effort.duration_seconds / until
        return replace(
            effort,
            client_cpu_fraction=ratio * effort.client_cpu_fraction,
            client_cpu_wait_fraction=ratio * effort.client_cpu_wait_fraction,
        )

    def outcome(self, started_at: datetime, effort: Effort, worker_count: int) -> Outcome[S3SettingT]:
        """The outcome of the run, in which `worker_count` processes moved the bodies."""
        seconds = [sample.ended_seconds - sample.started_seconds for sample in self.samples]
        latencies = summarize(seconds)
        reason = self._disturbance(latencies, effort)
        if reason is not None:
            return inconclusive(self.plan, started_at, reason, self.used)
        times = {"request_seconds": seconds, "first_byte_seconds": self.first_byte_seconds}
        return Observation(
            context=self.plan.context,
            setting=self.plan.setting,
            started_at=started_at,
            duration_seconds=effort.duration_seconds,
            transferred_bytes=self.moved_bytes,
            request_count=self.used.request_count,
            throttled_count=self.throttled_count,
            failed_count=self.failed_count,
            latency_seconds_mean=latencies.mean_seconds,
            latency_seconds_p50=latencies.p50_seconds,
            latency_seconds_p99=latencies.p99_seconds,
            client_cpu_fraction=effort.client_cpu_fraction,
            loop_lag_seconds_max=effort.loop_lag_seconds_max,
            measures={
                **self._usual_measures(latencies),
                "worker_count": worker_count,
                "client_cpu_demand_fraction": effort.client_cpu_demand_fraction,
                **self.measures(),
            },
            histograms={name: histogram_of(found) for name, found in times.items() if found},
            successive=pairs_of(self._seconds_by_thread()),
        )

    def _seconds_by_thread(self) -> Iterable[list[float]]:
        threads: dict[int, list[float]] = {}
        for sample in self.samples:
            threads.setdefault(sample.thread, []).append(sample.ended_seconds - sample.started_seconds)
        return threads.values()

    def _disturbance(self, latencies: LatencySummary, effort: Effort) -> str | None:
        if self.samples:
            return effort.disturbance(latencies.p50_seconds, may_be_cpu_bound=True)
        if self.trouble is not None:
            return f"no request succeeded; {self.trouble}"
        return effort.disturbance(math.inf) or self.why_nothing()

    def _usual_measures(self, latencies: LatencySummary) -> dict[str, float]:
        noun = self.noun
        measures: dict[str, float] = {
            f"{noun}_count": latencies.count,
            "connection_count": self.connection_count,
            f"{noun}_seconds_mean": latencies.mean_seconds,
            f"{noun}_seconds_p50": latencies.p50_seconds,
            f"{noun}_seconds_p90": latencies.p90_seconds,
        }
        times = [(s.thread, s.started_seconds, s.ended_seconds) for s in self.samples]
        if not self._refused_at_seconds:
            steady = steady_window(times, self._idle_from_seconds)
        else:
            steady = refused_window(times, self._refused_at_seconds[0], self._idle_from_seconds)
            measures["admitted_count"], measures["refusing_seconds"] = admitted_while_refusing(
                [s.started_seconds for s in self.samples], self._refused_at_seconds
            )
        if steady is not None:
            seconds = steady[1] - steady[0]
            measures["steady_seconds"] = seconds
            measures["steady_throughput_bytes_per_second"] = self._bytes_within(steady) / seconds
        return measures

    def _bytes_within(self, window: tuple[float, float]) -> float:
        return math.fsum(
            s.size_bytes
            * max(0.0, min(s.ended_seconds, window[1]) - max(s.started_seconds, window[0]))
            / (s.ended_seconds - s.started_seconds)
            for s in self.samples
            if s.ended_seconds > s.started_seconds
        )


def steady_window(
    samples: Sequence[tuple[int, float, float]], idle_from_seconds: float | None
) -> tuple[float, float] | None:
    """The time during which every thread was busy with a request other than its first, as (begin, end) in seconds.

    `samples` are (thread, start, end). The window begins when the last thread has finished its first request, and ends
    when the first thread finds nothing left. If that is empty (a single wave), it is the time from the first start to
    the first end. None without samples.
    """
    if not samples:
        return None
    first_ends: dict[int, float] = {}
    for thread, _, ended in samples:
        first_ends[thread] = min(ended, first_ends.get(thread, math.inf))
    begins = max(first_ends.values())
    ends = idle_from_seconds if idle_from_seconds is not None else max(ended for _, _, ended in samples)
    if ends <= begins:
        begins, ends = min(started for _, started, _ in samples), min(first_ends.values())
    return (begins, ends) if ends > begins else None


def refused_window(
    samples: Sequence[tuple[int, float, float]], refused_from_seconds: float, idle_from_seconds: float | None
) -> tuple[float, float] | None:
    """The steady window where some requests were throttled.

    It begins when the last request is done that began before the first refusal: by then, the burst that a service
    admits before it throttles is over. None where that leaves little time.
    """
    ends = max((ended for _, _, ended in samples), default=0.0)
    begins = max(
        (end for _, start, end in samples if start <= refused_from_seconds), default=refused_from_seconds
    )
    until = min(ends, idle_from_seconds) if idle_from_seconds is not None else ends
    return (begins, until) if until - begins >= _REFUSED_SHARE_MIN * ends > 0 else None


def admitted_while_refusing(
    began_seconds: Iterable[float], refused_at_seconds: Sequence[float]
) -> tuple[int, float]:
    """How many successful requests began between the first refusal and another one, and in how many seconds.

    A token bucket is empty at both moments, so the requests that began in between are the tokens added, give or take
    one. But a bucket that was full in between has lost tokens: a probe that begins with more requests than the bucket
    holds is throttled at once, and then transfers these for longer than the bucket takes to fill again. So of all later
    refusals, the one that gives the highest rate counts. (0, 0.0) where there is only one refusal.
    """
    first, *others = refused_at_seconds
    began = sorted(at for at in began_seconds if at > first)
    found = [(bisect_right(began, at), at - first) for at in others if at > first]
    return max(found, key=lambda one: (one[0] - 1) / one[1], default=(0, 0.0))


_REFUSED_SHARE_MIN = 0.25  # of the time: a shorter window has too few requests for a rate
