"""Knows how to tally what is heard: by application and API, over the last minutes, in bounded memory.

An attempt reported at t that took s was in flight from t - s to t. By Little's law, L = sum of latencies / time with at
least one attempt in flight is the mean count in flight, whatever the pauses in between. Both sums are kept by the
minute in which the time lies, and not by the moment of the report: otherwise an attempt that begins in one minute and
ends in the next would count for the second with all its latency.

The maximal count in flight tells the number of threads: the mean is lower, because fewer are busy with the last parts
of every object. It is the maximum of the means over `SLICE_SECONDS`, kept in a ring of such slices: each attempt is
added where it begins and where it ends, and the slices in between follow from these.

What has left the window is summed up until `past` hands it on, so that nothing is counted twice or left out: one row
for each application and API, however long that takes.

Times are those of arrival, on the caller's clock: dates in a datagram may be forged, and are not read.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from penstock.listening.datagram import Heard, Key
from penstock.models.inference.histogram import class_of, packed, quantile
from penstock.vocabulary import Calls

PERIOD_SECONDS = 60.0
PERIOD_COUNT = 5
# Pairs of application and API: each takes 20 KiB per minute at most, when every class is filled.
SERIES_COUNT_MAX = 128
SERIES_COUNT_MAX_PER_USER = 96  # so that no user keeps all others from being heard
_LATENCY_SECONDS_MIN = 0.0005  # SDKs report whole milliseconds, and less than one as 0
SLICE_SECONDS = 0.25
_SLICE_COUNT = round(PERIOD_COUNT * PERIOD_SECONDS / SLICE_SECONDS)
_GAP_COUNT_MAX = 64
_STORM_COUNT_MIN = 20  # attempts in a minute: among fewer, a single refusal is not significant


Sender = tuple[Key, int | None]
"""What is tallied together, and the id of the user whose socket it came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series(Calls):
    """What was heard of one application and API during some time."""

    key: Key
    user_id: int | None  # of the user whose socket it came from; None where that is unknown
    duration_seconds: float  # from the first attempt to now

    @property
    def calls_per_second(self) -> float:
        """The mean over the time in which it was heard."""
        return self.call_count / self.duration_seconds if self.duration_seconds > 0 else 0.0

    def told(self, *names: str) -> dict[str, Any]:
        """What people are shown: the API, its figures, and the further ones that are named."""
        return {
            **{name: getattr(self.key, name) for name in ("service", "api", "region")},
            **{name: getattr(self, name) for name in (*_TOLD, *names)},
            "latency_seconds_p50": quantile(self.latencies, 0.5),
            "latency_seconds_p99": quantile(self.latencies, 0.99),
        }


_TOLD = (
    *("call_count", "calls_per_second", "attempt_count", "retry_count", "refused_count", "failed_count"),
    *("in_flight_count_mean", "in_flight_count_max"),
)


class Totals(Struct, frozen=True):
    """Sums over all attempts since the first, of one application and API."""

    attempt_count: int = 0
    latency_seconds: float = 0.0  # summed
    latency_seconds_squared: float = 0.0
    refused_count: int = 0


@dataclass(slots=True)
class _Period:
    """Sums over a minute, or over several."""

    call_count: int = 0
    attempt_count: int = 0
    retry_count: int = 0
    refused_count: int = 0
    failed_count: int = 0
    busy_seconds: float = 0.0  # of all attempts, summed
    active_seconds: float = 0.0  # with at least one attempt in flight
    latency_classes: Counter[int] = field(default_factory=Counter)
    in_flight_count_max: float = 0.0  # taken from the slices when the minute is over, or when asked for
    refused_fraction_of_others: float = 0.0  # the maximum of the periods that were added

    @property
    def refused_fraction_max(self) -> float:
        is_known = self.attempt_count >= _STORM_COUNT_MIN
        own = self.refused_count / self.attempt_count if is_known else 0.0
        return max(own, self.refused_fraction_of_others)

    def add(self, other: _Period) -> None:
        """Add another period: sums are added, maxima stay maxima."""
        self.in_flight_count_max = max(self.in_flight_count_max, other.in_flight_count_max)
        self.refused_fraction_of_others = max(self.refused_fraction_max, other.refused_fraction_max)
        self.call_count += other.call_count
        self.attempt_count += other.attempt_count
        self.retry_count += other.retry_count
        self.refused_count += other.refused_count
        self.failed_count += other.failed_count
        self.busy_seconds += other.busy_seconds
        self.active_seconds += other.active_seconds
        self.latency_classes.update(other.latency_classes)

    def series(self, key: Key, user_id: int | None, duration_seconds: float) -> Series:
        mean = self.busy_seconds / self.active_seconds if self.active_seconds > 0 else 0.0
        return Series(
            key=key,
            user_id=user_id,
            duration_seconds=duration_seconds,
            call_count=self.call_count,
            attempt_count=self.attempt_count,
            retry_count=self.retry_count,
            refused_count=self.refused_count,
            refused_fraction_max=self.refused_fraction_max,
            failed_count=self.failed_count,
            latencies=packed(self.latency_classes),
            in_flight_count_mean=mean,
            in_flight_count_max=max(mean, self.in_flight_count_max),
        )


def _sum(periods: Iterable[_Period]) -> _Period:
    total = _Period()
    for period in periods:
        total.add(period)
    return total


class Tally:
    """Everything heard lately. Senders that are silent for the length of the window are forgotten."""

    def __init__(self) -> None:
        self._counting: dict[Sender, _Counting] = {}
        self._count_by_user: Counter[int | None] = Counter()
        self._gone: dict[Sender, _Period] = {}  # the past of senders that fell silent
        self._past_began_seconds: float | None = None
        self.unplaced_count = 0  # reports for which there was no room

    def hear(self, heard: Heard, at_seconds: float, user_id: int | None = None) -> None:
        """Tally it; `at_seconds` is when it arrived, on a monotonic clock."""
        key = heard.key, user_id
        counting = self._counting.get(key)
        if counting is None:
            if not self._has_room(user_id):
                self._forget_silent(at_seconds)
            if not self._has_room(user_id):
                self.unplaced_count += 1
                return
            self._count_by_user[user_id] += 1
            if self._past_began_seconds is None:
                self._past_began_seconds = at_seconds
            began = at_seconds - heard.latency_seconds
            counting = self._counting[key] = _Counting(began, at_seconds)
        counting.add(heard, at_seconds)

    def series(self, now_seconds: float) -> list[Series]:
        """What was heard in the window up to now, by application and API, in the order of their first report."""
        self._forget_silent(now_seconds)
        return [counting.series(*key, now_seconds) for key, counting in self._counting.items()]

    def past(self, now_seconds: float, *, is_over: bool) -> list[Series]:
        """Everything since the last call with `is_over`, which leaves the last minutes for the next past."""
        self._forget_silent(now_seconds)
        found = dict(self._gone)
        for sender, counting in self._counting.items():
            live = [] if is_over else counting.live(now_seconds)
            found[sender] = _sum([*([found[sender]] if sender in found else []), counting.past, *live])
        began_seconds = now_seconds if self._past_began_seconds is None else self._past_began_seconds
        if is_over:
            self._gone.clear()
            for counting in self._counting.values():
                counting.past = _Period()
            self._past_began_seconds = now_seconds - PERIOD_COUNT * PERIOD_SECONDS
        seconds = now_seconds - began_seconds
        return [
            period.series(*sender, seconds)
            for sender, period in found.items()
            if period.call_count or period.attempt_count
        ]

    def totals(self) -> Mapping[Sender, Totals]:
        """The sums so far, to be compared with those of a later moment."""
        return {sender: counting.totals for sender, counting in self._counting.items()}

    def _forget_silent(self, now_seconds: float) -> None:
        oldest = _number(now_seconds) - PERIOD_COUNT + 1
        for key in [key for key, one in self._counting.items() if _number(one.heard_seconds) < oldest]:
            gone = self._counting.pop(key)
            self._count_by_user[key[1]] -= 1
            self._count_by_user += Counter()  # drops users whose count is 0
            gone.drop_old(_number(now_seconds))
            if key in self._gone or len(self._gone) < SERIES_COUNT_MAX:
                self._gone.setdefault(key, _Period()).add(gone.past)

    def _has_room(self, user_id: int | None) -> bool:
        is_his = self._count_by_user[user_id] < SERIES_COUNT_MAX_PER_USER
        return is_his and len(self._counting) < SERIES_COUNT_MAX


class _Slices:
    """The mean count in flight in each slice of the window."""

    def __init__(self, number: int) -> None:
        self._oldest = number - _SLICE_COUNT + 1
        self._in_flight = 0  # at the beginning of the oldest slice
        self._begun = array("i", bytes(4 * _SLICE_COUNT))  # begun minus ended, of those that fill the slice
        self._partly = array("f", bytes(4 * _SLICE_COUNT))  # parts of those that begin or end in it

    def add(self, began_seconds: float, ended_seconds: float) -> None:
        first, last = began_seconds / SLICE_SECONDS, ended_seconds / SLICE_SECONDS
        begins_in, ends_in = int(first // 1), int(last // 1)
        if ends_in >= self._oldest + _SLICE_COUNT:
            self._move_to(ends_in)
        oldest = self._oldest
        if ends_in < oldest:
            return
        ring_end = ends_in % _SLICE_COUNT
        if begins_in == ends_in:
            self._partly[ring_end] += last - first
            return
        self._partly[ring_end] += last - ends_in
        self._begun[ring_end] -= 1
        if begins_in < oldest - 1:
            self._in_flight += 1
            return
        if begins_in >= oldest:
            self._partly[begins_in % _SLICE_COUNT] += begins_in + 1 - first
        if begins_in + 1 <= ends_in:
            self._begun[(begins_in + 1) % _SLICE_COUNT] += 1

    def most(self, began_seconds: float, ended_seconds: float) -> float:
        """The maximum over the slices of this time."""
        first, last = int(began_seconds // SLICE_SECONDS), int(ended_seconds // SLICE_SECONDS)
        found, in_flight = 0.0, self._in_flight
        for number in range(self._oldest, min(last, self._oldest + _SLICE_COUNT)):
            ring = number % _SLICE_COUNT
            in_flight += self._begun[ring]
            if number >= first:
                found = max(found, in_flight + self._partly[ring])
        return found

    def _move_to(self, newest: int) -> None:
        oldest = newest - _SLICE_COUNT + 1
        for number in range(self._oldest, min(oldest, self._oldest + _SLICE_COUNT)):
            ring = number % _SLICE_COUNT
            self._in_flight += self._begun[ring]
            self._begun[ring], self._partly[ring] = 0, 0.0
        self._oldest = oldest


class _Counting:
    def __init__(self, began_seconds: float, heard_seconds: float) -> None:
        self.heard_seconds = heard_seconds  # when the last report arrived
        self.totals = Totals()
        self._began_seconds = began_seconds
        self._periods: dict[int, _Period] = {}
        self.past = _Period()  # what has left the window
        self._slices = _Slices(int(heard_seconds // SLICE_SECONDS))
        # Intervals with anything in flight, disjoint and in order. Those before the oldest are forgotten.
        self._active: deque[tuple[float, float]] = deque(maxlen=_GAP_COUNT_MAX)

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
        known = self.totals
        self.totals = Totals(
            known.attempt_count + 1,
            known.latency_seconds + latency_seconds,
            known.latency_seconds_squared + latency_seconds * latency_seconds,
            known.refused_count + heard.is_refused,
        )
        began = at_seconds - latency_seconds
        self._slices.add(began, at_seconds)
        if began >= number * PERIOD_SECONDS and self._active:
            active_began, active_ended = self._active[-1]
            if active_began <= began <= active_ended:  # usual; the code below has the same result
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
        live = _sum(self.live(now_seconds))
        oldest_seconds = (_number(now_seconds) - PERIOD_COUNT + 1) * PERIOD_SECONDS
        return live.series(key, user_id, now_seconds - max(oldest_seconds, self._began_seconds))

    def live(self, now_seconds: float) -> list[_Period]:
        """The periods of the window, one for each minute."""
        self.drop_old(_number(now_seconds))
        for number, period in self._periods.items():
            period.in_flight_count_max = max(period.in_flight_count_max, self._most(number))
        return list(self._periods.values())

    def drop_old(self, newest: int) -> None:
        for number in [number for number in self._periods if number <= newest - PERIOD_COUNT]:
            gone = self._periods.pop(number)
            gone.in_flight_count_max = max(gone.in_flight_count_max, self._most(number))
            self.past.add(gone)

    def _most(self, number: int) -> float:
        return self._slices.most(number * PERIOD_SECONDS, (number + 1) * PERIOD_SECONDS)

    def _period(self, number: int) -> _Period:
        period = self._periods.get(number)
        if period is None:
            period = self._periods[number] = _Period()
            self.drop_old(max(self._periods))
        return period

    def _shares(self, began: float, ended: float) -> Iterator[tuple[int, float]]:
        """How many seconds of this interval lie in each minute that still counts."""
        last = _number(self.heard_seconds)
        for number in range(max(_number(began), last - PERIOD_COUNT + 1), _number(ended) + 1):
            low, high = number * PERIOD_SECONDS, (number + 1) * PERIOD_SECONDS
            yield number, max(0.0, min(ended, high) - max(began, low))

    def _newly_active(self, began: float, ended: float) -> list[tuple[float, float]]:
        """The parts of this interval in which nothing else was in flight so far; marks all of it as active."""
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
