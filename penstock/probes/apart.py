"""Knows how requests to AWS are made by several processes as one: how these are started, asked and ended.

Each is a `Companion` with a client of its own; a request goes to the one that has fewest in flight. What goes wrong
there is raised here, and who answered, and what that asked of AWS KMS, is noted here, too.
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
    """What came of a request, and what its answers told, also where it went wrong."""

    result: Any  # of a seam
    trouble: RequestError | None
    answered_by: Counter[str]
    key_requests: KeyRequests


class Apart:
    """The processes, as whoever started them sees them."""

    def __init__(self, processes: Sequence[Companion], gone: str) -> None:
        """`gone` is said where one ended by itself."""
        self.processes = processes
        self._gone = gone

    async def request(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Have it carried out by one of them. Raises RequestError; a cancellation is passed on."""
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
    """So many processes of a module that calls `work`, ready; on leaving, whatever happens, none of them is left.

    Raises RequestError, and OSError where one cannot be started.
    """
    processes: list[Companion] = []
    becoming_ready: list[asyncio.Task[None]] = []
    try:
        try:
            async with asyncio.timeout(start_seconds_max):
                for _ in range(count):
                    process = await Companion.started(module, assignment)
                    processes.append(process)  # known at once, for the next one may not start
                    becoming_ready.append(asyncio.create_task(process.ask("ready")))
                await asyncio.wait(becoming_ready, return_when=asyncio.FIRST_EXCEPTION)
        except TimeoutError:
            raise Unreachable(f"{count} processes were not ready within {start_seconds_max:g} s") from None
        for ready in becoming_ready:
            if ready.done():  # or another one failed
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
    """In the process itself, until who started it hangs up: requests are methods of what is made of the client.

    And of what the assignment says beside the access (Any: the kinds of the module that calls this).
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
    ANSWERED_BY.set(addresses)  # of this task alone, as the other
    KEY_REQUESTS.set(heard)
    try:
        return Answer(await getattr(hand, name)(*arguments, **named), None, addresses, heard)
    except RequestError as trouble:
        return Answer(None, trouble, addresses, heard)
