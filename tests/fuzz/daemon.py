"""Knows how strangers speak to a real daemon, and what it must not do: answer 500, hang, grow, or write a book."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.client.connection import ask
from penstock.trial.stage import CREDENTIALS, status_of
from tests.fuzz.conversation import a_conversation
from tests.fuzz.mutation import Mutator
from tests.programs import resident_bytes
from tests.waiting import until

CONNECTION_COUNT = 32  # at a time
ANSWER_SECONDS = 0.03  # without a byte: the daemon waits for more, so this side ends
HANG_SECONDS = 90.0  # more than a connection may be idle
_STATUS = re.compile(rb"(?:\A|\n)HTTP/1\.[01] (\d{3}) ")  # JSON holds no line feed but its last
_ALLOWED = frozenset({"100", "200", "202", "204", "304", "503", *map(str, range(400, 418)), "426", "431"})
_CONFIGURATION = """
[daemon]
state_directory = "{folder}/state"
runtime_directory = "{folder}/run"
[listen]
is_enabled = true
port = {port}
[host]
region = "eu-west-1"
instance_type = "m7i.large"
"""


@dataclass(slots=True)
class Heard:
    """What came back, over all connections."""

    statuses: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


class FuzzedDaemon:
    """A real `penstockd` that probes nothing; its size and its log can be looked at."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, port: int) -> None:
        self._process = process
        self.port = port
        self.socket_path = folder / "run/penstock.sock"
        self.log_path = folder / "log"

    @property
    def resident_bytes(self) -> int:
        """What it holds in memory."""
        return resident_bytes(self._process.pid)

    def holds(self, *needles: bytes) -> set[bytes]:
        """Those that are anywhere in its memory."""
        found: set[bytes] = set()
        maps = Path(f"/proc/{self._process.pid}/maps").read_text(encoding="ascii").splitlines()
        with Path(f"/proc/{self._process.pid}/mem").open("rb", buffering=0) as memory:
            for line in maps:
                span, rights, *_ = line.split()
                if "w" not in rights:
                    continue
                start, end = (int(edge, 16) for edge in span.split("-"))
                memory.seek(start)
                with contextlib.suppress(OSError):  # it has let go of it meanwhile
                    held = memory.read(end - start)
                    found |= {needle for needle in needles if needle in held}
        return found

    def datagram_counts(self) -> dict[str, int]:
        """What became of those that were sent to it. Raises NoDaemonError."""
        answer = ask(str(self.socket_path), "GET", "/v1/clients", timeout_seconds=HANG_SECONDS)
        return {name: value for name, value in json.loads(answer.body).items() if name.endswith("_count")}

    @property
    def socket_count(self) -> int:
        """How many sockets it has open."""
        count = 0
        for file in Path(f"/proc/{self._process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                count += str(file.readlink()).startswith("socket:")
        return count

    def has_let_go(self, socket_count: int) -> bool:
        """Whether no more than so many sockets are open soon after the last connection was closed."""
        with contextlib.suppress(AssertionError):
            return until(lambda: self.socket_count <= socket_count, HANG_SECONDS)
        return False

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def answer_seconds(self) -> float:
        """How long a proper question takes now. Raises NoDaemonError."""
        begun = time.monotonic()
        answer = ask(str(self.socket_path), "GET", "/v1/status", timeout_seconds=HANG_SECONDS)
        assert answer.status == 200
        return time.monotonic() - begun


@contextlib.contextmanager
def fuzzed_daemon(folder: Path, more: str = "") -> Iterator[FuzzedDaemon]:
    """One in this folder, which ends with the context, or with this process; `more` is added to its configuration."""
    for name in ("state", "run"):
        (folder / name).mkdir()
    configuration_file = folder / "penstock.toml"
    port = 20_000 + os.getpid() % 10_000  # below those that the kernel hands out
    configuration_file.write_text(_CONFIGURATION.format(folder=folder, port=port) + more)
    command = [sys.executable, "-m", "penstock.daemon.main", "--config", str(configuration_file)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL, env=dict(CREDENTIALS))
    try:
        daemon = FuzzedDaemon(process, folder, port)

        def hears() -> bool:
            assert daemon.is_alive(), daemon.log_path.read_text()
            return status_of(daemon.socket_path) is not None and "hearing" in daemon.log_path.read_text()

        until(hears)
        yield daemon
    finally:
        process.terminate()
        try:
            process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def speak(path: Path, word: str, numbers: range) -> Heard:
    """Hold all these conversations, some at a time; what is not as it must be is named by word and number."""
    heard, waiting = Heard(), iter(numbers)

    async def some() -> None:
        for number in waiting:
            pieces = a_conversation(Mutator(word, number))
            try:
                async with asyncio.timeout(HANG_SECONDS):
                    answer = await _answer(path, pieces)
            except TimeoutError:
                heard.findings.append(f"{word}/{number}: the connection did not end")
                continue
            statuses = [status.decode() for status in _STATUS.findall(answer)]
            heard.statuses.update(statuses or ["none"])
            if set(statuses) - _ALLOWED:
                heard.findings.append(f"{word}/{number}: answered with {', '.join(statuses)}")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(CONNECTION_COUNT):
            tasks.create_task(some())
    return heard


async def _answer(path: Path, pieces: list[bytes]) -> bytes:
    """All that came back until the other side closed; this side ends when the other is silent."""
    reader, writer = await asyncio.open_unix_connection(str(path), limit=2**20)
    received = b""
    with contextlib.suppress(ConnectionError):
        try:
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0)
            is_ended = False
            while True:
                try:
                    async with asyncio.timeout(None if is_ended else ANSWER_SECONDS):
                        data = await reader.read(2**16)
                except TimeoutError:
                    is_ended = True
                    writer.write_eof()
                    continue
                if not data:
                    break
                received = (received + data)[-(2**20) :]
        finally:
            writer.transport.abort()
    return received
