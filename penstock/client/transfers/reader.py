"""Knows how to read an object of S3 as a file, with ranges and read-ahead as advised.

    from penstock.client.transfers.reader import open_object

    with open_object(s3, bucket, key) as file:
        table = pyarrow.parquet.read_table(file)

What is fetched, and when, is in `reading`. `read_ranges` fetches many pieces at a time, and reads through gaps that are
cheaper read than left out. Of an object that is replaced meanwhile, nothing of the new one is mixed in: S3 refuses
(412). `aiobotocore_reader.py` is the same for an event loop.
"""

from __future__ import annotations

import io
import os
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from threading import RLock
from time import monotonic

from penstock.client.attention import ATTENTION_SECONDS
from penstock.client.forks import OfOneProcess, close_inherited
from penstock.client.transfers.answers import stop
from penstock.client.transfers.reading import BODY_TRY_COUNT, Opening, Range, Reading, whole
from penstock.client.transfers.threads import Threads

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from concurrent.futures import Future
    from typing import Any

    from typing_extensions import Buffer, Unpack

    from penstock.client.advice import Advice
    from penstock.client.demand import TransferDemand

_HEDGE_THREAD_COUNT = 2  # what was asked for again and is late as well keeps its thread for a while
_PEEK_BYTES = 8 << 10


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

    State `access="random"` for a reader of pieces here and there, and nothing is read ahead; and `object_count` where
    several are open at a time, and they share what is advised for all of them. It uses no more threads
    than the client keeps connections: see `penstock.client.boto3.download_client_config`. A range that is late is asked
    for once more, by at most one more connection at a time; set `hedge_timeout_seconds` of the reader to None for none.
    """
    opening = Opening(s3_client, bucket, key, advice, extra_args, demand)
    return ObjectReader(opening.found(s3_client.head_object(**opening.arguments)))


class ObjectReader(OfOneProcess, Reading, io.RawIOBase):
    """One object, opened by `open_object`. Threads may share it, as they may a file: they have one position."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._process_id = os.getpid()
        self._open_pools()

    def _open_pools(self) -> None:
        self._lock = RLock()
        self._pool = Threads(self.thread_count, "penstock-reader")
        self._spare = Threads(_HEDGE_THREAD_COUNT, "penstock-hedge")

    def readable(self) -> bool:
        self._check()
        return True

    def seekable(self) -> bool:
        self._check()
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go there; nothing is fetched before it is read. A read of another thread ends where that one is.

        Else its bytes would be taken from one place by the bounds of another.
        """
        self._check()
        with self._lock:
            return super().seek(offset, whence)

    def __getstate__(self) -> object:
        raise TypeError("an open object cannot be pickled: open it where it is read")

    def read(self, size: int | None = -1, /) -> bytes:
        """So many bytes, or all that are left; fewer only at the end."""
        content = io.BytesIO()  # which gives away what it holds, where a bytearray is copied
        with self._alone():
            for piece in self._coming(self._left_bytes(size)):
                content.write(piece)
        return content.getvalue()

    def peek(self, _size: int = 0, /) -> bytes:
        """Some of the bytes that come next, which stay to be read; whoever reads lines looks for their ends in them."""
        with self._alone():
            left = self._left_bytes(_PEEK_BYTES)
            if not left:
                return b""
            is_there = bool(self._ahead) and self._ahead[0].start <= self._position < self._ahead[0].end
            first = self._next(1 if is_there else left)
            begin = self._position - first.start
            return self._content(first)[begin : begin + left]

    def readinto(self, buffer: Buffer, /) -> int:
        """As many bytes as there is room for, and fewer only at the end."""
        view = memoryview(buffer).cast("B")
        filled = 0
        with self._alone():
            for piece in self._coming(self._left_bytes(len(view))):
                view[filled : filled + len(piece)] = piece
                filled += len(piece)
        return filled

    def readall(self) -> bytes:
        """What is left, in advised ranges at a time."""
        return self.read()

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """The bytes of each (offset, size), which may lie anywhere; many are fetched at a time.

        What lies beyond the end is left out, as a file does. Raises ValueError for what is below 0.
        """
        with self._asked_for_all(ranges) as (fetched, cut):
            return cut([b"".join(map(self._content, parts)) for parts in fetched])

    def close(self) -> None:
        """Let go of what was fetched ahead, and of the threads. A read of another thread ends with a ValueError."""
        was_closed = self.closed
        super().close()  # first: who reads meanwhile asks for nothing more
        if not was_closed:
            self._notice_fork()
            self._let_go()
            self._pool.end()
            self._spare.end()

    def _coming(self, wanted: int) -> Iterator[memoryview]:
        """So many bytes from the position on, as they lie in the ranges that bring them."""
        while wanted:
            first = self._next(wanted)
            piece = self._taken(first, self._content(first), wanted)
            wanted -= len(piece)
            yield piece

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One thread at a time."""
        self._check()
        with self._lock, self._one_read():
            yield

    def _check(self) -> None:
        super()._check()
        self._notice_fork()

    def _begin_anew(self) -> None:
        """A child has none of its parent's threads, and nothing that they were about to bring."""
        close_inherited(self._client)
        self._ahead.clear()
        self._pieces.clear()
        self._open_pools()

    def _begin(self, asked: Range) -> None:
        asked.content = self._pool.submit_or_call(self._fetch, asked)

    def _fetch(self, asked: Range) -> bytes:
        tries, request = 0, self._request(asked.start, asked.end)
        while True:
            asked.begun_at, tries = monotonic(), tries + 1
            answer = self._client.get_object(**request)
            try:
                asked.body = answer["Body"]
                if asked.is_unwanted:
                    stop(asked.body)
                self._must_fit(answer, request)
                content: bytes = asked.body.read()
                return whole(content, asked.start, asked.end)
            except Exception:
                answer["Body"].close()  # what is unread of it is nobody's
                if tries < BODY_TRY_COUNT and not asked.is_unwanted:
                    continue
                raise
            finally:
                asked.body = None

    def _content(self, asked: Range) -> bytes:
        """What came; where nothing did in time, it is asked for again."""
        most = self.hedge_timeout_seconds
        while not asked.content.done():
            left = ATTENTION_SECONDS
            if most is not None:
                left = most if asked.begun_at is None else asked.begun_at + most - monotonic()
            if left > 0:
                wait([asked.content], min(left, ATTENTION_SECONDS))
            else:
                asked.content, most = self._sooner(asked), None
        content: bytes = asked.content.result()
        return content

    def _sooner(self, asked: Range) -> Future[bytes]:
        """Of two requests the one that ends first, unless it fails; of one where no more may be sent."""
        first: Future[bytes] = asked.content
        if not self._may_hedge():
            return first
        second = Range(asked.start, asked.end)
        try:
            second.content = again = self._spare.submit(self._fetch, second)
        except RuntimeError:
            return first
        try:
            ended = _first_of(first, again)
        except BaseException:
            second.give_up()
            raise
        if ended.exception():
            return again if ended is first else first
        (second if ended is first else asked).give_up()
        return ended


def _first_of(*tries: Future[bytes]) -> Future[bytes]:
    while True:
        done, _ = wait(tries, ATTENTION_SECONDS, return_when=FIRST_COMPLETED)
        for ended in done:
            return ended
