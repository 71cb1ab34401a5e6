"""What an application that holds a lease hears, and what it does without a daemon."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import queue
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.client import lease as lease_module
from penstock.client.advice import Advice
from penstock.client.asyncio_client import AsyncLease
from penstock.client.connection import Stream
from penstock.client.lease import Lease
from penstock.client.operations import SDK_DEFAULTS
from penstock.units import GiB, MiB
from tests.advice import an_answer
from tests.integration.conftest import PATIENCE_SECONDS
from tests.integration.scripted_advisor import ScriptedAdvisor, Served, a_recommendation, served_in_thread
from tests.waiting import comes, until

DEFAULT = SDK_DEFAULTS["s3_upload"]["setting"]


class Told(queue.Queue[Advice]):
    """The shares that a lease was told, in order."""

    def waits_for(self, thread_count: int) -> None:
        """Until this share is told; the timeout is the other outcome."""
        while self.get(timeout=PATIENCE_SECONDS).setting["thread_count"] != thread_count:
            pass


def a_lease(folder: Path, told: Told | None = None, **changes: Any) -> Lease:
    """An upload that divides the host with others."""
    on_change = None if told is None else told.put
    return Lease("s3_upload", GiB, socket=str(folder / "penstock.sock"), on_change=on_change, **changes)


def test_the_share_is_there_at_once_and_follows_those_who_come_and_go(tmp_path: Path) -> None:
    """Whoever holds a lease reads a setting that is the newest share."""
    told = Told()
    with served_in_thread(tmp_path), a_lease(tmp_path, told) as first:
        assert (first.setting["thread_count"], first.basis, first.host_fraction) == (32, "measured", 1.0)
        with a_lease(tmp_path, weight=3) as second:
            assert second.setting["thread_count"] == 24
            told.waits_for(8)
            assert first.setting["thread_count"] == 8
        told.waits_for(32)


def test_it_can_be_taken_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One lease at a time, however quickly; what listened before neither takes another nor complains."""
    with served_in_thread(tmp_path) as server:
        lease = a_lease(tmp_path)
        for _ in range(20):
            with lease:
                assert lease.basis == "measured"
        until(lambda: held(server) == 0)
        with lease, a_lease(tmp_path) as other:
            assert (held(server), other.setting["thread_count"]) == (2, 16)
    assert caplog.text == ""


def test_whoever_enters_one_that_is_held_shares_it(tmp_path: Path) -> None:
    """Threads with one lease among them count as one, and none that is left over takes a part of the host for ever."""
    with served_in_thread(tmp_path) as server, a_lease(tmp_path) as lease:
        with lease, lease:
            assert (held(server), lease.setting["thread_count"]) == (1, 32)
        assert held(server) == 1, "the outer block goes on"
        lease.__exit__()
        until(lambda: held(server) == 0)
        with lease:
            assert held(server) == 1
        until(lambda: held(server) == 0)


def test_without_a_daemon_it_is_the_sdks_default(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No exception, one line in the log, and a basis that says so."""
    with a_lease(tmp_path) as lease:
        assert (lease.setting, lease.basis, lease.host_fraction) == (DEFAULT, "default", None)
        assert lease.derived["connection_pool_count"] == 10
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "systemctl start penstock" in caplog.text


def test_a_daemon_that_starts_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that restarts, too; in between the last share is in force."""
    monkeypatch.setattr(lease_module, "_PAUSE_SECONDS_MIN", 0.01)
    told = Told()
    with a_lease(tmp_path, told) as lease:
        with served_in_thread(tmp_path):
            told.waits_for(32)
        assert lease.basis == "measured"
        with served_in_thread(tmp_path), a_lease(tmp_path):
            told.waits_for(16)


def test_a_daemon_that_is_slow_is_waited_for_once_the_application_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a hundred come at once most are answered late: who gave up and asked anew would never be answered."""
    monkeypatch.setattr(lease_module, "_CONNECT_SECONDS_MAX", 0.01)
    monkeypatch.setattr(lease_module, "_PAUSE_SECONDS_MIN", 0.01)
    told = Told()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "penstock.sock"))
        listening.listen()
        with a_lease(tmp_path, told) as lease:
            assert lease.basis == "default"
            given_up, (waiting, _) = listening.accept()[0], listening.accept()
            with given_up, waiting:
                waiting.recv(65536)
                time.sleep(10 * lease_module._CONNECT_SECONDS_MAX)  # longer than the application would wait
                answer = json.dumps(an_answer(setting={"thread_count": 7, "part_size_bytes": 8 * MiB}))
                waiting.sendall(f"HTTP/1.0 200 OK\r\n\r\n{answer}\n".encode())
                told.waits_for(7)


def test_a_claim_that_is_refused_is_the_default(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was wrong is in the log; the transfer goes on."""
    with served_in_thread(tmp_path), a_lease(tmp_path, weight=99) as lease:
        assert lease.setting == DEFAULT
    assert "weight" in caplog.text


def test_what_has_expired_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A share outlives its daemon as long as any advice does, and no longer."""
    monkeypatch.setattr(lease_module, "_PAUSE_SECONDS_MIN", 0.01)
    told = Told()
    with a_lease(tmp_path, told) as lease:
        with served_in_thread(tmp_path):
            told.waits_for(32)
            monkeypatch.setattr(Advice, "has_expired", lambda _: True)
        told.waits_for(10)
        assert lease.basis == "default"


def test_a_share_that_expires_while_it_is_held_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon lives and has nothing new to say: the lease is kept, and the SDK decides until it has."""
    monkeypatch.setattr(lease_module, "_LOOK_SECONDS", 0.01)
    told = Told()
    with served_in_thread(tmp_path) as server, a_lease(tmp_path, told) as lease:
        assert lease.basis == "measured"
        with monkeypatch.context() as later:
            later.setattr(Advice, "has_expired", lambda _: True)
            told.waits_for(10)
            assert (lease.setting, lease.basis, held(server)) == (DEFAULT, "default", 1)
            assert "the advice has expired" in lease.advice.explanation
        server.publish()
        told.waits_for(32)


def test_a_share_that_has_expired_before_it_is_told_is_the_default(tmp_path: Path) -> None:
    """It is held all the same, since the daemon may measure again at any time."""
    expired = a_recommendation(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    advisor = ScriptedAdvisor(recommendations=[expired])
    with served_in_thread(tmp_path, advisor) as server, a_lease(tmp_path) as lease:
        assert (lease.setting, lease.basis, held(server)) == (DEFAULT, "default", 1)


def held(server: Served) -> int:
    """How many leases the daemon knows, seen from another thread."""
    return len(server.api.leases)


def test_a_forked_child_does_not_keep_its_parents_lease(tmp_path: Path) -> None:
    """The lease ends with the process that took it, whatever its children do."""
    with served_in_thread(tmp_path) as server:
        reading, writing = os.pipe()
        parent = os.fork()
        if parent == 0:  # takes a lease, forks a child that lives on, and dies without giving it back
            a_lease(tmp_path).__enter__()
            if os.fork() == 0:
                os.close(writing)
                os.read(reading, 1)
            os._exit(0)
        os.close(reading)
        os.waitpid(parent, 0)
        until(lambda: held(server) == 0)
        os.close(writing)


async def test_a_lease_that_nobody_waits_for_any_more_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread takes it, which cannot be cancelled; else the others would do with less until the process ends."""
    is_taking, go_on, open_stream = threading.Event(), threading.Event(), Stream

    def slow(*words: Any) -> Any:
        is_taking.set()
        go_on.wait(PATIENCE_SECONDS)
        return open_stream(*words)

    monkeypatch.setattr(lease_module, "Stream", slow)
    with served_in_thread(tmp_path) as server:
        lease = AsyncLease("s3_upload", GiB, socket=str(tmp_path / "penstock.sock"))
        taking = asyncio.ensure_future(lease.__aenter__())
        await comes(is_taking.is_set)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        go_on.set()
        await comes(lambda: lease.host_fraction == 1.0)
        await comes(lambda: held(server) == 0)


async def test_inside_an_event_loop(tmp_path: Path) -> None:
    """The same, with the changes as a stream."""
    with served_in_thread(tmp_path):
        async with AsyncLease("s3_upload", GiB, socket=str(tmp_path / "penstock.sock")) as lease:
            assert lease.setting["thread_count"] == 32
            shares = lease.changes()
            assert (await anext(shares)).setting["thread_count"] == 32
            async with AsyncLease("s3_upload", GiB, socket=str(tmp_path / "penstock.sock")):
                assert (await anext(shares)).setting["thread_count"] == 16
            assert (await anext(shares)).setting["thread_count"] == 32
            await shares.aclose()
        await asyncio.sleep(0)


def test_one_that_is_made_before_its_loop_is_held_in_several(tmp_path: Path) -> None:
    """As a program has it that calls `asyncio.run` more than once; before Python 3.10 once was enough."""
    with served_in_thread(tmp_path):
        lease = AsyncLease("s3_upload", GiB, socket=str(tmp_path / "penstock.sock"))

        async def hear() -> None:
            async with lease:
                shares = lease.changes()
                assert (await anext(shares)).setting["thread_count"] == 32
                hearing = asyncio.ensure_future(shares.__anext__())
                await asyncio.sleep(0)  # it waits now
                async with AsyncLease("s3_upload", GiB, socket=str(tmp_path / "penstock.sock")):
                    assert (await hearing).setting["thread_count"] == 16
                await shares.aclose()

        asyncio.run(hear())
        asyncio.run(hear())


@pytest.mark.parametrize(
    "spoken",
    [
        b"HTTP/1.0 200 OK\r\n\r\n{}\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nno JSON\n",
        b"HTTP/1.0 200 OK\r\n\r\n"
        + json.dumps(
            an_answer(operation="s3_download", setting={"thread_count": 32, "range_size_bytes": 8 * MiB})
        ).encode()
        + b"\n",
        b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n[]",
        b"hello",
    ],
)
def test_whatever_answers_the_transfer_goes_on(tmp_path: Path, spoken: bytes) -> None:
    """Another program on the socket gives the defaults, and is not held on to."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "penstock.sock"))
        listening.listen()
        ended = threading.Event()

        def speak() -> None:
            with listening.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(spoken)
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(PATIENCE_SECONDS)
                with contextlib.suppress(ConnectionError):
                    assert connection.recv(1) == b""
            ended.set()

        speaker = threading.Thread(target=speak)
        speaker.start()
        with a_lease(tmp_path) as lease:
            assert lease.setting == DEFAULT
            assert ended.wait(PATIENCE_SECONDS)
        speaker.join()


def test_no_more_files_is_no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that has run out of descriptors is not hurt by this one, too."""

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with served_in_thread(tmp_path):
        monkeypatch.setattr(socket, "socket", none_left)
        with a_lease(tmp_path) as lease:
            assert lease.setting == DEFAULT
        monkeypatch.undo()
