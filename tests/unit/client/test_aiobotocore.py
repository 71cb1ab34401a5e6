"""Transfers and reading in an event loop where things go wrong half way: failures, and being cancelled."""

from __future__ import annotations

import asyncio
import io
import os
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.httpchecksum import AioAwsChunkedWrapper

from penstock.client.advice import default_advice
from penstock.client.looping import in_thread
from penstock.client.transfers import aiobotocore_transfers
from penstock.client.transfers.aiobotocore_reader import AsyncObjectReader, _read, open_object
from penstock.client.transfers.aiobotocore_transfers import download_file, download_files, upload_files
from penstock.client.transfers.aiobotocore_upload import AsyncUpload
from penstock.client.transfers.many_files import File
from penstock.units import KiB, MiB
from tests.sdk import a_meta
from tests.unit.client.test_reader import CONTENT, advice
from tests.waiting import comes

UPLOADING = default_advice("s3_upload", 20 * MiB, "for a test")
PATIENCE_SECONDS = 20.0


class Body:
    """Of an answer."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    async def __aenter__(self) -> Body:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def read(self, size: int) -> bytes:
        """As aiobotocore's: no more than its buffer holds."""
        return self._content.read(min(size, 64 * KiB))


class Store:
    """An S3 client of aiobotocore; before each request it waits for what it is told to."""

    def __init__(self, content: bytes = CONTENT, *, connection_count: int = 8) -> None:
        self.meta = a_meta(connection_count)
        self.content = content
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answered: list[str] = []
        self.before: Callable[[str], Awaitable[object]] = lambda _name: asyncio.sleep(0)

    def __getattr__(self, name: str) -> Any:
        async def request(**parameters: Any) -> Any:
            self.asked.append((name, parameters))
            await self.before(name)
            self.answered.append(name)
            return self._answer(name, parameters)

        return request

    def _answer(self, name: str, parameters: dict[str, Any]) -> Any:
        if name == "get_object":
            start, end = parameters.get("Range", f"bytes=0-{len(self.content)}")[6:].split("-")
            return {"Body": Body(self.content[int(start) : int(end) + 1])}
        found = {"ContentLength": len(self.content), "ETag": '"one"'}
        return {"head_object": found, "create_multipart_upload": {"UploadId": "7"}}.get(name, {"ETag": "one"})


@asynccontextmanager
async def reading(store: Store) -> AsyncIterator[AsyncObjectReader]:
    async with await open_object(store, "bucket", "key", advice=advice()) as file:
        yield file


async def test_a_read_that_was_given_up_can_be_tried_again() -> None:
    """Else a time-out would end each later read as if that were cancelled, too."""
    store, is_answering = Store(), asyncio.Event()
    store.before = lambda _name: is_answering.wait()
    is_answering.set()
    async with reading(store) as file:
        is_answering.clear()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(file.read(10), 0.01)
        is_answering.set()
        assert await file.read(10) == CONTENT[:10]


async def test_a_read_that_failed_can_be_tried_again() -> None:
    """From where it began, though a part of it had come."""
    store = Store()
    async with reading(store) as file:
        store.content = CONTENT[:MiB]
        with pytest.raises(OSError, match="bytes came of"):
            await file.read()
        store.content = CONTENT
        assert await file.read() == CONTENT


@pytest.mark.parametrize(
    "read", [lambda file: file.read(), lambda file: file.read_ranges([(0, 9), (MiB, 9)])]
)
async def test_a_read_of_what_another_task_closes_is_an_error(
    read: Callable[[AsyncObjectReader], Awaitable[object]],
) -> None:
    """Who reads would else seem cancelled himself, and a group of tasks would end without a word."""
    store = Store()
    async with reading(store) as file:
        store.before = lambda _name: asyncio.sleep(PATIENCE_SECONDS)
        task = asyncio.ensure_future(read(file))
        await comes(lambda: len(store.asked) > 1)
        await file.aclose()
        with pytest.raises(ValueError, match="the object is closed"):
            await task


async def test_a_read_that_another_task_gave_up_is_an_error() -> None:
    """Not to be cancelled: two tasks share a position, which is a mistake to be told of."""
    store = Store()
    async with reading(store) as file:
        store.before = lambda _name: asyncio.sleep(PATIENCE_SECONDS)
        tasks = [asyncio.ensure_future(file.read(10)) for _ in range(2)]
        await comes(lambda: len(store.asked) > 1)
        tasks[0].cancel()
        with pytest.raises(OSError, match="one task at a time"):
            await tasks[1]


async def test_a_body_without_an_end_is_not_read_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is held than was asked for, whatever a server sends; and what is read comes in pieces."""
    sizes: list[int] = []

    async def read(_body: Body, size: int) -> bytes:
        sizes.append(size)
        return bytes(size)

    monkeypatch.setattr(Body, "read", read)
    async with reading(Store()) as file:
        with pytest.raises(OSError, match=f"{256 * KiB} bytes came of 1000"):
            await file.read_ranges([(0, 1000)])
    assert set(sizes) == {256 * KiB}


async def test_a_body_takes_no_more_room_than_it_needs() -> None:
    """What grows beside others is copied again and again, into room that is always an eighth too large."""
    body = Body(bytes(16 * MiB))
    tracemalloc.start()
    try:
        content = await _read(body, 16 * MiB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert content == bytes(16 * MiB)
    assert peak < 17 * MiB


async def test_a_part_goes_over_tls_a_little_at_a_time() -> None:
    """By aiobotocore is framed what one reading brings, and whoever joins, encrypts and sends that has it once more."""
    store, body = Store(), os.urandom(MiB) + b"the end"
    await AsyncUpload(store, "bucket", "key", {}).put(body)
    ((_, parameters),) = store.asked
    frames = [frame async for frame in AioAwsChunkedWrapper(parameters["Body"])]
    assert max(map(len, frames)) < 300 * KiB
    parameters["Body"].seek(0)  # as for another try
    assert parameters["Body"].read() == body


async def test_a_pipe_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """Ranges come in any order; in a loop nothing holds them back until it is their turn."""
    store, pipe = Store(), tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="to a pipe"):
        await download_file(store, "bucket", "key", pipe, advice=advice())
    assert [name for name, _ in store.asked] == ["head_object"]


async def test_what_fails_in_a_thread_is_raised_and_not_tried_again(tmp_path: Path) -> None:
    """Files that change while they are named are a RuntimeError; what is left of them must not pass for all of them."""

    def files() -> Iterator[tuple[Path, str]]:
        yield tmp_path, "key"
        raise RuntimeError("dictionary changed size during iteration")

    with pytest.raises(RuntimeError, match="changed size"):
        await upload_files(Store(), files(), "bucket", advice=UPLOADING)


async def test_what_a_pool_refuses_and_does_nevertheless_is_done_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where there are no more threads, it keeps the work for one that it has, which is busy."""
    is_busy, go_on, done = threading.Event(), threading.Event(), list[int]()

    def be_busy() -> None:
        is_busy.set()
        go_on.wait(PATIENCE_SECONDS)

    def refuse(_thread: object) -> None:
        raise RuntimeError("can't start new thread")

    busy = asyncio.ensure_future(in_thread(be_busy))
    await comes(is_busy.is_set)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    await in_thread(lambda: done.append(1))
    monkeypatch.undo()
    go_on.set()
    await busy
    await in_thread(lambda: done.append(2))
    assert done == [1, 2]


def names_in(folder: Path) -> set[str]:
    """Of all files."""
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("step", ["_begun", "replace"])
async def test_being_cancelled_while_a_file_is_made_or_placed_leaves_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A thread cannot be cancelled: it is waited for. And nothing more is downloaded."""
    has_begun, go_on, told = threading.Event(), threading.Event(), list[File]()
    module: Any = os if step == "replace" else aiobotocore_transfers
    real = getattr(module, step)

    def slow(*paths: str) -> Any:
        has_begun.set()
        go_on.wait(PATIENCE_SECONDS)
        return real(*paths)

    monkeypatch.setattr(module, step, slow)
    objects = {f"k{n}": tmp_path / f"f{n}" for n in range(5)}
    store = Store(b"content", connection_count=1)
    moving = asyncio.ensure_future(
        download_files(store, objects, "bucket", advice=advice(), on_file=told.append)
    )
    await comes(has_begun.is_set)
    for _ in range(2):
        moving.cancel()
        await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await moving
    assert names_in(tmp_path) == ({"f0"} if step == "replace" else set())
    assert told == []


@pytest.mark.parametrize("slow", ["create_multipart_upload", "upload_part", "abort_multipart_upload"])
async def test_being_cancelled_twice_leaves_no_upload(tmp_path: Path, slow: str) -> None:
    """Also while it is begun, or removed; in the name of who pays for it."""
    (tmp_path / "big").write_bytes(bytes(20 * MiB))
    store, is_waiting, go_on = Store(), asyncio.Event(), asyncio.Event()

    async def wait(name: str) -> None:
        if name == slow:
            is_waiting.set()
            await go_on.wait()
        elif name == "upload_part" and slow == "abort_multipart_upload":
            raise ConnectionError("gone")

    store.before = wait
    payer = {"RequestPayer": "requester", "ExpectedBucketOwner": "42"}
    extra_args = {**payer, "StorageClass": "STANDARD_IA"}
    files = {tmp_path / "big": "big"}
    moving = asyncio.ensure_future(
        upload_files(store, files, "bucket", advice=UPLOADING, extra_args=extra_args)
    )
    await is_waiting.wait()
    for _ in range(2):
        moving.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    go_on.set()
    with suppress(asyncio.CancelledError):
        await moving
    assert moving.cancelled()
    assert store.answered[-1] == "abort_multipart_upload"
    assert store.asked[-1][1] == {"Bucket": "bucket", "Key": "big", "UploadId": "7", **payer}


@pytest.mark.parametrize("size", [20 * MiB, 1000])
@pytest.mark.parametrize(
    "stated",
    [
        {"ChecksumType": "FULL_OBJECT", "ChecksumAlgorithm": "CRC32"},
        {"ChecksumSHA256": "x"},
        {"MpuObjectSize": 20 * MiB},
        {"RequestPayer": "requester", "Metadata": {"a": "b"}},
    ],
    ids=lambda stated: next(iter(stated)),
)
async def test_each_request_of_an_upload_takes_what_boto3_hands_it(
    tmp_path: Path, size: int, stated: dict[str, Any]
) -> None:
    """What is legal with boto3 is so here; one that has an argument which it does not know is refused as a whole."""
    from s3transfer.constants import FULL_OBJECT_CHECKSUM_ARGS
    from s3transfer.upload import UploadSubmissionTask as Boto3

    (path := tmp_path / "file").write_bytes(bytes(size))
    store = Store()
    await upload_files(store, {path: "key"}, "bucket", advice=UPLOADING, extra_args=stated)
    full = dict(stated)
    for name in set(stated) & set(FULL_OBJECT_CHECKSUM_ARGS):
        full |= {"ChecksumType": "FULL_OBJECT", "ChecksumAlgorithm": name.removeprefix("Checksum")}
    expected = {
        "put_object": {n: v for n, v in stated.items() if n not in Boto3.PUT_OBJECT_BLOCKLIST},
        "create_multipart_upload": {
            n: v for n, v in full.items() if n not in Boto3.CREATE_MULTIPART_BLOCKLIST
        },
        "upload_part": {n: v for n, v in full.items() if n in Boto3.UPLOAD_PART_ARGS},
        "complete_multipart_upload": {n: v for n, v in full.items() if n in Boto3.COMPLETE_MULTIPART_ARGS},
    }
    own = {"Bucket", "Key", "Body", "UploadId", "PartNumber", "MultipartUpload"}
    asked = {name: {n: v for n, v in told.items() if n not in own} for name, told in store.asked}
    assert asked == {name: expected[name] for name in asked}
    assert ("put_object" in asked) == (size == 1000)
