"""Knows how uploads and downloads differ, given that the law is the same: values from tables, and names of measures.

A setting knows the direction of its bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np

from penstock.models import burst
from penstock.models.model import Array
from penstock.models.s3.law import THREAD_COUNT_MAX, Transfers
from penstock.models.s3.parts import PART_SIZE_BYTES_MAX, PART_SIZE_BYTES_MIN, READ_WHOLE_BYTES_MAX
from penstock.vocabulary import Place, knob

REQUEST_SIZE_BYTES_MAX = PART_SIZE_BYTES_MAX  # in both directions; ranges have no limit of their own
Typical: TypeAlias = Mapping[str, tuple[float, float]]
"""By parameter: a typical value, and the standard deviation of its logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """What is specific to one direction: values from tables, and the names of its knob and measures."""

    typical: Typical
    typical_express: Typical  # for Express One Zone, where it differs
    late_fraction: float  # of requests that are late whatever the setting
    late_seconds: float  # their mean delay
    unsplit_bytes: int  # objects of at most this size are moved whole, many of them as a stream
    size_knob: str  # the field of a setting with the bytes of one request
    part_noun: str  # for one request in the names of measures: `<noun>_count`, `<noun>_seconds_mean`
    allowance_measure: str  # packets that the host's network allowance held back
    packet_measure: str  # all packets
    absent: frozenset[str] = frozenset()  # parameters of the law that mean nothing in this direction

    @property
    def passes_host(self) -> bool:
        """Whether the bytes pass the host, whose network, processor and memory then limit it."""
        return "host_bytes_per_second" not in self.absent


# Late requests: AWS's CRT sends parts again, because about one upload in a thousand is answered only after 5 s. Of
# requests for 1 KiB that Skyrise measured in 2024, one in ten thousand took longer than .3 s (GET) or .4 s (PUT), and
# the slowest took 10 s and 5 s; with a Pareto tail in between that is .13 ms per request. AWS's transfer manager in
# Rust found that sending late requests again makes a significant difference for uploads, and none for downloads.
# Rates: AWS's own transfer manager assumes 30 ms and 20 MB/s for a PUT to S3 (Express One Zone: 7.3 ms, 110 MB/s);
# paths from outside the region are up to a hundred times slower.
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
# The same source assumes 30 ms and 90 MB/s for a GET (Express: 4 ms, 150 MB/s). The user guide of S3 states at least
# 5,500 GETs per second for a prefix, and up to two million for a directory bucket.
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
    """The direction of an operation; one that is not in the table is treated like uploads."""
    return BY_OPERATION.get(operation, UPLOADS)


def passes_host(operation: str) -> bool:
    """See `Direction`."""
    return direction_of(operation).passes_host


def kindred(operation: str) -> frozenset[str]:
    """The other operations whose bytes use the same path and pass the host; empty if this one's do not."""
    through = frozenset(filter(passes_host, BY_OPERATION)) if passes_host(operation) else frozenset[str]()
    return through - {operation}


def host_ceiling(place: Place) -> burst.Ceiling | None:
    """The host's network ceiling for a place; None if unknown, or if the bytes do not pass the host."""
    return burst.ceiling(place.instance_type) if passes_host(place.operation) else None


def burst_ceiling(place: Place) -> burst.Ceiling | None:
    """Like `host_ceiling` for burstable hosts; None for all others."""
    limits = host_ceiling(place)
    return limits if limits is not None and limits.is_burstable else None


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Setting(ABC):
    """How an object is moved: the requests at a time, and, in a field named by the direction, the bytes of each."""

    direction: ClassVar[Direction]

    thread_count: int = knob(1, THREAD_COUNT_MAX, is_divided=True)

    @property
    @abstractmethod
    def request_size_bytes(self) -> int:
        """The size of a part or range; at or above the object's size it means a single request."""

    def memory_bytes(self, object_size_bytes: int, object_count: int = 1) -> int:
        """The most bytes that a client buffers at a time, counting each request in full; none if none pass the host."""
        if not self.direction.passes_host:
            return 0
        held_bytes = min(self.request_size_bytes, object_size_bytes)
        return held_bytes * in_flight_count(self, object_size_bytes, object_count)


S3SettingT = TypeVar("S3SettingT", bound=S3Setting)


def in_flight_count(setting: S3Setting, object_size_bytes: int, object_count: int = 1) -> int:
    """The number of requests in flight: the threads, but at most as many as the objects have parts.

    Small objects are an endless stream, with one request for each thread, if their number is not stated.
    """
    if object_size_bytes <= setting.direction.unsplit_bytes and object_count <= 1:
        return setting.thread_count
    parts = ceil(object_size_bytes / setting.request_size_bytes)
    return min(setting.thread_count, parts * max(object_count, 1))


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
    """Transfers of whole objects of these sizes, `object_count` of them at a time, or as an endless stream of requests.

    Arrays are (settings,).
    """
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
        s=size / parts,  # the mean, because the last part may be short
        full=full,
        rest=requests - full * n,
        transferred=size * max(object_count, 1),
        objects=np.where(parts > 1, 1.0, 0.0),
        is_burst=np.full(s.shape, float(is_burst)),
        is_steady=stream,
        size=size,
    )
