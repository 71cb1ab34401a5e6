"""Knows how two processes of penstock call each other: requests go by name, and are answered when they are done.

Messages are pickled, so both processes must be of one installation, and nobody else may have an end of the connection.
A cancellation is passed on and waited for, so that the cancelled caller knows that the other side has ended, too.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import traceback
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

CANCEL_SECONDS_MAX = 90.0  # above what any probe takes to clean up
_LENGTH_BYTES = 4


class GoneError(Exception):
    """The other process ended, or does not listen any more."""


class Dialogue:
    """One end. The other end may ask for what is `served`, and tell, without answer, what is `told` (Any: pickled)."""

    def __init__(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        *,
        served: Mapping[str, Callable[..., Awaitable[Any]]],
        told: Mapping[str, Callable[..., None]] | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._served = served
        self._told = told or {}
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self.listening = asyncio.create_task(self._listen())

    @property
    def in_flight_count(self) -> int:
        """The count of this end's requests that are not answered yet."""
        return len(self._waiting)

    async def ask(self, name: str, *arguments: Any) -> Any:
        """Ask the other end; returns its answer. Raises what was raised there, and GoneError."""
        if self.listening.done():
            raise GoneError
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        send(self._writer, ("ask", number, name, arguments))
        try:
            await asyncio.wait({answer})
        except asyncio.CancelledError:
            await self._cancel(number, answer)
            raise
        finally:
            self._waiting.pop(number, None)
        if answer.cancelled():
            raise GoneError
        return answer.result()

    def tell(self, name: str, *arguments: Any) -> None:
        """Tell the other end something without an answer; it is handled before anything that is sent later."""
        send(self._writer, ("tell", 0, name, arguments))

    def close(self) -> None:
        self._writer.close()

    async def _cancel(self, number: int, answer: asyncio.Future[Any]) -> None:
        """Cancel the request, and wait until it has ended there, in spite of further cancellations."""
        send(self._writer, ("cancel", number, "", ()))
        ending = asyncio.ensure_future(asyncio.wait({answer}, timeout=CANCEL_SECONDS_MAX))
        while not ending.done():
            try:
                await asyncio.wait({ending})
            except asyncio.CancelledError:
                continue
        if not answer.done():
            self.close()
        elif not answer.cancelled():
            answer.exception()  # marks it as retrieved: nobody needs it any more

    async def _listen(self) -> None:
        """Handle messages until the other end closes the connection."""
        try:
            while True:
                self._hear(*await receive(self._reader))
        except (EOFError, OSError):
            pass
        finally:
            for answer in self._waiting.values():
                answer.cancel()
            for task in self._serving.values():
                task.cancel()
            self._writer.close()

    def _hear(self, kind: str, number: int, name: str, content: Any) -> None:
        if kind == "ask":
            task = asyncio.create_task(self._serve(number, name, content))
            self._serving[number] = task
            task.add_done_callback(partial(self._served_to_its_end, number))
        elif kind == "tell":
            self._told[name](*content)
        elif kind == "cancel":
            if (serving := self._serving.get(number)) is not None:
                serving.cancel()
        elif (answer := self._waiting.get(number)) is not None and not answer.done():
            if kind == "answer":
                answer.set_result(content)
            elif kind == "raise":
                answer.set_exception(content)
            else:
                answer.cancel()

    async def _serve(self, number: int, name: str, arguments: Any) -> None:
        try:
            send(self._writer, ("answer", number, name, await self._served[name](*arguments)))
        except Exception as trouble:  # noqa: BLE001 - the other end is told, also of answers that cannot be sent
            send(self._writer, ("raise", number, name, _portable(trouble)))

    def _served_to_its_end(self, number: int, task: asyncio.Task[None]) -> None:
        """Tell the other end of a cancelled request, also of one that was cancelled before it began."""
        del self._serving[number]
        if task.cancelled():
            send(self._writer, ("ended", number, "", None))


def _portable(trouble: Exception) -> Exception:
    """The exception with its traceback as a note; replaced by a RuntimeError where it cannot be pickled."""
    trouble.add_note("".join(traceback.format_exception(trouble)))
    try:
        pickle.loads(pickle.dumps(trouble))  # noqa: S301  # our own
    except (pickle.PicklingError, TypeError, AttributeError, ValueError):
        return RuntimeError("\n".join([repr(trouble), *trouble.__notes__]))
    return trouble


def send(writer: StreamWriter, message: Any) -> None:
    """Write one message; nothing if the connection is closing."""
    if not writer.is_closing():
        content = pickle.dumps(message)
        writer.write(len(content).to_bytes(_LENGTH_BYTES, "big") + content)


async def receive(reader: StreamReader) -> Any:
    """The next message. Raises EOFError when there is none."""
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    return pickle.loads(await reader.readexactly(length))  # noqa: S301  # from ourselves
