"""Knows how to read an object of S3 as a file, with ranges and read-ahead as advised.

    from penstock.client.transfers.reader import open_object

    with open_object(s3, bucket, key) as file:
        table = pyarrow.parquet.read_table(file)

`reading` decides what is fetched, and when. `read_ranges` fetches many pieces at a time, and reads through gaps that
are cheaper to read than to skip. If the object is replaced meanwhile, S3 refuses further reads (412), so that two
versions are never mixed. `aiobotocore_reader.py` is the same for an event loop.
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

_HEDGE_THREAD_COUNT = 2  # a hedge that is late as well keeps its thread for a while
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
    """The object as a readable and seekable binary file, as advised for its size.

    Raises what boto3 raises, for example if there is no such object; nothing because of penstock. Without a daemon,
    ranges and connections are boto3's defaults, with 80 MiB of read-ahead. `advice` is used in place of asking;
    `demand` is that of `penstock.client.advice.advise`; `extra_args` go into each request.

    State `access="random"` for pieces here and there, and nothing is read ahead. State `object_count` if several
    objects are open at a time, and they share what is advised for all of them. The reader uses no more threads than the
    client keeps connections: see `penstock.client.boto3.download_client_config`. A late range is requested once more,
    over at most one additional connection at a time; set the reader's `hedge_timeout_seconds` to None to prevent that.
    """
    opening = Opening(s3_client, bucket, key, advice, extra_args, demand)
    return ObjectReader(opening.found(s3_client.head_object(**opening.arguments)))


class ObjectReader(OfOneProcess, Reading, io.RawIOBase):
    """One object, opened by `open_object`. Threads may share it; like a file, it has a single position.

    `size_bytes` is the object's size. Reads raise what boto3 raises, OSError if an answer is not what was asked for,
    and ValueError once it is closed.
    """

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
        """Set the position; fetches nothing. Waits for a read of another thread to end.

        Otherwise that read would take bytes from one place by the bounds of another.
        """
        self._check()
        with self._lock:
            return super().seek(offset, whence)

    def __getstate__(self) -> object:
        raise TypeError("an open object cannot be pickled: open it where it is read")

    def read(self, size: int | None = -1, /) -> bytes:
        """`size` bytes, or everything left; fewer only at the end."""
        content = io.BytesIO()  # hands over its content, where a bytearray would be copied
        with self._alone():
            for piece in self._coming(self._left_bytes(size)):
                content.write(piece)
        return content.getvalue()

    def peek(self, _size: int = 0, /) -> bytes:
        """Some of the next bytes, without moving the position; readers of lines search them for line ends."""
        with self._alone():
            left = self._left_bytes(_PEEK_BYTES)
            if not left:
                return b""
            is_there = bool(self._ahead) and self._ahead[0].start <= self._position < self._ahead[0].end
            first = self._next(1 if is_there else left)
            begin = self._position - first.start
            return self._content(first)[begin : begin + left]

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill the buffer; returns the number of bytes, fewer than fit only at the end."""
        view = memoryview(buffer).cast("B")
        filled = 0
        with self._alone():
            for piece in self._coming(self._left_bytes(len(view))):
                view[filled : filled + len(piece)] = piece
                filled += len(piece)
        return filled

    def readall(self) -> bytes:
        """Everything left, fetched in advised ranges."""
        return self.read()

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """The bytes of each (offset, size), anywhere in the object; many are fetched at a time.

        Bytes beyond the end are left out, as in a file. Raises ValueError for a negative offset or size, and what boto3
        raises.
        """
        with self._asked_for_all(ranges) as (fetched, cut):
            return cut([b"".join(map(self._content, parts)) for parts in fetched])

    def close(self) -> None:
        """Drop what was read ahead, and end the threads. A read in another thread ends with a ValueError."""
        was_closed = self.closed
        super().close()  # first, so that other threads request nothing more
        if not was_closed:
            self._notice_fork()
            self._let_go()
            self._pool.end()
            self._spare.end()

    def _coming(self, wanted: int) -> Iterator[memoryview]:
        """This many bytes from the position on, in pieces as the ranges bring them."""
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
        """A child has none of its parent's threads, and nothing of what they were fetching."""
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
                answer["Body"].close()  # the rest of it will not be read
                if tries < BODY_TRY_COUNT and not asked.is_unwanted:
                    continue
                raise
            finally:
                asked.body = None

    def _content(self, asked: Range) -> bytes:
        """The content of a range; if it does not come in time, the range is requested again."""
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
        """The first of two requests to succeed; the only one, if no more may be sent."""
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
