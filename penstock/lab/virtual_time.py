"""Knows time that jumps: an event loop on which a week passes as fast as its events can be handled.

Everything that sleeps with asyncio runs on it unchanged. When no callback is ready, the clock is set to the
next timer. There are no sockets and no threads in this world: work for the executor runs at once, in place,
so the order of events depends on nothing outside.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from datetime import datetime, timedelta
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")

# Timers this close fire together. Above the spacing of floats in the first ten years, or it would spin.
_RESOLUTION_SECONDS = 1e-7


class StalledError(RuntimeError):
    """Somebody waits for something that can no longer happen."""


class _TimeJump(selectors.BaseSelector):
    """In the place of waiting for sockets: moves the clock of its loop to the next timer."""

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


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop whose clock starts at 0 and jumps from timer to timer."""

    def __init__(self) -> None:
        self._virtual_seconds = 0.0
        selector = _TimeJump()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = _RESOLUTION_SECONDS

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_seconds

    def jump(self) -> None:
        """Set the clock to the next timer; raises StalledError when there is none."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # of BaseEventLoop
        if not timers:
            raise StalledError(
                "every task waits and no timer is set: in virtual time nothing more can happen"
            )
        self._virtual_seconds = max(self._virtual_seconds, timers[0].when())

    def run_in_executor(  # type: ignore[override]  # a finished future is what the caller would get in the end
        self,
        executor: Executor | None,  # noqa: ARG002  # the signature is asyncio's
        func: Callable[..., ResultT],
        *args: Any,
    ) -> asyncio.Future[ResultT]:
        """Run `func` now, in this thread, whatever the executor."""
        future: asyncio.Future[ResultT] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # the future carries it to whoever awaits, as an executor's does
            future.set_exception(error)
        return future


class VirtualClock:
    """The clock of a virtual world: `penstock.clock.Clock` on a loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_at: datetime) -> None:
        self._loop = loop
        self._start_at = start_at

    def monotonic_seconds(self) -> float:
        """Return the loop's seconds."""
        return self._loop.time()

    def now(self) -> datetime:
        """Return the start date plus the loop's seconds."""
        return self._start_at + timedelta(seconds=self._loop.time())


def run_virtually(
    main: Callable[[VirtualClock], Coroutine[Any, Any, ResultT]], *, start_at: datetime
) -> ResultT:
    """Run `main` to its end in a world of its own time, which begins at `start_at` (aware, UTC).

    Not from within a running event loop: there, call it through `asyncio.to_thread`.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main(VirtualClock(runner.get_loop(), start_at)))
