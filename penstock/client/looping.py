"""Knows how an event loop runs blocking work without being held up, and how to finish work despite cancellation."""

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

_CANCELLED_SECONDS_MAX = 10.0  # how long work may still take after its caller was cancelled


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """The result of `work`, in a thread; run right here if no thread can be started, or loop or interpreter are ending.

    The work is handed over before this returns, so it completes even if the future is shielded and its caller
    cancelled.
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
    except RuntimeError:  # a pool that cannot start a thread may still have queued it: hence `work_once`
        work_once()
        return asyncio.wrap_future(result)


async def to_its_end(work: Awaitable[T]) -> T:
    """Wait for work that must not be left half done.

    Cancellation meanwhile, however often, takes effect when the work has ended, or after ten seconds.
    """
    working, cancelled = asyncio.ensure_future(work), None
    working.add_done_callback(lambda _: working.cancelled() or working.exception())  # marks it as retrieved
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
