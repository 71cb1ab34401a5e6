"""Knows how to move files with aiobotocore as advised, up and down, and to tell the daemon how that went.

    from penstock.client.aiobotocore import download_file, download_files, files_below, upload_files

    summary = await upload_files(aiobotocore.session.get_session(), files_below(folder, "prefix/"), bucket)
    await download_file(s3, bucket, key, path)

aiobotocore has no transfer manager: here parts and whole files share one limit on requests in flight. Each is held in
memory while it moves, so memory stays within what the advice counts; files are read and written in threads.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from contextlib import asynccontextmanager, suppress
from functools import partial

from penstock.client.looping import in_thread, to_its_end
from penstock.client.operations import S3_DOWNLOAD, S3_UPLOAD
from penstock.client.sdk_client import pool_count_of
from penstock.client.transfers.aiobotocore_reader import whole_body
from penstock.client.transfers.aiobotocore_upload import AsyncUpload
from penstock.client.transfers.answers import must_fit
from penstock.client.transfers.errand import LOOKING_COUNT, Errand, Sink
from penstock.client.transfers.many_files import (
    File,
    Summary,
    beside,
    divided,
    make_folder_of,
    object_below,
    planned,
    wanted,
)
from penstock.client.transfers.observed import Observed

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    from typing_extensions import Unpack

    from penstock.client.transfers.many_files import Batch, Files, Objects, Path
    from penstock.client.transfers.options import FilesOptions

    T = TypeVar("T")


async def upload_files(s3_client: Any, files: Files, bucket: str, **options: Unpack[FilesOptions]) -> Summary:
    """Upload many files at a time as advised for their number and sizes, and report what happened.

    Like `penstock.client.boto3.upload_files`, with a client or a session of aiobotocore. `callback` is called with the
    number of bytes of each part that has arrived. Cancellation stops the transfers and removes unfinished uploads.
    """
    errand = Errand(s3_client, bucket, S3_UPLOAD, **options)
    plans = planned(files, errand.ask)
    while (plan := await in_thread(partial(next, plans, None))) is not None:
        await _move(errand, plan, _Uploads)
    return errand.summary


async def download_file(
    s3_client: Any, bucket: str, key: str, path: Path, **options: Unpack[FilesOptions]
) -> None:
    """Download one object as advised for its size, and report what happened.

    Raises what aiobotocore raises, and OSError for a file that cannot be written. Options are those of
    `download_files`.
    """
    summary = await download_files(s3_client, {key: path}, bucket, **options)
    for file in summary.failed:
        assert file.error is not None
        raise file.error


async def download_files(
    s3_client: Any, objects: Objects, bucket: str, **options: Unpack[FilesOptions]
) -> Summary:
    """Download many objects at a time as advised for their number and sizes, and report what happened.

    Like `penstock.client.boto3.download_files`, with a client or a session of aiobotocore. A download that fails or is
    cancelled leaves no file behind; a file that was there before stays.
    """
    errand = Errand(s3_client, bucket, S3_DOWNLOAD, **options)
    for window in wanted(objects):
        async with _client_for(errand) as client:
            await _look(client, bucket, window, errand.extra_args)
        await _move(errand, await in_thread(partial(divided, window, errand.ask)), _Downloads)
    return errand.summary


async def objects_below(
    s3_client: Any, bucket: str, prefix: str, folder: Path, *, extra_args: Mapping[str, Any] | None = None
) -> list[File]:
    """Every object below a prefix, with its size and its path below `folder`. Raises what aiobotocore raises."""
    files: list[File] = []
    paginator = s3_client.get_paginator("list_objects_v2")
    async for page in paginator.paginate(Bucket=bucket, Prefix=prefix, **(extra_args or {})):
        listed = (object_below(folder, prefix, item) for item in page.get("Contents", ()))
        files += [file for file in listed if file is not None]
    return files


async def _look(s3_client: Any, bucket: str, files: list[File], extra_args: Mapping[str, Any]) -> None:
    """Look up the sizes that are not known yet, many at a time; a file whose size is not found has an error."""

    async def look(file: File) -> None:
        found = await s3_client.head_object(Bucket=bucket, Key=file.key, **extra_args)
        file.size_bytes, file.etag = found["ContentLength"], found.get("ETag")

    async def try_it(file: File) -> None:
        await _outcome(file, look(file))

    unknown = [file for file in files if file.size_bytes < 0]
    await _for_each(unknown, try_it, min(LOOKING_COUNT, pool_count_of(s3_client)))


async def _move(errand: Errand, plan: tuple[list[Batch], list[File]], kind: type[_Transfers]) -> None:
    """Move all batches of a plan, one after another; report each that is evidence."""
    found, unreadable = plan
    for file in unreadable:
        errand.summary.note(file)
    async with _client_for(errand, found) as client:
        for batch in found:
            transfers = kind(client, batch, errand)
            with Observed(client, errand.bucket, None, errand.operation) as observed:
                await transfers.run(errand.summary)
            count, rate = transfers.room_count, transfers.sink.bytes_per_second
            errand.report(observed, batch, count, client="aiobotocore", sink_bytes_per_second=rate)


async def _outcome(file: File, work: Awaitable[object]) -> File:
    """The file, with its error if `work` failed."""
    try:
        await work
    except Exception as trouble:  # noqa: BLE001 - whatever aiobotocore raises for this file is why it failed
        file.fail(trouble)
    return file


class _Transfers:
    """The files of one batch while they move, sharing one limit on requests in flight."""

    def __init__(self, client: Any, batch: Batch, errand: Errand) -> None:
        self._client, self._batch, self._bucket = client, batch, errand.bucket
        self._extra_args, self._callback = errand.extra_args, errand.callback
        self.room_count = min(batch.thread_count, pool_count_of(client))
        self._room = asyncio.Semaphore(self.room_count)
        # Ranges in memory: those in flight, and a quarter more that wait for a file slower than the network.
        self._held = asyncio.Semaphore(self.room_count + self.room_count // 4 + 1)
        self.sink = Sink()

    async def run(self, summary: Summary) -> None:
        """Move all files; an exception from `on_file`, or cancellation, ends all transfers."""

        async def move(file: File) -> None:
            summary.note(await _outcome(file, self._move(file)))

        await _for_each(self._batch.files, move, self.room_count)

    async def _move(self, file: File) -> None:
        raise NotImplementedError

    def _tell(self, size_bytes: int) -> None:
        if self._callback is not None:
            self._callback(size_bytes)


class _Downloads(_Transfers):
    """Objects into files."""

    async def _move(self, file: File) -> None:
        """Download to a file beside the destination, and rename it at the end. Special files are written in place."""
        new = beside(file.path)
        try:
            path = await to_its_end(in_thread(partial(_begun, file.path, new)))
            await self._read_ranges(file, path)
            if path == new:
                await to_its_end(in_thread(partial(os.replace, new, file.path)))
        except BaseException:
            with suppress(OSError):
                os.unlink(new)  # noqa: PTH108 - pathlib costs the application an import
            raise

    async def _read_ranges(self, file: File, path: str) -> None:
        size, count = self._batch.part_size_bytes, self._batch.part_count(file)
        if count <= 1:
            await self._read_range(file, path, 0, file.size_bytes, {})
            return

        async def read(start: int) -> None:
            end = min(start + size, file.size_bytes)
            await self._read_range(file, path, start, end, {"Range": f"bytes={start}-{end - 1}"})

        await _for_each(range(0, file.size_bytes, size), read, self.room_count)

    async def _read_range(
        self, file: File, path: str, start: int, end: int, where: Mapping[str, str]
    ) -> None:
        same = {"IfMatch": file.etag} if file.etag else {}
        request = {"Bucket": self._bucket, "Key": file.key, **where, **same, **self._extra_args}
        fits = partial(must_fit, size_bytes=file.size_bytes, etag=file.etag)
        async with self._held:
            async with self._room:
                content = await whole_body(self._client, request, start, end, fits)
            await in_thread(partial(_write, path, content, start, self.sink))
        self._tell(len(content))


@asynccontextmanager
async def _client_for(errand: Errand, batches: Sequence[Batch] = ()) -> AsyncIterator[Any]:
    """The client that was given; from a session, one with enough connections for these batches."""
    from aiobotocore.config import AioConfig

    options = errand.options(AioConfig, batches)
    if options is None:
        yield errand.given
        return
    async with errand.given.create_client("s3", **options) as client:
        yield client


class _Uploads(_Transfers):
    """Files into objects."""

    async def _move(self, file: File) -> None:
        upload = AsyncUpload(self._client, self._bucket, file.key, self._extra_args)
        part_count = self._batch.part_count(file)
        if part_count > 1:
            await self._send_parts(file, upload, part_count)
            return
        async with self._room:
            body = await in_thread(partial(_read, file.path, 0, file.size_bytes))
            await upload.put(body)
        self._tell(len(body))

    async def _send_parts(self, file: File, upload: AsyncUpload, part_count: int) -> None:
        async def send(number: int) -> None:
            size_bytes = self._batch.part_size_bytes
            async with self._room:
                body = await in_thread(partial(_read, file.path, (number - 1) * size_bytes, size_bytes))
                await upload.send(number, body)
            self._tell(len(body))

        try:
            async with self._room:
                await to_its_end(upload.begin())
            await _for_each(range(1, part_count + 1), send, self.room_count)
            async with self._room:
                await upload.complete()
        except BaseException:
            await to_its_end(upload.remove())
            raise


async def _for_each(
    items: Iterable[T], work: Callable[[T], Coroutine[Any, Any, None]], worker_count: int
) -> None:
    """Work on all items, this many at a time; the first exception, and cancellation, end the work in progress."""
    shared = iter(items)

    async def work_on() -> None:
        for item in shared:
            await work(item)

    workers = [asyncio.ensure_future(work_on()) for _ in range(worker_count)]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise


def _read(path: str, offset: int, size_bytes: int) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs the application an import
        file.seek(offset)
        return file.read(size_bytes)


def _begun(path: str, new: str) -> str:
    """The path to write to: a new empty file beside the destination, or a special file itself. Raises OSError."""
    make_folder_of(path)
    if os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113 - as below
        if stat.S_ISFIFO(os.stat(path).st_mode):  # noqa: PTH116
            raise OSError(errno.ESPIPE, "ranges that come in any order cannot be written to a pipe", path)
        return path
    with open(new, "xb"):  # noqa: PTH123
        return new


def _write(path: str, content: bytearray, offset: int, sink: Sink) -> None:
    """Opens the file anew for each range: a cancelled task leaves its thread running, with a descriptor of its own."""
    with sink.writing(len(content)), open(path, "r+b", buffering=0) as file:  # noqa: PTH123 - as above
        file.seek(offset)
        view = memoryview(content)
        while view:
            view = view[file.write(view) :]
