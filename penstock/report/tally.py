"""Knows all measurements of a place as counts, whose size is bounded whatever their number.

A report keeps the newest measurements one by one, and everything else as counts. Values and times fall into the classes
of `Histogram`, moments into hours since 1970.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.models.inference.histogram import CLASSES_PER_OCTAVE, added, merged, packed
from penstock.vocabulary import Histogram, Observation, Pairs, is_stray

HOUR_SECONDS = 3600
_COUNTED_TOGETHER_MAX = 2000
_CODES = 1 << 20  # more than the number of classes
_LEAST = 1e-9  # as in `class_of`

IntArray: TypeAlias = NDArray[np.int64]
Expected: TypeAlias = Callable[[int, Sequence[Any]], Sequence[float | None]]
"""What is now expected of settings (Any: of the operation's own type) at one size; None where nothing is."""


class Beat(NamedTuple):
    """Measurements of one kind, one or those of an hour: either all had requests refused, or none had."""

    first_at: float  # seconds since 1970
    last_at: float
    is_refused: bool
    measured_count: int
    request_count: int
    refused_count: int
    failed_count: int
    # Requests per second: the minimum of those that were refused, or the maximum of those that were not.
    pace: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The counts of one place. Settings are of the operation's own type (Any)."""

    # By hour, and by whether requests were refused.
    beats: Mapping[tuple[int, bool], Beat] = field(default_factory=dict)
    # Positive values, by payload size and setting.
    levels: Mapping[tuple[int, Any], Histogram] = field(default_factory=dict)
    # By hour: successful measurements relative to what is now expected of their settings.
    course: Mapping[int, Histogram] = field(default_factory=dict)
    # Of requests, by payload size, name and setting.
    times: Mapping[tuple[int, str, Any], Histogram] = field(default_factory=dict)
    pairs: Mapping[int, Pairs] = field(default_factory=dict)  # successive request times, by size

    @property
    def measured_count(self) -> int:
        return sum(beat.measured_count for beat in self.beats.values())


def beat_of(observation: Observation[Any]) -> Beat:
    """The beat of one measurement."""
    at = observation.started_at.timestamp()
    refused, requests = observation.throttled_count, observation.request_count
    return Beat(
        first_at=at,
        last_at=at,
        is_refused=refused > 0 and not is_stray(refused, requests),
        measured_count=1,
        request_count=max(requests, refused),
        refused_count=refused,
        failed_count=observation.failed_count,
        pace=requests / max(observation.duration_seconds, 1e-9),
    )


def together(beats: Iterable[Beat]) -> Beat:
    """Beats of the same kind, merged into one."""
    columns: Any = Beat._make(zip(*beats, strict=True))  # each a tuple of its values
    is_refused = columns.is_refused[0]
    return Beat(
        first_at=min(columns.first_at),
        last_at=max(columns.last_at),
        is_refused=is_refused,
        measured_count=sum(columns.measured_count),
        request_count=sum(columns.request_count),
        refused_count=sum(columns.refused_count),
        failed_count=sum(columns.failed_count),
        pace=(min if is_refused else max)(columns.pace),
    )


def answers_of(expected: Expected, asked: Iterable[tuple[int, Any]]) -> dict[tuple[int, Any], float | None]:
    """What is expected of pairs of size and setting; each size is asked once for all its settings."""
    by_size: dict[int, list[Any]] = defaultdict(list)
    for size, setting in dict.fromkeys(asked):
        by_size[size].append(setting)
    return {
        (size, setting): answer
        for size, settings in by_size.items()
        for setting, answer in zip(settings, expected(size, settings), strict=True)
    }


def tally_of(
    observations: Iterable[Observation[Any]], value: Callable[[Observation[Any]], float], expected: Expected
) -> Tally:
    """The counts of these observations, which may be more than fit into memory."""
    tallying, remaining = _Tallying(value, expected), iter(observations)
    while seen := list(islice(remaining, _COUNTED_TOGETHER_MAX)):
        tallying.count(seen)
    return tallying.tally()


class _Tallying:
    """Counts measurements of one place as they come, thousands at a time."""

    def __init__(self, value: Callable[[Observation[Any]], float], expected: Expected) -> None:
        self._value = value
        self._expected = expected
        self._numbers: dict[tuple[int, Any], int] = {}  # a number for each size and setting
        self._expectations = np.empty(0)  # by number; NaN where nothing is expected
        self._beats: dict[tuple[int, bool], Beat] = {}
        self._levels: dict[int, Counter[int]] = defaultdict(Counter)  # by number
        self._course: dict[int, Counter[int]] = defaultdict(Counter)
        self._times: dict[tuple[int, str, Any], Histogram] = {}
        self._pairs: dict[int, Pairs] = {}

    def tally(self) -> Tally:
        """The counts so far."""
        return Tally(
            beats=dict(self._beats),
            levels={key: packed(self._levels[n]) for key, n in self._numbers.items() if n in self._levels},
            course={hour: packed(counts) for hour, counts in self._course.items()},
            times=dict(self._times),
            pairs=dict(self._pairs),
        )

    def count(self, seen: Sequence[Observation[Any]]) -> None:
        """Count these as well."""
        at = np.array([one.started_at.timestamp() for one in seen])
        hours = (at // HOUR_SECONDS).astype(np.int64)
        self._count_beats(seen, hours)
        self._count_values(seen, hours)
        times: dict[tuple[int, str, Any], list[Histogram]] = defaultdict(list)
        pairs: dict[int, list[Pairs]] = defaultdict(list)
        for one in seen:
            size = one.context.payload_size_bytes
            for name, histogram in one.histograms.items():
                times[size, name, one.setting].append(histogram)
            if one.successive is not None:
                pairs[size].append(one.successive)
        for key, some in times.items():
            self._times[key] = merged([self._times.get(key, Histogram()), *some])
        for size, more in pairs.items():
            self._pairs[size] = added([*([self._pairs[size]] if size in self._pairs else []), *more])

    def _count_beats(self, seen: Sequence[Observation[Any]], hours: IntArray) -> None:
        alike: dict[tuple[int, bool], list[Beat]] = defaultdict(list)
        for hour, beat in zip(hours.tolist(), map(beat_of, seen), strict=True):
            alike[hour, beat.is_refused].append(beat)
        for key, some in alike.items():
            known = [self._beats[key]] if key in self._beats else []
            self._beats[key] = together([*known, *some])

    def _count_values(self, seen: Sequence[Observation[Any]], hours: IntArray) -> None:
        values = np.array([self._value(one) for one in seen])
        keys = ((one.context.payload_size_bytes, one.setting) for one in seen)
        numbers = np.array([self._numbers.setdefault(key, len(self._numbers)) for key in keys])
        self._expect()
        went_well = np.array([one.went_well for one in seen])
        is_there = values > 0
        _counted(self._levels, numbers[is_there], values[is_there])
        expected = self._expectations[numbers]
        is_told = is_there & went_well & (expected > 0)
        _counted(self._course, hours[is_told], values[is_told] / expected[is_told])

    def _expect(self) -> None:
        """Ask what is expected of settings that are new."""
        new = list(self._numbers)[len(self._expectations) :]
        answers = answers_of(self._expected, new)
        found = [np.nan if (answer := answers[key]) is None else answer for key in new]
        self._expectations = np.append(self._expectations, found)


def _counted(counters: dict[int, Counter[int]], keys: IntArray, values: NDArray[np.float64]) -> None:
    """Count each value's class under its key."""
    classes = np.floor(CLASSES_PER_OCTAVE * np.log2(np.maximum(values, _LEAST))).astype(np.int64)
    codes, counts = np.unique(keys * _CODES + (classes + _CODES // 2), return_counts=True)
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        key, number = divmod(code, _CODES)
        counters[key][number - _CODES // 2] += count


def detail_begins_at(tally: Tally, newest: Sequence[Observation[Any]]) -> float:
    """When hours end and single measurements begin, in seconds since 1970; 0 if the newest are all there are."""
    if tally.measured_count <= len(newest):
        return 0.0
    if not newest:
        return float("inf")
    return (newest[0].started_at.timestamp() // HOUR_SECONDS + 1) * HOUR_SECONDS


def beats(tally: Tally, newest: Sequence[Observation[Any]]) -> list[Beat]:
    """All measurements, oldest first: the newest one by one, earlier ones by the hour."""
    begins_at = detail_begins_at(tally, newest)
    older = [beat for (hour, _), beat in tally.beats.items() if hour * HOUR_SECONDS < begins_at]
    single = [beat for beat in map(beat_of, newest) if beat.first_at >= begins_at]
    return sorted([*older, *single])


def middles(tally: Tally, *, before: float) -> list[tuple[float, float, int]]:
    """For each hour before a moment: its middle in seconds since 1970, the median of its ratios, and their number."""
    hours = sorted(hour for hour in tally.course if hour * HOUR_SECONDS < before)
    counted = [(hour, tally.course[hour]) for hour in hours]
    return [((hour + 0.5) * HOUR_SECONDS, _median(h), sum(h.counts)) for hour, h in counted]


def _median(histogram: Histogram) -> float:
    """The median, interpolated as if its class were filled evenly."""
    half, seen = sum(histogram.counts) / 2, 0
    for number, count in enumerate(histogram.counts, start=histogram.first):
        if count and seen + count >= half:
            return float(2.0 ** ((number + (half - seen) / count) / CLASSES_PER_OCTAVE))
        seen += count
    return 0.0
