"""Knows how a stream is written into an object: the same for threads and for tasks.

The final size is unknown, so advice is asked for a likely size, and again whenever the stream exceeds it. A stream that
fits one part is sent whole when it is closed. Otherwise each part is sent when it is full, as many at a time as
advised, and the writer waits while that many are in flight.
"""

from __future__ import annotations

import io
import os
from math import ceil
from time import monotonic

from penstock.client.arguments import advised
from penstock.client.confinement import memory_share_bytes
from penstock.client.operations import S3_UPLOAD
from penstock.client.pace import Pace
from penstock.client.sdk_client import advise_in, has_equal_parts, place_of, pool_count_of
from penstock.client.sizes import size_or_none
from penstock.client.targets.advised import PART_COUNT_MAX
from penstock.client.transfers.many_files import whole_size_bytes
from penstock.client.transfers.multipart import Upload, stream_part_bytes
from penstock.client.transfers.observed import Observed

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from typing_extensions import Unpack

    from penstock.client.advice import Advice
    from penstock.client.demand import TransferDemand
    from penstock.client.reporting import Reporter

_EXPECTED_BYTES = 64 << 20  # if the caller states no size
_GROWTH = 4  # when the expected size is exceeded, the new one is this times what was written
_STARVED_FRACTION_MAX = 0.1  # of the time waiting for data; with more, a report would measure the writer


class Writing:
    """What was written of an object, and which of it is being sent.

    `answer` is S3's answer to the last request, with the object's ETag, once the object exists; None before.
    """

    closed: Any  # an attribute, or the property of a file
    part_size_bytes: int
    _is_over = True  # if opening fails, there is nothing to remove
    _library: str
    _upload_of: type[Upload] = Upload

    def __init__(
        self,
        s3_client: Any,
        bucket: str,
        key: str,
        *,
        size_bytes: int | None = None,
        advice: Advice | None = None,
        extra_args: Mapping[str, Any] | None = None,
        callback: Callable[[int], None] | None = None,
        reporter: Reporter | None = None,
        **demand: Unpack[TransferDemand],
    ) -> None:
        super().__init__()
        self._client, self._place = s3_client, place_of(bucket, s3_client)
        self._advice, self._demand = advice, demand
        self._callback, self._reporter = callback, reporter
        self._upload = self._upload_of(s3_client, bucket, key, dict(extra_args or {}))
        self._observed = Observed(s3_client, bucket, key)
        self.answer: Mapping[str, Any] | None = None
        self._filling, self._part_count, self._sent_bytes = io.BytesIO(), 0, 0
        self._begun: Any = None  # future or task of CreateMultipartUpload
        self._under_way: dict[Any, int] = {}  # futures or tasks of parts, with their bytes
        self._handed_at = self._starved_seconds = 0.0
        self._trouble: BaseException | None = None
        self._is_within, self._process_id = False, os.getpid()
        self._pace = Pace()
        self._expected_bytes = size_bytes or _EXPECTED_BYTES
        self._expect()
        self._is_over = False

    def tell(self) -> int:
        """How many bytes were written."""
        self._check()
        return self._sent_bytes + self._filling.tell()

    def _expect(self) -> None:
        """Ask for advice on the size that is now expected."""
        size, demand = self._expected_bytes, self._demand
        advice = self._advice or advise_in(self._place, S3_UPLOAD, size, demand)
        told = advised(S3_UPLOAD, advice, size)
        self._keeps_part_size = has_equal_parts(self._client, advice)
        if not (self._keeps_part_size and self._part_count):
            self.part_size_bytes = told.request_size_bytes
        part = self.part_size_bytes
        # The advice is for all objects that are written at a time; more threads than parts are useless.
        count = min(told.thread_count // told.object_count, ceil(size / part))
        self.thread_count = min(max(1, count), pool_count_of(self._client))
        most = size_or_none(demand.get("memory_bytes_max", memory_share_bytes()))
        room_bytes = self.thread_count * part
        self._room_bytes = min(room_bytes, most - part) if most else room_bytes  # one part is being filled
        self._pace.per_second = told.rate_limit_bytes_per_second

    def _has_grown(self) -> bool:
        """Whether the stream exceeded the expected size, which is then raised."""
        is_more = self._sent_bytes > self._expected_bytes
        if is_more:
            self._expected_bytes = _GROWTH * self._sent_bytes
        return is_more

    def _filled(self, left: memoryview) -> Iterator[bytes]:
        """The parts that are full, each once more data follows: a single part is sent whole. Raises OSError."""
        while left:
            size_bytes = self._next_part_bytes()
            if self._filling.tell() >= size_bytes:
                yield self._taken()
                if self._keeps_part_size and self._part_count >= PART_COUNT_MAX:
                    told = f"equal parts hold no more than these {self._sent_bytes} bytes"
                    raise OSError(f"{told}: state a larger size_bytes")
            left = left[self._filling.write(left[: size_bytes - self._filling.tell()]) :]

    def _next_part_bytes(self) -> int:
        if self._keeps_part_size:
            return self.part_size_bytes
        return stream_part_bytes(self.part_size_bytes, self._part_count, self._sent_bytes)

    def _taken(self) -> bytes:
        """The part that was being filled."""
        content, self._filling = self._filling.getvalue(), io.BytesIO()
        self._part_count += 1
        self._sent_bytes += len(content)
        return content

    def _note_filled(self) -> None:
        """Add the time since the last part to what was lost waiting for the writer, if another could have been sent."""
        if self._part_count == 1:
            self._observed.__enter__()
        elif self._has_room(self.part_size_bytes):
            self._starved_seconds += monotonic() - self._handed_at

    def _pause_seconds(self, content: bytes) -> float:
        """How long to wait so as not to exceed the advised rate."""
        seconds = self._pace.pause_seconds(len(content))
        self._starved_seconds += seconds
        return seconds

    def _note_handed_over(self, part: Any, content: bytes) -> None:
        self._under_way[part] = len(content)
        self._handed_at = monotonic()

    def _has_room(self, size_bytes: float) -> bool:
        """Whether this many more bytes may be in flight. Raises what a part that has ended raised."""
        for part in [part for part in self._under_way if part.done()]:
            del self._under_way[part]
            if not part.cancelled():
                part.result()
        if self._is_over:
            raise ValueError("the object was closed meanwhile")
        fits = sum(self._under_way.values()) + size_bytes <= self._room_bytes
        return not self._under_way or (fits and len(self._under_way) < self.thread_count)

    def _note_arrived(self, content: bytes) -> None:
        if self._callback is not None:
            self._callback(len(content))

    def _check(self) -> None:
        """Raises the reason why nothing more can be written; ValueError if it is closed, as files do."""
        if isinstance(self._trouble, Exception):
            raise self._trouble
        if self._trouble is not None:
            raise OSError("the object is not written: what wrote it was interrupted") from self._trouble
        if self.closed:
            raise ValueError("the object is closed")
        if self._process_id != os.getpid():
            raise ValueError("the object is written by the process that opened it, and this is another")

    def _end(self) -> None:
        self._is_over = True
        if self._part_count:
            self._observed.__exit__()

    def _report(self) -> None:
        """Report the upload, unless more than a tenth of its time went into waiting for data."""
        size, count = self._sent_bytes, self._part_count
        if not size or self._starved_seconds > _STARVED_FRACTION_MAX * self._observed.duration_seconds:
            return
        setting = {
            "thread_count": min(self.thread_count, count),
            "part_size_bytes": max(self.part_size_bytes, size // count),
        }
        if not self._upload.is_begun:
            setting = {"thread_count": 1, "part_size_bytes": whole_size_bytes("part_size_bytes", size)}
        self._observed.report(self._reporter, size, setting, transferred_bytes=size, client=self._library)
