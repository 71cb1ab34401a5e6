"""Knows how to read an object of S3 as a file, with ranges and read-ahead as advised.

    from penstock.client.reader import open_object

    with open_object(s3, bucket, key) as file:
        table = pyarrow.parquet.read_table(file)

Who reads on from where he ended gets ever larger ranges, several at a time, which are fetched before he asks; who seeks
gets what he asks for and no more. `read_ranges` fetches many pieces at a time, and reads through gaps that are cheaper
read than left out. Of an object that is replaced meanwhile, nothing of the new one is mixed in: S3 refuses (412).
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

from penstock.client.complaint import complain
from penstock.client.operations import S3_DOWNLOAD
from penstock.client.sdk_client import advise_in, pool_count_of, region_of

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from typing_extensions import Buffer, Unpack

    from penstock.client.advice import Advice
    from penstock.client.demand import TransferDemand
    from penstock.client.targets.advised import Download

_FIRST_BYTES = 64 << 10  # of a reader of whom nothing is known yet
_GROWTH = 2  # of the ranges, and of what is ahead, while he reads on
_READ_AHEAD_BYTES = 80 << 20  # where nothing is advised: ten ranges of 8 MiB, as boto3 has them


def open_object(
    s3_client: Any,
    bucket: str,
    key: str,
    *,
    advice: Advice | None = None,
    extra_args: Mapping[str, Any] | None = None,
    **demand: Unpack[TransferDemand],
) -> ObjectReader:
    """The object as a binary file that can be read and sought, as advised for its size. Raises what boto3 raises.

    State `access="random"` for a reader of pieces here and there, and nothing is read ahead. It uses no more threads
    than the client keeps connections: see `penstock.client.boto3.download_client_config`.
    """
    arguments = {"Bucket": bucket, "Key": key, **(extra_args or {})}
    found = s3_client.head_object(**arguments)
    size_bytes = int(found["ContentLength"])
    if advice is None:
        stated = {"sink": "memory", **demand}
        advice = advise_in(region_of(s3_client), S3_DOWNLOAD, max(1, size_bytes), stated)
    if found.get("ETag"):
        arguments["IfMatch"] = found["ETag"]
    is_random = demand.get("access") == "random"
    return ObjectReader(s3_client, arguments, size_bytes, _advised(advice, size_bytes), is_random=is_random)


def _advised(advice: Advice, size_bytes: int) -> Download:
    """What it says, or what the SDK does where it cannot be read."""
    from penstock.client.advice import default_advice
    from penstock.client.targets.advised import download_of

    try:
        return download_of(advice.document, size_bytes)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as trouble:
        complain("the reader is not advised, since the advice cannot be read: %r", trouble)
        return download_of(default_advice(S3_DOWNLOAD, size_bytes, "").document, size_bytes)


class ObjectReader(io.RawIOBase):
    """One object, opened by `open_object`. For one thread at a time, as files are."""

    def __init__(
        self,
        s3_client: Any,
        arguments: Mapping[str, Any],
        size_bytes: int,
        advised: Download,
        *,
        is_random: bool,
    ) -> None:
        super().__init__()
        self._client, self._arguments, self._is_random = s3_client, dict(arguments), is_random
        self.size_bytes = size_bytes
        self.range_size_bytes = advised.range_size_bytes
        self.thread_count = min(advised.thread_count, pool_count_of(s3_client))
        self.read_ahead_bytes = advised.read_ahead_bytes or _READ_AHEAD_BYTES
        self.coalesced_gap_bytes = advised.coalesced_gap_bytes or 0
        self._pool = ThreadPoolExecutor(self.thread_count, thread_name_prefix="penstock-reader")
        self._position = 0
        self._ahead: deque[_Range] = deque()  # one after another, the first at or around the position
        # Where the last read ended, and how much was read without a seek.
        self._read_until = self._read_on_bytes = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go there; nothing is fetched before it is read."""
        self._check()
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size_bytes}[whence]
        if start + offset < 0:
            raise ValueError(f"there is no byte {start + offset}")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Buffer, /) -> int:
        """As many bytes as there is room for, and fewer only at the end."""
        self._check()
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(len(view), self.size_bytes - self._position))
        filled = 0
        while filled < wanted:
            piece = self._piece(wanted - filled)
            view[filled : filled + len(piece)] = piece
            filled += len(piece)
            self._position += len(piece)
            self._read_on_bytes += len(piece)
            self._read_until = self._position
        return filled

    def readall(self) -> bytes:
        """What is left, in advised ranges at a time."""
        content = bytearray(max(0, self.size_bytes - self._position))
        self._fetch_ahead(len(content))
        del content[self.readinto(content) :]
        return bytes(content)

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """The bytes of each (offset, size), which may lie anywhere; many are fetched at a time."""
        self._check()
        wanted = [(max(0, start), min(start + size, self.size_bytes)) for start, size in ranges]
        pieces = merged(wanted, self.coalesced_gap_bytes, self.range_size_bytes)
        fetched = [self._asked_for(start, end) for start, end in pieces]
        starts = [start for start, _ in pieces]
        return [
            _cut(fetched[bisect_right(starts, start) - 1], start, end) if start < end else b""
            for start, end in wanted
        ]

    def close(self) -> None:
        """Let go of what was fetched ahead, and of the threads."""
        if not self.closed:
            self._forget()
            self._pool.shutdown(wait=False)
        super().close()

    def _piece(self, size: int) -> memoryview:
        """Some of the bytes from the position on, of at most so many."""
        if self._position != self._read_until:
            self._read_on_bytes = 0
        while self._ahead and not self._ahead[0].start <= self._position < self._ahead[0].end:
            if self._position < self._ahead[0].start:
                self._forget()
            else:
                self._ahead.popleft().content.cancel()
        self._fetch_ahead(size)
        first = self._ahead[0]
        content = memoryview(first.content.result())
        begin = self._position - first.start
        piece = content[begin : begin + size]
        if first.start + begin + len(piece) >= first.end:
            self._ahead.popleft()
        return piece

    def _fetch_ahead(self, size: int) -> None:
        """Have so many bytes on their way; of one who reads on, as much again as he has read, in ever larger ranges."""
        further = 0 if self._is_random else min(_GROWTH * self._read_on_bytes, self.read_ahead_bytes)
        least = size if self._is_random or self._position else max(size, _FIRST_BYTES)
        until = min(self.size_bytes, self._position + max(least, further))
        begin = self._ahead[-1].end if self._ahead else self._position
        most = max(self.thread_count, self.read_ahead_bytes // self.range_size_bytes)
        while begin < until and len(self._ahead) < most:
            end = min(begin + self.range_size_bytes, until)
            is_short = end - begin < min(self.range_size_bytes, further)
            if is_short and self._ahead and end < self.size_bytes:
                break  # not a small one after each read
            self._ahead.append(self._asked_for(begin, end))
            begin = end

    def _asked_for(self, start: int, end: int) -> _Range:
        try:
            return _Range(start, end, self._pool.submit(self._fetch, start, end))
        except RuntimeError:  # there are no more threads, or the interpreter is at its end
            content: Future[bytes] = Future()
            content.set_result(self._fetch(start, end))
            return _Range(start, end, content)

    def _fetch(self, start: int, end: int) -> bytes:
        answer = self._client.get_object(**self._arguments, Range=f"bytes={start}-{end - 1}")
        content: bytes = answer["Body"].read()
        if len(content) != end - start:
            raise OSError(f"{len(content)} bytes came of {end - start} from {start} on")
        return content

    def _forget(self) -> None:
        while self._ahead:
            self._ahead.pop().content.cancel()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("the object is closed")


class _Range:
    """Bytes that were asked for."""

    __slots__ = ("content", "end", "start")

    def __init__(self, start: int, end: int, content: Future[bytes]) -> None:
        self.start, self.end, self.content = start, end, content


def merged(wanted: Iterable[tuple[int, int]], gap: int, size_max: int) -> list[tuple[int, int]]:
    """Ranges that hold all that is wanted: over gaps of so many bytes, as long as none is larger than that.

    What is wanted lies in the last of them that does not begin behind it.
    """
    found: list[tuple[int, int]] = []
    for start, end in sorted(pair for pair in wanted if pair[0] < pair[1]):
        begin, until = found[-1] if found else (start, start - gap - 1)
        if end <= until or (start <= until + gap and end - begin <= size_max):
            found[-1] = (begin, max(end, until))
        else:
            found.append((start, end))
    return found


def _cut(piece: _Range, start: int, end: int) -> bytes:
    return piece.content.result()[start - piece.start : end - piece.start]
