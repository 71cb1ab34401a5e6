"""Knows the hours of the day in which no probe begins unless it is requested.

They are written as ``"08:00-18:00 local"`` or ``"22:30-06:00 UTC"``. The zone is always stated, because a host's zone
is seldom what its operator thinks. The end is exclusive; an end before the beginning is on the next day. Local hours
follow the host's zone, also when daylight saving time begins or ends within them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

PATTERN = r"^([01]\d|2[0-3]):[0-5]\d-(([01]\d|2[0-3]):[0-5]\d|24:00) (local|UTC)\Z"
_PARTS = re.compile(r"(\d\d:\d\d)-(\d\d:\d\d) (local|UTC)")
_MINUTE = timedelta(minutes=1)
_MINUTE_COUNT_MAX = 2 * 1440  # how far to look for an end: spans that fill the day have none


@dataclass(frozen=True, slots=True)
class QuietHours:
    """One span of the day."""

    begin: time
    end: time
    is_local: bool

    def holds(self, minute: int) -> bool:
        """Whether this minute of the day (0 to 1439), in the span's own zone, is within it."""
        begin, end = (60 * moment.hour + moment.minute for moment in (self.begin, self.end))
        return begin <= minute < end if begin < end else minute >= begin or minute < end


def parse(text: str) -> QuietHours:
    """The span in a text that matches `PATTERN`."""
    parts = _PARTS.fullmatch(text)
    assert parts is not None
    end = "00:00" if parts[2] == "24:00" else parts[2]
    return QuietHours(time.fromisoformat(parts[1]), time.fromisoformat(end), parts[3] == "local")


def quiet_until(spans: Iterable[QuietHours], now: datetime, local: tzinfo | None = None) -> datetime | None:
    """When the quiet hours end, in UTC, across spans that touch or overlap; None when it is not quiet now.

    `local` is the host's zone (None: the system's). Goes minute by minute as local clocks show them: when daylight
    saving time begins or ends, some minutes are skipped or come twice.
    """
    spans, ends = tuple(spans), now.astimezone(UTC)
    for _ in range(_MINUTE_COUNT_MAX):
        clocks = {True: ends.astimezone(local), False: ends}
        minutes = {is_local: 60 * at.hour + at.minute for is_local, at in clocks.items()}
        if not any(span.holds(minutes[span.is_local]) for span in spans):
            break
        ends = ends.replace(second=0, microsecond=0) + _MINUTE
    return ends if ends > now else None


def fill_the_day(spans: Iterable[QuietHours]) -> bool:
    """Whether the spans of one zone cover every minute of the day."""
    spans = tuple(spans)
    return any(
        all(any(span.holds(minute) for span in spans if span.is_local == is_local) for minute in range(1440))
        for is_local in (False, True)
    )


def quiet_fraction(spans: Iterable[QuietHours], now: datetime, local: tzinfo | None = None) -> float:
    """The fraction of the day that the spans cover, with the host's present offset from UTC."""
    spans, offset = tuple(spans), now.astimezone(local).utcoffset()
    assert offset is not None
    ahead = {True: int(offset / _MINUTE), False: 0}
    quiet = (any(s.holds((minute + ahead[s.is_local]) % 1440) for s in spans) for minute in range(1440))
    return sum(quiet) / 1440
