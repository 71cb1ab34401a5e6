"""Knows how tasks of one event loop wait for each other's changes, and how to start tasks for ongoing work."""

from __future__ import annotations

import asyncio

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any

    from penstock.client.queues.messages import Wait

    Tasks = dict[tuple[str, int], asyncio.Task[None]]


class Changes:
    """As much of a `threading.Condition` as tasks of one loop need: without a lock, and waited for with `await`."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def notify_all(self) -> None:
        """Have all waiting tasks check their conditions again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, waits: Iterable[Wait]) -> None:
        """Wait for one after another, each until it holds or its seconds have passed."""
        loop = asyncio.get_running_loop()
        for holds, seconds in waits:
            end = None if seconds is None else loop.time() + seconds
            while not holds():
                left = None if end is None else end - loop.time()
                if left is not None and left <= 0:
                    break
                waiter: asyncio.Future[None] = loop.create_future()
                self._waiters[waiter] = None
                try:
                    await asyncio.wait([waiter], timeout=left)
                finally:
                    del self._waiters[waiter]


def begin_missing(
    tasks: Tasks,
    works: Iterable[tuple[Callable[[int], Coroutine[Any, Any, None]], int]],
    note_end: Callable[[asyncio.Task[None]], object] | None = None,
) -> None:
    """Start each numbered work that no task does yet; `note_end` is called when such a task ends."""
    for work, number in works:
        key = (work.__name__, number)
        if key not in tasks or tasks[key].done():
            tasks[key] = asyncio.ensure_future(work(number))
            if note_end is not None:
                tasks[key].add_done_callback(note_end)
