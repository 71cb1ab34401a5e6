"""Knows whether a place is slower at some hours of the day, or on some days of the week, than chance explains.

Measurements are compared only within a setting, and relative to the mean of their day or week: so neither the choice of
settings nor a change of the place looks like a rhythm. Groups of hours are compared by the Kruskal-Wallis test. Since
both questions are asked of many places at once, the probabilities are corrected by Benjamini and Yekutieli's method,
which holds under any dependence.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import Any

from penstock.optimizer.verdict import signed_percent
from penstock.report.difference import welch
from penstock.vocabulary import Estimate

SIGNIFICANCE = 0.001  # over all questions together; strict, because readers act on a rhythm
COUNT_MIN = 48
DAY_COUNT_MIN = 5
WEEK_COUNT_MIN = 3
EFFECT_MIN = 0.05  # smaller effects are useless in practice
_GROUP_HOURS = 3
_SPAN_HOURS = range(4, 17)
_EXTREME = 0.1  # of the values at either end
_SETTING_COUNT_MIN = 3
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: its moment, its setting, and the logarithm of its value or of its ratio to what is expected.

    With a `count`, the median of that many measurements.
    """

    at: datetime
    setting: str
    log_ratio: float
    count: int = 1

    def less(self, level: float) -> Sample:
        """The same sample relative to this level."""
        return Sample(self.at, self.setting, self.log_ratio - level, self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """One question and its answer."""

    question: str  # "hour of the day" or "day of the week"
    probability: float  # p-value, corrected
    count: int
    groups: tuple[tuple[str, float, int], ...]  # by hours or day: ratio to the median, number of measurements
    span: str  # the slowest hours or day, in words
    fraction: Estimate | None  # its value against all others, as a ratio minus one

    @property
    def is_significant(self) -> bool:
        """Whether it is certain, and large enough to matter."""
        is_large = (
            self.fraction is not None and self.fraction.expected < -EFFECT_MIN and self.fraction.high < 0
        )
        return self.probability < SIGNIFICANCE and is_large


def rhythms(samples: Sequence[Sample]) -> list[Rhythm]:
    """The rhythms that these measurements can show, with probabilities that are not corrected yet."""
    if len(samples) < COUNT_MIN:
        return []
    levelled = _by_setting(samples)
    found = []
    if len({s.at.date() for s in samples}) >= DAY_COUNT_MIN:
        found.append(_of_hours(_less(levelled, lambda s: s.at.date())))
    if (samples[-1].at - samples[0].at).days >= 7 * WEEK_COUNT_MIN:
        found.append(_of_weekdays(_less(levelled, lambda s: s.at.isocalendar()[:2])))
    return [each for each in found if each is not None]


def corrected(found: Sequence[Rhythm]) -> list[Rhythm]:
    """The same, with probabilities corrected for their number."""
    if not found:
        return []
    from scipy import stats

    probabilities = stats.false_discovery_control([each.probability for each in found], method="by")
    return [replace(each, probability=float(p)) for each, p in zip(found, probabilities, strict=True)]


def rhythm_sentence(rhythm: Rhythm) -> str:
    """``Slower between 08:00 and 18:00 UTC each day, by 41 % (35 to 46 %): chance does as much in ...``."""
    assert rhythm.fraction is not None
    ends = sorted(abs(end) for end in (rhythm.fraction.low, rhythm.fraction.high))
    chance = max(rhythm.probability, 1e-6)
    return (
        f"Slower {rhythm.span}, by {100 * abs(rhythm.fraction.expected):.0f} % ({100 * ends[0]:.0f} to "
        f"{100 * ends[1]:.0f} %): chance does as much in less than one of {1 / chance:,.0f} such places."
    )


def group_words(ratio: float) -> str:
    """``-41 %``."""
    return signed_percent(ratio - 1.0)


def _by_setting(samples: Sequence[Sample]) -> list[Sample]:
    """Each sample relative to the median of its setting; settings with too few samples are left out."""
    groups: dict[str, list[float]] = defaultdict(list)
    for one in samples:
        groups[one.setting].append(one.log_ratio)
    middles = {s: median(values) for s, values in groups.items() if len(values) >= _SETTING_COUNT_MIN}
    return [one.less(middles[one.setting]) for one in samples if one.setting in middles]


def _less(samples: Sequence[Sample], period: Callable[[Sample], Any]) -> list[Sample]:
    """Each sample relative to the mean of its day or week."""
    groups: dict[Any, list[Sample]] = defaultdict(list)
    for one in samples:
        groups[period(one)].append(one)
    means = {key: sum(one.log_ratio for one in group) / len(group) for key, group in groups.items()}
    return [one.less(means[key]) for key, group in groups.items() if len(group) > 1 for one in group]


def _of_hours(samples: Sequence[Sample]) -> Rhythm | None:
    groups: dict[int, list[float]] = defaultdict(list)
    for one in samples:
        groups[one.at.hour // _GROUP_HOURS].append(one.log_ratio)
    probability = _probability(groups)
    if probability is None:
        return None
    begins, length, fraction = _slowest_span(samples)
    return Rhythm(
        question="hour of the day",
        probability=probability,
        count=len(samples),
        groups=tuple(
            (f"{_GROUP_HOURS * n:02}:00", math.exp(median(groups[n])), len(groups[n])) for n in sorted(groups)
        ),
        span=f"between {begins:02}:00 and {(begins + length) % 24:02}:00 UTC each day",
        fraction=fraction,
    )


def _slowest_span(samples: Sequence[Sample]) -> tuple[int, int, Estimate | None]:
    """The consecutive hours in which the place is most clearly slower, and by how much.

    The hours are found from values without extremes: a dip at two in the morning would stretch the span to it.
    """
    hours = [one.at.hour for one in samples]
    values = [one.log_ratio for one in samples]
    ordered, cut = sorted(values), int(_EXTREME * len(values))
    low, high = ordered[cut], ordered[-1 - cut]
    counts, sums = [0] * 24, [0.0] * 24
    for hour, value in zip(hours, values, strict=True):
        counts[hour] += 1
        sums[hour] += min(max(value, low), high)
    best: tuple[float, int, int] = (0.0, 0, _SPAN_HOURS[0])
    for length in _SPAN_HOURS:
        for begins in range(24):
            span = [(begins + n) % 24 for n in range(length)]
            inside_count = sum(counts[hour] for hour in span)
            outside_count = len(values) - inside_count
            if min(inside_count, outside_count) >= DAY_COUNT_MIN:
                inside_sum = sum(sums[hour] for hour in span)
                difference = inside_sum / inside_count - (sum(sums) - inside_sum) / outside_count
                weight = (inside_count * outside_count / len(values)) ** 0.5
                best = min(best, (difference * weight, begins, length))
    _, begins, length = best
    inside = [v for h, v in zip(hours, values, strict=True) if (h - begins) % 24 < length]
    outside = [v for h, v in zip(hours, values, strict=True) if (h - begins) % 24 >= length]
    return begins, length, welch(inside, outside)


def _of_weekdays(samples: Sequence[Sample]) -> Rhythm | None:
    groups: dict[int, list[float]] = defaultdict(list)
    for one in samples:
        groups[one.at.weekday()].append(one.log_ratio)
    probability = _probability(groups)
    if probability is None:
        return None
    slowest = min(groups, key=lambda day: median(groups[day]))
    elsewhere = [v for day, values in groups.items() if day != slowest for v in values]
    return Rhythm(
        question="day of the week",
        probability=probability,
        count=len(samples),
        groups=tuple(
            (_WEEKDAYS[day], math.exp(median(groups[day])), len(groups[day])) for day in sorted(groups)
        ),
        span=f"on {_WEEKDAYS[slowest]}s",
        fraction=welch(groups[slowest], elsewhere),
    )


def _probability(groups: dict[int, list[float]]) -> float | None:
    """The p-value of the groups being alike; None if there is only one group, or all values are equal."""
    values = [group for group in groups.values() if len(group) > 1]
    if len(values) < 2 or len({v for group in values for v in group}) < 2:
        return None
    from scipy import stats  # takes a third of a second, so only reports that need it pay

    return float(stats.kruskal(*values).pvalue)
