"""Knows how to read an object of S3 with aiobotocore as a file, with ranges and read-ahead as advised.

    from penstock.client.transfers.aiobotocore_reader import open_object

    async with await open_object(s3, bucket, key) as file:
        head = await file.read(1000)

It is `reader.py` for an event loop: it fetches the same ranges at the same times, and has the same methods to `await`.
"""

from __future__ import annotations

import asyncio
import io
from functools import partial

from penstock.client.looping import in_thread
from penstock.client.transfers.reading import BODY_TRY_COUNT, Opening, Range, Reading, whole

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from typing_extensions import Unpack

    from penstock.client.advice import Advice
    from penstock.client.demand import TransferDemand

_PIECE_BYTES = 256 << 10


async def open_object(
    s3_client: Any,
    bucket: str,
    key: str,
    *,
    advice: Advice | None = None,
    extra_args: Mapping[str, Any] | None = None,
    **demand: Unpack[TransferDemand],
) -> AsyncObjectReader:
    """The object, to be read as advised for its size. See `penstock.client.boto3.open_object`."""
    opening = Opening(s3_client, bucket, key, advice, extra_args, demand)
    head = await s3_client.head_object(**opening.arguments)
    return AsyncObjectReader(await in_thread(partial(opening.found, head)))


class AsyncObjectReader(Reading):
    """One object, opened by `open_object`. Only one task at a time may read, as with a file.

    `size_bytes` is the object's size. Reads raise what aiobotocore raises, OSError if an answer is not what was asked
    for, and ValueError once it is closed.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._room = asyncio.Semaphore(self.thread_count)
        self._under_way: set[asyncio.Task[bytearray]] = set()
        self.closed = False

    async def __aenter__(self) -> AsyncObjectReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def read(self, size: int | None = -1) -> bytes:
        """`size` bytes, or everything left; fewer only at the end."""
        with self._one_read():
            left, content = self._left_bytes(size), io.BytesIO()  # hands over its content uncopied
            while left:
                first = self._next(left)
                left -= content.write(self._taken(first, await self._content(first), left))
        return content.getvalue()

    async def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """The bytes of each (offset, size), anywhere in the object; many are fetched at a time.

        Bytes beyond the end are left out. Raises ValueError for a negative offset or size, and what aiobotocore raises.
        """
        with self._asked_for_all(ranges) as (fetched, cut):
            contents = list[bytes]()  # a loop: Python 3.9 has no asynchronous comprehension within another
            for parts in fetched:
                contents.append(b"".join([await self._content(asked) for asked in parts]))
            return cut(contents)

    async def aclose(self) -> None:
        """Drop what was read ahead. A read in another task ends with a ValueError."""
        self.closed = True
        self._forget()
        under_way = tuple(self._under_way)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _content(self, asked: Range) -> bytearray:
        """The content of a range. Does not await the task itself, which closing in another task cancels."""
        await asyncio.wait([asked.content])
        if asked.content.cancelled():
            raise OSError("the range was given up: one task at a time reads from here")
        content: bytearray = asked.content.result()
        return content

    def _begin(self, asked: Range) -> None:
        asked.content = self._started(self._fetch(asked.start, asked.end))

    def _started(self, work: Any) -> asyncio.Task[bytearray]:
        """Start it as a task that nobody has to await."""
        task: asyncio.Task[bytearray] = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[bytearray]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved, also if nobody reads on

    async def _fetch(self, start: int, end: int) -> bytearray:
        """The content of a range; a late one is requested again, and the first to succeed counts."""
        async with self._room:
            first = self._started(self._get(start, end))
            tries = [first]
            try:
                await asyncio.wait(tries, timeout=self.hedge_timeout_seconds)
                if first.done() or not self._may_hedge():
                    return await first
                tries.append(self._started(self._get(start, end)))
                (ended, *_), _ = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
                other = tries[1] if ended is first else first
                return await (other if ended.exception() else ended)
            finally:
                for task in tries:
                    task.cancel()

    async def _get(self, start: int, end: int) -> bytearray:
        return await whole_body(self._client, self._request(start, end), start, end, self._must_fit)


async def whole_body(
    client: Any, request: Mapping[str, Any], start: int, end: int, must_fit: Callable[[Any, Any], None]
) -> bytearray:
    """The content of a range. Raises what aiobotocore raises, and OSError if it is not what was asked for."""
    tries = 0
    while True:
        tries += 1
        answer = await client.get_object(**request)
        # Not the value of `async with`: in some versions that is aiohttp's own body, which reads all at once.
        body = answer["Body"]
        try:
            async with body:
                must_fit(answer, request)
                return whole(await _read(body, end - start), start, end)
        except Exception:
            if tries < BODY_TRY_COUNT:
                continue
            raise


async def _read(body: Any, size_bytes: int) -> bytearray:
    """The body, until there is more than `size_bytes`; in pieces, since aiohttp doubles the memory for a whole one.

    The buffer is allocated once. Bodies that grow side by side get in each other's way: each was copied nine times, a
    quarter of the processor time of a download.
    """
    content, count = bytearray(size_bytes), 0
    while count <= size_bytes and (piece := await body.read(_PIECE_BYTES)):
        content[count : count + len(piece)] = piece
        count += len(piece)
    del content[count:]
    return content
