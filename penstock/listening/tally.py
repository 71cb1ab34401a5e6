"""Knows what is counted of what was heard: by application and API, over the last minutes, in bounded memory.

An attempt that is told of at t and took s was in flight from t - s to t. Little's law over the time in which anything
was, L = sum of latencies / time with at least one in flight, is then how many were in flight on average, whatever the
pauses between. Both sums are kept by the minute that the time lies in, and not by when it was told of: otherwise what
begins in one minute and ends in the next would stand in the second with all its latency.

The moment is that of arrival, on the clock of whoever calls: dates in a datagram may be forged, and are not read.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from penstock.listening.datagram import Heard, Key
from penstock.models.inference.histogram import class_of, merged, packed
from penstock.vocabulary import Histogram

PERIOD_SECONDS = 60.0
PERIOD_COUNT = 5
# Of applications and APIs together: 20 KiB each and minute at the most, when every class is filled.
SERIES_COUNT_MAX = 128
_LATENCY_SECONDS_MIN = 0.0005  # SDKs tell whole milliseconds; less than one is told as 0
_ACTIVE_SECONDS_MIN = 0.05  # with less of it, a minute says nothing of how many were in flight
_GAP_COUNT_MAX = 64


Sender = tuple[Key, int | None]
"""What is counted together, and whose socket it came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What was heard of one application and API in the last minutes."""

    key: Key
    user_id: int | None  # whose socket it came from; None where nobody could say
    duration_seconds: float  # from the first to now
    call_count: int
    attempt_count: int
    retry_count: int  # attempts beyond the first, which the SDK did not tell the application of
    refused_count: int  # attempts that the service refused for being too many
    failed_count: int
    latencies: Histogram  # of attempts, in seconds
    in_flight_count_mean: float  # while anything was in flight
    in_flight_count_max: float  # the same, of the busiest minute

    @property
    def calls_per_second(self) -> float:
        """On average over the time in which it was heard."""
        return self.call_count / self.duration_seconds if self.duration_seconds > 0 else 0.0


class Totals(Struct, frozen=True):
    """Of all attempts since the first, of one application and API."""

    attempt_count: int = 0
    latency_seconds: float = 0.0  # of all, added up
    latency_seconds_squared: float = 0.0
    refused_count: int = 0


@dataclass(slots=True)
class _Period:
    """Sums of a minute."""

    call_count: int = 0
    attempt_count: int = 0
    retry_count: int = 0
    refused_count: int = 0
    failed_count: int = 0
    busy_seconds: float = 0.0  # of all attempts, added up
    active_seconds: float = 0.0  # with at least one in flight
    latency_classes: Counter[int] = field(default_factory=Counter)

    @property
    def in_flight_count(self) -> float:
        return self.busy_seconds / self.active_seconds if self.active_seconds >= _ACTIVE_SECONDS_MIN else 0.0


class Tally:
    """All that was heard of late. What says nothing for the length of the window is forgotten."""

    def __init__(self) -> None:
        self._counting: dict[Sender, _Counting] = {}
        self.unplaced_count = 0  # of others than the first so many

    def hear(self, heard: Heard, at_seconds: float, user_id: int | None = None) -> None:
        """Count it; `at_seconds` is when it came, on a clock that does not go back."""
        key = heard.key, user_id
        counting = self._counting.get(key)
        if counting is None:
            if len(self._counting) >= SERIES_COUNT_MAX:
                self._forget_silent(at_seconds)
            if len(self._counting) >= SERIES_COUNT_MAX:
                self.unplaced_count += 1
                return
            began = at_seconds - heard.latency_seconds
            counting = self._counting[key] = _Counting(began, at_seconds)
        counting.add(heard, at_seconds)

    def series(self, now_seconds: float) -> list[Series]:
        """What was heard up to now, by application and API, in the order in which they were first heard."""
        self._forget_silent(now_seconds)
        return [counting.series(*key, now_seconds) for key, counting in self._counting.items()]

    def totals(self) -> Mapping[Sender, Totals]:
        """To be held against those of a later moment."""
        return {sender: counting.totals for sender, counting in self._counting.items()}

    def _forget_silent(self, now_seconds: float) -> None:
        oldest = _number(now_seconds) - PERIOD_COUNT + 1
        for key in [key for key, one in self._counting.items() if _number(one.heard_seconds) < oldest]:
            del self._counting[key]


class _Counting:
    def __init__(self, began_seconds: float, heard_seconds: float) -> None:
        self.heard_seconds = heard_seconds  # when it was last told of
        self._attempt_count = self._refused_count = 0
        self._latency_seconds = self._latency_seconds_squared = 0.0
        self._began_seconds = began_seconds
        self._periods: dict[int, _Period] = {}
        # When anything was in flight: apart from each other, in order. What lies before the oldest is forgotten.
        self._active: deque[tuple[float, float]] = deque(maxlen=_GAP_COUNT_MAX)

    @property
    def totals(self) -> Totals:
        return Totals(
            self._attempt_count, self._latency_seconds, self._latency_seconds_squared, self._refused_count
        )

    def add(self, heard: Heard, at_seconds: float) -> None:
        self.heard_seconds = at_seconds
        number = _number(at_seconds)
        period = self._period(number)
        if heard.is_call:
            period.call_count += 1
            period.retry_count += max(0, heard.attempt_count - 1)
            return
        period.attempt_count += 1
        period.refused_count += heard.is_refused
        period.failed_count += heard.is_failed
        latency_seconds = max(heard.latency_seconds, _LATENCY_SECONDS_MIN)
        period.latency_classes[class_of(latency_seconds)] += 1
        self._attempt_count += 1
        self._refused_count += heard.is_refused
        self._latency_seconds += latency_seconds
        self._latency_seconds_squared += latency_seconds * latency_seconds
        began = at_seconds - latency_seconds
        if began >= number * PERIOD_SECONDS and self._active:
            active_began, active_ended = self._active[-1]
            if active_began <= began <= active_ended:  # nearly all of them: what follows would say the same
                period.busy_seconds += latency_seconds
                if active_ended < at_seconds:
                    period.active_seconds += at_seconds - active_ended
                    self._active[-1] = active_began, at_seconds
                return
        for number, seconds in self._shares(began, at_seconds):
            self._period(number).busy_seconds += seconds
        for gap_began, gap_ended in self._newly_active(began, at_seconds):
            for number, seconds in self._shares(gap_began, gap_ended):
                self._period(number).active_seconds += seconds

    def series(self, key: Key, user_id: int | None, now_seconds: float) -> Series:
        self._drop_old(_number(now_seconds))
        periods = list(self._periods.values())
        oldest_seconds = (_number(now_seconds) - PERIOD_COUNT + 1) * PERIOD_SECONDS
        active_seconds = sum(period.active_seconds for period in periods)
        busy_seconds = sum(period.busy_seconds for period in periods)
        in_flight_count_mean = busy_seconds / active_seconds if active_seconds > 0 else 0.0
        return Series(
            key=key,
            user_id=user_id,
            duration_seconds=now_seconds - max(oldest_seconds, self._began_seconds),
            call_count=sum(period.call_count for period in periods),
            attempt_count=sum(period.attempt_count for period in periods),
            retry_count=sum(period.retry_count for period in periods),
            refused_count=sum(period.refused_count for period in periods),
            failed_count=sum(period.failed_count for period in periods),
            latencies=merged(packed(period.latency_classes) for period in periods),
            in_flight_count_mean=in_flight_count_mean,
            in_flight_count_max=max(in_flight_count_mean, *(period.in_flight_count for period in periods)),
        )

    def _period(self, number: int) -> _Period:
        period = self._periods.get(number)
        if period is None:
            period = self._periods[number] = _Period()
            self._drop_old(max(self._periods))
        return period

    def _drop_old(self, newest: int) -> None:
        for number in [number for number in self._periods if number <= newest - PERIOD_COUNT]:
            del self._periods[number]

    def _shares(self, began: float, ended: float) -> Iterator[tuple[int, float]]:
        """How many seconds of this lie in each minute that is still counted."""
        last = _number(self.heard_seconds)
        for number in range(max(_number(began), last - PERIOD_COUNT + 1), _number(ended) + 1):
            low, high = number * PERIOD_SECONDS, (number + 1) * PERIOD_SECONDS
            yield number, max(0.0, min(ended, high) - max(began, low))

    def _newly_active(self, began: float, ended: float) -> list[tuple[float, float]]:
        """The parts of this in which nothing was in flight that is known of so far; all of it is known from now on."""
        found, low, high = [], began, ended
        while self._active and self._active[-1][1] >= began:
            active_began, active_ended = self._active.pop()
            found.append((active_ended, high))
            low = high = active_began
        if began < high:
            found.append((began, high))
        self._active.append((min(began, low), ended))
        return found


def _number(seconds: float) -> int:
    return int(seconds // PERIOD_SECONDS)
