"""Streams written into objects by boto3 and aiobotocore, to a server on loopback that refuses and holds back."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import os
import random
import re
import signal
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiobotocore.config import AioConfig
from botocore.exceptions import ClientError

from penstock.client.transfers import aiobotocore_writer, writer
from penstock.units import KiB, MiB
from tests.advice import an_advice
from tests.integration.uploading import session_of
from tests.loopback import Answers, Server, serving
from tests.real.servers import plain_client
from tests.sdk import KeptReports

PART_BYTES = 5 * MiB
CONTENT = random.Random(1).randbytes(MiB) * 12 + b"the end"
ADVICE = an_advice(payload_size_bytes=64 * MiB, setting={"thread_count": 3, "part_size_bytes": PART_BYTES})
_HELD_SECONDS = 30.0  # at the most: the test lets go


class PartsServer(Server):
    """An S3 that keeps what was completed, and may refuse parts, drop their connections or hold answers back."""

    def __init__(self) -> None:
        super().__init__(_Answers)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.refused: set[int] = set()
        self.dropped: set[int] = set()  # once each
        self.held: set[int] = set()
        self.holding = threading.Event()  # one is held back
        self.let_go = threading.Event()
        self.together_count = 1  # parts that are answered when so many are there
        self.asked: Counter[str] = Counter()
        self.under_way_count = self.under_way_count_max = 0
        self.counting = threading.Condition()


class _Answers(Answers):
    server: PartsServer

    do_DELETE = Answers.do_GET  # noqa: N815 - as the base class calls it

    def reply(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        body = self.body()
        name = self.name_of(query)
        with self.server.counting:
            self.server.asked[name] += 1
        getattr(self, name)(parts.path, query, body)

    def body(self) -> bytes:
        """What was sent, also in chunks with a checksum behind them."""
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return sent
        size, _, rest = sent.partition(b"\r\n")
        return rest[: int(size.split(b";")[0], 16)]

    def name_of(self, query: dict[str, list[str]]) -> str:
        if "uploads" in query:
            return "begin"
        if "uploadId" not in query:
            return "put"
        return {"PUT": "part", "POST": "complete", "DELETE": "remove"}[self.command]

    def begin(self, path: str, *_: object) -> None:
        if path.startswith("/nowhere"):
            self.refuse(404, "NoSuchBucket")
            return
        number = str(len(self.server.uploads) + 1)
        self.server.uploads[number] = {}
        self.answer(200, f"<Answer><UploadId>{number}</UploadId></Answer>".encode())

    def part(self, _path: str, query: dict[str, list[str]], body: bytes) -> None:
        number, server = int(query["partNumber"][0]), self.server
        with server.counting:
            server.under_way_count += 1
            server.under_way_count_max = max(server.under_way_count, server.under_way_count_max)
            server.counting.notify_all()
            server.counting.wait_for(
                lambda: server.under_way_count_max >= server.together_count, _HELD_SECONDS
            )
            is_dropped = number in server.dropped
            server.dropped.discard(number)
        if number in server.held:
            server.holding.set()
            server.let_go.wait(_HELD_SECONDS)
        with server.counting:
            server.under_way_count -= 1
        if is_dropped:
            self.close_connection = True
        elif number in server.refused:
            self.refuse(403, "AccessDenied")
        elif query["uploadId"][0] not in server.uploads:
            self.refuse(404, "NoSuchUpload")
        else:
            server.uploads[query["uploadId"][0]][number] = body
            self.answer(200, ETag=f'"{hashlib.md5(body).hexdigest()}"')  # noqa: S324 - as S3 does

    def complete(self, path: str, query: dict[str, list[str]], body: bytes) -> None:
        numbers = [int(word) for word in re.findall(rb"<PartNumber>(\d+)<", body)]
        sent = self.server.uploads.pop(query["uploadId"][0])
        assert numbers == sorted(sent)
        assert all(len(sent[number]) >= PART_BYTES for number in numbers[:-1])
        self.server.objects[path] = b"".join(sent[number] for number in numbers)
        self.answer(200, b'<Answer><ETag>"all"</ETag></Answer>')

    def remove(self, _path: str, query: dict[str, list[str]], _body: bytes) -> None:
        is_there = self.server.uploads.pop(query["uploadId"][0], None) is not None
        self.answer(204) if is_there else self.refuse(404, "NoSuchUpload")

    def put(self, path: str, _query: dict[str, list[str]], body: bytes) -> None:
        self.server.objects[path] = body
        self.answer(200, ETag='"whole"')

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())


@pytest.fixture
def server() -> Iterator[PartsServer]:
    running = PartsServer()
    with serving(running):
        yield running
        running.let_go.set()


@pytest.fixture
def client(server: PartsServer) -> Iterator[Any]:
    """Of boto3."""
    made = plain_client("s3", server.url)
    yield made
    made.close()


def write(library: str, url: str, pieces: list[bytes], bucket: str = "bucket", **options: Any) -> Any:
    """All pieces, one after another; what S3 said at last."""
    options = {"advice": ADVICE, **options}
    if library == "aiobotocore":
        return asyncio.run(_write_in_a_loop(url, pieces, bucket, options))
    client = plain_client("s3", url)
    with writer.open_writer(client, bucket, "key", **options) as file:
        for piece in pieces:
            assert file.write(piece) == len(piece)
        assert file.tell() == sum(map(len, pieces))
    client.close()
    return file.answer


async def _write_in_a_loop(url: str, pieces: list[bytes], bucket: str, options: Any) -> Any:
    async with session_of("aiobotocore", url).create_client("s3", config=AioConfig()) as client:
        async with await aiobotocore_writer.open_writer(client, bucket, "key", **options) as file:
            for piece in pieces:
                assert await file.write(piece) == len(piece)
            assert file.tell() == sum(map(len, pieces))
        with pytest.raises(ValueError, match="closed"):
            await file.write(b"more")
        return file.answer


def divided(content: bytes, size: int) -> list[bytes]:
    return [content[begin : begin + size] for begin in range(0, len(content), size)]


each_library = pytest.mark.parametrize("library", ["boto3", "aiobotocore"])


@each_library
def test_what_is_written_is_what_is_there(library: str, server: PartsServer) -> None:
    """In parts as advised, however it was written, no more at a time than are advised, and each counted once."""
    moved, server.together_count = list[int](), 3
    answer = write(library, server.url, divided(CONTENT * 2, 700_001), callback=moved.append)
    assert server.objects == {"/bucket/key": CONTENT * 2}
    assert server.asked == {"begin": 1, "part": 5, "complete": 1}
    assert sum(moved) == 2 * len(CONTENT)
    assert server.under_way_count_max == 3
    assert answer["ETag"] == '"all"'


@each_library
@pytest.mark.parametrize("size", [0, 3, PART_BYTES])
def test_what_fits_one_part_is_one_request(library: str, size: int, server: PartsServer) -> None:
    """Also nothing: an empty file is one."""
    answer = write(library, server.url, [CONTENT[:size]])
    assert server.objects == {"/bucket/key": CONTENT[:size]}
    assert server.asked == {"put": 1}
    assert answer["ETag"] == '"whole"'


@each_library
def test_a_part_that_is_refused_ends_the_writing_and_leaves_nothing(
    library: str, server: PartsServer
) -> None:
    """Whoever writes on is told, with what S3 said; what had arrived is removed."""
    server.refused = {2}
    with pytest.raises(ClientError, match="AccessDenied"):
        write(library, server.url, divided(CONTENT * 2, MiB))
    assert (server.uploads, server.objects) == ({}, {})
    assert server.asked["part"] < 10


@each_library
def test_what_never_was_begun_is_told_and_not_removed(library: str, server: PartsServer) -> None:
    """Without a bucket."""
    with pytest.raises(ClientError, match="NoSuchBucket"):
        write(library, server.url, [CONTENT], bucket="nowhere")
    assert server.asked == {"begin": 1}


@each_library
def test_a_connection_that_breaks_is_tried_again(library: str, server: PartsServer) -> None:
    """By botocore, which has the whole part."""
    server.dropped = {2, 3}
    write(library, server.url, [CONTENT])
    assert server.objects == {"/bucket/key": CONTENT}
    assert server.asked["part"] == 5


def test_an_exception_leaves_neither_object_nor_parts(server: PartsServer, client: Any) -> None:
    """Though the layers between close the file on their way out, as a file of text does."""

    def fail(file: writer.ObjectWriter) -> None:
        with file, io.TextIOWrapper(file) as text:
            text.write("x" * len(CONTENT))
            raise KeyError

    file = writer.open_writer(client, "bucket", "key", advice=ADVICE)
    with pytest.raises(KeyError):
        fail(file)
    assert file.closed
    assert (server.uploads, server.objects) == ({}, {})
    assert server.asked["remove"] == 1


def test_who_swallows_a_failure_is_told_again(server: PartsServer, client: Any) -> None:
    """Else closing would say that all is well; nothing more is sent."""
    server.refused = {1}
    file = writer.open_writer(client, "bucket", "key", advice=ADVICE)
    with pytest.raises(ClientError):
        any(file.write(CONTENT) is None for _ in range(10))
    sent_count = server.asked.total()
    for more in (file.close, file.close, lambda: file.write(b"x")):
        with pytest.raises(ClientError, match="AccessDenied"):
            more()
    assert server.asked.total() == sent_count


def test_an_interrupt_while_it_waits_ends_at_once_and_leaves_nothing(
    server: PartsServer, client: Any
) -> None:
    """Ctrl-C, where a part does not come to an end. Who goes on all the same is told that there is no object."""
    server.held = {1, 2, 3}

    def interrupt() -> None:
        assert server.holding.wait(20.0)
        os.kill(os.getpid(), signal.SIGINT)
        server.let_go.set()

    interrupting = threading.Thread(target=interrupt)
    file = writer.open_writer(client, "bucket", "key", advice=ADVICE)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        file.write(CONTENT * 2)
    interrupting.join()
    assert (server.uploads, server.objects) == ({}, {})
    with pytest.raises(OSError, match="interrupted"):
        file.close()


def test_a_part_that_ends_after_the_removal_has_it_removed_again(
    server: PartsServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 may take a part whose upload was removed while it was on its way."""
    monkeypatch.setattr(writer, "ABORT_SECONDS_MAX", 0.01)
    server.held = {1}
    file = writer.open_writer(client, "bucket", "key", advice=ADVICE)
    file.write(CONTENT[: 7 * MiB])
    assert server.holding.wait(20.0)
    file.abort()
    server.uploads["1"] = {}  # as if the part had made it anew
    server.let_go.set()
    for thread in file._pool._threads:
        thread.join(20.0)
    assert server.asked["remove"] == 2
    assert server.uploads == {}


def test_to_be_cancelled_leaves_nothing(server: PartsServer) -> None:
    """In an event loop, where a part does not come to an end."""
    server.held = {1, 2, 3}

    async def be_cancelled() -> None:
        writing = asyncio.ensure_future(_write_in_a_loop(server.url, [CONTENT], "bucket", {"advice": ADVICE}))
        await asyncio.get_running_loop().run_in_executor(None, server.holding.wait, 20.0)
        writing.cancel()
        server.let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await writing

    asyncio.run(be_cancelled())
    assert (server.uploads, server.objects) == ({}, {})


def test_what_is_forgotten_is_no_object_and_is_said(
    server: PartsServer, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of it would look like all of it."""
    file = writer.open_writer(client, "bucket", "key", advice=ADVICE)
    file.write(CONTENT)
    while not all(part.done() for part in file._under_way):
        pass
    del file
    assert (server.uploads, server.objects) == ({}, {})
    assert "neither closed nor aborted" in caplog.text


def test_a_child_does_not_end_what_its_parent_writes(server: PartsServer, client: Any) -> None:
    """It may not write, and neither completes nor removes what is not its own."""
    file = writer.open_writer(client, "bucket", "key", advice=ADVICE)
    file.write(CONTENT)
    file._begun.result()
    file._process_id += 1  # as a child has it
    with pytest.raises(ValueError, match="another"):
        file.close()
    file.abort()
    file.__del__()
    assert server.asked["complete"] == server.asked["remove"] == 0
    assert len(server.uploads) == 1


def _packed(file: Any) -> None:
    with gzip.open(file, "wb", compresslevel=1) as packed:
        for piece in divided(CONTENT, 100_000):
            packed.write(piece)


def _archived(file: Any) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("content", CONTENT)


def _in_columns(file: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"content": divided(CONTENT, MiB)}), file)


def _in_lines(file: Any) -> None:
    with io.TextIOWrapper(file) as text:
        text.writelines("line\n" * 1000 for _ in range(1_500))


def _unarchived(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read("content")


def _out_of_columns(content: bytes) -> bytes:
    from pyarrow import parquet

    return b"".join(parquet.read_table(io.BytesIO(content))["content"].to_pylist())


@pytest.mark.parametrize(
    ("written", "read", "expected"),
    [
        (_packed, gzip.decompress, CONTENT),
        (_archived, _unarchived, CONTENT),
        (_in_columns, _out_of_columns, CONTENT),
        (_in_lines, bytes, b"line\n" * 1_500_000),
    ],
)
def test_libraries_write_to_it_as_to_a_file(
    written: Callable[[Any], None],
    read: Callable[[bytes], bytes],
    expected: bytes,
    server: PartsServer,
    client: Any,
) -> None:
    """Those that pack, archive, make tables or text."""
    with writer.open_writer(client, "bucket", "key", advice=ADVICE) as file:
        written(file)
    assert read(server.objects["/bucket/key"]) == expected


def test_a_pipe_is_uploaded_to_its_end(server: PartsServer, client: Any) -> None:
    """Whose size nobody can ask for."""
    out, into = os.pipe()

    def produce() -> None:
        with os.fdopen(into, "wb") as pipe:
            pipe.write(CONTENT)

    producing = threading.Thread(target=produce)
    producing.start()
    with os.fdopen(out, "rb") as stream:
        writer.upload_fileobj(client, stream, "bucket", "key", advice=ADVICE)
    producing.join()
    assert server.objects == {"/bucket/key": CONTENT}


@each_library
@pytest.mark.parametrize(("size", "threads"), [(len(CONTENT), 3), (100 * KiB, 1)])
def test_it_is_reported_as_uploads_are(library: str, size: int, threads: int, server: PartsServer) -> None:
    """With what was in force; a whole object is one connection."""
    reporter = KeptReports()
    write(library, server.url, [CONTENT[:size]], reporter=reporter)
    (seen,) = reporter.reports
    assert (seen["operation"], seen["payload_size_bytes"]) == ("s3_upload", size)
    assert seen["transferred_bytes"] == size
    assert seen["setting"] == {"thread_count": threads, "part_size_bytes": PART_BYTES}
    assert seen["request_count"] == (5 if threads > 1 else 1)
    assert seen["client"] == library


def test_a_stream_that_is_slow_by_itself_is_not_reported(server: PartsServer, client: Any) -> None:
    """It would tell of who writes, and not of S3: here each part has arrived before the next one is full."""
    reporter = KeptReports()
    with writer.open_writer(client, "bucket", "key", advice=ADVICE, reporter=reporter) as file:
        for piece in divided(CONTENT, PART_BYTES):
            file.write(piece)
            while not all(part.done() for part in file._under_way):
                pass
            server.closing.wait(0.02)
    assert server.objects == {"/bucket/key": CONTENT}
    assert reporter.reports == []
