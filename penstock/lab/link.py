"""Knows the physics of a host's path to S3, and moves bytes along it exactly according to that physics.

The link is a fluid that its streams share equally. With n streams that have bytes to move, each gets

    rate(t, n) = min(connection rate, window / round trip, host rate(t, n) / n)

A host has more than a network: its disk and its processors limit streams, too. Each stream queues at each ceiling c,
and waits longer the more of it is in use (u = n r / c):

    1/r = 1/own rate + sum over the ceilings of  v u / (1 - v u) / c,    n r <= c

With a burstiness v of 0 the knee is as sharp as above; near 1 it is as gradual as random arrivals make it.

All streams get the same rate, so one number says how far each of them is: the attained service, the bytes that a stream
would have moved if it had been there from the start. A chunk of s bytes begun at attained service v is done at v + s.
One heap of these ends and one timer serve any number of streams. The timer may fire late (real time) or exactly
(virtual time): what happened in between is computed exactly in both cases.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

_DUE_SECONDS = 1e-9  # what is due within this time is due now
_ROUNDING = 1e-9
_BISECTION_COUNT = 40
_SHARED_RATE_COUNT_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """Random episodes, independent of traffic, each of which takes away a fraction while it lasts."""

    gap_seconds_mean: float  # exponential, from the end of one to the start of the next
    duration_seconds_mean: float  # exponential
    fraction_low: float
    fraction_high: float  # the lost fraction is uniform between the two


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A log-normal factor around 1 that stays the same for a random time, and then changes."""

    seconds_mean: float  # of each spell, exponential
    rate_sigma: float = 0.0  # of connections
    latency_sigma: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTruth:
    """The path between one host and S3 in one direction. None means no such limit."""

    round_trip_seconds: float
    connection_rate_bytes_per_second: float
    host_rate_bytes_per_second: float  # sustained; the baseline of a burstable host
    window_bytes: float | None = None  # the most that is in flight on one connection
    burst_rate_bytes_per_second: float | None = None
    # What can be moved above the baseline; unused baseline refills it.
    credit_bytes: float = 0.0
    # Of one request (for a read, until its first byte), log-normal, besides the round trip.
    service_latency_seconds_median: float = 0.030
    service_latency_sigma: float = 0.0
    straggler_fraction: float = 0.0
    straggler_seconds: float = 5.0
    oversubscription_loss: float = 0.0  # host rate / (1 + loss * (n / knee - 2)) beyond twice the knee
    prefix_request_rate_per_second: float | None = None  # more requests are answered with 503 SlowDown
    # After so many bytes, uploaded without a pause of `refusal_seconds`, all requests are refused for that time.
    patience_bytes: float | None = None
    refusal_seconds: float = 0.0
    cold_read_seconds: float = 0.0  # inbound: delay of the first byte of what is not in the service's cache
    cache_bytes: float = 0.0  # inbound: the size of that cache, which holds what was read last
    dips: Episodes | None = None  # the whole path is slower
    tenant: Episodes | None = None  # a neighbour takes some of the host's rate
    drift: Drift | None = None  # of the path, and of the service's latency with it
    round_trips_per_request: float = 1.0  # more if each request opens a connection
    latency_coherency: float = 0.0  # latency * (1 + coherency * n * (n - 1)), with n requests in flight
    burstiness: float = 0.0  # v above: how gradual knees are
    request_overhead_bytes: float = 0.0  # what a request costs link and host besides its body
    disk_rate_bytes_per_second: float | None = None  # of the disk that is read from or written to
    disk_seek_fraction: float = 0.0  # disk rate / (1 + fraction * (n - 1))
    cpu_rate_bytes_per_second: float | None = None  # of all processors of the host together
    cpu_switch_fraction: float = 0.0  # cpu rate / (1 + fraction * (n - 1))
    merge_seconds: float = 0.0  # to merge the parts of an object
    merge_seconds_per_part: float = 0.0

    @property
    def stream_rate_bytes_per_second(self) -> float:
        """The rate of a single stream."""
        if self.window_bytes is None or self.round_trip_seconds <= 0:
            return self.connection_rate_bytes_per_second
        return min(self.connection_rate_bytes_per_second, self.window_bytes / self.round_trip_seconds)

    def ceilings(self, stream_count: int) -> list[float]:
        """The rates of disk and processors for this number of streams together, in bytes per second."""
        others = stream_count - 1
        found = []
        if self.disk_rate_bytes_per_second is not None:
            found.append(self.disk_rate_bytes_per_second / (1.0 + self.disk_seek_fraction * others))
        if self.cpu_rate_bytes_per_second is not None:
            found.append(self.cpu_rate_bytes_per_second / (1.0 + self.cpu_switch_fraction * others))
        return found

    @property
    def service_latency_seconds_mean(self) -> float:
        """The mean latency, including stragglers."""
        body = self.service_latency_seconds_median * math.exp(self.service_latency_sigma**2 / 2)
        return body + self.straggler_fraction * self.straggler_seconds


class Stream:
    """One connection: what is pushed is moved in order, at the rate of one stream."""

    __slots__ = ("_link", "end", "is_moving")

    def __init__(self, link: Link) -> None:
        self._link = link
        self.end = 0.0  # attained service at which everything pushed has moved
        self.is_moving = False

    def push(self, size_bytes: float) -> asyncio.Future[None]:
        """Queue bytes after those already pushed; the future is done when they have arrived."""
        return self._link.push(self, size_bytes)

    def close(self) -> None:
        """Leave the link; bytes that have not arrived never will."""
        self._link.leave(self)


class Link:
    """The running link: streams, credits and weather, on the time of the running event loop."""

    def __init__(self, truth: LinkTruth, *, seed: int) -> None:
        self._truth = truth
        self._seed = seed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0
        self._attained = 0.0
        self._rate = 0.0  # of each stream, since `_at`
        self.stream_count = 0  # streams that are moving bytes
        self._credit_bytes = truth.credit_bytes
        self._ends: list[tuple[float, int, Stream, asyncio.Future[None]]] = []
        self._sequence = 0
        self._carried_bytes = 0.0
        self._change_weather()
        self._shared_rates: dict[tuple[int, float, float], float] = {}

    @property
    def latency_factor(self) -> float:
        """The present factor on the service's latency."""
        self._advance()
        return self._drift.latency_factor

    @property
    def credit_bytes(self) -> float:
        """The burst credits left now."""
        self._advance()
        return self._credit_bytes

    @property
    def carried_bytes(self) -> float:
        """All bytes moved so far, including parts of unfinished chunks."""
        self._advance()
        return self._carried_bytes

    def become(self, truth: LinkTruth) -> None:
        """Change the path from now on; streams and credits stay."""
        self._advance()
        self._truth = truth
        self._credit_bytes = min(self._credit_bytes, truth.credit_bytes)
        self._change_weather()
        for changing in self._changing:
            changing.begin(self._at)
        self._shared_rates.clear()
        self._retune()

    async def carry(self, size_bytes: float) -> None:
        """Move these bytes as a stream of their own."""
        stream = Stream(self)
        try:
            await stream.push(size_bytes)
        finally:
            stream.close()

    def push(self, stream: Stream, size_bytes: float) -> asyncio.Future[None]:
        self._advance()
        assert self._loop is not None
        arrived: asyncio.Future[None] = self._loop.create_future()
        if size_bytes <= 0 and not stream.is_moving:
            arrived.set_result(None)
            return arrived
        joins = not stream.is_moving
        stream.end = (self._attained if joins else stream.end) + size_bytes
        self._sequence += 1
        heapq.heappush(self._ends, (stream.end, self._sequence, stream, arrived))
        if joins:
            stream.is_moving = True
            self.stream_count += 1
        self._retune()
        return arrived

    def leave(self, stream: Stream) -> None:
        if not stream.is_moving:
            return
        self._advance()
        if stream.is_moving:
            self._stop(stream)
            self._retune()

    def _change_weather(self) -> None:
        self._dips = _Weather(self._truth.dips, seed=self._seed)
        self._tenant = _Weather(self._truth.tenant, seed=self._seed + 1)
        self._drift = _Spells(self._truth.drift, seed=self._seed)
        self._changing = (self._dips, self._tenant, self._drift)

    def _stop(self, stream: Stream) -> None:
        stream.is_moving = False
        self.stream_count -= 1
        if self.stream_count == 0:
            # Only ends of closed streams are left. Start again at 0, where floats are most precise.
            self._ends.clear()
            self._attained = 0.0

    def _advance(self) -> None:
        """Advance streams, credits and weather to the present, one change after the other."""
        if self._loop is None:
            self._begin()
        assert self._loop is not None
        now = self._loop.time()
        while self.stream_count:
            done_at, changes_at = self._next_end_at(), self._next_change_at()
            if min(done_at, changes_at) > now + _DUE_SECONDS:
                break
            if done_at <= changes_at:
                self._move_to(done_at)
                self._attained = self._ends[0][0]
                self._finish_due()
            else:
                self._move_to(changes_at)
            self._tune()
        self._move_to(now)
        if not self.stream_count:  # without streams, changes in between had no effect
            self._tune()

    def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time()
        for changing in self._changing:
            changing.begin(self._at)

    def _next_end_at(self) -> float:
        return self._at + (self._ends[0][0] - self._attained) / self._rate if self._rate > 0 else math.inf

    def _next_change_at(self) -> float:
        changes_at = min(changing.until for changing in self._changing)
        overdraft = self._rate * self.stream_count - self._truth.host_rate_bytes_per_second
        if self._credit_bytes > 0 and overdraft > 0:
            return min(changes_at, self._at + self._credit_bytes / overdraft)
        return changes_at

    def _move_to(self, at: float) -> None:
        seconds = at - self._at
        if seconds <= 0:
            return
        self._at = at
        self._attained += self._rate * seconds
        total = self._rate * self.stream_count
        self._carried_bytes += total * seconds
        if self._truth.credit_bytes > 0:
            credit_bytes = self._credit_bytes + (self._truth.host_rate_bytes_per_second - total) * seconds
            # A billionth of all credits counts as none, so that a rounding error does not allow a burst.
            most = self._truth.credit_bytes
            self._credit_bytes = min(credit_bytes, most) if credit_bytes >= _ROUNDING * most else 0.0

    def _finish_due(self) -> None:
        while self._ends and self._ends[0][0] <= self._attained:
            end, _, stream, arrived = heapq.heappop(self._ends)
            if not arrived.done():
                arrived.set_result(None)
            if stream.is_moving and stream.end <= end:
                self._stop(stream)

    def _retune(self) -> None:
        self._tune()
        self._arm()

    def _tune(self) -> None:
        """Update the weather, and compute the rate of each stream from now on."""
        for changing in self._changing:
            changing.pass_to(self._at)
        count = self.stream_count
        if count == 0:
            self._rate = 0.0
            return
        truth = self._truth
        calm = 1.0 - self._dips.lost_fraction
        alone = truth.stream_rate_bytes_per_second * calm * self._drift.rate_factor
        host = truth.host_rate_bytes_per_second
        if truth.burst_rate_bytes_per_second is not None and self._credit_bytes > 0:
            host = truth.burst_rate_bytes_per_second
        host *= calm * (1.0 - self._tenant.lost_fraction)
        if host > 0:
            host /= 1.0 + truth.oversubscription_loss * max(0.0, count * alone / host - 2.0)
        self._rate = self._shared_rate(count, alone, host)

    def _shared_rate(self, count: int, alone: float, host: float) -> float:
        """The rate of each of `count` streams below all ceilings; cached, because the same is asked often."""
        key = count, alone, host
        if key not in self._shared_rates:
            if len(self._shared_rates) > _SHARED_RATE_COUNT_MAX:
                self._shared_rates.clear()
            ceilings = [host, *self._truth.ceilings(count)]
            self._shared_rates[key] = shared_rate(count, alone, ceilings, self._truth.burstiness)
        return self._shared_rates[key]

    def _arm(self) -> None:
        """Set the timer for the next event; an earlier timer stays, because it calls this again."""
        assert self._loop is not None
        if self.stream_count == 0:
            return
        due_at = min(self._next_end_at(), self._next_change_at())
        if self._timer is not None:
            if self._timer.when() <= due_at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due_at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._advance()
        self._arm()


def shared_rate(count: int, alone: float, ceilings: Sequence[float], burstiness: float) -> float:
    """The rate of each of `count` streams in bytes per second, by the formula above."""
    highest = min(alone, min(ceilings) / count)
    if burstiness <= 0.0 or highest <= 0.0:
        return highest

    def seconds_per_byte(rate: float) -> float:
        used = [(burstiness * count * rate / ceiling, ceiling) for ceiling in ceilings]
        return 1.0 / alone + sum(u / (1.0 - u) / ceiling for u, ceiling in used if u < 1.0)

    low, high = 0.0, highest
    for _ in range(_BISECTION_COUNT):
        rate = 0.5 * (low + high)
        low, high = (rate, high) if rate * seconds_per_byte(rate) < 1.0 else (low, rate)
    return low


class _Spells:
    """The course of a random drift, one spell after the other."""

    def __init__(self, drift: Drift | None, *, seed: int) -> None:
        self._drift = drift
        self._chance = random.Random(f"drift {seed}")
        self.rate_factor = self.latency_factor = 1.0
        self.until = math.inf

    def begin(self, at: float) -> None:
        if self._drift is not None:
            self.until = at
            self.pass_to(at)

    def pass_to(self, at: float) -> None:
        """Advance to the spell of this moment."""
        while self._drift is not None and self.until <= at:
            self.rate_factor = math.exp(self._chance.gauss(0.0, self._drift.rate_sigma))
            self.latency_factor = math.exp(self._chance.gauss(0.0, self._drift.latency_sigma))
            self.until += self._chance.expovariate(1 / self._drift.seconds_mean)


class _Weather:
    """The course of random episodes, one after the other, independent of traffic."""

    def __init__(self, episodes: Episodes | None, *, seed: int) -> None:
        self._episodes = episodes
        self._chance = random.Random(f"weather {seed}")
        self.lost_fraction = 0.0
        self.until = math.inf

    def begin(self, at: float) -> None:
        if self._episodes is not None:
            self.until = at + self._chance.expovariate(1 / self._episodes.gap_seconds_mean)

    def pass_to(self, at: float) -> None:
        """Advance to the state of this moment."""
        episodes = self._episodes
        while episodes is not None and self.until <= at:
            if self.lost_fraction > 0:
                self.lost_fraction = 0.0
                mean = episodes.gap_seconds_mean
            else:
                self.lost_fraction = self._chance.uniform(episodes.fraction_low, episodes.fraction_high)
                mean = episodes.duration_seconds_mean
            self.until += self._chance.expovariate(1 / mean)
