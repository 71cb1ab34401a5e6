"""Knows what tells uploads from downloads where the law is the same: what tables say of them, and their own names.

A setting knows which way its bytes go. A fit of one direction says something about the other of the same place: a
long way slows both, and the host's ceiling and processor are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np

from penstock.models import burst
from penstock.models.inference.posterior import Gaussian
from penstock.models.model import Array
from penstock.models.s3.law import (
    BURST_FACTOR,
    COLD_LATENCIES,
    CONNECTION_RATE,
    CPU_PER_BYTE,
    CPU_PER_REQUEST,
    HOST_RATE,
    LATENCY,
    OBJECT_SECONDS,
    OBJECT_SECONDS_PER_PART,
    PARAMETERS,
    PREFIX_RATE,
    TAIL_SHARE,
    THREAD_COUNT_MAX,
    THROTTLING_SLOPE,
    WAVE_MIXING,
    Transfers,
)
from penstock.models.s3.parts import PART_SIZE_BYTES_MAX, PART_SIZE_BYTES_MIN, READ_WHOLE_BYTES_MAX
from penstock.vocabulary import Place, knob

REQUEST_SIZE_BYTES_MAX = PART_SIZE_BYTES_MAX  # whichever way: ranges have no limit of their own
Typical: TypeAlias = Mapping[str, tuple[float, float]]
"""By parameter: a typical value, and the spread of its logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """What tells one way of the bytes from the other: what tables say of it, and what its measures are called."""

    typical: Typical
    typical_express: Typical  # where that differs
    late_fraction: float  # of requests, that wait for long whatever the setting
    late_seconds: float  # so long
    unsplit_bytes: int  # an object of at most so many goes whole, and many of them as a stream
    size_knob: str  # of a setting: the bytes of one request
    part_noun: str  # of one request, in the names of measures: `<noun>_count`, `<noun>_seconds_mean`
    allowance_measure: str  # packets that the host held back
    packet_measure: str  # of so many
    absent: frozenset[str] = frozenset()  # parameters of the law that mean nothing here


# Of the host and of any law of this kind, whichever way the bytes go.
_ANYWHERE: Typical = {
    "host_bytes_per_second": (500e6, 1.8),
    "burst_factor": (1.0, 0.01),
    "cpu_seconds_per_request": (2e-4, 2.0),
    "cpu_seconds_per_byte": (1 / 3e9, 1.0),
    "knee_sharpness": (6.0, 1.0),
    "overload_slope": (0.05, 1.5),
    "overload_onset": (2.0, 0.3),
    "throttling_slope": (0.5, 0.8),
    "wave_mixing": (1.0, 1.2),
    "tail_share": (0.3, 0.8),
    # three round trips and slow start far away, nothing where connections are kept
    "cold_latencies": (2.0, 1.0),
}
# Late requests: AWS's CRT sends parts again because about one upload in a thousand is answered after 5 s. Of requests
# for 1 KiB that Skyrise measured in 2024 one in ten thousand took longer than .3 s (GET) or .4 s (PUT), and the slowest
# 10 s and 5 s: with a Pareto tail between the two that is .13 ms a request. AWS's transfer manager in Rust found that
# to send late ones again makes a significant difference for uploads, and none for downloads.
# S3: 30 ms and 20 MB/s for PUT are what AWS's own transfer manager assumes (Express One Zone: 7.3 ms, 110 MB/s); paths
# out of the region are slower by up to a hundred.
UPLOADS = Direction(
    typical={
        "request_seconds": (0.035, 0.9),
        "connection_bytes_per_second": (20e6, 1.2),
        "prefix_requests_per_second": (3500.0, 0.9),
        "object_seconds": (0.12, 0.9),
        "object_seconds_per_part": (3e-4, 1.2),
    },
    typical_express={
        "request_seconds": (0.0073, 0.7),
        "connection_bytes_per_second": (110e6, 0.7),
        "prefix_requests_per_second": (200_000.0, 0.5),
        "object_seconds": (0.03, 0.8),
    },
    late_fraction=3e-4,
    late_seconds=2.0,
    unsplit_bytes=PART_SIZE_BYTES_MIN,
    size_knob="part_size_bytes",
    part_noun="part",
    allowance_measure="bw_out_allowance_exceeded",
    packet_measure="host_transmitted_packet_count",
)
_NOTHING = (1e-12, 1e-3)
# 30 ms and 90 MB/s for GET by the same source (Express: 4 ms, 150 MB/s); by the user guide of S3 at least 5,500 GETs a
# second of a prefix, and up to two million of a directory bucket.
DOWNLOADS = Direction(
    typical={
        "request_seconds": (0.025, 0.9),
        "connection_bytes_per_second": (60e6, 1.4),
        "prefix_requests_per_second": (9000.0, 0.7),
        "cpu_seconds_per_request": (2e-4, 1.3),
        "object_seconds": _NOTHING,
        "object_seconds_per_part": _NOTHING,
    },
    typical_express={
        "request_seconds": (0.005, 0.7),
        "connection_bytes_per_second": (150e6, 0.7),
        "prefix_requests_per_second": (2_000_000.0, 0.5),
    },
    late_fraction=1e-4,
    late_seconds=1.0,
    unsplit_bytes=READ_WHOLE_BYTES_MAX,
    size_knob="range_size_bytes",
    part_noun="range",
    allowance_measure="bw_in_allowance_exceeded",
    packet_measure="host_received_packet_count",
    absent=frozenset({"object_seconds", "object_seconds_per_part"}),
)
BY_OPERATION = {"s3_upload": UPLOADS, "s3_download": DOWNLOADS}


def direction_of(operation: str) -> Direction:
    """Of what no table is about, most is like an upload."""
    return BY_OPERATION.get(operation, UPLOADS)


def passes_host(operation: str) -> bool:
    """Whether its bytes come by the host, whose network and processor then limit it."""
    return "host_bytes_per_second" not in direction_of(operation).absent


def kindred(operation: str) -> frozenset[str]:
    """The other operations whose bytes take the same way, through the same host."""
    through = frozenset(filter(passes_host, BY_OPERATION)) if passes_host(operation) else frozenset[str]()
    return through - {operation}


def host_ceiling(place: Place) -> burst.Ceiling | None:
    """What the host carries of it; None where tables do not tell, and where the bytes do not pass the host."""
    return burst.ceiling(place.instance_type) if passes_host(place.operation) else None


def burst_ceiling(place: Place) -> burst.Ceiling | None:
    """The same of a host that may go faster for a while; None for any other."""
    limits = host_ceiling(place)
    return limits if limits is not None and limits.is_burstable else None


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Setting(ABC):
    """How one object is moved: so many requests at a time, of so many bytes each; each way names the bytes its own."""

    direction: ClassVar[Direction]

    thread_count: int = knob(1, THREAD_COUNT_MAX, is_divided=True)

    @property
    @abstractmethod
    def request_size_bytes(self) -> int:
        """Of a part, or of a range; at or above the object's size it means one request."""

    def memory_bytes(self, object_size_bytes: int, object_count: int = 1) -> int:
        """The most that a client holds at a time: each request whole, also where the last one is short."""
        held_bytes = min(self.request_size_bytes, object_size_bytes)
        return held_bytes * in_flight_count(self, object_size_bytes, object_count)


S3SettingT = TypeVar("S3SettingT", bound=S3Setting)


def in_flight_count(setting: S3Setting, object_size_bytes: int, object_count: int = 1) -> int:
    """Requests at a time: no more than the objects have parts; of objects that go whole, one a thread.

    Small objects come without end where nothing is said of how many there are.
    """
    if object_size_bytes <= setting.direction.unsplit_bytes and object_count <= 1:
        return setting.thread_count
    parts = ceil(object_size_bytes / setting.request_size_bytes)
    return min(setting.thread_count, parts * max(object_count, 1))


_SLOW_IS_FAR = -0.6  # correlation of L and B: a long round trip slows a connection and each of its requests
_KNOWN_HOST_SPREAD = 0.25
_BURST_SPREAD = 0.9  # a long path may end far below the burst rate, which says nothing about the baseline


def table_prior(place: Place) -> Gaussian:
    """What tables say about a place that nobody measured."""
    direction = direction_of(place.operation)
    typical = dict(_ANYWHERE) | dict(direction.typical)
    if place.service_class == "express":
        typical |= direction.typical_express
    limits = host_ceiling(place)
    if limits is not None:
        typical["host_bytes_per_second"] = (limits.baseline_bytes_per_second, _KNOWN_HOST_SPREAD)
    if limits is not None and limits.is_burstable:
        factor = limits.burst_bytes_per_second / limits.baseline_bytes_per_second
        typical["burst_factor"] = (factor, _BURST_SPREAD)
    mean = np.log([typical[name][0] for name in PARAMETERS])
    spread = np.array([typical[name][1] for name in PARAMETERS])
    covariance = np.diag(spread**2)
    covariance[LATENCY, CONNECTION_RATE] = covariance[CONNECTION_RATE, LATENCY] = (
        _SLOW_IS_FAR * spread[LATENCY] * spread[CONNECTION_RATE]
    )
    return Gaussian(mean=mean, covariance=covariance)


# Of its logarithm: a gateway carries a quarter of what a host does, the line of an edge site a hundredth.
_SLOWER_PATH_SPREAD = 2.0


def behind_a_slower_path(table: Gaussian) -> Gaussian:
    """The same where a ceiling on the way is lower than the host's own, typically a quarter of it, credits or not."""
    mean, covariance = table.mean.copy(), table.covariance.copy()
    mean[HOST_RATE] -= 1.5
    covariance[HOST_RATE, HOST_RATE] = _SLOWER_PATH_SPREAD**2
    factor, spread = _ANYWHERE["burst_factor"]
    mean[BURST_FACTOR], covariance[BURST_FACTOR, BURST_FACTOR] = np.log(factor), spread**2
    return Gaussian(mean=mean, covariance=covariance)


_REFUSING_SPREAD = 3.0  # a store of one's own may take 40 requests a second where S3 takes 5,500
_REFUSALS_COST_SPREAD = 1.6  # and who waits before he asks again costs the others nothing


def where_requests_are_refused(table: Gaussian) -> Gaussian:
    """The same where some were refused: the limit is that of whoever refuses, and tables say next to nothing of it."""
    covariance = table.covariance.copy()
    covariance[PREFIX_RATE, PREFIX_RATE] = _REFUSING_SPREAD**2
    covariance[THROTTLING_SLOPE, THROTTLING_SLOPE] = _REFUSALS_COST_SPREAD**2
    return Gaussian(mean=table.mean, covariance=covariance)


# What the waves and ends of a transfer cost, in logarithms: all of it falls together where there are none.
_PAUSES = {
    OBJECT_SECONDS: -1.0,
    OBJECT_SECONDS_PER_PART: -1.0,
    TAIL_SHARE: -1.0,
    COLD_LATENCIES: -1.0,
    WAVE_MIXING: 1.0,
}
_PAUSES_MEAN, _PAUSES_SPREAD = 1.5, 2.5  # from a quarter more than is typical to a fiftieth of it


def perhaps_without_pause(table: Gaussian) -> Gaussian:
    """The same where only totals are known: a client that is fed without pause has next to no waves and ends."""
    along = np.zeros(len(PARAMETERS))
    along[list(_PAUSES)] = list(_PAUSES.values())
    return Gaussian(
        mean=table.mean + _PAUSES_MEAN * along,
        covariance=table.covariance + _PAUSES_SPREAD**2 * np.outer(along, along),
    )


# How much of what the other direction is off its table this one is, too: what slows both, of all that slows either.
# Not how cold connections begin: that is the sender's window, here the service's and there the client's.
_SHARED = {
    LATENCY: 0.75,
    CONNECTION_RATE: 0.75,
    HOST_RATE: 0.9,
    BURST_FACTOR: 0.9,
    CPU_PER_REQUEST: 0.7,
    CPU_PER_BYTE: 0.7,
}


def from_the_other_direction(draws: Array, there: Place, table: Gaussian) -> Gaussian:
    """What draws of the other direction's parameters say of this one, whose table is given; both of the same place.

    Each shared parameter x is believed to be normal and correlated by r with its fellow y, so that
    x = m_x + r (s_x / s_y) (y - m_y), with a variance of s_x^2 (1 - r^2) besides that of y. What the other direction
    never came to see, like a ceiling above all that it tried, is no more heard than it is known.
    """
    other = table_prior(there)
    index = list(_SHARED)
    own, theirs = (np.sqrt(np.diag(belief.covariance))[index] for belief in (table, other))
    learned = np.sqrt(np.clip(1.0 - (draws.std(axis=0)[index] / theirs) ** 2, 0.0, 1.0))
    shared = np.array([_SHARED[i] for i in index]) * learned
    slope = shared * own / theirs
    mean, covariance = table.mean.copy(), table.covariance.copy()
    mean[index] += slope * (draws.mean(axis=0) - other.mean)[index]
    known = np.cov(draws.T)[np.ix_(index, index)] * np.outer(slope, slope)
    kept = np.outer(np.sqrt(1.0 - shared**2), np.sqrt(1.0 - shared**2))
    covariance[np.ix_(index, index)] = covariance[np.ix_(index, index)] * kept + known
    return Gaussian(mean=mean, covariance=covariance)


def planned_transfers(
    direction: Direction,
    size: Array,
    thread_count: Array,
    request_size_bytes: Array,
    *,
    object_count: int,
    is_burst: bool,
    is_stream: bool = False,
) -> Transfers:
    """Whole objects of these sizes, `object_count` of them at a time; as a stream, one after another in each thread."""
    s = np.minimum(request_size_bytes, size)
    parts = np.ceil(size / s)
    requests = parts * max(object_count, 1)
    is_small = size <= direction.unsplit_bytes
    stream = is_small | is_stream
    is_endless = is_stream | (is_small & (object_count <= 1))
    n = np.where(is_endless, thread_count, np.minimum(thread_count, requests))
    full = np.floor(requests / n)
    return Transfers(
        n=n,
        s=size / parts,  # the last part may be short: the mean is what moves
        full=full,
        rest=requests - full * n,
        transferred=size * max(object_count, 1),
        objects=np.where(parts > 1, 1.0, 0.0),
        is_burst=np.full(s.shape, float(is_burst)),
        is_steady=stream,
        size=size,
    )
