"""Knows what to fetch, and when, for a reader of an object as a file: the same for threads and for tasks.

A reader who continues where the last read ended, or skips no more than a request costs, gets ever larger ranges,
several at a time, before asking for them. A reader who seeks elsewhere gets what the read asks for, 4 KiB at least, and
no more. A range that is later than nearly all others (`hedge_timeout_seconds`, from the measured tail) is requested
once more, and the first answer counts. The number of such hedges is bounded, because a service that is slow as a whole
must not get twice the requests.
"""

from __future__ import annotations

import errno
import io
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from operator import index

from penstock.client.arguments import advised
from penstock.client.operations import S3_DOWNLOAD
from penstock.client.sdk_client import advise_in, place_of, pool_count_of
from penstock.client.transfers.answers import must_fit, stop

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, TypeVar

    from penstock.client.advice import Advice
    from penstock.client.targets.advised import Transfer

    Content = TypeVar("Content", bytes, bytearray)
    _Cut = Callable[[list[bytes]], list[bytes]]

_FIRST_BYTES = 64 << 10  # fetched for a first read, when nothing is known of the reader
# Fetched after a seek: the header of an archive's member says how long its name is, and so where its content begins.
_LEAST_BYTES = 4 << 10
_GROWTH = 2  # of the ranges and of the read-ahead, while reading is sequential
_READ_AHEAD_BYTES = 80 << 20  # without advice: ten ranges of 8 MiB, as in boto3
# Tries of a body that ends early, as in boto3: botocore retries only requests without any answer.
BODY_TRY_COUNT = 5
_HEDGED_FRACTION = 0.05  # of the requests may be sent again; one always may


class Opening:
    """An object to be read: the arguments of its requests, its size, and the advice for it."""

    def __init__(  # noqa: PLR0917 - only two callers
        self,
        s3_client: Any,
        bucket: str,
        key: str,
        advice: Advice | None,
        extra_args: Mapping[str, Any] | None,
        demand: Mapping[str, Any],
    ) -> None:
        self.client = s3_client
        self.arguments = {"Bucket": bucket, "Key": key, **(extra_args or {})}
        self.is_random = demand.get("access") == "random"
        self.size_bytes = 0
        self._advice, self._demand = advice, {"sink": "memory", **demand}
        self.told: Transfer

    def found(self, head: Mapping[str, Any]) -> Opening:
        """Take the answer to HeadObject, ask for advice, and pin the version: no other is read from now on."""
        self.size_bytes = int(head["ContentLength"])
        if head.get("ETag"):
            self.arguments["IfMatch"] = head["ETag"]
        least = max(1, self.size_bytes)
        place = place_of(self.arguments["Bucket"], self.client)
        advice = self._advice or advise_in(place, S3_DOWNLOAD, least, self._demand)
        self.told = advised(S3_DOWNLOAD, advice, self.size_bytes)
        return self


class Range:
    """Bytes that were asked for.

    `content` is a future of the kind that the reader waits for; `body` is what a thread is reading for it.
    """

    __slots__ = ("begun_at", "body", "content", "end", "is_unwanted", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.content: Any = None
        self.body: Any = None
        self.begun_at: float | None = None
        self.is_unwanted = False

    def give_up(self) -> None:
        """Nobody waits for it any more: stop its thread, which would keep the interpreter from ending."""
        self.is_unwanted = True  # set before `body` is read; the fetching thread sets `body`, then reads this
        if self.content is not None:
            self.content.cancel()
        stop(self.body)


class Reading(ABC):
    """The position of a reader in an object, and the ranges that are being fetched."""

    closed: Any  # an attribute, or the property of a file

    def __init__(self, opening: Opening) -> None:
        super().__init__()
        told, self._client, self._arguments = opening.told, opening.client, opening.arguments
        self._is_random, self.size_bytes = opening.is_random, opening.size_bytes
        self.range_size_bytes = told.request_size_bytes
        # The advice is for all objects that are read at a time.
        self.thread_count = min(max(1, told.thread_count // told.object_count), pool_count_of(self._client))
        ahead_bytes = (told.read_ahead_bytes or _READ_AHEAD_BYTES) // told.object_count
        self.read_ahead_bytes = max(ahead_bytes, self.range_size_bytes)
        self.coalesced_gap_bytes = told.coalesced_gap_bytes or 0
        self._skipped_bytes = told.coalesced_gap_bytes or _FIRST_BYTES  # cheaper to read than one request
        self._merged_size_bytes = told.merged_size_bytes
        self.hedge_timeout_seconds = told.hedge_timeout_seconds
        self.request_count = self.hedged_count = 0
        self._position = 0
        self._ahead: deque[Range] = deque()  # contiguous; the first begins at or before the position
        self._pieces: dict[int, list[list[Range]]] = {}  # of each `read_ranges` in progress
        # Where the last read ended, and how many bytes were read sequentially.
        self._read_until = self._read_on_bytes = 0

    @abstractmethod
    def _begin(self, asked: Range) -> None:
        """Start fetching it, and set its future."""

    def tell(self) -> int:
        """The position of the next read."""
        self._check()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position; fetches nothing.

        A position before the beginning raises OSError with EINVAL, as files do: `zipfile` takes that for a file too
        short to be an archive.
        """
        self._check()
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size_bytes}
        if whence not in starts:
            raise ValueError(f"whence is 0, 1 or 2, and not {whence}")
        start, offset = starts[whence], index(offset)
        if start + offset < 0:
            raise OSError(errno.EINVAL, f"there is no byte {start + offset}")
        self._position = start + offset
        return self._position

    def _left_bytes(self, size: int | None = -1) -> int:
        """How many bytes a read of `size` returns, or of everything left if it is None or negative."""
        left = max(0, self.size_bytes - self._position)
        return left if size is None or size < 0 else min(size, left)

    def _next(self, size: int) -> Range:
        """The range that holds the byte at the position; at most `size` bytes of it are wanted."""
        skipped = self._position - self._read_until
        if not 0 <= skipped <= self._skipped_bytes:
            self._read_on_bytes = 0
        elif self._read_on_bytes:  # small skips stay sequential: `torch.load` skips to each tensor
            self._read_on_bytes += skipped
        self._read_until = self._position
        while self._ahead and not self._ahead[0].start <= self._position < self._ahead[0].end:
            if self._position < self._ahead[0].start:
                self._forget()
            else:
                self._ahead.popleft().give_up()
        self._fetch_ahead(size)
        return self._ahead[0]

    def _taken(self, first: Range, content: bytes | bytearray, size: int) -> memoryview:
        """At most `size` bytes of the first range, from the position on; the position moves behind them."""
        begin = self._position - first.start
        piece = memoryview(content)[begin : begin + size]
        if first.start + begin + len(piece) >= first.end:
            self._ahead.popleft()
        self._position += len(piece)
        self._read_on_bytes += len(piece)
        self._read_until = self._position
        return piece

    def _fetch_ahead(self, size: int) -> None:
        """Fetch at least `size` bytes; for a sequential reader twice what was read so far, in growing ranges."""
        further = 0 if self._is_random else min(_GROWTH * self._read_on_bytes, self.read_ahead_bytes)
        least = size
        if not self._is_random:
            least = max(size, min(_LEAST_BYTES, self._skipped_bytes) if self._position else _FIRST_BYTES)
        until = min(self.size_bytes, self._position + max(least, further))
        begin = self._ahead[-1].end if self._ahead else self._position
        most = max(self.thread_count, self.read_ahead_bytes // self.range_size_bytes)
        while begin < until and len(self._ahead) < most:
            end = min(begin + self.range_size_bytes, until)
            is_short = end - begin < min(self.range_size_bytes, further)
            if is_short and self._ahead and end < self.size_bytes:
                break  # else a small range would follow each read
            self._ahead.append(self._asked_for(begin, end))
            begin = end

    def _asked_for(self, start: int, end: int) -> Range:
        self._check()  # another thread may have closed it since the read began
        asked = Range(start, end)
        self.request_count += 1
        self._begin(asked)
        return asked

    def _may_hedge(self) -> bool:
        """Whether one more request may be sent again; if so, it is counted."""
        if self.hedged_count > _HEDGED_FRACTION * self.request_count:
            return False
        self.hedged_count += 1
        return True

    @contextmanager
    def _asked_for_all(self, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[list[list[Range]], _Cut]]:
        """Fetch all ranges, merged into pieces; yields these, and a function that cuts what is wanted from them."""
        self._check()
        wanted = [_within(start, size, self.size_bytes) for start, size in ranges]
        pieces = merged(wanted, self.coalesced_gap_bytes, self._merged_size_bytes)
        fetched: list[list[Range]] = []
        self._pieces[id(fetched)] = fetched
        try:
            for start, end in pieces:
                fetched.append(parts := [])
                for part in divided(start, end, self._merged_size_bytes):
                    parts.append(self._asked_for(*part))  # noqa: PERF401 - if one fails, those before it are given up
            yield fetched, partial(cut, wanted, pieces)
        except Exception as trouble:
            self._must_be_open(trouble)
            raise
        finally:
            self._pieces.pop(id(fetched), None)
            for asked in chain.from_iterable(fetched):
                asked.give_up()

    @contextmanager
    def _one_read(self) -> Iterator[None]:
        """After a failure, the position is back where the read began, and the next read requests anew."""
        self._check()
        begin = self._position
        try:
            yield
        except BaseException as trouble:
            self._forget()
            self._position = begin
            if isinstance(trouble, Exception):
                self._must_be_open(trouble)
            raise
        finally:
            if self.closed:  # by another thread, which missed the requests made since
                self._forget()

    def _check(self) -> None:
        self._must_be_open(None)

    def _must_be_open(self, trouble: Exception | None) -> None:
        """Raises ValueError if it was closed, as files do, from the error of a read that closing interrupted."""
        if self.closed:
            raise ValueError("the object is closed") from trouble

    def _request(self, start: int, end: int) -> dict[str, Any]:
        return {**self._arguments, "Range": f"bytes={start}-{end - 1}"}

    def _must_fit(self, answer: Mapping[str, Any], request: Mapping[str, Any]) -> None:
        must_fit(answer, request, self.size_bytes, self._arguments.get("IfMatch"))

    def _forget(self) -> None:
        with suppress(IndexError):  # another thread may take the last one
            while self._ahead:
                self._ahead.pop().give_up()

    def _let_go(self) -> None:
        """Give up all ranges, whoever waits for them."""
        self._forget()
        for fetched in list(self._pieces.values()):
            for asked in chain.from_iterable(fetched):
                asked.give_up()


def _within(start: int, size: int, size_bytes: int) -> tuple[int, int]:
    """Start and end, cut at the end of the object. Raises ValueError below 0: wrong bytes are worse than an error."""
    if start < 0 or size < 0:
        raise ValueError(f"there are no {size} bytes from {start} on: an offset and a size are 0 or more")
    return start, min(start + size, size_bytes)


def whole(content: Content, start: int, end: int) -> Content:
    """The content of a range. Raises OSError if some of it is missing."""
    if len(content) != end - start:
        raise OSError(f"{len(content)} bytes came of {end - start} from {start} on")
    return content


def merged(wanted: Iterable[tuple[int, int]], gap: int, size_max: int) -> list[tuple[int, int]]:
    """Ranges (start, end) that cover everything wanted, joined over gaps of at most `gap` and up to `size_max` bytes.

    Each wanted range lies within the last result that does not begin after it.
    """
    found: list[tuple[int, int]] = []
    for start, end in sorted(pair for pair in wanted if pair[0] < pair[1]):
        begin, until = found[-1] if found else (start, start - gap - 1)
        if end <= until or (start <= until + gap and end - begin <= size_max):
            found[-1] = (begin, max(end, until))
        else:
            found.append((start, end))
    return found


def divided(start: int, end: int, size_bytes: int) -> list[tuple[int, int]]:
    """A piece in as many equal ranges of at least `size_bytes` as possible: a slightly larger piece is not cut."""
    count = max(1, (end - start) // size_bytes)
    bounds = [start + (end - start) * index // count for index in range(count + 1)]
    return list(zip(bounds, bounds[1:]))  # noqa: B905, RUF007 - Python 3.9 has neither


def cut(
    wanted: Iterable[tuple[int, int]], pieces: list[tuple[int, int]], contents: list[bytes]
) -> list[bytes]:
    """The contents of the wanted ranges, cut out of the contents of what was `merged`."""
    starts, found = [start for start, _ in pieces], []
    for start, end in wanted:
        index = bisect_right(starts, start) - 1
        found.append(contents[index][start - starts[index] : end - starts[index]] if start < end else b"")
    return found
