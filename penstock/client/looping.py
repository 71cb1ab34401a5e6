"""Knows how something is done beside an event loop without holding it up, or to its end whoever is cancelled."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextvars import copy_context
from threading import Lock

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeVar

    T = TypeVar("T")

_CANCELLED_SECONDS_MAX = 10.0  # for what is under way where its caller was cancelled


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """What it returns; worked here where there are no more threads, or the loop or the interpreter is at its end.

    It has begun when this returns, and may be shielded: then it is worked to its end whoever is cancelled.
    """
    result: Future[T] = Future()
    first, context = Lock(), copy_context()

    def work_once() -> T:
        if first.acquire(blocking=False):
            try:
                result.set_result(context.run(work))
            except BaseException as trouble:
                result.set_exception(trouble)
                raise
        return result.result()

    try:
        return asyncio.get_running_loop().run_in_executor(None, work_once)
    except RuntimeError:  # and yet a pool that cannot have another thread may leave it to those that it has
        work_once()
        return asyncio.wrap_future(result)


async def to_its_end(work: Awaitable[T]) -> T:
    """What must not be left half done: who is cancelled meanwhile, however often, is so after it, or after a while."""
    working, cancelled = asyncio.ensure_future(work), None
    working.add_done_callback(lambda _: working.cancelled() or working.exception())  # has been seen
    while True:
        try:
            await asyncio.wait([working], timeout=_CANCELLED_SECONDS_MAX if cancelled else None)
        except asyncio.CancelledError as trouble:
            cancelled = trouble
        else:
            break
    if cancelled:
        raise cancelled
    return working.result()
