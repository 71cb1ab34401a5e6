"""Objects read as files by boto3 and aiobotocore, from a server on loopback that holds some answers back."""

from __future__ import annotations

import asyncio
import io
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.config import AioConfig
from botocore.exceptions import ClientError

from penstock.client.advice import Advice
from penstock.client.transfers import aiobotocore_reader, aiobotocore_transfers, reader
from penstock.units import KiB
from tests.advice import a_download_advice
from tests.integration.uploading import session_of
from tests.loopback import Answers, Server, serving
from tests.real.servers import plain_client

CONTENT = random.Random(1).randbytes(2000 * KiB)
RANGE_BYTES = 100 * KiB
_HELD_SECONDS = 30.0  # a client that asked nobody again tries again after them


class HoldingServer(Server):
    """An S3 with one object. The first answers to some ranges do not come: their connections end after a while."""

    def __init__(self) -> None:
        super().__init__(_Answers)
        self.held: set[int] = set()
        self.cut: set[int] = set()
        self.asked: Counter[int] = Counter()
        self.counting = threading.Lock()


class _Answers(Answers):
    server: HoldingServer

    def reply(self) -> None:
        if self.command == "HEAD":
            is_there = "/gone" not in self.path
            self.answer(200 if is_there else 404, CONTENT if is_there else b"", ETag='"one"')
            return
        start, end = (int(word) for word in self.headers["Range"].removeprefix("bytes=").split("-"))
        with self.server.counting:
            self.server.asked[start] += 1
            is_first = self.server.asked[start] == 1
            is_held = is_first and start in self.server.held
            is_cut = is_first and start in self.server.cut
        if is_held:
            self.server.closing.wait(_HELD_SECONDS)
            self.close_connection = True
            return
        body = CONTENT[start : start + 100 if is_cut else end + 1]
        self.answer(206, body, size_bytes=end + 1 - start, ETag='"one"')
        self.close_connection = is_cut


@pytest.fixture
def server() -> Iterator[HoldingServer]:
    running = HoldingServer()
    with serving(running):
        yield running


def an_advice(hedge_timeout_seconds: float) -> Advice:
    derived = {
        "read_ahead_bytes": 4 * RANGE_BYTES,
        "coalesced_gap_bytes": 0,
        "hedge_timeout_seconds": hedge_timeout_seconds,
    }
    return a_download_advice(len(CONTENT), 4, RANGE_BYTES, derived=derived)


PIECES = [(5, 10), (900 * KiB, 20), (1999 * KiB, 9000)]


def read(library: str, url: str, advice: Advice) -> tuple[list[bytes], int]:
    """The whole, a piece, and pieces of the object; and how many requests were sent again."""
    if library == "boto3":
        client = plain_client("s3", url)
        with reader.open_object(client, "bucket", "key", advice=advice) as file:
            whole = file.read()
            file.seek(-7, io.SEEK_END)
            return [whole, file.read(99), *file.read_ranges(PIECES)], file.hedged_count
    return asyncio.run(_read_in_a_loop(url, advice))


async def _read_in_a_loop(url: str, advice: Advice) -> tuple[list[bytes], int]:
    async with session_of("aiobotocore", url).create_client("s3", config=AioConfig()) as client:
        async with await aiobotocore_reader.open_object(client, "bucket", "key", advice=advice) as file:
            whole = await file.read()
            assert file.tell() == len(whole)
            file.seek(-7, io.SEEK_END)
            found = [whole, await file.read(99), *await file.read_ranges(PIECES)], file.hedged_count
        with pytest.raises(ValueError, match="closed"):
            await file.read(1)
        return found


EXPECTED = [CONTENT, CONTENT[-7:], *(CONTENT[start : start + size] for start, size in PIECES)]
each_library = pytest.mark.parametrize("library", ["boto3", "aiobotocore"])


@each_library
def test_what_is_late_is_asked_for_once_more(library: str, server: HoldingServer) -> None:
    """The first answer does not come; the second does, and all is what is there."""
    server.held = {300 * KiB}
    content, hedged_count = read(library, server.url, an_advice(hedge_timeout_seconds=2.0))
    assert content == EXPECTED
    assert hedged_count >= 1
    assert server.asked[300 * KiB] >= 2


@each_library
def test_a_service_that_is_slow_as_a_whole_is_not_asked_twice_as_much(
    library: str, server: HoldingServer
) -> None:
    """Whatever the time-out, one request in twenty is sent again, and one at first."""
    content, hedged_count = read(library, server.url, an_advice(hedge_timeout_seconds=1e-6))
    assert content == EXPECTED
    assert hedged_count <= 3


@each_library
def test_what_ends_half_way_is_asked_for_again(library: str, server: HoldingServer) -> None:
    """As boto3's transfers do: a connection that breaks is no reason to fail."""
    server.cut = {300 * KiB}
    content, _ = read(library, server.url, an_advice(hedge_timeout_seconds=60.0))
    assert content == EXPECTED
    assert server.asked[300 * KiB] == 2


def test_a_download_in_a_loop_asks_again_for_what_ends_half_way(
    server: HoldingServer, tmp_path: Path
) -> None:
    """One broken connection of many thousands must not cost the whole of a large object."""
    server.cut, path = {300 * KiB}, tmp_path / "file"
    session = session_of("aiobotocore", server.url)
    given = an_advice(hedge_timeout_seconds=60.0)
    asyncio.run(aiobotocore_transfers.download_file(session, "bucket", "key", path, advice=given))
    assert path.read_bytes() == CONTENT
    assert server.asked[300 * KiB] == 2


def test_what_is_not_there_is_told_as_the_library_tells_it(server: HoldingServer) -> None:
    """Of a loop as well."""

    async def opened() -> Any:
        async with session_of("aiobotocore", server.url).create_client("s3", config=AioConfig()) as client:
            return await aiobotocore_reader.open_object(client, "bucket", "gone")

    with pytest.raises(ClientError, match="404"):
        asyncio.run(opened())
