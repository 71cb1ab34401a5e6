"""What strangers do to a socket, and what they cannot do to the others on it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from penstock.api import acceptor
from penstock.api.listener import ConnectionLimits, serving
from penstock.api.peer import Peer
from penstock.clock import SystemClock
from penstock.daemon.entrance import Entrance, look_after_files
from penstock.daemon.troubles import Troubles
from penstock.units import MiB
from tests.integration.scripted_advisor import served, served_in_thread
from tests.programs import resident_bytes

STATUS = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"
BRIEF = ConnectionLimits(idle_seconds_max=0.2)


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that is closed in the end, whatever the other side did."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        yield reader, writer
    finally:
        writer.close()


async def status_line(path: Path, request: bytes = STATUS) -> bytes:
    """The first line that the daemon answers on a connection of its own."""
    async with connected(path) as (reader, writer):
        writer.write(request)
        return await reader.readline()


async def is_served(reader: asyncio.StreamReader) -> bool:
    """Whether what was asked is answered; who is refused may hear of it before he has asked."""
    try:
        return await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    except ConnectionError:
        return False


class ClockOfLoop:
    """Stands still, however busy the machine is, until it is put forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._seconds = loop.time()
        monkeypatch.setattr(loop, "time", lambda: self._seconds)

    async def put_forward(self, seconds: float) -> None:
        """By so much; whose time is up by then is let go."""
        self._seconds += seconds
        for _ in range(3):
            await asyncio.sleep(0)


async def ends(reader: asyncio.StreamReader) -> bool:
    """Whether the daemon closes the connection; the test's own timeout is the other outcome."""
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("half", [b"", b"GET /v1/sta", b"GET /v1/status HTTP/1.1\r\nHost: local"])
async def test_half_a_request_is_given_up(
    tmp_path: Path, half: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who connects and does not finish asking is let go, and others are answered meanwhile."""
    clock = ClockOfLoop(monkeypatch)
    async with served(tmp_path, limits=BRIEF) as server, connected(server.socket_path) as (reader, writer):
        writer.write(half)
        assert await status_line(server.socket_path) == b"HTTP/1.1 200 OK\r\n"
        await clock.put_forward(BRIEF.idle_seconds_max)
        assert await ends(reader)


async def test_half_a_body_is_given_up(tmp_path: Path) -> None:
    """A body that does not come is answered with a timeout, not waited for."""
    request = b"POST /v1/observations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    async with served(tmp_path, limits=BRIEF) as server:
        assert (await status_line(server.socket_path, request)).startswith(b"HTTP/1.1 408 ")


async def test_an_idle_connection_is_closed_after_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keeping a connection open without asking costs its holder the connection."""
    clock = ClockOfLoop(monkeypatch)
    async with served(tmp_path, limits=BRIEF) as server, connected(server.socket_path) as (reader, writer):
        writer.write(STATUS)
        await answer(reader)
        await clock.put_forward(BRIEF.idle_seconds_max)
        assert await ends(reader)


async def test_who_was_let_in_is_answered_by_a_server_that_closes(tmp_path: Path) -> None:
    """Its request comes after the end has begun; nobody else would ever answer on this connection."""
    async with AsyncExitStack() as life:
        server = await life.enter_async_context(served(tmp_path))
        async with connected(server.socket_path) as (reader, writer):
            # The one that came after it is answered, so this one is in as well.
            assert await status_line(server.socket_path) == b"HTTP/1.1 200 OK\r\n"
            closing = asyncio.create_task(life.aclose())
            await asyncio.sleep(0.05)
            writer.write(STATUS)
            assert await is_served(reader)
            await closing


async def test_a_watcher_may_wait_for_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hearing nothing is what a watcher is there for: it outlives the time for idle connections."""
    clock = ClockOfLoop(monkeypatch)
    async with served(tmp_path, limits=BRIEF) as server, connected(server.socket_path) as (watching, writer):
        writer.write(b"GET /v1/watch HTTP/1.0\r\nHost: localhost\r\n\r\n")
        await watching.readuntil(b"\r\n\r\n")
        await watching.readline()
        async with connected(server.socket_path) as (idle, _):
            assert await status_line(server.socket_path) == b"HTTP/1.1 200 OK\r\n"  # so the idle one is in
            await clock.put_forward(BRIEF.idle_seconds_max)
            assert await ends(idle)  # connected later than the watcher and gone before it
        server.advisor.generation = 2
        server.api.publish()
        assert b'"generation":2' in await watching.readline()


CLAIM = b'{"operation":"s3_upload","payload_size_bytes":1}'
STREAMS = {
    "a lease": b"POST /v1/leases HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(CLAIM), CLAIM),
    "a watch": b"GET /v1/watch HTTP/1.1\r\nHost: x\r\n\r\n",
}
MUCH_MORE = {
    "requests": STATUS * 3000,
    "a body": b"POST /v1/leases HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n" + b"x" * 1_000_000,
}


@pytest.mark.parametrize("is_in_one_go", [True, False])
@pytest.mark.parametrize("more", MUCH_MORE.values(), ids=MUCH_MORE)
@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
async def test_who_says_much_beside_a_stream_is_seen_to_leave(
    tmp_path: Path, stream: bytes, more: bytes, *, is_in_one_go: bool
) -> None:
    """Kept for later it would stop the reading, and a process that is gone would hold its lease and its place."""
    async with served(tmp_path, limits=ConnectionLimits(connection_count_max=1)) as server:
        async with connected(server.socket_path) as (reader, writer):
            writer.write(stream + more if is_in_one_go else stream)
            await reader.readuntil(b"}\n")
            if not is_in_one_go:
                writer.write(more)
            for _ in range(200):  # turns of the loop, in which the server takes it, or would stop reading
                await asyncio.sleep(0)
            writer.transport.abort()
        for _ in range(100):  # the server sees the end of a connection a moment later
            async with connected(server.socket_path) as (reader, writer):
                writer.write(STATUS)
                if await is_served(reader):
                    return
        pytest.fail("the place of one who has left is not free")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        # 1,280 connections of one user with such heads held more than a gigabyte.
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + (b"X: " + b"y" * 8000 + b"\r\n") * 30,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + (b"X: " + b"y" * 4000 + b"\r\n") * 60,
        random.Random(1).randbytes(5000) + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
async def test_what_is_no_proper_request_is_turned_away(tmp_path: Path, request_bytes: bytes) -> None:
    """Oversized lines and random bytes are answered with 400 and cost nobody else anything."""
    async with served(tmp_path) as server:
        assert b" 400 " in await status_line(server.socket_path, request_bytes)
        assert await status_line(server.socket_path) == b"HTTP/1.1 200 OK\r\n"


async def test_a_head_may_have_what_proxies_and_tracers_add(tmp_path: Path) -> None:
    """The limits are for those who fill them on all of their connections."""
    fields = b"".join(b"X-%d: %b\r\n" % (number, b"y" * 4000) for number in range(24))
    async with served(tmp_path) as server:
        large = STATUS.removesuffix(b"\r\n") + fields + b"\r\n"
        assert await status_line(server.socket_path, large) == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("target", [b"/v1/status", b"/nowhere"])
async def test_an_expectation_that_is_no_text_is_refused(tmp_path: Path, target: bytes) -> None:
    """With 417, as one that nobody can meet: aiohttp by itself repeats it in its refusal, and fails."""
    async with served(tmp_path) as server:
        unreadable = b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nExpect: \xff\r\n\r\n"
        assert b" 417 " in await status_line(server.socket_path, unreadable)
        assert await status_line(server.socket_path) == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "limits", [ConnectionLimits(connection_count_max=3), ConnectionLimits(connection_count_max_per_uid=3)]
)
async def test_connections_have_a_cap(tmp_path: Path, limits: ConnectionLimits) -> None:
    """One too many is told so; when one leaves, the next may come."""
    async with served(tmp_path, limits=limits) as server:
        holders = [await asyncio.open_unix_connection(str(server.socket_path)) for _ in range(3)]
        for reader, writer in holders:
            writer.write(STATUS)
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        assert await status_line(server.socket_path, b"") == b"HTTP/1.1 503 Service Unavailable\r\n"
        holders[0][1].close()
        await holders[0][1].wait_closed()
        line = b""
        while line != b"HTTP/1.1 200 OK\r\n":  # the server sees the end of a connection a moment later
            line = await status_line(server.socket_path, STATUS)
        for _, writer in holders:
            writer.close()


async def test_root_comes_in_where_two_users_took_all_they_could(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share is kept for those in control, and one for whoever comes next: no two users fill the socket."""
    uid = 1001
    monkeypatch.setattr(
        acceptor, "peer_behind", lambda _socket: Peer(process_id=1, uid=uid, group_ids=frozenset())
    )
    limits = ConnectionLimits(connection_count_max=64, connection_count_max_per_uid=60)
    async with served(tmp_path, limits=limits) as server, AsyncExitStack() as held:
        counts = {}
        for uid in (1001, 1002, 1003, 0):
            counts[uid] = 0
            while True:
                reader, writer = await held.enter_async_context(connected(server.socket_path))
                writer.write(STATUS)
                if not await is_served(reader):
                    break
                counts[uid] += 1
    assert counts[1001] > counts[1002] > counts[1003] > 0
    assert counts[0] >= 64 // 16


async def test_thousands_come_and_go(tmp_path: Path) -> None:
    """Connections that are opened and dropped leave no trace: the cap is as free as before."""
    limits = ConnectionLimits(connection_count_max=64)
    async with served(tmp_path, limits=limits) as server:
        for _ in range(60):
            waves = [await asyncio.open_unix_connection(str(server.socket_path)) for _ in range(50)]
            for index, (_, writer) in enumerate(waves):
                writer.write(b"" if index % 2 else STATUS[:20])
                writer.transport.abort()
            await asyncio.sleep(0)
        line = b""
        while line != b"HTTP/1.1 200 OK\r\n":
            line = await status_line(server.socket_path)


def question(payload: str) -> bytes:
    """A request that is answered at the gate from the second time on."""
    target = f"/v1/recommendation?operation=s3_upload&payload_size_bytes={payload}"
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The document of the next answer on this connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    document: dict[str, Any] = json.loads(await reader.readexactly(length))
    return document


async def test_the_same_question_is_worked_out_once_for_each_change(tmp_path: Path) -> None:
    """What is answered at the gate is what would be answered behind it, and never what was before a change."""
    async with served(tmp_path) as server, connected(server.socket_path) as (reader, writer):
        for generation in (1, 2, 3):
            server.advisor.generation = generation
            server.api.publish()
            for _ in range(4):
                writer.write(question("1GiB"))
                assert (await answer(reader))["generation"] == generation
        assert len(server.advisor.questions) == 3


@pytest.mark.parametrize("seed", range(12))
async def test_answers_come_in_the_order_of_the_questions(tmp_path: Path, seed: int) -> None:
    """However a client cuts what it sends, and whether or not the gate knows the answers."""
    chance = random.Random(seed)
    sizes = [chance.choice(["1GiB", "2GiB", "3GiB"]) for _ in range(24)]
    async with served(tmp_path) as server, connected(server.socket_path) as (reader, writer):
        for size in ("1GiB", "2GiB"):
            writer.write(question(size))
            await answer(reader)
        sent = b"".join(map(question, sizes))
        while sent:
            cut = chance.choice([1, 40, len(question("1GiB")), 200, 1000])
            writer.write(sent[:cut])
            sent = sent[cut:]
            await asyncio.sleep(0)
        heard = [(await answer(reader))["payload_size_bytes"] >> 30 for _ in sizes]
    assert heard == [int(size[0]) for size in sizes]


async def test_who_is_answered_at_the_gate_is_not_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time begins anew with each answer, and ends like any other's."""
    clock = ClockOfLoop(monkeypatch)
    async with served(tmp_path, limits=BRIEF) as server, connected(server.socket_path) as (reader, writer):
        for _ in range(4):
            writer.write(question("1GiB"))
            await answer(reader)
            await clock.put_forward(0.6 * BRIEF.idle_seconds_max)
        await clock.put_forward(0.6 * BRIEF.idle_seconds_max)
        assert await ends(reader)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(("groups", "code"), [([], b"403"), ([4242], b"200")])
def test_the_kernel_says_who_asks(open_folder: Path, groups: list[int], code: bytes) -> None:
    """A real process of another user is refused control, and admitted by a supplementary group."""
    with served_in_thread(open_folder, control_gid=4242) as server:
        curl = "curl -s -o /dev/null -w %{http_code} -X POST http://localhost/-/reload --unix-socket"
        answer = subprocess.run(
            [*curl.split(), str(server.socket_path)],
            user=65534,
            group=65534,
            extra_groups=groups,
            capture_output=True,
            check=True,
        )
    assert answer.stdout == code


async def test_a_server_that_closes_leaves_the_path_of_an_inherited_socket(tmp_path: Path) -> None:
    """The path belongs to whoever bound it: under socket activation a reload must not remove it."""
    path = tmp_path / "inherited.sock"
    with socket.socket(socket.AF_UNIX) as inherited:
        inherited.bind(str(path))
        inherited.listen()
        inherited.setblocking(False)
        async with serving(web.Application(), inherited.dup(), BRIEF):
            pass
        assert path.exists()


async def test_a_removed_way_in_is_made_again_and_who_is_in_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever cleans /run costs the others a few seconds: socket and snapshot come back, watchers hear on."""
    troubles = Troubles(SystemClock())
    async with served(tmp_path) as server, connected(server.socket_path) as (reader, writer):
        path = server.socket_path
        writer.write(b"GET /v1/watch HTTP/1.0\r\n\r\n")
        await reader.readuntil(b"}\n")
        path.unlink()
        entrance = Entrance(path, mode=0o666, gid=None, inherited=None)
        server.acceptor.listen_on(entrance.listening.dup())
        path.unlink()
        server.snapshot_path.unlink()
        look_after_files(entrance, server.acceptor, server.api, troubles)
        assert server.snapshot_path.exists()
        assert await status_line(path) == b"HTTP/1.1 200 OK\r\n"
        server.advisor.generation += 1
        server.api.publish()
        assert b'"generation":2' in await reader.readuntil(b"}\n")
        entrance.close()
    assert [r.getMessage() for r in caplog.records] == [
        f"the socket {path} was removed or replaced; it is there again",
        f"the snapshot {server.snapshot_path} was removed; it is there again",
    ]
    assert troubles.now() == ()


async def test_a_folder_that_may_not_be_looked_into_ends_no_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever closes /run is looked after as one who cleans it."""
    async with served(tmp_path) as server:
        stat = Path.stat

        def refuse(path: Path, **named: Any) -> os.stat_result:
            if path == server.snapshot_path:
                raise PermissionError
            return stat(path, **named)

        monkeypatch.setattr(Path, "stat", refuse)
        server.api.mend_snapshot()


LIST = STATUS.replace(b"status", b"recommendations")


@pytest.mark.parametrize("request_bytes", [LIST, STATUS, question("1GiB")], ids=["list", "status", "gate"])
async def test_who_never_reads_is_not_read_from(tmp_path: Path, request_bytes: bytes) -> None:
    """Answers that are not taken fill a buffer and no more, also at the gate; questions wait with their sender."""
    async with served(tmp_path) as server:
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(server.socket_path))
            deaf.setblocking(False)
            sent, refused = 0, 0
            while refused < 50:
                try:
                    sent += deaf.send(request_bytes)
                    refused = 0
                except BlockingIOError:
                    refused += 1
                await asyncio.sleep(0)
                assert sent < 4 * MiB
            assert await status_line(server.socket_path) == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("seed", range(20))
async def test_noise_does_not_disturb_the_others(tmp_path: Path, seed: int) -> None:
    """Random bytes, and requests with random bytes in them, in pieces; then the next one is answered as ever."""
    chance = random.Random(seed)
    async with served(tmp_path) as server:
        for _ in range(10):
            noise = bytearray(
                chance.choice([STATUS, question("1GiB"), b"POST /v1/leases HTTP/1.1\r\n\r\n"]) * 3
            )
            for _ in range(chance.randrange(1, 9)):
                noise[chance.randrange(len(noise))] = chance.randrange(256)
            async with connected(server.socket_path) as (_, writer):
                writer.write(noise[: chance.randrange(1, len(noise))])
                writer.write(chance.randbytes(chance.randrange(100)))
        assert await status_line(server.socket_path) == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.long
async def test_ten_thousand_come_and_go(tmp_path: Path) -> None:
    """Whatever they do before they leave, others are answered meanwhile, and the daemon does not grow by them."""
    chance = random.Random(1)
    claim = b'{"operation":"s3_upload","payload_size_bytes":1073741824}'
    openings = [
        b"",
        STATUS[:20],
        STATUS,
        question("1GiB"),
        b"GET /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/leases HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(claim), claim),
        b"POST /v1/observations HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n{",
        chance.randbytes(3000),
    ]
    async with served(tmp_path) as server:

        async def wave() -> None:
            visitors = [await asyncio.open_unix_connection(str(server.socket_path)) for _ in range(250)]
            for _, writer in visitors:
                writer.write(chance.choice(openings))
            assert await status_line(server.socket_path) == b"HTTP/1.1 200 OK\r\n"
            for _, writer in visitors:
                writer.transport.abort()
            await asyncio.sleep(0)

        for _ in range(8):
            await wave()
        before = resident_bytes()
        for _ in range(40):
            await wave()
        assert resident_bytes() - before < 16 * MiB
        for _ in range(100):  # the server sees the end of a connection a moment later
            await status_line(server.socket_path)
        assert len(server.api.leases) == 0
