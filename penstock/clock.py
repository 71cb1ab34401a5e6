"""Knows the two faces of time: elapsed seconds, which never go back, and dates, which may."""

from __future__ import annotations

from datetime import UTC, datetime
from time import perf_counter
from typing import Protocol


class Clock(Protocol):
    """Passed to whatever acts; pure code takes `now` as an argument instead."""

    def monotonic_seconds(self) -> float:
        """Seconds since an arbitrary moment, for measuring what elapsed."""
        ...

    def now(self) -> datetime:
        """The date, aware and in UTC; two dates are never subtracted to time something."""
        ...


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_seconds = clock.monotonic_seconds()

    def elapsed_seconds(self) -> float:
        """Since then."""
        return self._clock.monotonic_seconds() - self._began_seconds


class SystemClock:
    """The clock of this machine.

    Elapsed time is `perf_counter`, not the event loop's `time()`: uvloop's moves in whole milliseconds,
    and an SQS request takes 5 to 20 of them.
    """

    def monotonic_seconds(self) -> float:
        """Seconds of `perf_counter`."""
        return perf_counter()

    def now(self) -> datetime:
        """Date and time in UTC."""
        return datetime.now(UTC)
