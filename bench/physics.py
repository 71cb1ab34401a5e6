"""Knows how the judge computes an upload: a closed network of stations, solved for its throughput, wave by wave.

Deliberately, this is not the law that the product fits, where a soft minimum joins ceilings. Here connections queue:
the rate X of parts solves

    X * (Z + sum_i W_i(X)) = n,    W_i = D_i * g v U_i / (1 - v U_i),    U_i = X D_i <= 1

where Z is the time of a part without rivals (round trips, service, pacing, client CPU), D_i the demand of a part on a
shared station (NIC, CPU, disk), v the burstiness and g the number of parts in one gust: v = 0 makes the knee hard;
gusts make it soft also with many connections. An upload is its first wave on cold connections, full waves, a last wave
that may be almost empty, and the wait for its slowest part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

SEGMENT_BYTES = 14_600  # ten segments: the first congestion window
SWAPPING = 0.03  # the fraction of throughput left beyond the memory limit
BISECTIONS = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A host, its path to the service, and the service."""

    rtt_seconds: float
    service_seconds: float  # the service's time for a part, whatever its size
    connection_bytes_per_second: float  # the service's limit on one connection
    nic_bytes_per_second: float
    window_bytes: float = inf
    burstiness: float = 0.3
    gust_part_count: float = 1.0
    setup_round_trips: float = 3.0  # TCP and TLS
    keeps_connections: bool = True
    contention: float = 0.0  # universal scalability law: grows the time of a part
    coherency: float = 0.0  # grows the part's time besides moving its bytes
    core_count: float = 16.0
    cpu_seconds_per_request: float = 0.0
    cpu_seconds_per_byte: float = 0.0
    switch_fraction: float = 0.0  # extra CPU per connection beyond one per core
    disk_bytes_per_second: float = inf
    seek_fraction: float = 0.0  # extra disk time per additional reader
    overload_slack: float = 2.0  # demand over NIC capacity at which losses begin
    overload_loss: float = 0.0
    request_rate_max: float = inf  # above it, 503s begin
    retry_loss: float = 0.6
    memory_bytes: float = inf
    create_seconds: float = 0.05
    complete_seconds: float = 0.10
    complete_seconds_per_part: float = 0.0005
    mixing: float = 0.5  # how far waves have dissolved into a steady flow
    # How unequal parts are: the last of a wave is late by this fraction of a part's own time.
    straggle: float = 0.12


@dataclass(frozen=True, slots=True)
class Flow:
    """What an upload does without noise, for arrays of settings."""

    throughput: Array  # bytes per second of the whole upload
    part_seconds: Array  # mean time of one part
    throttled_fraction: Array  # of the requests
    cpu_fraction: Array  # of one core
    cpu_demand_fraction: Array  # of all cores that the client has
    steady_throughput: Array  # bytes per second while every connection is busy; NaN if unknowable
    create_seconds: Array  # the requests around the parts; NaN where there are none
    complete_seconds: Array
    first_byte_seconds: Array  # of one request; NaN if unknowable

    def times(self, factor: ArrayLike) -> Flow:
        """The same law, faster or slower by a factor for each setting."""
        by = np.asarray(factor, float)
        return replace(
            self,
            throughput=self.throughput * by,
            part_seconds=self.part_seconds / by,
            cpu_fraction=self.cpu_fraction * by,
            cpu_demand_fraction=self.cpu_demand_fraction * by,
            steady_throughput=self.steady_throughput * by,
            first_byte_seconds=self.first_byte_seconds / by,
        )


def upload(link: Link, object_size_bytes: int, thread_count: ArrayLike, part_size_bytes: ArrayLike) -> Flow:
    """One object in parts."""
    n, s = np.broadcast_arrays(
        np.asarray(thread_count, float), np.minimum(np.asarray(part_size_bytes, float), object_size_bytes)
    )
    k = np.ceil(object_size_bytes / s)
    waves = _waves(link, n, s, k, object_size_bytes - (k - 1) * s)
    is_multipart, connections = k > 1, np.minimum(n, k)
    create = np.where(is_multipart, link.create_seconds, np.nan)
    complete = np.where(is_multipart, link.complete_seconds + link.complete_seconds_per_part * k, np.nan)
    late = (
        link.straggle
        * np.sqrt(2 * np.log(waves.last_count))
        * _alone_seconds(link, np.ones_like(n), s, cold=False)
    )
    total = waves.seconds + late + np.where(is_multipart, create + complete, 0.0)
    cpu = link.cpu_seconds_per_request + link.cpu_seconds_per_byte * s
    cpu_fraction = k * cpu * _switching(link, connections) / total
    flow = Flow(
        throughput=object_size_bytes / total,
        part_seconds=waves.busy_seconds / k,
        throttled_fraction=waves.throttled_fraction,
        cpu_fraction=cpu_fraction,
        cpu_demand_fraction=np.minimum(cpu_fraction / link.core_count, 1.0),
        steady_throughput=connections * np.minimum(s, object_size_bytes) / waves.wave_seconds,
        create_seconds=create,
        complete_seconds=complete,
        first_byte_seconds=np.full_like(total, np.nan),
    )
    return flow.times(np.where(connections * s > link.memory_bytes, SWAPPING, 1.0))


def download(
    link: Link, object_size_bytes: int, thread_count: ArrayLike, range_size_bytes: ArrayLike
) -> Flow:
    """One object in ranges: like an upload, but nothing is created or completed, and the first byte is seen."""
    nothing = replace(link, create_seconds=0.0, complete_seconds=0.0, complete_seconds_per_part=0.0)
    flow = upload(nothing, object_size_bytes, thread_count, range_size_bytes)
    n, s = np.broadcast_arrays(np.asarray(thread_count, float), np.asarray(range_size_bytes, float))
    n = np.minimum(n, np.ceil(object_size_bytes / np.minimum(s, object_size_bytes)))
    first = link.rtt_seconds + link.service_seconds + link.cpu_seconds_per_request
    first_byte = first * (1.0 + link.coherency * n * (n - 1)) * (1.0 + link.contention * (n - 1))
    unknown = np.full_like(first_byte, np.nan)
    return replace(
        flow, create_seconds=unknown, complete_seconds=unknown, first_byte_seconds=np.asarray(first_byte)
    )


def many(link: Link, count: ArrayLike, thread_count: ArrayLike, object_size_bytes: ArrayLike) -> Array:
    """Bytes per second of `count` whole objects, each in one request, as the published tables measured them."""
    n, s, k = np.broadcast_arrays(*(np.asarray(a, float) for a in (thread_count, object_size_bytes, count)))
    return np.asarray(k * s / _waves(link, n, s, k, s).seconds)


@dataclass(frozen=True, slots=True)
class _Waves:
    seconds: Array
    busy_seconds: Array  # connections x seconds
    wave_seconds: Array  # of a full wave on warm connections, or of the only one
    throttled_fraction: Array
    last_count: Array  # connections in the last wave


def _waves(link: Link, n: Array, s: Array, k: Array, last_size: Array) -> _Waves:
    """The time of k parts over n connections."""
    c = np.minimum(n, k)
    cold, throttled = part_rate(link, c, np.where(k == 1, last_size, s), cold=True)
    warm, throttled_warm = (
        (cold, throttled) if not link.keeps_connections else part_rate(link, n, s, cold=False)
    )
    full = np.floor((k - c) / n)
    rest = k - c - full * n
    last, _ = part_rate(
        link, np.maximum(rest, 1), np.where(rest == 1, last_size, s), cold=not link.keeps_connections
    )
    first_seconds, wave_seconds, last_seconds = c / cold, n / warm, np.where(rest > 0, rest / last, 0.0)
    in_waves = first_seconds + full * wave_seconds + last_seconds
    in_flow = first_seconds + (k - c) / warm
    seconds = np.where(k > n, (1 - link.mixing) * in_waves + link.mixing * in_flow, in_waves)
    busy = c * first_seconds + full * n * wave_seconds + rest * last_seconds
    only = np.where(k - c >= n, wave_seconds, first_seconds)
    last_count = np.where(rest > 0, np.maximum(rest, link.mixing * n), c)
    return _Waves(
        seconds, busy, only, np.where(k > c, throttled_warm, throttled), np.maximum(last_count, 1.0)
    )


def part_rate(link: Link, n: Array, s: Array, *, cold: bool) -> tuple[Array, Array]:
    """Parts per second with n connections busy, and the fraction of throttled requests."""
    alone = _alone_seconds(link, n, s, cold=cold)
    demands = _demands(link, n, s, alone)
    low, high = np.zeros_like(alone), np.minimum(n / alone, 1.0 / np.max(demands, axis=0))
    ceiling = high.copy()
    for _ in range(BISECTIONS):
        rate = 0.5 * (low + high)
        used = link.burstiness * np.minimum(rate * demands, 1.0)
        waiting = link.gust_part_count * demands * used / (1.0 - used)
        asked = rate * (alone + np.sum(waiting, axis=0))
        low, high = np.where(asked < n, rate, low), np.where(asked < n, high, rate)
    rate = np.minimum(high, ceiling)
    excess = np.maximum(rate / link.request_rate_max - 1.0, 0.0)
    served = np.where(
        excess > 0, link.request_rate_max * np.maximum(1.0 - link.retry_loss * excess, 0.25), rate
    )
    return np.minimum(rate, served), excess / (1.0 + excess)


def _alone_seconds(link: Link, n: Array, s: Array, *, cold: bool) -> Array:
    pace = min(link.connection_bytes_per_second, link.window_bytes / link.rtt_seconds)
    seconds = link.rtt_seconds + link.service_seconds + link.cpu_seconds_per_request + np.zeros_like(s)
    if cold:
        rounds = np.log2(1.0 + np.minimum(s, pace * link.rtt_seconds) / SEGMENT_BYTES)
        seconds = seconds + link.rtt_seconds * (link.setup_round_trips + rounds)
    seconds = seconds * (1.0 + link.coherency * n * (n - 1)) + s / pace
    return np.asarray(seconds * (1.0 + link.contention * (n - 1)) + link.cpu_seconds_per_byte * s)


def _demands(link: Link, n: Array, s: Array, alone: Array) -> Array:
    """Seconds of NIC, CPU and disk that a part needs."""
    overload = n * s / alone / link.nic_bytes_per_second
    lossy = 1.0 + link.overload_loss * np.maximum(overload - link.overload_slack, 0.0)
    nic = s / link.nic_bytes_per_second * lossy
    cpu = (
        (link.cpu_seconds_per_request + link.cpu_seconds_per_byte * s) * _switching(link, n) / link.core_count
    )
    disk = s / link.disk_bytes_per_second * (1.0 + link.seek_fraction * (n - 1))
    return np.stack([nic, cpu, disk])


def _switching(link: Link, n: Array) -> Array:
    return np.asarray(1.0 + link.switch_fraction * np.maximum(n / link.core_count - 1.0, 0.0))
