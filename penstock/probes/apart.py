"""Knows how a process of its own is started, asked and ended: a line of JSON for each order and for each answer.

An `Assignment` comes first, and an answer numbered `READY` without trouble says that the process is ready; after that
each order is answered under its number, in whatever order they end. The end of its standard input ends the process,
and so does the end of who started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from penstock.probes.cleaning import clean_up_shielded
from penstock.probes.outside import ANSWERED_BY, TROUBLES, Unreachable
from penstock.processes.parent import settle_in

READY = 0  # the number of the answer to an assignment
STOP_SECONDS_MAX = 2.0
LINE_BYTES_MAX = 1 << 16  # unless more is agreed on


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is for; the kinds of it say more."""

    parent_process_id: int
    access: msgspec.Raw  # `penstock.probes.aws.Access`


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an order; the kinds of it say more."""

    number: int
    answered_by: Mapping[str, int] = {}  # addresses
    trouble: str = ""  # the name of a class in `outside.py`
    sentence: str = ""


AnswerT = TypeVar("AnswerT", bound=Answer)
AssignmentT = TypeVar("AssignmentT", bound=Assignment)


class Apart(Generic[AnswerT]):
    """One process, and the orders that it has not answered yet."""

    def __init__(
        self, process: Process, kind: type[AnswerT], *, gone: str, cancel: Callable[[int], Any] | None
    ) -> None:
        """`gone` is said where it ended by itself; `cancel` makes the order that another one is not wanted any more.

        Any: an order, of whatever kind the process understands.
        """
        assert process.stdin is not None
        assert process.stdout is not None
        self.in_flight_count = 0
        self._process = process
        self._orders, self._answers = process.stdin, process.stdout
        self._kind = kind
        self._gone_sentence = gone
        self._cancel = cancel
        self._numbers = itertools.count(READY + 1)
        self._ready: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._waiting = {READY: self._ready}
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def started(
        cls,
        module: str,
        assignment: Assignment,
        kind: type[AnswerT],
        *,
        gone: str,
        cancel: Callable[[int], Any] | None = None,
        line_bytes_max: int = LINE_BYTES_MAX,
    ) -> Apart[AnswerT]:
        """It runs, and will say when it is ready."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # nothing is imported from the folder that whoever starts it happens to be in
            "-m",
            module,
            stdin=PIPE,
            stdout=PIPE,
            limit=line_bytes_max,
        )
        process.stdin.write(_line(assignment))  # type: ignore[union-attr]  # a pipe, as asked
        return cls(process, kind, gone=gone, cancel=cancel)

    async def ready(self) -> None:
        """Raises RequestError when it cannot work."""
        _judge(await self._ready)

    async def answered(self, order: Callable[[int], Any]) -> AnswerT:
        """Have an order carried out. Raises RequestError; a cancellation is passed on, if there is an order for it."""
        number, answer = self.ask(order)
        self.in_flight_count += 1
        try:
            came = await answer
            if (answered_by := ANSWERED_BY.get()) is not None:
                answered_by.update(came.answered_by)
            return _judge(came)
        except asyncio.CancelledError:
            if self._cancel is not None:
                self.tell(self._cancel(number))
            raise
        finally:
            self.in_flight_count -= 1
            self._waiting.pop(number, None)

    def ask(self, order: Callable[[int], Any]) -> tuple[int, asyncio.Future[AnswerT]]:
        """Pass an order on, made of its number; it will be answered, if only because the process ended."""
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        if self._listening.done():
            answer.set_result(self._gone(number))
        else:
            self.tell(order(number))
        return number, answer

    def tell(self, order: Any) -> None:
        """Pass an order on that needs no answer of its own."""
        if not self._listening.done():
            self._orders.write(_line(order))

    async def end(self) -> None:
        """Close its ear, which ends it; kill it if it does not."""
        self._orders.close()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._listening

    async def _listen(self) -> None:
        """Hand out the answers; when the process has ended, or says what is no answer, nobody waits for it in vain."""
        with contextlib.suppress(ValueError):
            while line := await self._answers.readline():
                answer = msgspec.json.decode(line, type=self._kind)
                if (waiting := self._waiting.pop(answer.number, None)) is not None and not waiting.done():
                    waiting.set_result(answer)
        for number, waiting in self._waiting.items():
            if not waiting.done():
                waiting.set_result(self._gone(number))

    def _gone(self, number: int) -> AnswerT:
        return self._kind(number=number, trouble=Unreachable.__name__, sentence=self._gone_sentence)


@contextlib.asynccontextmanager
async def several(
    count: int, start: Callable[[], Awaitable[Apart[AnswerT]]], *, start_seconds_max: float
) -> AsyncIterator[list[Apart[AnswerT]]]:
    """So many processes, ready; on leaving, whatever happens, none of them is left.

    Raises TimeoutError, and RequestError or OSError where one cannot work.
    """
    processes: list[Apart[AnswerT]] = []
    try:
        async with asyncio.timeout(start_seconds_max):
            for _ in range(count):
                process = await start()
                processes.append(process)  # known at once, for the next one may not start
            for process in processes:
                await process.ready()
        yield processes
    finally:
        await clean_up_shielded(_ended(processes), seconds_max=2 * STOP_SECONDS_MAX)


def idlest(processes: Sequence[Apart[AnswerT]]) -> Apart[AnswerT]:
    """The one with the fewest orders in flight."""
    return min(processes, key=lambda process: process.in_flight_count)


async def assigned(
    kind: type[AssignmentT], *, line_bytes_max: int = LINE_BYTES_MAX
) -> tuple[AssignmentT, asyncio.StreamReader]:
    """In the process itself: what it is for, and where its orders come from. From here on it ends with its parent."""
    reader = asyncio.StreamReader(limit=line_bytes_max)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
    )
    assignment = msgspec.json.decode(await reader.readline(), type=kind)
    settle_in(assignment.parent_process_id)
    return assignment, reader


def answer_with(answer: Answer) -> None:
    """In the process itself: one line; who listens reads at once, and a blocked write would mean that he is gone."""
    line = memoryview(_line(answer))
    while line:
        line = line[os.write(sys.stdout.fileno(), line) :]


async def _ended(processes: Sequence[Apart[AnswerT]]) -> None:
    await asyncio.gather(*(process.end() for process in processes))


def _judge(answer: AnswerT) -> AnswerT:
    if answer.trouble:
        raise TROUBLES[answer.trouble](answer.sentence)
    return answer


def _line(message: Any) -> bytes:
    return msgspec.json.encode(message) + b"\n"
