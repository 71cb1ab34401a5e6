"""Knows the two kinds of time: elapsed seconds, which never go back, and dates, which may."""

from __future__ import annotations

from datetime import UTC, datetime
from time import perf_counter
from typing import Protocol


class Clock(Protocol):
    """The time source passed to code that acts; pure code takes `now` as an argument instead."""

    def monotonic_seconds(self) -> float:
        """Seconds since an arbitrary moment, for measuring elapsed time."""
        ...

    def now(self) -> datetime:
        """The date and time, aware and in UTC; never subtract two of them to time something."""
        ...


class Stopwatch:
    """Measures the seconds since it was created."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_seconds = clock.monotonic_seconds()

    def elapsed_seconds(self) -> float:
        """Seconds since the stopwatch was created."""
        return self._clock.monotonic_seconds() - self._began_seconds


class SystemClock:
    """The clock of this machine.

    Elapsed time is `perf_counter`, not the event loop's `time()`: that of uvloop advances in whole milliseconds,
    and an SQS request takes only 5 to 20 of them.
    """

    def monotonic_seconds(self) -> float:
        """Seconds of `perf_counter`."""
        return perf_counter()

    def now(self) -> datetime:
        """Date and time in UTC."""
        return datetime.now(UTC)
