"""Knows virtual time: an event loop on which a week passes as fast as its events can be handled.

Everything that sleeps with asyncio runs on it unchanged. If no callback is ready, the clock jumps to the next timer.
There are no sockets and no threads: work for the executor runs at once, in place, so that the order of events depends
on nothing outside.
"""

# ruff: noqa: SLF001  # the internals of asyncio's loop are private, but unchanged since 3.8
from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from contextvars import Context, copy_context
from datetime import datetime, timedelta
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")

# Timers this close fire together. It exceeds the spacing of floats for ten years; otherwise the loop would spin.
_RESOLUTION_SECONDS = 1e-7
_CANCELLED_COUNT_MAX = 50  # timers, besides half of all that are scheduled


class StalledError(RuntimeError):
    """A task waits for something that can no longer happen."""


class _TimeJump(selectors.BaseSelector):
    """Moves the clock of its loop to the next timer instead of waiting for sockets."""

    def __init__(self) -> None:
        self.loop: VirtualTimeLoop | None = None
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, descriptor, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            assert self.loop is not None
            self.loop.jump()
        return []


class _Timer(asyncio.TimerHandle):
    """A fast timer: it is created and compared a hundred million times."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context: Context = context or copy_context()
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None
        self._when = when
        self._scheduled = True

    def __lt__(self, other: Any) -> bool:  # Any: another of these
        return self._when < other._when  # type: ignore[no-any-return]


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop whose clock starts at 0 and jumps from timer to timer."""

    def __init__(self) -> None:
        self._virtual_seconds = 0.0
        selector = _TimeJump()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = _RESOLUTION_SECONDS

    def time(self) -> float:
        """Virtual seconds since the loop was created."""
        return self._virtual_seconds

    def jump(self) -> None:
        """Set the clock to the next timer; raises StalledError if there is none."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # of BaseEventLoop
        if not timers:
            raise StalledError(
                "every task waits and no timer is set: in virtual time nothing more can happen"
            )
        self._virtual_seconds = max(self._virtual_seconds, timers[0].when())

    def call_at(  # type: ignore[override]  # as typed before there were TypeVarTuples
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]  # of BaseEventLoop
        return timer

    def call_later(  # type: ignore[override]  # as typed before there were TypeVarTuples
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(self._virtual_seconds + delay, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]  # of BaseEventLoop
        return timer

    def _run_once(self) -> None:
        """Iterations of asyncio's own loop until it is stopped, without what sockets and debugging need.

        The order is the same, so that worlds behave the same: what is ready, and then timers in the heap's order.
        """
        loop: Any = self  # Any: what is private to BaseEventLoop
        ready, scheduled = loop._ready, loop._scheduled
        while not loop._stopping:
            if loop._timer_cancelled_count > _CANCELLED_COUNT_MAX + len(scheduled) / 2:
                self._forget_cancelled()
            while scheduled and scheduled[0]._cancelled:
                loop._timer_cancelled_count -= 1
                heapq.heappop(scheduled)._scheduled = False
            if not ready:
                self.jump()
            end = self._virtual_seconds + _RESOLUTION_SECONDS
            while scheduled and scheduled[0]._when < end:
                handle = heapq.heappop(scheduled)
                handle._scheduled = False
                ready.append(handle)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()

    def _forget_cancelled(self) -> None:
        """Remove cancelled timers from the heap, when they are the majority."""
        loop: Any = self  # Any: what is private to BaseEventLoop
        for timer in loop._scheduled:
            timer._scheduled = not timer._cancelled
        loop._scheduled[:] = [timer for timer in loop._scheduled if timer._scheduled]
        heapq.heapify(loop._scheduled)
        loop._timer_cancelled_count = 0

    def run_in_executor(  # type: ignore[override]  # a finished future is what the caller would get in the end
        self,
        executor: Executor | None,  # noqa: ARG002  # the signature is asyncio's
        func: Callable[..., ResultT],
        *args: Any,
    ) -> asyncio.Future[ResultT]:
        """Run `func` at once in this thread, whatever the executor."""
        future: asyncio.Future[ResultT] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # the future raises it where it is awaited
            future.set_exception(error)
        return future


class VirtualClock:
    """A `penstock.clock.Clock` on the time of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_at: datetime) -> None:
        self._loop = loop
        self._start_at = start_at

    def monotonic_seconds(self) -> float:
        return self._loop.time()

    def now(self) -> datetime:
        return self._start_at + timedelta(seconds=self._loop.time())

    def step(self, seconds: float) -> None:
        """Set the date forward or back; elapsed time is not affected."""
        self._start_at += timedelta(seconds=seconds)


def run_virtually(
    main: Callable[[VirtualClock], Coroutine[Any, Any, ResultT]], *, start_at: datetime
) -> ResultT:
    """Run `main` to its end in virtual time, which begins at `start_at` (aware, UTC).

    It cannot be called within a running event loop; there, use `asyncio.to_thread`.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main(VirtualClock(runner.get_loop(), start_at)))
