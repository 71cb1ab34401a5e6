"""Knows how threads are begun that each do one work for good: those of a queue, which come and go with the advice.

Apart from `threads`, for `concurrent.futures` brings logging along.
"""

from __future__ import annotations

from threading import Thread

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def run_missing(
    threads: dict[tuple[str, int], Thread], works: Iterable[tuple[Callable[[int], None], int]], name: str
) -> None:
    """Begin those of some works, each with its number, that no thread does. Raises RuntimeError for want of threads."""
    for work, number in works:
        key = (work.__name__, number)
        if key not in threads or not threads[key].is_alive():
            threads[key] = Thread(target=work, args=(number,), name=name, daemon=True)
            try:
                threads[key].start()
            except RuntimeError:
                del threads[key]
                raise
