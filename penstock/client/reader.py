"""Knows how to read an object of S3 as a file, with ranges and read-ahead as advised.

    from penstock.client.reader import open_object

    with open_object(s3, bucket, key) as file:
        table = pyarrow.parquet.read_table(file)

What is fetched, and when, is in `reading`. `read_ranges` fetches many pieces at a time, and reads through gaps that are
cheaper read than left out. Of an object that is replaced meanwhile, nothing of the new one is mixed in: S3 refuses
(412). `penstock.client.aiobotocore_reader` is the same for an event loop.
"""

from __future__ import annotations

import io
import os
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from time import monotonic

from penstock.client.reading import BODY_TRY_COUNT, Opening, Range, Reading, cut, whole

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from typing_extensions import Buffer, Unpack

    from penstock.client.advice import Advice
    from penstock.client.demand import TransferDemand

_HEDGE_THREAD_COUNT = 2  # what was asked for again and is late as well keeps its thread for a while


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
    than the client keeps connections: see `penstock.client.boto3.download_client_config`. A range that is late is asked
    for once more, by at most one more connection at a time; set `hedge_timeout_seconds` of the reader to None for none.
    """
    opening = Opening(s3_client, bucket, key, advice, extra_args, demand)
    return ObjectReader(opening.found(s3_client.head_object(**opening.arguments)))


class ObjectReader(Reading, io.RawIOBase):
    """One object, opened by `open_object`. For one thread at a time, as files are."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._open_pools()

    def _open_pools(self) -> None:
        self._process_id = os.getpid()
        self._pool = ThreadPoolExecutor(self.thread_count, thread_name_prefix="penstock-reader")
        self._spare = ThreadPoolExecutor(_HEDGE_THREAD_COUNT, thread_name_prefix="penstock-hedge")

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        """As many bytes as there is room for, and fewer only at the end."""
        self._check()
        view = memoryview(buffer).cast("B")
        begin, wanted, filled = self._position, self._left_bytes(len(view)), 0
        try:
            while filled < wanted:
                first = self._next(wanted - filled)
                piece = self._taken(first, self._content(first), wanted - filled)
                view[filled : filled + len(piece)] = piece
                filled += len(piece)
        except BaseException:
            self._undo(begin)
            raise
        return filled

    def readall(self) -> bytes:
        """What is left, in advised ranges at a time."""
        content = bytearray(self._left_bytes())
        del content[self.readinto(content) :]
        return bytes(content)

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """The bytes of each (offset, size), which may lie anywhere; many are fetched at a time."""
        wanted, pieces, fetched = self._asked_for_all(ranges)
        try:
            return cut(wanted, pieces, [self._content(asked) for asked in fetched])
        finally:
            for asked in fetched:
                asked.content.cancel()

    def close(self) -> None:
        """Let go of what was fetched ahead, and of the threads."""
        if not self.closed:
            self._notice_fork()
            self._forget()
            self._pool.shutdown(wait=False)
            self._spare.shutdown(wait=False)
        super().close()

    def _check(self) -> None:
        super()._check()
        self._notice_fork()

    def _notice_fork(self) -> None:
        """A child has none of its parent's threads, and nothing that they were about to bring."""
        if self._process_id != os.getpid():
            self._ahead.clear()
            self._open_pools()

    def _begin(self, asked: Range) -> None:
        try:
            asked.content = self._pool.submit(self._fetch, asked)
        except RuntimeError:  # there are no more threads, or the interpreter is at its end
            asked.content = Future()
            asked.content.set_result(self._fetch(asked))

    def _fetch(self, asked: Range) -> bytes:
        tries = 0
        while True:
            asked.begun_at, tries = monotonic(), tries + 1
            answer = self._client.get_object(**self._request(asked.start, asked.end))
            try:
                return whole(answer["Body"].read(), asked.start, asked.end)
            except Exception:
                if tries < BODY_TRY_COUNT:
                    continue
                raise

    def _content(self, asked: Range) -> bytes:
        """What came; where nothing did in time, it is asked for again."""
        most = self.hedge_timeout_seconds
        while most is not None and not asked.content.done():
            left = most if asked.begun_at is None else asked.begun_at + most - monotonic()
            if left <= 0:
                asked.content = self._sooner(asked)
                break
            wait([asked.content], left)
        content: bytes = asked.content.result()
        return content

    def _sooner(self, asked: Range) -> Future[bytes]:
        """Of two requests the one that ends first, unless it fails; of one where no more may be sent."""
        first: Future[bytes] = asked.content
        if not self._may_hedge():
            return first
        try:
            again = self._spare.submit(self._fetch, Range(asked.start, asked.end))
        except RuntimeError:
            return first
        (ended, *_), _ = wait([first, again], return_when=FIRST_COMPLETED)
        other = again if ended is first else first
        return other if ended.exception() else ended
