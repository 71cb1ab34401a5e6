"""Knows what tells uploads from downloads where the law is the same: what tables say of them, and their own names.

A setting knows which way its bytes go.
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
