"""Knows how another process of penstock is started, talked to and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

from penstock.processes import package
from penstock.processes.dialogue import Dialogue, receive, send
from penstock.processes.parent import settle_in

STOP_SECONDS_MAX = 2.0


class Companion(Dialogue):
    """Another process, in a dialogue with this one, which started it."""

    _process: Process

    @classmethod
    async def started(
        cls,
        module: str,
        assignment: object,
        *,
        served: Mapping[str, Callable[..., Awaitable[Any]]] | None = None,
        told: Mapping[str, Callable[..., None]] | None = None,
    ) -> Self:
        """Start `python -m MODULE` with this assignment. Raises OSError, also if penstock was replaced meanwhile."""
        package.refuse_replaced()
        ours, theirs = socket.socketpair()
        with contextlib.closing(theirs):
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            # -P: import nothing from the current folder.
            command = [sys.executable, "-P", "-m", module, str(os.getpid())]
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=theirs.fileno(),
                    start_new_session=True,  # Ctrl-C does not reach it, not even before it is settled
                )
            except BaseException:
                writer.close()
                raise
        send(writer, assignment)
        companion = cls(reader, writer, served=served or {}, told=told)
        companion._process = process
        return companion

    @property
    def is_gone(self) -> bool:
        return self.listening.done()

    async def end(self) -> None:
        """Close the connection, which ends the process; kill it if that does not."""
        self.close()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self.gone()
        except TimeoutError:
            self.kill()
            await self.gone()

    async def gone(self) -> None:
        """Wait until it has ended."""
        await self._process.wait()
        await asyncio.wait({self.listening})

    def kill(self) -> None:
        """Kill it at once, whatever it does."""
        self.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


def settled() -> None:
    """To be called first in the new process: from here on it ends with its parent."""
    settle_in(int(sys.argv[1]))


class Remote:
    """Forwards every method call to `ask`, with its name, positional and keyword arguments."""

    def __init__(self, ask: Callable[[str, Sequence[Any], Mapping[str, Any]], Awaitable[Any]]) -> None:
        self._ask = ask

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def request(*arguments: Any, **named: Any) -> Any:
            return await self._ask(name, arguments, named)

        return request


async def begun() -> tuple[StreamReader, StreamWriter, Any]:
    """In the new process: the streams for a `Dialogue`, and the assignment, which comes first (Any: pickled)."""
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=sys.stdin.fileno()))
    return reader, writer, await receive(reader)
