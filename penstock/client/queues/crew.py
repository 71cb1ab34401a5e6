"""Knows how threads are begun that each do one work for good: those of a queue, which come and go with the advice.

Apart from `threads`, for `concurrent.futures` brings logging along.
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
    """Begin those of some works, each with its number, that no thread does. Raises RuntimeError for want of threads."""
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
    """To its end: a coroutine that awaits nothing but what this thread does meanwhile is there at once."""
    if (steps := work(number)) is not None:
        with suppress(StopIteration):
            steps.send(None)
