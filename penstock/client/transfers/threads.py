"""Knows threads that fetch for whoever waits for it, and that the end of the process does not wait for.

The threads of a `ThreadPoolExecutor` are waited for at the end of the interpreter: a script that had read a piece of an
object and ended fetched all that was read ahead, and stayed for minutes where a server was silent.
"""

from __future__ import annotations

from concurrent.futures import Future
from queue import SimpleQueue
from threading import RLock, Semaphore, Thread

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Threads:
    """So many at the most, as they are needed."""

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._work: SimpleQueue[Any] = SimpleQueue()
        self._idle = Semaphore(0)
        self._lock, self._is_over = RLock(), False  # a signal handler may close what it interrupts
        self._threads: list[Thread] = []

    def submit(self, call: Callable[[Any], Any], argument: object) -> Future[Any]:
        """Have it called. Raises RuntimeError after the end, and where there can be no thread."""
        future: Future[Any] = Future()
        with self._lock:
            if self._is_over:
                raise RuntimeError("the threads have ended")
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._count:
                self._start()
            self._work.put((future, call, argument))
        return future

    def submit_or_call(self, call: Callable[[Any], Any], argument: object) -> Future[Any]:
        """The same; where there are no more threads, or the interpreter is at its end, it is called here."""
        try:
            return self.submit(call, argument)
        except RuntimeError:
            future: Future[Any] = Future()
            _call(future, call, argument)
            return future

    def end(self) -> None:
        """When all is done that was asked for."""
        with self._lock:
            self._is_over = True
            self._work.put(None)

    def _start(self) -> None:
        """One more, or as many as there can be."""
        thread = Thread(target=_work_off, args=(self._work, self._idle), name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)


def _work_off(work: SimpleQueue[Any], idle: Semaphore) -> None:
    """Holds nothing of what was done while it waits: else nobody's reader would never be closed."""
    while (item := work.get()) is not None:
        _call(*item)
        del item
        idle.release()
    work.put(None)  # for the others


def _call(future: Future[Any], call: Callable[[Any], Any], argument: object) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(call(argument))
        except BaseException as trouble:  # noqa: BLE001 - whatever it is, it is for who waits
            future.set_exception(trouble)
