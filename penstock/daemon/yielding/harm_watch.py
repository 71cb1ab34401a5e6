"""Knows how much probes slow down applications that are heard, and stops a probe that slows them down too much.

Any user of the host can claim that requests take longer. So at most a few probes a day are stopped for that; further
harm is only shown. The setting of a stopped probe is not tried next, as after any probe that could not measure.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.clock import Clock
from penstock.daemon.config import ListenSection
from penstock.listening.harm import Harm, Window, harm, window
from penstock.units import format_seconds
from penstock.vocabulary import Context, ProbeHarm

BROKEN_OFF_COUNT_MAX = 4  # in a day
_DAY_SECONDS = 86_400.0
_LOOK_SECONDS = 0.5
_AFTER_SECONDS = 10.0
_TOLD_COUNT_MAX = 100  # that wait to be taken


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """A probe that has ended, and what was heard before and beside it."""

    context: Context
    started_at: datetime
    ended_at: datetime
    ended_seconds: float
    before: Window
    beside: Window
    totals: Window  # of all that was heard until it ended
    is_broken_off: bool


class HarmWatch:
    """Compares what is heard beside a probe with the ten to twenty seconds before it and the time after it."""

    def __init__(self, totals: Callable[[], Window], clock: Clock, section: ListenSection) -> None:
        self._totals = totals
        self._clock = clock
        self._latency_increase_seconds_max = section.latency_increase_seconds_max
        self._samples = deque[Window]([{}], maxlen=2)
        self._broken_off = deque[float](maxlen=BROKEN_OFF_COUNT_MAX)  # moments on the monotonic clock
        self._last: tuple[datetime, Harm] | None = None
        self._ended: _Ended | None = None  # until enough was heard after it, or the next probe begins
        self._told = deque[ProbeHarm](maxlen=_TOLD_COUNT_MAX)

    def look(self) -> None:
        """Begin a new window; to be called every ten seconds."""
        ended = self._ended
        if ended is not None and self._clock.monotonic_seconds() - ended.ended_seconds >= _AFTER_SECONDS:
            self._settle()
        self._samples.append(self._totals())

    @property
    def is_hearing(self) -> bool:
        """Whether any application is heard that a probe might harm."""
        return bool(self._totals())

    def take_told(self) -> list[ProbeHarm]:
        """The harm of probes that ended long enough ago, each returned once."""
        told = list(self._told)
        self._told.clear()
        return told

    async def watch(self, context: Context) -> str:
        """Watch a probe from its beginning; returns why it has to end. To be cancelled when it ends by itself."""
        self._settle()
        begun, started_at, is_broken_off = self._totals(), self._clock.now(), False
        before = window(self._samples[0], begun)
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                found = harm(before, window(begun, self._totals()))
                if found is not None and self._has_to_end(found):
                    is_broken_off = True
                    return (
                        "broken off: attempts of applications took "
                        f"{format_seconds(found.latency_increase_seconds.expected)} longer during the "
                        "probe than before it, and at most "
                        f"{format_seconds(self._latency_increase_seconds_max)} is allowed"
                    )
        finally:
            totals, now = self._totals(), self._clock.now()
            beside = window(begun, totals)
            if (found := harm(before, beside)) is not None:
                self._last = now, found
                self._ended = _Ended(
                    context=context,
                    started_at=started_at,
                    ended_at=now,
                    ended_seconds=self._clock.monotonic_seconds(),
                    before=before,
                    beside=beside,
                    totals=totals,
                    is_broken_off=is_broken_off,
                )

    def document(self) -> dict[str, Any]:
        """The harm of the last probe beside which applications were heard, as JSON values and dates."""
        last = None
        if self._last is not None:
            last = {"ended_at": self._last[0], **dataclasses.asdict(self._last[1])}
        return {
            "latency_increase_seconds_max": self._latency_increase_seconds_max,
            "broken_off_count": self._broken_off_count(),
            "last": last,
        }

    def _settle(self) -> None:
        """Compare the last probe with what was heard after it, too, and keep its harm to be taken."""
        ended, self._ended = self._ended, None
        if ended is None:
            return
        both = harm(ended.before, ended.beside, window(ended.totals, self._totals()))
        found = both or harm(ended.before, ended.beside)
        assert found is not None  # else it would not have been kept
        self._last = ended.ended_at, found
        self._told.append(
            ProbeHarm(
                started_at=ended.started_at,
                ended_at=ended.ended_at,
                operation=ended.context.operation,
                region=ended.context.place.region,
                payload_size_bytes=ended.context.payload_size_bytes,
                attempt_count=found.attempt_count,
                latency_increase_seconds=found.latency_increase_seconds,
                refused_fraction_increase=found.refused_fraction_increase,
                is_held_against_after=both is not None,
                is_broken_off=ended.is_broken_off,
            )
        )

    def _has_to_end(self, found: Harm) -> bool:
        if found.latency_increase_seconds.low <= self._latency_increase_seconds_max:
            return False
        if self._broken_off_count() >= BROKEN_OFF_COUNT_MAX:
            return False
        self._broken_off.append(self._clock.monotonic_seconds())
        return True

    def _broken_off_count(self) -> int:
        """The count of probes stopped in the last day."""
        now_seconds = self._clock.monotonic_seconds()
        return sum(now_seconds - at_seconds < _DAY_SECONDS for at_seconds in self._broken_off)
