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

PATTERN = r"^([01]\d|2[0-3]):[0-5]\d-(([01]\d|2[0-3]):[0-5]\d|24:00) (local|UTC)\Z"
_PARTS = re.compile(r"(\d\d:\d\d)-(\d\d:\d\d) (local|UTC)")
_MINUTE = timedelta(minutes=1)
_MINUTE_COUNT_MAX = 2 * 1440  # hours that follow on each other; those that fill the day never end


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


def parse(text: str) -> QuietHours:
    """The span that a text of this `PATTERN` says."""
    parts = _PARTS.fullmatch(text)
    assert parts is not None
    end = "00:00" if parts[2] == "24:00" else parts[2]
    return QuietHours(time.fromisoformat(parts[1]), time.fromisoformat(end), parts[3] == "local")


def quiet_until(spans: Iterable[QuietHours], now: datetime, local: tzinfo | None = None) -> datetime | None:
    """When it is over, in UTC, also where one span follows on another; None where it is not quiet now.

    `local` is the host's zone. Minute by minute as the clocks there show them: when summer time begins or ends, some
    are not there or come twice.
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
    ahead = {True: int(offset / _MINUTE), False: 0}
    quiet = (any(s.holds((minute + ahead[s.is_local]) % 1440) for s in spans) for minute in range(1440))
    return sum(quiet) / 1440
