"""Objects read from a server on loopback that answers what it was not asked, or that does not end."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiobotocore.config import AioConfig

from penstock.client.advice import Advice
from penstock.client.transfers import aiobotocore_reader, aiobotocore_transfers, boto3_transfers, reader
from penstock.client.transfers.many_files import File
from penstock.units import KiB
from tests.advice import a_download_advice
from tests.integration.uploading import session_of
from tests.loopback import Answers, Server, serving
from tests.programs import printed
from tests.real.servers import plain_client

ROOT = Path(__file__).parents[2]
CONTENT = random.Random(1).randbytes(1000 * KiB)
OTHER = random.Random(2).randbytes(1000 * KiB)
RANGE_BYTES = 100 * KiB
PATIENCE_SECONDS = 60.0


class FalseServer(Server):
    """An S3 in which a key says what is wrong with the answers; `from_where` has the port of each request for one."""

    def __init__(self) -> None:
        super().__init__(_Answers)
        self.is_holding, self.let_go = threading.Event(), threading.Event()
        self.from_where: list[int] = []


class _Answers(Answers):
    server: FalseServer

    def reply(self) -> None:
        if self.command == "HEAD":
            self.answer(200, CONTENT, ETag='"one"')
            return
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        start, end = int(first), int(last) + 1 if last else len(CONTENT)
        self.server.from_where.append(self.client_address[1])
        fault = self.path.rpartition("/")[2] if start else ""
        body, status, tag = CONTENT[start:end], 206, '"one"'
        stated = f"bytes {start}-{end - 1}/{len(CONTENT)}"
        if fault == "missing":
            body, status, stated = b"<Error><Code>InvalidRange</Code></Error>", 416, ""
        elif fault == "whole":
            body, status, stated = CONTENT, 200, ""
        elif fault == "elsewhere":
            body = CONTENT[start - 1 : end - 1]
            stated = f"bytes {start - 1}-{end - 2}/{len(CONTENT)}"
        elif fault == "less":
            body, stated = body[:-10], f"bytes {start}-{end - 11}/{len(CONTENT)}"
        elif fault == "more":
            body, stated = body + b"0123456789", ""
        elif fault == "another":  # version, from a server that does not know If-Match
            body, tag = OTHER[start:end], '"two"'
        elif fault == "grown":  # and has no versions
            stated, tag = f"{stated}0", ""
        is_held = fault == "endless"
        begun = body[:10] if is_held else body
        self.answer(status, begun, size_bytes=len(body), ETag=tag, Content_Range=stated)
        if is_held:
            self._hold(body[10:])

    def _hold(self, rest: bytes) -> None:
        """The rest does not come; whether the client waits for it is seen from here."""
        del rest
        self.server.is_holding.set()
        self.connection.settimeout(2 * PATIENCE_SECONDS)
        try:
            self.connection.recv(1)
        except TimeoutError:
            return
        except OSError:
            pass
        self.close_connection = True
        self.server.let_go.set()


@pytest.fixture
def server() -> Iterator[FalseServer]:
    running = FalseServer()
    with serving(running):
        yield running


def an_advice(hedge_timeout_seconds: float = 0.0) -> Advice:
    derived = {"multipart_threshold_bytes": 1, "hedge_timeout_seconds": hedge_timeout_seconds}
    return a_download_advice(len(CONTENT), 4, RANGE_BYTES, derived=derived)


def _file(url: str, key: str, path: Path) -> bytes:
    client = plain_client("s3", url)
    boto3_transfers.download_file(client, "bucket", key, path, advice=an_advice())
    return path.read_bytes()


def _files(url: str, key: str, path: Path) -> bytes:
    session = session_of("boto3", url)
    for file in boto3_transfers.download_files(session, {key: path}, "bucket", advice=an_advice()).failed:
        assert file.error is not None
        raise file.error
    return path.read_bytes()


def _file_in_a_loop(url: str, key: str, path: Path) -> bytes:
    session = session_of("aiobotocore", url)
    asyncio.run(aiobotocore_transfers.download_file(session, "bucket", key, path, advice=an_advice()))
    return path.read_bytes()


def _reader(url: str, key: str, _path: Path) -> bytes:
    with reader.open_object(plain_client("s3", url), "bucket", key, advice=an_advice()) as file:
        return file.read()


def _reader_in_a_loop(url: str, key: str, _path: Path) -> bytes:
    async def read() -> bytes:
        async with (
            session_of("aiobotocore", url).create_client("s3", config=AioConfig()) as client,
            await aiobotocore_reader.open_object(client, "bucket", key, advice=an_advice()) as file,
        ):
            return await file.read()

    return asyncio.run(read())


WAYS = (_file, _files, _file_in_a_loop, _reader, _reader_in_a_loop)
each_way = pytest.mark.parametrize("way", WAYS, ids=[way.__name__.strip("_") for way in WAYS])


@each_way
def test_what_is_asked_for_and_comes_is_the_object(
    way: Callable[[str, str, Path], bytes], server: FalseServer, tmp_path: Path
) -> None:
    """Whatever is looked at of each answer, a right one is believed."""
    assert way(server.url, "right", tmp_path / "file") == CONTENT


@each_way
@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("missing", "InvalidRange|any more"),
        ("whole", "1024000 bytes came of 102400"),
        ("elsewhere", "were asked for"),
        ("less", "were asked for"),
        ("more", "102410 bytes came of 102400"),
        ("another", '"two" came in place of "one"'),
        ("grown", "of 1024000 were asked for"),
    ],
)
def test_what_was_not_asked_for_is_not_taken_for_the_object(
    way: Callable[[str, str, Path], bytes], fault: str, sentence: str, server: FalseServer, tmp_path: Path
) -> None:
    """By itself boto3 writes all of it but for what comes from elsewhere, and says that all is well."""
    with pytest.raises(Exception, match=sentence):
        way(server.url, fault, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_what_was_asked_for_twice_ends_when_one_has_come(
    server: FalseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the interpreter could not end before the thread that reads the other, which may take minutes."""
    held = iter([True])
    monkeypatch.setattr(_Answers, "_hold", _held_once(held))
    client = plain_client("s3", server.url)
    with reader.open_object(client, "bucket", "endless", advice=an_advice(1.0)) as file:
        assert file.read() == CONTENT
        assert server.let_go.wait(PATIENCE_SECONDS)


def _held_once(held: Iterator[bool]) -> Callable[[_Answers, bytes], None]:
    plain = _Answers._hold

    def hold(answers: _Answers, rest: bytes) -> None:
        if next(held, False):
            plain(answers, rest)
        else:
            answers.wfile.write(rest)

    return hold


def test_a_reader_that_is_closed_reads_no_further(server: FalseServer) -> None:
    """Nor do those of its threads that were waiting for the network."""
    file = reader.open_object(plain_client("s3", server.url), "bucket", "endless", advice=an_advice())
    assert file.read(60 * KiB) + file.read(1) == CONTENT[: 60 * KiB + 1]
    assert server.is_holding.wait(PATIENCE_SECONDS)  # what follows is on its way
    file.close()
    assert server.let_go.wait(PATIENCE_SECONDS)


def test_who_is_interrupted_waits_for_no_body(
    server: FalseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends a download at once, also where nothing comes any more; and what was there before stays."""
    # Once alone, or there is no thread left for the other.
    monkeypatch.setattr(_Answers, "_hold", _held_once(iter([True])))

    def interrupt(_: File) -> None:
        raise KeyboardInterrupt

    objects = {"right": tmp_path / "right", "endless": tmp_path / "endless"}
    with pytest.raises(KeyboardInterrupt):
        boto3_transfers.download_files(
            session_of("boto3", server.url), objects, "bucket", advice=an_advice(), on_file=interrupt
        )
    assert server.let_go.wait(PATIENCE_SECONDS)
    assert {path.name for path in tmp_path.iterdir()} == {"right"}


@pytest.mark.parametrize("work", ["download_file", "download_files", "read"])
def test_an_interrupt_that_wakes_nobody_is_seen(work: str, server: FalseServer, tmp_path: Path) -> None:
    """Another thread takes the signal, as where it comes just before the main one waits for a lock."""
    program = f"""
import os
import signal
import threading
import time
from tests.integration.test_client_false_answers import an_advice
from tests.real.servers import plain_client
from penstock.client.transfers.boto3_transfers import download_file, download_files
from penstock.client.transfers.reader import open_object

moves = threading.Event()

def interrupt():
    moves.wait()
    time.sleep(0.3)  # the main thread waits by then; where it does not, this proves nothing
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # of the main thread, and of those that it begins
s3, path, tell = plain_client("s3", {server.url!r}), {str(tmp_path / "it")!r}, lambda _size: moves.set()
try:
    if {work!r} == "read":
        moves.set()
        open_object(s3, "bucket", "endless", advice=an_advice()).read()
    elif {work!r} == "download_file":
        download_file(s3, "bucket", "endless", path, advice=an_advice(), callback=tell)
    else:
        download_files(s3, {{"endless": path}}, "bucket", advice=an_advice(), callback=tell)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    assert printed([sys.executable, "-c", program], cwd=ROOT, timeout=60) == "interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_a_child_uses_none_of_the_connections_of_its_parent(server: FalseServer) -> None:
    """Two processes that read from one socket take the bytes of each other for their own."""
    program = f"""
import os
import warnings
from penstock.client.transfers import reader
from tests.integration.test_client_false_answers import CONTENT, an_advice
from tests.real.servers import plain_client

warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is the point
with reader.open_object(plain_client("s3", {server.url!r}), "bucket", "right", advice=an_advice()) as file:
    file.read(5)
    child = os.fork()
    if not child:
        os._exit(not file.read_ranges([(5, 7)]) == [CONTENT[5:12]])
    print(os.waitpid(child, 0)[1], file.read_ranges([(5, 7)]) == [CONTENT[5:12]])
"""
    assert printed([sys.executable, "-c", program], cwd=ROOT, timeout=60) == "0 True\n"
    of_parent, of_child, of_parent_again = server.from_where
    assert of_parent == of_parent_again != of_child
