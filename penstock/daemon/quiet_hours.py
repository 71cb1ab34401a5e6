"""Knows the hours of the day in which no probe begins by itself.

Written as ``"08:00-18:00 local"`` or ``"22:30-06:00 UTC"``, with the zone always stated: a host's zone is seldom
what its operator thinks. The end is not part of it; an end before the beginning is of the next day. Local hours
follow the zone of the host, also where summer time begins or ends within them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

PATTERN = r"^([01]\d|2[0-3]):[0-5]\d-(([01]\d|2[0-3]):[0-5]\d|24:00) (local|UTC)$"
_PARTS = re.compile(r"(\d\d:\d\d)-(\d\d:\d\d) (local|UTC)")
_DAY = timedelta(days=1)
_SPAN_COUNT_MAX = 48  # hours that follow on each other; those that fill the day never end


@dataclass(frozen=True, slots=True)
class QuietHours:
    """One span of the day."""

    begin: time
    end: time
    is_local: bool

    def holds(self, minute: int) -> bool:
        """Whether this minute of a day in its own zone is in it."""
        begin, end = (60 * moment.hour + moment.minute for moment in (self.begin, self.end))
        return begin <= minute < end if begin < end else minute >= begin or minute < end

    def until(self, now: datetime, local: tzinfo | None = None) -> datetime | None:
        """When the quiet ends that there is now, in UTC; None when there is none. `local` is the host's zone."""
        zone = local if self.is_local else UTC
        today = now.astimezone(zone).date()
        for day in (today - _DAY, today):
            begins = _at(datetime.combine(day, self.begin), zone)
            ends = _at(datetime.combine(day + _DAY * (self.end <= self.begin), self.end), zone)
            if begins <= now < ends:
                return ends
        return None


def parse(text: str) -> QuietHours:
    """The span that a text of this `PATTERN` says."""
    parts = _PARTS.fullmatch(text)
    assert parts is not None
    end = "00:00" if parts[2] == "24:00" else parts[2]
    return QuietHours(time.fromisoformat(parts[1]), time.fromisoformat(end), parts[3] == "local")


def quiet_until(spans: Iterable[QuietHours], now: datetime, local: tzinfo | None = None) -> datetime | None:
    """When it is over, in UTC, also where one span follows on another; None where it is not quiet now."""
    spans, ends = tuple(spans), now
    for _ in range(_SPAN_COUNT_MAX):
        later = max((end for span in spans if (end := span.until(ends, local))), default=None)
        if later is None:
            return ends if ends > now else None
        ends = later
    return ends


def fill_the_day(spans: Iterable[QuietHours]) -> bool:
    """Whether those of one zone leave no minute."""
    spans = tuple(spans)
    return any(
        all(any(span.holds(minute) for span in spans if span.is_local == is_local) for minute in range(1440))
        for is_local in (False, True)
    )


def quiet_fraction(spans: Iterable[QuietHours], now: datetime, local: tzinfo | None = None) -> float:
    """How much of the day they take, with the host's zone as far from UTC as it is now."""
    spans, offset = tuple(spans), now.astimezone(local).utcoffset()
    assert offset is not None
    ahead = {True: int(offset / timedelta(minutes=1)), False: 0}
    quiet = (any(s.holds((minute + ahead[s.is_local]) % 1440) for s in spans) for minute in range(1440))
    return sum(quiet) / 1440


def _at(naive: datetime, zone: tzinfo | None) -> datetime:
    """The moment, in UTC; without a zone the host's own."""
    aware = naive.astimezone() if zone is None else naive.replace(tzinfo=zone)
    return aware.astimezone(UTC)
