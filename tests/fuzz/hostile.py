"""Knows what a hostile user does to the socket for as long as he may: all of it at once, as another user than root.

    python -m tests.fuzz.hostile SOCKET UID SECONDS

It is started as root, for whoever else might not be able to read it, and becomes the user before it begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

from tests.fuzz.conversation import CLAIM, a_conversation, a_report
from tests.fuzz.mutation import Mutator

Attack = Callable[[Path, random.Random], Coroutine[None, None, None]]
_HEAD = b"%s %s HTTP/1.1\r\nHost: localhost\r\n"
_BODY_BYTES = 250_000  # just below what is read


async def _hold(path: Path, chance: random.Random) -> None:
    """A connection, and nothing on it."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        await reader.read()
    finally:
        writer.transport.abort()


async def _hurry(path: Path, chance: random.Random) -> None:
    """Come and go."""
    _, writer = await asyncio.open_unix_connection(str(path))
    writer.transport.abort()


async def _ask_much(path: Path, chance: random.Random) -> None:
    """Dear questions that nobody asked before, one behind the other, without waiting for answers."""
    targets = [
        f"/v1/explain?operation=s3_upload&payload_size_bytes={chance.randrange(1, 10**12)}",
        (
            f"/v1/recommendation?operation=sqs_delivery&payload_size_bytes={chance.randrange(1, 10**6)}"
            f"&message_rate_per_second={chance.uniform(1, 10**4)}"
        ),
        (
            f"/v1/recommendation?operation=s3_upload&payload_size_bytes={chance.randrange(1, 10**12)}"
            f"&object_count={chance.randrange(1, 10**4)}&thread_count_max={chance.randrange(1, 99)}"
        ),
        "/metrics",
        "/v1/status",
    ]
    await _send_and_read(path, [_HEAD % (b"GET", target.encode()) + b"\r\n" for target in targets] * 8)


async def _post_much(path: Path, chance: random.Random) -> None:
    """As many reports as a post may hold."""
    body = json.dumps({"observations": [a_report(chance.uniform(1, 1000)) for _ in range(100)]}).encode()
    await _send_and_read(path, [_post(b"/v1/observations", body)] * 4)


async def _promise_much(path: Path, chance: random.Random) -> None:
    """Nearly all of a large body, and then nothing."""
    head = _HEAD % (b"POST", b"/v1/observations") + b"Content-Length: %d\r\n\r\n" % (_BODY_BYTES + 1)
    await _send_and_read(path, [head + b" " * _BODY_BYTES])


async def _lease(path: Path, chance: random.Random) -> None:
    """A share of the host with the most weight, for a moment."""
    body = json.dumps(CLAIM | {"weight": 10, "payload_size_bytes": chance.randrange(1, 10**12)}).encode()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(chance.uniform(0.1, 5.0)):
            await _send_and_read(path, [_post(b"/v1/leases", body)])


async def _watch_deaf(path: Path, chance: random.Random) -> None:
    """A watch that is never read."""
    _, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.write(_HEAD % (b"GET", b"/v1/watch") + b"\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # typeshed knows a write transport only
        await asyncio.sleep(chance.uniform(1.0, 20.0))
    finally:
        writer.transport.abort()


async def _talk_nonsense(path: Path, chance: random.Random) -> None:
    """Whatever the fuzzer says."""
    await _send_and_read(path, a_conversation(Mutator("hostile", chance.randrange(10**9))), seconds=0.2)


ATTACKS: tuple[tuple[Attack, int], ...] = (
    (_hold, 700), (_hurry, 4), (_ask_much, 300), (_post_much, 16), (_promise_much, 200), (_lease, 200),
    (_watch_deaf, 200), (_talk_nonsense, 32),
)  # fmt: skip
"""Each with how many of it are under way at a time: more than a user may have connections."""


def _post(target: bytes, body: bytes) -> bytes:
    return _HEAD % (b"POST", target) + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def _send_and_read(path: Path, requests: list[bytes], *, seconds: float = 30.0) -> None:
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                writer.write(b"".join(requests))
                while await reader.read(2**16):
                    pass
    finally:
        writer.transport.abort()


async def _go_on(attack: Attack, path: Path, chance: random.Random) -> None:
    while True:
        with contextlib.suppress(OSError):
            await attack(path, chance)
        await asyncio.sleep(0.02)


async def _attack(path: Path, seconds: float, seed: int) -> None:
    chance = random.Random(seed)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
            for attack, count in ATTACKS:
                for _ in range(count):
                    tasks.create_task(_go_on(attack, path, chance))


def main() -> None:
    """Become the user, and begin."""
    path, uid, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    asyncio.run(_attack(path, seconds, uid))


if __name__ == "__main__":
    main()
