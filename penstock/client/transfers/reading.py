"""Knows what is to be fetched for who reads an object as a file, and when: the same for threads and for tasks.

Who reads on from where he ended, or skips no more than a request costs, gets ever larger ranges, several at a time,
which are fetched before he asks; who seeks elsewhere gets what he asks for, 4 KiB at the least, and no more. A range
that comes later than nearly all do (`hedge_timeout_seconds`, from the tail that was measured) is asked for once more,
and what comes first counts; how often is bounded, because a service that is slow as a whole must not be asked twice as
much.
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

_FIRST_BYTES = 64 << 10  # of a reader of whom nothing is known yet
# Of one who seeks: before a member of an archive lies how long its name is, and behind that where its content begins.
_LEAST_BYTES = 4 << 10
_GROWTH = 2  # of the ranges, and of what is ahead, while he reads on
_READ_AHEAD_BYTES = 80 << 20  # where nothing is advised: ten ranges of 8 MiB, as boto3 has them
# Of one that ends early, as boto3 does: botocore tries again only what has no answer at all.
BODY_TRY_COUNT = 5
_HEDGED_FRACTION = 0.05  # of the requests may be sent again, and one at first


class Opening:
    """An object that is to be read: what each request for it says, its size, and what is advised for it."""

    def __init__(  # noqa: PLR0917 - of two callers
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
        """With the answer to HeadObject: from then on no other version is read, and advice is asked for."""
        self.size_bytes = int(head["ContentLength"])
        if head.get("ETag"):
            self.arguments["IfMatch"] = head["ETag"]
        least = max(1, self.size_bytes)
        place = place_of(self.arguments["Bucket"], self.client)
        advice = self._advice or advise_in(place, S3_DOWNLOAD, least, self._demand)
        self.told = advised(S3_DOWNLOAD, advice, self.size_bytes)
        return self


class Range:
    """Bytes that were asked for: `content` is a future of the kind that the reader waits for.

    `body` is what a thread is reading for it.
    """

    __slots__ = ("begun_at", "body", "content", "end", "is_unwanted", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.content: Any = None
        self.body: Any = None
        self.begun_at: float | None = None
        self.is_unwanted = False

    def give_up(self) -> None:
        """Nobody waits for it any more: a thread that did would keep the interpreter from its end."""
        self.is_unwanted = True  # before the body is looked for, which its reader does the other way round
        if self.content is not None:
            self.content.cancel()
        stop(self.body)


class Reading(ABC):
    """Where one is in an object, and what is on its way."""

    closed: Any  # a word of its own, or a property of files

    def __init__(self, opening: Opening) -> None:
        super().__init__()
        told, self._client, self._arguments = opening.told, opening.client, opening.arguments
        self._is_random, self.size_bytes = opening.is_random, opening.size_bytes
        self.range_size_bytes = told.request_size_bytes
        # What is advised is for all objects that are read at a time.
        self.thread_count = min(max(1, told.thread_count // told.object_count), pool_count_of(self._client))
        ahead_bytes = (told.read_ahead_bytes or _READ_AHEAD_BYTES) // told.object_count
        self.read_ahead_bytes = max(ahead_bytes, self.range_size_bytes)
        self.coalesced_gap_bytes = told.coalesced_gap_bytes or 0
        self._skipped_bytes = told.coalesced_gap_bytes or _FIRST_BYTES  # which take less time than a request
        self._merged_size_bytes = told.merged_size_bytes
        self.hedge_timeout_seconds = told.hedge_timeout_seconds
        self.request_count = self.hedged_count = 0
        self._position = 0
        self._ahead: deque[Range] = deque()  # one after another, the first at or around the position
        self._pieces: dict[int, list[list[Range]]] = {}  # of each `read_ranges` that is waited for
        # Where the last read ended, and how much was read without a seek.
        self._read_until = self._read_on_bytes = 0

    @abstractmethod
    def _begin(self, asked: Range) -> None:
        """Have it fetched, and say with what future."""

    def tell(self) -> int:
        """Where the next byte is read."""
        self._check()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go there; nothing is fetched before it is read.

        Before the beginning is EINVAL, as of a file: `zipfile` takes that for a file too short to be an archive.
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
        """As many bytes as are wanted, or all, and no more than there are from the position on."""
        left = max(0, self.size_bytes - self._position)
        return left if size is None or size < 0 else min(size, left)

    def _next(self, size: int) -> Range:
        """The range that holds the byte at the position, of which so many bytes at most are wanted."""
        skipped = self._position - self._read_until
        if not 0 <= skipped <= self._skipped_bytes:
            self._read_on_bytes = 0
        elif self._read_on_bytes:  # `torch.load` skips to each tensor: less than a request costs is read, too
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
        """So many bytes at most of the first range, from the position on, which is then behind them."""
        begin = self._position - first.start
        piece = memoryview(content)[begin : begin + size]
        if first.start + begin + len(piece) >= first.end:
            self._ahead.popleft()
        self._position += len(piece)
        self._read_on_bytes += len(piece)
        self._read_until = self._position
        return piece

    def _fetch_ahead(self, size: int) -> None:
        """Have so many bytes on their way; of one who reads on, as much again as he has read, in ever larger ranges."""
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
                break  # not a small one after each read
            self._ahead.append(self._asked_for(begin, end))
            begin = end

    def _asked_for(self, start: int, end: int) -> Range:
        self._check()  # another may have closed it since the read began
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
        """The ranges of each piece in which it comes, on their way; and what cuts (offset, size) out of the pieces."""
        self._check()
        wanted = [_within(start, size, self.size_bytes) for start, size in ranges]
        pieces = merged(wanted, self.coalesced_gap_bytes, self._merged_size_bytes)
        fetched: list[list[Range]] = []
        self._pieces[id(fetched)] = fetched
        try:
            for start, end in pieces:
                fetched.append(parts := [])
                for part in divided(start, end, self._merged_size_bytes):
                    parts.append(self._asked_for(*part))  # noqa: PERF401 - those before one that fails are given up
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
        """After what fails, the next read is from where this one began, and asks anew."""
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
            if self.closed:  # by another, who does not know what was asked for since
                self._forget()

    def _check(self) -> None:
        self._must_be_open(None)

    def _must_be_open(self, trouble: Exception | None) -> None:
        """Raises ValueError, as files do. What another gives up by closing ends in many ways, which are no reason."""
        if self.closed:
            raise ValueError("the object is closed") from trouble

    def _request(self, start: int, end: int) -> dict[str, Any]:
        return {**self._arguments, "Range": f"bytes={start}-{end - 1}"}

    def _must_fit(self, answer: Mapping[str, Any], request: Mapping[str, Any]) -> None:
        must_fit(answer, request, self.size_bytes, self._arguments.get("IfMatch"))

    def _forget(self) -> None:
        with suppress(IndexError):  # where another takes the last one, too
            while self._ahead:
                self._ahead.pop().give_up()

    def _let_go(self) -> None:
        """Of all that is on its way, whoever waits for it."""
        self._forget()
        for fetched in list(self._pieces.values()):
            for asked in chain.from_iterable(fetched):
                asked.give_up()


def _within(start: int, size: int, size_bytes: int) -> tuple[int, int]:
    """From where to where, as far as the object has it. Other bytes than were meant are worse than an error."""
    if start < 0 or size < 0:
        raise ValueError(f"there are no {size} bytes from {start} on: an offset and a size are 0 or more")
    return start, min(start + size, size_bytes)


def whole(content: Content, start: int, end: int) -> Content:
    """The content of a range. Raises OSError where some of it is missing."""
    if len(content) != end - start:
        raise OSError(f"{len(content)} bytes came of {end - start} from {start} on")
    return content


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


def divided(start: int, end: int, size_bytes: int) -> list[tuple[int, int]]:
    """A piece in as many equal ranges as hold this size or more: one is not cut for a little more than that."""
    count = max(1, (end - start) // size_bytes)
    bounds = [start + (end - start) * index // count for index in range(count + 1)]
    return list(zip(bounds, bounds[1:]))  # noqa: B905, RUF007 - Python 3.9 has neither


def cut(
    wanted: Iterable[tuple[int, int]], pieces: list[tuple[int, int]], contents: list[bytes]
) -> list[bytes]:
    """What is wanted, out of what was `merged`."""
    starts, found = [start for start, _ in pieces], []
    for start, end in wanted:
        index = bisect_right(starts, start) - 1
        found.append(contents[index][start - starts[index] : end - starts[index]] if start < end else b"")
    return found
