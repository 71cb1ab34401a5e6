"""Knows threads that work for a caller who waits, and that the end of the process does not wait for.

The interpreter joins the threads of a `ThreadPoolExecutor` when it ends: a script that had read a piece of an object
would first fetch everything read ahead, and stay for minutes where a server was silent.
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
    """At most `count` threads, started as they are needed."""

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._work: SimpleQueue[Any] = SimpleQueue()
        self._idle = Semaphore(0)
        self._lock, self._is_over = RLock(), False  # reentrant: a signal handler may close its victim
        self._threads: list[Thread] = []

    def submit(self, call: Callable[[Any], Any], argument: object) -> Future[Any]:
        """Have a thread call it. Raises RuntimeError after `end`, and if no thread can be started."""
        future: Future[Any] = Future()
        with self._lock:
            if self._is_over:
                raise RuntimeError("the threads have ended")
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._count:
                self._start()
            self._work.put((future, call, argument))
        return future

    def submit_or_call(self, call: Callable[[Any], Any], argument: object) -> Future[Any]:
        """Like `submit`, but calls it right here if no thread can be started, or the interpreter is ending."""
        try:
            return self.submit(call, argument)
        except RuntimeError:
            future: Future[Any] = Future()
            _call(future, call, argument)
            return future

    def end(self) -> None:
        """Let the threads end once all submitted work is done."""
        with self._lock:
            self._is_over = True
            self._work.put(None)

    def _start(self) -> None:
        """Start one more thread, if the system allows it. Raises RuntimeError if there is none at all."""
        thread = Thread(target=_work_off, args=(self._work, self._idle), name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)


def _work_off(work: SimpleQueue[Any], idle: Semaphore) -> None:
    """Call what is submitted; keep no reference to it while waiting, or readers would never be garbage collected."""
    while (item := work.get()) is not None:
        _call(*item)
        del item
        idle.release()
    work.put(None)  # for the other threads


def _call(future: Future[Any], call: Callable[[Any], Any], argument: object) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(call(argument))
        except BaseException as trouble:  # noqa: BLE001 - whatever it is goes to the caller who waits
            future.set_exception(trouble)
