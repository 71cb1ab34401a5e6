"""Knows what probes cost the applications that are heard, and ends one that costs them too much.

Any user of the host can say that his attempts take longer. So a few probes in a day are ended for what is heard, and no
more; after that it is said and nothing else. What an ended probe tried is not tried next, as with any that could not
measure.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any

from penstock.clock import Clock
from penstock.daemon.config import ListenSection
from penstock.listening.harm import Harm, Window, harm, window
from penstock.units import format_seconds

BROKEN_OFF_COUNT_MAX = 4  # in a day
_DAY_SECONDS = 86_400.0
_LOOK_SECONDS = 0.5


class HarmWatch:
    """Compares what is heard beside a probe with what was heard in the ten to twenty seconds before it."""

    def __init__(self, totals: Callable[[], Window], clock: Clock, section: ListenSection) -> None:
        self._totals = totals
        self._clock = clock
        self._latency_increase_seconds_max = section.latency_increase_seconds_max
        self._samples = deque[Window]([{}], maxlen=2)
        self._broken_off = deque[float](maxlen=BROKEN_OFF_COUNT_MAX)  # when, on the monotonic clock
        self._last: tuple[datetime, Harm] | None = None

    def look(self) -> None:
        """Begin a new window; call it every ten seconds."""
        self._samples.append(self._totals())

    @property
    def is_hearing(self) -> bool:
        """Whether there is anybody whom a probe might harm."""
        return bool(self._totals())

    async def watch(self) -> str:
        """From the beginning of a probe until it has to end, and why; to be cancelled when it ends by itself."""
        begun = self._totals()
        before = window(self._samples[0], begun)
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                found = harm(before, window(begun, self._totals()))
                if found is not None and self._has_to_end(found):
                    return (
                        "broken off: attempts of applications took "
                        f"{format_seconds(found.latency_increase_seconds.expected)} longer beside it than before, and "
                        f"{format_seconds(self._latency_increase_seconds_max)} is the most"
                    )
        finally:
            found = harm(before, window(begun, self._totals()))
            if found is not None:
                self._last = self._clock.now(), found

    def document(self) -> dict[str, Any]:
        """Of the last probe beside which applications were heard, as JSON values and dates."""
        last = None
        if self._last is not None:
            last = {"ended_at": self._last[0], **dataclasses.asdict(self._last[1])}
        return {
            "latency_increase_seconds_max": self._latency_increase_seconds_max,
            "broken_off_count": self._broken_off_count(),
            "last": last,
        }

    def _has_to_end(self, found: Harm) -> bool:
        if found.latency_increase_seconds.low <= self._latency_increase_seconds_max:
            return False
        if self._broken_off_count() >= BROKEN_OFF_COUNT_MAX:
            return False
        self._broken_off.append(self._clock.monotonic_seconds())
        return True

    def _broken_off_count(self) -> int:
        """In the last day."""
        now_seconds = self._clock.monotonic_seconds()
        return sum(now_seconds - at_seconds < _DAY_SECONDS for at_seconds in self._broken_off)
