"""Leases over a real socket: granted, divided, pushed, and free when their holder dies."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.api.wire import Question
from penstock.units import GiB
from penstock.vocabulary import Basis, Recommendation, Setting
from tests.integration.scripted_advisor import ScriptedAdvisor, Served, a_recommendation, served

CLAIM = {"operation": "s3_upload", "payload_size_bytes": GiB}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    """A daemon whose optimum is 32 threads."""
    async with served(tmp_path) as running:
        yield running


class Holder:
    """An application that holds a lease in the simplest way there is."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def come(cls, server: Served, **changes: Any) -> Holder:
        """Post a claim."""
        body = json.dumps(CLAIM | changes).encode()
        reader, writer = await asyncio.open_unix_connection(str(server.socket_path), limit=2**20)
        writer.write(
            b"POST /v1/leases HTTP/1.0\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        holder = cls(reader, writer)
        holder.head = await reader.readuntil(b"\r\n\r\n")
        return holder

    head = b""

    async def hears(self, thread_count: int) -> dict[str, Any]:
        """The next line with this share; the test's own timeout is the other outcome."""
        while True:
            document: dict[str, Any] = json.loads(await self.reader.readline())
            if document["setting"]["thread_count"] == thread_count:
                return document

    def leave(self) -> None:
        """Close the connection, as a process that ends does."""
        self.writer.close()


async def leases(server: Served) -> list[dict[str, Any]]:
    """What the daemon says is held."""
    reader, writer = await asyncio.open_unix_connection(str(server.socket_path))
    writer.write(b"GET /v1/leases HTTP/1.0\r\nHost: x\r\n\r\n")
    body = (await reader.read()).partition(b"\r\n\r\n")[2]
    writer.close()
    found: list[dict[str, Any]] = json.loads(body)["leases"]
    return found


async def test_a_share_changes_with_those_who_come_and_go(server: Served) -> None:
    """The first line is the share now; each change is a line; the lease ends with its connection."""
    first = await Holder.come(server)
    alone = await first.hears(32)
    assert (alone["host_fraction"], alone["lease_count"], alone["basis"]) == (1.0, 1, "measured")
    second = await Holder.come(server, weight=3, client="boto3")
    await second.hears(24)
    shared = await first.hears(8)
    assert (shared["lease_count"], shared["setting"]["part_size_bytes"]) == (2, 16 << 20)
    rows = await leases(server)
    assert [row["setting"]["thread_count"] for row in rows] == [8, 24]
    assert (rows[1]["client"], rows[1]["process_id"], rows[1]["uid"]) == ("boto3", os.getpid(), os.getuid())
    first.leave()
    await second.hears(32)
    second.leave()


async def test_new_advice_reaches_every_holder(server: Served) -> None:
    """What a probe found is divided anew and pushed."""
    holders = [await Holder.come(server) for _ in range(2)]
    for holder in holders:
        await holder.hears(16)
    advice = a_recommendation()
    server.advisor.recommendations[0] = a_recommendation(
        setting=type(advice.setting)(thread_count=8, part_size_bytes=16 << 20)
    )
    server.advisor.generation += 1
    server.api.publish()
    for holder in holders:
        assert (await holder.hears(4))["generation"] == 2
        holder.leave()


async def test_what_a_holder_can_use_depends_on_the_others(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where burst credits suffice for one transfer alone, the first holder divides the advice without them, too."""
    right = ScriptedAdvisor.recommend

    def bursting_alone(advisor: ScriptedAdvisor, question: Question) -> Recommendation[Any]:
        advice = right(advisor, question)
        if len(server.api.leases) > 1:
            return advice
        return dataclasses.replace(advice, setting=dataclasses.replace(advice.setting, thread_count=64))

    monkeypatch.setattr(ScriptedAdvisor, "recommend", bursting_alone)
    first = await Holder.come(server)
    await first.hears(64)
    second = await Holder.come(server)
    third = await Holder.come(server)
    assert (await first.hears(11))["lease_count"] == 3
    second.leave()
    third.leave()
    await first.hears(64)
    first.leave()


async def test_a_killed_holder_leaves_its_share(server: Served) -> None:
    """A process that dies without a word is no longer counted as soon as the kernel has closed its socket."""
    program = f"""
import json, socket, sys, time
s = socket.socket(socket.AF_UNIX); s.connect({str(server.socket_path)!r})
body = json.dumps({CLAIM!r}).encode()
s.sendall(b"POST /v1/leases HTTP/1.0\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
s.recv(1); print("held", flush=True); time.sleep(600)
"""
    holder = await Holder.come(server)
    await holder.hears(32)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-S", "-c", program, stdout=subprocess.PIPE
    )
    await holder.hears(16)
    process.send_signal(signal.SIGKILL)
    await holder.hears(32)
    await process.wait()
    assert len(await leases(server)) == 1
    holder.leave()


async def test_a_holder_that_does_not_read_keeps_its_lease_and_nobody_waits(server: Served) -> None:
    """He is told the newest share when he reads again; what was in between is not kept for him."""
    deaf = await Holder.come(server)
    deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]  # typeshed knows a write transport only
    for generation in range(2, 502):
        server.advisor.generation = generation
        server.api.publish()
        await asyncio.sleep(0)
    other = await Holder.come(server)
    await other.hears(16)
    assert len(await leases(server)) == 2
    deaf.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
    heard: list[dict[str, Any]] = []
    while not heard or heard[-1]["lease_count"] != 2:
        heard.append(json.loads(await deaf.reader.readline()))
    assert heard[-1]["setting"]["thread_count"] == 16
    assert len(heard) < 450
    deaf.leave()
    other.leave()


async def test_a_claim_that_makes_no_sense_is_no_lease(server: Served) -> None:
    """It is told all that is wrong with it, and nothing is held."""
    holder = await Holder.come(server, weight=0)
    assert b" 400 " in holder.head
    assert "weight" in json.loads(await holder.reader.read())["detail"]
    assert await leases(server) == []
    holder.leave()


async def test_leases_end_with_the_daemon(tmp_path: Path) -> None:
    """Holders do not keep it from stopping, and see the end of the stream."""
    async with served(tmp_path, ScriptedAdvisor()) as server:
        holder = await Holder.come(server)
        await holder.hears(32)
    assert await holder.reader.read() == b""
    holder.leave()


async def test_where_nothing_is_known_a_holder_is_told_once(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Advice that is as old as its question is no news each time that it is asked for: that would never end."""
    asked = 0

    def undated(
        _self: ScriptedAdvisor, question: Question, setting: Setting, **_: Any
    ) -> Recommendation[Any]:
        nonlocal asked
        asked += 1
        now = datetime.now(UTC)
        return a_recommendation(basis=Basis.DEFAULT, issued_at=now, expires_at=now + timedelta(hours=asked))

    monkeypatch.setattr(ScriptedAdvisor, "assess", undated)
    holder = await Holder.come(server)
    await holder.reader.readline()
    for _ in range(100):  # turns of the loop, in which it could write more
        await asyncio.sleep(0)
    assert asked == 1
    holder.leave()


@pytest.mark.parametrize("line_count", [0, 1])
async def test_a_fault_in_the_middle_ends_the_stream(
    server: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, line_count: int
) -> None:
    """A head of status 500 between two lines would be read as one of them; the lease is free all the same."""
    right, asked = ScriptedAdvisor.assess, 0

    def failing(*arguments: Any, **options: Any) -> Recommendation[Any]:
        nonlocal asked
        asked += 1
        if asked > line_count:
            raise RuntimeError
        return right(*arguments, **options)

    monkeypatch.setattr(ScriptedAdvisor, "assess", failing)
    body = json.dumps(CLAIM).encode()
    reader, writer = await asyncio.open_unix_connection(str(server.socket_path))
    writer.write(b"POST /v1/leases HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    heard = await reader.readuntil(b"}\n") if line_count else b""
    server.advisor.generation += 1
    server.api.publish()
    with contextlib.suppress(ConnectionResetError):
        heard += await reader.read()
    writer.close()
    assert b" 500 " not in heard
    assert "cannot answer POST /v1/leases" in caplog.text
    assert await leases(server) == []
