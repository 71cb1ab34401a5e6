"""Knows how to start threads that each do one kind of work: those of a queue, whose number follows the advice.

Separate from `threads`, because `concurrent.futures` imports logging.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any


def run_missing(
    threads: dict[tuple[str, int], Thread],
    works: Iterable[tuple[Callable[[int], Coroutine[Any, Any, None] | None], int]],
    name: str,
) -> None:
    """Start each numbered work that no thread does yet. Raises RuntimeError if a thread cannot be started."""
    for work, number in works:
        key = (work.__name__, number)
        if key not in threads or not threads[key].is_alive():
            threads[key] = Thread(target=_do, args=(work, number), name=name, daemon=True)
            try:
                threads[key].start()
            except RuntimeError:
                del threads[key]
                raise


def _do(work: Callable[[int], Coroutine[Any, Any, None] | None], number: int) -> None:
    """Run it to its end; a coroutine that never suspends ends at its first step."""
    if (steps := work(number)) is not None:
        with suppress(StopIteration):
            steps.send(None)
