"""Knows what advice asks of any client, within the limits of S3 and SQS, before it is translated into options.

S3: 10,000 parts of 5 MiB (the last may be smaller) to 5 GiB, and single PUTs of up to 5 GiB
(docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html). SQS: 10 messages a request, polls of up to 20 s, time-outs
of up to 12 h (docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html).
"""

from __future__ import annotations

from math import ceil, floor
from sys import maxsize
from typing import TYPE_CHECKING, NamedTuple, Union

from penstock.client.operations import BATCH_MESSAGE_COUNT_MAX, S3_DOWNLOAD, S3_UPLOAD, SQS_DELIVERY
from penstock.client.sizes import size_or_none

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

MiB = 1 << 20
GiB = 1 << 30
PART_COUNT_MAX = 10_000
PART_SIZE_BYTES_MIN = 5 * MiB
PART_SIZE_BYTES_MAX = 5 * GiB
SINGLE_PUT_BYTES_MAX = 5 * GiB
RANGE_SIZE_BYTES_MIN = 4 << 10
"""The smallest that is advised. A smaller number is damaged: a request for each byte costs 400 dollars a gigabyte."""
WAIT_TIME_SECONDS_MAX = 20
VISIBILITY_TIMEOUT_SECONDS_MAX = 12 * 3600
_BUSY_ENOUGH = 0.9  # of the threads in use
_WAVES_FELT = 4  # waves of requests; with more, it hardly matters how full the last one is
_OF_READERS = ("read_ahead_bytes", "block_size_bytes", "coalesced_gap_bytes", "io_chunk_bytes")


class Transfer(NamedTuple):
    """How to upload or to read objects of a size. None means not advised, or not wanted.

    `thread_count` is the number of requests in flight over all objects that move at a time. Of a mix of sizes, about
    `split_object_count` objects are as large as `object_size_bytes` or larger. The rest is about reading: a sequential
    reader requests `read_ahead_bytes` before they are asked for; a reader limited to one request at a time uses blocks
    of `block_size_bytes`. A gap of `coalesced_gap_bytes` or less between two ranges is cheaper to read than to skip.
    `is_random` means that ranges anywhere in the object are wanted.
    """

    size_knob: str  # how advice names the size of a request: "part_size_bytes" or "range_size_bytes"
    object_size_bytes: int
    object_count: int
    split_object_count: int
    thread_count: int
    request_size_bytes: int
    multipart_threshold_bytes: int
    connection_pool_count: int
    rate_limit_bytes_per_second: int | None = None
    hedge_timeout_seconds: float | None = None
    thread_count_max: int | None = None  # from the demand
    is_random: bool = False
    read_ahead_bytes: int | None = None
    block_size_bytes: int | None = None
    coalesced_gap_bytes: int | None = None
    io_chunk_bytes: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether an object moves in one request."""
        return self.request_size_bytes >= self.object_size_bytes

    @property
    def merged_size_bytes(self) -> int:
        """The largest request that may read through gaps; smaller ones would leave no room for a gap worth reading."""
        return max(self.request_size_bytes, self.coalesced_gap_bytes or 0)

    @property
    def object_concurrency(self) -> int:
        """Objects to move at a time: as many as threads if objects are not split."""
        return self.thread_count if self.is_whole else min(self.object_count, self.thread_count)

    @property
    def request_concurrency(self) -> int:
        """Parts or ranges of one object at a time; over all split objects never more than the threads."""
        at_a_time = self.object_concurrency
        if not self.is_whole:
            at_a_time = min(at_a_time, self.split_object_count)
        return max(1, self.thread_count // at_a_time)

    def in_multiples_of(self, unit_bytes: int) -> Transfer:
        """The same for a client whose request sizes are multiples of this, without an additional wave of requests.

        One wave of 14 requests of 1.14 MiB becomes one of 16 requests of 1 MiB: with 8 of 2 MiB, a reader of 16 MiB
        over 130 ms reached .75 of that (`bench real-downloads`). The size is rounded up where that keeps nearly all
        threads busy.
        """
        smaller, larger = (
            rounded(self.request_size_bytes / unit_bytes) * unit_bytes for rounded in (floor, ceil)
        )
        waves = ceil(self._request_count(self.request_size_bytes) / self.request_concurrency)
        in_flight = ceil(self._request_count(larger) / waves)
        up = self._replace(request_size_bytes=larger)
        is_least = smaller < (PART_SIZE_BYTES_MIN if self.size_knob == "part_size_bytes" else unit_bytes)
        if is_least or waves > _WAVES_FELT or in_flight >= _BUSY_ENOUGH * self.request_concurrency:
            return up
        objects = self.thread_count // self.request_concurrency
        # Never fewer threads: small objects may move at the same time, each with a thread of its own.
        threads = max(self.thread_count, objects * ceil(self._request_count(smaller) / waves))
        if threads > (self.thread_count_max or threads):
            return up
        pool = max(threads, self.connection_pool_count)
        return self._replace(request_size_bytes=smaller, thread_count=threads, connection_pool_count=pool)

    def _request_count(self, request_size_bytes: int) -> int:
        return ceil(self.object_size_bytes / request_size_bytes)


class Delivery(NamedTuple):
    """How to drive a queue. None means no such window, rate or time."""

    sender_thread_count: int
    receiver_thread_count: int
    deleter_thread_count: int
    batch_message_count: int
    connection_pool_count: int
    send_rate_limit_messages_per_second: float | None = None
    send_window_message_count: int | None = None
    receive_window_message_count: int | None = None
    wait_time_seconds: int | None = None
    visibility_timeout_seconds: int | None = None
    batch_linger_seconds: float | None = None
    receive_pause_at_oldest_undeleted_seconds: float | None = None

    @property
    def in_flight_message_count(self) -> int:
        """Messages that a greedy client may hold: a batch for each receiver, within the window.

        More brings nothing, because messages wait while their visibility timeout runs: a Celery worker that filled a
        window of 760 and worked off 23 a second ran one task in twelve twice.
        """
        held = self.receiver_thread_count * self.batch_message_count
        return max(self.batch_message_count, min(held, self.receive_window_message_count or held))


Advised = Union[Transfer, Delivery]  # noqa: UP007 - evaluated, and Python 3.9 has no other way


def upload_of(document: Mapping[str, Any], object_size_bytes: int | str | None = None) -> Transfer:
    """The upload that an answer of the socket advises, as S3 accepts it.

    `object_size_bytes` is the object's own size if the advice is for another one nearby; None if it cannot be read. The
    threshold is made consistent with the part size, also for another size and if none was advised: it is at most the
    object's size if the object is to be split, and above it if the object is to go whole.

    Raises KeyError if the answer lacks a setting.
    """
    size = _size_of(document, object_size_bytes)
    part = legal_part_size_bytes(int(document["setting"]["part_size_bytes"]), size)
    return _transfer(document, "part_size_bytes", size, part, (PART_SIZE_BYTES_MIN, SINGLE_PUT_BYTES_MAX))


def download_of(document: Mapping[str, Any], object_size_bytes: int | str | None = None) -> Transfer:
    """The download that an answer of the socket advises; threshold and errors are those of `upload_of`."""
    derived, size = document["derived"], _size_of(document, object_size_bytes)
    part = max(RANGE_SIZE_BYTES_MIN, int(document["setting"]["range_size_bytes"]))
    told = {name: max(1, int(derived[name])) for name in _OF_READERS if derived.get(name)}
    is_random = document.get("demand", {}).get("access") == "random"
    return _transfer(document, "range_size_bytes", size, part, (1, maxsize), is_random=is_random, **told)


def _size_of(document: Mapping[str, Any], object_size_bytes: int | str | None) -> int:
    return max(1, size_or_none(object_size_bytes) or document["payload_size_bytes"])


def _transfer(
    document: Mapping[str, Any],
    size_knob: str,
    size: int,
    part: int,
    thresholds: tuple[int, int],
    **rest: Any,
) -> Transfer:
    """What uploads and downloads share; the threshold, within `thresholds`, is made to agree with the request size."""
    derived, demand = document["derived"], document.get("demand", {})
    threshold, (least, most) = int(derived.get("multipart_threshold_bytes", part)), thresholds
    threshold = min(max(threshold, least), size) if part < size else max(threshold, size + 1)
    threads = max(1, int(document["setting"]["thread_count"]))
    limit, hedge = derived.get("rate_limit_bytes_per_second"), derived.get("hedge_timeout_seconds")
    object_count = max(1, int(demand.get("object_count", 1)))
    return Transfer(
        size_knob=size_knob,
        object_size_bytes=size,
        object_count=object_count,
        split_object_count=max(1, int(demand.get("split_object_count", object_count))),
        thread_count=threads,
        thread_count_max=demand.get("thread_count_max"),
        request_size_bytes=part,
        multipart_threshold_bytes=min(threshold, most),
        connection_pool_count=max(threads, int(derived.get("connection_pool_count", 0))),
        rate_limit_bytes_per_second=max(1, int(limit)) if limit else None,
        hedge_timeout_seconds=float(hedge) if hedge else None,
        **rest,
    )


def delivery_of(document: Mapping[str, Any], _object_size_bytes: int | str | None = None) -> Delivery:
    """The way to drive a queue that an answer of the socket advises, as SQS accepts it. Raises KeyError, too."""
    setting, derived = document["setting"], document["derived"]
    threads = {
        name: max(1, int(setting[name]))
        for name in ("sender_thread_count", "receiver_thread_count", "deleter_thread_count")
    }
    wait, timeout = derived.get("wait_time_seconds"), derived.get("visibility_timeout_seconds")
    return Delivery(
        **threads,
        batch_message_count=min(max(1, int(setting["batch_message_count"])), BATCH_MESSAGE_COUNT_MAX),
        connection_pool_count=max(sum(threads.values()), int(derived.get("connection_pool_count", 0))),
        send_rate_limit_messages_per_second=setting.get("send_rate_limit_messages_per_second") or None,
        send_window_message_count=int(setting.get("send_window_message_count", 0)) or None,
        receive_window_message_count=int(setting.get("receive_window_message_count", 0)) or None,
        wait_time_seconds=None if wait is None else min(max(0, ceil(wait)), WAIT_TIME_SECONDS_MAX),
        visibility_timeout_seconds=(
            None if timeout is None else min(max(1, ceil(timeout)), VISIBILITY_TIMEOUT_SECONDS_MAX)
        ),
        batch_linger_seconds=derived.get("batch_linger_seconds"),
        receive_pause_at_oldest_undeleted_seconds=derived.get("receive_pause_at_oldest_undeleted_seconds"),
    )


READERS: Mapping[str, Callable[[Mapping[str, Any], int | str | None], Advised]] = {
    S3_UPLOAD: upload_of,
    S3_DOWNLOAD: download_of,
    SQS_DELIVERY: delivery_of,
}
"""How the answer about each operation is read for its targets."""


def legal_part_size_bytes(wanted_bytes: int, object_size_bytes: int) -> int:
    """The nearest part size that S3 accepts for this object; if the limit on parts raises it, to whole MiB."""
    least = ceil(object_size_bytes / PART_COUNT_MAX)
    if wanted_bytes < least:
        wanted_bytes = ceil(least / MiB) * MiB
    return min(max(wanted_bytes, PART_SIZE_BYTES_MIN), PART_SIZE_BYTES_MAX)


def stated(advised: Advised) -> tuple[str, ...]:
    """The fields that a client must be told, or must be listed as unable to express."""
    # Part of the question, not of the advice.
    given = {
        "size_knob",
        "object_size_bytes",
        "object_count",
        "split_object_count",
        "thread_count_max",
        "is_random",
    }
    found = (name for name, value in advised._asdict().items() if value is not None and name not in given)
    return tuple(field_of(advised, name) for name in found)


def field_of(advised: Advised, name: str) -> str:
    """The name of this field in the advice."""
    return advised.size_knob if isinstance(advised, Transfer) and name == "request_size_bytes" else name
