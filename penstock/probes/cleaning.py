"""Knows how a clean-up runs to its end in spite of cancellations, and what stays in the journal if it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from penstock.probes.outside import RequestError
from penstock.probes.probe import Journal, Leftover

ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)


class Unanswered:
    """Requests that create something and have no answer yet.

    A cancellation ends the waiting for an answer, but not the request: its bytes may be in a socket's buffer, and the
    service might carry it out after the deletion that follows. Only what was answered can be removed for certain.
    """

    def __init__(self) -> None:
        self._requests: set[asyncio.Task[Any]] = set()

    def __reduce__(self) -> tuple[type[Unanswered], tuple[()]]:
        """Pickle as empty: before that, all requests have been answered."""
        return Unanswered, ()

    async def answer_to(self, request: Coroutine[object, object, ResultT]) -> ResultT:
        """Make the request, which goes on when the caller is cancelled, and return its answer."""
        task = asyncio.create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        return await asyncio.shield(task)

    async def are_answered(self) -> None:
        """Wait for all answers; if the waiting is cancelled, so are the requests."""
        requests = set(self._requests)
        try:
            if requests:
                await asyncio.wait(requests)
        finally:
            for request in requests:
                request.cancel()


async def struck_when_gone(
    journal: Journal,
    leftover: Leftover,
    removal: Awaitable[object],
    *,
    may_arrive_later: Callable[[], bool] = lambda: False,
) -> None:
    """Remove a leftover, and strike its entry only if it is certainly gone; otherwise the next sweep looks again."""
    try:
        await removal
        if not may_arrive_later():
            await journal.strike(leftover)
    except RequestError as error:
        where = f"{leftover.name} in {leftover.container}"
        _log.warning("left behind until the next sweep: %s (%s)", where, error)
    finally:
        await journal.abandon(leftover)


async def clean_up_shielded(cleaning: Coroutine[object, object, None], *, seconds_max: float) -> None:
    """Run the clean-up to its end or its time limit; a cancellation meanwhile is raised afterwards.

    What was not removed in time stays in the journal, for the next sweep.
    """
    task = asyncio.create_task(_bounded(cleaning, seconds_max))
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            interruption = error
    task.result()
    if interruption is not None:
        raise interruption


async def _bounded(cleaning: Coroutine[object, object, None], seconds_max: float) -> None:
    try:
        async with asyncio.timeout(seconds_max):
            await cleaning
    except TimeoutError:
        _log.warning("the clean-up did not end within %g s; the next sweep goes on with it", seconds_max)
