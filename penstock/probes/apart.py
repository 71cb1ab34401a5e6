"""Knows how several processes make requests to AWS for this one: how they are started, asked and ended.

Each is a `Companion` with a client of its own; a request goes to the one with the fewest requests in flight. Errors of
a request are raised here, and who answered, and how many KMS requests that caused, is counted here, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, NamedTuple

from penstock.probes.aws.access import Access
from penstock.probes.cleaning import clean_up_shielded
from penstock.probes.outside import ANSWERED_BY, KEY_REQUESTS, KeyRequests, RequestError, Unreachable
from penstock.processes import companion
from penstock.processes.companion import Companion
from penstock.processes.dialogue import Dialogue, GoneError

Open = Callable[[Access], AbstractAsyncContextManager[Any]]  # Any: a client, of either seam


class Answer(NamedTuple):
    """The result of a request, or its error, and what its answers told."""

    result: Any  # of a method of the client
    trouble: RequestError | None
    answered_by: Counter[str]
    key_requests: KeyRequests


class Apart:
    """The processes, as seen by the process that started them."""

    def __init__(self, processes: Sequence[Companion], gone: str) -> None:
        """`gone` is the message of the error where one has ended by itself."""
        self.processes = processes
        self._gone = gone

    async def request(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Have one of them make the request. Raises RequestError; a cancellation is passed on."""
        idlest = min(self.processes, key=lambda process: process.in_flight_count)
        try:
            answer: Answer = await idlest.ask("request", name, arguments, named)
        except GoneError:
            raise Unreachable(self._gone) from None
        if (answered_by := ANSWERED_BY.get()) is not None:
            answered_by.update(answer.answered_by)
        if (heard := KEY_REQUESTS.get()) is not None:
            heard.note(answer.key_requests)
        if answer.trouble is not None:
            raise answer.trouble
        return answer.result


@contextlib.asynccontextmanager
async def several(
    count: int, module: str, assignment: tuple[Access, Any], *, gone: str, start_seconds_max: float
) -> AsyncIterator[Apart]:
    """`count` processes of a module that calls `work`, ready for requests; leaving ends all of them, whatever happens.

    Raises RequestError, and OSError if one cannot be started.
    """
    processes: list[Companion] = []
    becoming_ready: list[asyncio.Task[None]] = []
    try:
        try:
            async with asyncio.timeout(start_seconds_max):
                for _ in range(count):
                    process = await Companion.started(module, assignment)
                    processes.append(process)  # at once: it must be ended even if the next does not start
                    becoming_ready.append(asyncio.create_task(process.ask("ready")))
                await asyncio.wait(becoming_ready, return_when=asyncio.FIRST_EXCEPTION)
        except TimeoutError:
            raise Unreachable(f"{count} processes were not ready within {start_seconds_max:g} s") from None
        for ready in becoming_ready:
            if ready.done():  # not, if another one failed first
                _ = ready.result()
        yield Apart(processes, gone)
    except GoneError:
        raise Unreachable(gone) from None
    finally:
        await clean_up_shielded(_ended(processes, becoming_ready), seconds_max=2 * companion.STOP_SECONDS_MAX)


async def _ended(processes: Sequence[Companion], asking: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.gather(*(process.end() for process in processes))
    await asyncio.gather(*asking, return_exceptions=True)  # of those that were never ready


async def work(opened: Open, made: Callable[[Any, Any], Any] = lambda client, _: client) -> None:
    """In the process itself: serve requests until the parent closes the connection.

    Requests are methods of the object that `made` returns, from the client and the second part of the assignment (Any:
    types of the calling module).
    """
    reader, writer, (access, held) = await companion.begun()
    async with contextlib.AsyncExitStack() as resources:
        hand, refused = None, None
        try:
            hand = made(await resources.enter_async_context(opened(access)), held)
        except RequestError as trouble:
            refused = trouble

        async def ready() -> None:
            if refused is not None:
                raise refused

        await Dialogue(
            reader,
            writer,
            served={"ready": ready, "request": partial(_carried_out, hand)},
            told={"tell": lambda name: getattr(hand, name)()},
        ).listening


async def _carried_out(hand: Any, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Answer:
    addresses, heard = Counter[str](), KeyRequests()
    ANSWERED_BY.set(addresses)  # for this task alone, as below
    KEY_REQUESTS.set(heard)
    try:
        return Answer(await getattr(hand, name)(*arguments, **named), None, addresses, heard)
    except RequestError as trouble:
        return Answer(None, trouble, addresses, heard)
