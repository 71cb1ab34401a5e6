"""Knows how to write an object of S3 with aiobotocore as a stream of unknown length.

    from penstock.client.transfers.aiobotocore_writer import open_writer

    async with await open_writer(s3, bucket, key) as file:
        async for line in lines:
            await file.write(line)

It is `writer.py` for an event loop: it sends the same parts at the same times, and has the same methods to `await`.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial

from penstock.client.complaint import complain
from penstock.client.looping import in_thread, to_its_end
from penstock.client.transfers.aiobotocore_upload import AsyncUpload
from penstock.client.transfers.multipart import ABORT_SECONDS_MAX
from penstock.client.transfers.writing import Writing

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from typing_extensions import Buffer, Unpack

    from penstock.client.transfers.options import StreamOptions


async def open_writer(
    s3_client: Any, bucket: str, key: str, **options: Unpack[StreamOptions]
) -> AsyncObjectWriter:
    """A stream that becomes the object when it is closed. See `penstock.client.boto3.open_writer`."""
    return await in_thread(partial(AsyncObjectWriter, s3_client, bucket, key, **options))


class AsyncObjectWriter(Writing):
    """One object, opened by `open_writer`. Only one task at a time may write, as with a file."""

    _library, _upload_of = "aiobotocore", AsyncUpload
    _upload: AsyncUpload
    closed = False

    async def __aenter__(self) -> AsyncObjectWriter:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await (self.aclose() if kind is None else self.abort())

    async def write(self, content: Buffer) -> int:
        """Write all of it, and return its length; waits while as much is in flight as is advised."""
        self._check()
        view = memoryview(content).cast("B")
        async with self._all_or_nothing():
            for part in self._filled(view):
                await self._hand_over(part)
        return len(view)

    async def aclose(self) -> None:
        """Complete the object from what was written."""
        if self._trouble is not None or not self.closed:
            self._check()
        self.closed = True
        if not self._is_over:
            async with self._all_or_nothing():
                await self._finish()

    async def abort(self) -> None:
        """Discard everything: no object appears, and no parts remain that would be billed."""
        self.closed = True
        if not self._is_over:
            self._end()
            for part in self._under_way:
                part.cancel()
            if self._begun is not None:
                await to_its_end(self._remove())

    def __del__(self) -> None:
        if not self._is_over:
            complain(
                "an object was neither closed nor aborted: it is not there, and what was sent is left behind"
            )

    async def _hand_over(self, content: bytes) -> None:
        self._note_filled()
        await self._wait_for_room(len(content))
        await asyncio.sleep(self._pause_seconds(content))
        if self._begun is None:
            self._begun = _started(self._begin())
        self._note_handed_over(_started(self._send(self._part_count, content)), content)
        if self._has_grown():
            await in_thread(self._expect)

    async def _wait_for_room(self, size_bytes: float) -> None:
        while not self._has_room(size_bytes):
            await asyncio.wait(list(self._under_way), return_when=asyncio.FIRST_COMPLETED)

    async def _begin(self) -> None:
        await self._upload.begin()
        if self._is_over:
            await self._upload.remove()

    async def _send(self, number: int, content: bytes) -> None:
        await asyncio.wait([self._begun])  # not awaited itself: cancelling this task would cancel it
        self._begun.result()
        await self._upload.send(number, content)
        self._note_arrived(content)

    async def _finish(self) -> None:
        last = self._taken()
        if self._part_count == 1:
            self._note_filled()
            self.answer = await self._upload.put(last)
            self._note_arrived(last)
        else:
            await self._hand_over(last)
            await self._wait_for_room(float("inf"))
            self.answer = await self._upload.complete()
        self._end()
        self._report()

    async def _remove(self) -> None:
        await asyncio.wait([self._begun, *self._under_way], timeout=ABORT_SECONDS_MAX)
        await self._upload.remove()

    @asynccontextmanager
    async def _all_or_nothing(self) -> AsyncIterator[None]:
        """A failure halfway aborts the object, and later calls report it again."""
        try:
            yield
        except BaseException as trouble:
            self._trouble = trouble
            await self.abort()
            raise


def _started(work: Any) -> asyncio.Task[None]:
    """Start it as a task whose exception counts as retrieved, even if nobody asks for it any more."""
    task: asyncio.Task[None] = asyncio.ensure_future(work)
    task.add_done_callback(lambda _: task.cancelled() or task.exception())
    return task
