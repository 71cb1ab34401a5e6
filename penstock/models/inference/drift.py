"""Knows how a change is noticed: by cumulative sums (CUSUM) of each measurement's deviation from its prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from penstock.models.model import Array

ALLOWANCE = 0.5  # standard deviations, subtracted from each deviation
ALARM = 5.0  # normal noise alone raises it about once in 500 measurements
_CLIP = 3.0  # so that a single dip does not raise the alarm
_CLIP_CERTAIN = 6.0  # a measurement that is certainly no dip may


@dataclass(frozen=True, slots=True)
class Cusum:
    """Two sums, one for each direction, and how many measurements ago each was last zero."""

    low: float = 0.0
    high: float = 0.0
    low_run: int = 0
    high_run: int = 0

    def after(self, surprise: float, *, is_certain: bool = False) -> Cusum:
        """The sums after one more standardised residual; `is_certain` if it is certainly no dip."""
        clip = _CLIP_CERTAIN if is_certain else _CLIP
        clipped = max(-clip, min(clip, surprise))
        low = max(0.0, self.low - clipped - ALLOWANCE)
        high = max(0.0, self.high + clipped - ALLOWANCE)
        return Cusum(low, high, self.low_run + 1 if low > 0 else 0, self.high_run + 1 if high > 0 else 0)

    @property
    def level(self) -> float:
        """The larger of the two sums."""
        return max(self.low, self.high)

    @property
    def is_alarm(self) -> bool:
        """Whether a sum has reached the alarm level."""
        return self.level >= ALARM

    @property
    def run(self) -> int:
        """How many measurements ago the larger sum was last zero: about the age of the change."""
        return self.low_run if self.low >= self.high else self.high_run


def changed_count(surprises: Sequence[float]) -> int:
    """How many of the last measurements came after the change: those whose sum is most significant; at least one.

    The cumulative sums often begin some measurements too early, where chance happened to lean to one side.
    """
    return max(range(1, len(surprises) + 1), key=lambda count: _stands_out(surprises[-count:]))


def _stands_out(surprises: Sequence[float], shared: float = 0.0) -> float:
    """How far their mean is from zero in standard deviations, if they share the fraction `shared` of their variance."""
    count, total = len(surprises), np.clip(surprises, -_STRIKING, _STRIKING).sum()
    return float(abs(total) / (count * (1.0 + (count - 1) * shared)) ** 0.5)


_STRIKING = 6.0  # standard deviations; what is farther off counts no more


@dataclass(frozen=True, slots=True)
class Watched:
    """Where a place changed, and the evidence for another change since."""

    begins: tuple[int, ...] = ()  # the first measurement after each change
    level: float = 0.0  # of the cumulative sums since then, over the alarm level
    surprise: float = 0.0  # of the newest measurement's most surprising quantity, in standard deviations
    quantity: int = 0  # the index of that quantity
    away: float = 0.0  # how far it was from its prediction


def watch(values: Array, deviations: Array) -> Watched:
    """Find changes in several quantities, (quantities, measurements); deviations are inf where one was not measured.

    Each value is compared with the mean of earlier ones in the same state, so that a constant error of the expectation
    does not matter. Stated deviations are corrected by the steps from one value to the next.
    """
    deviations = deviations * np.array([[_excess(*row)] for row in zip(values, deviations, strict=True)])
    begins: list[int] = []
    while True:
        since = begins[-1] if begins else 0
        rows = [_beside_earlier(v[since:], d[since:]) for v, d in zip(values, deviations, strict=True)]
        followed = [_follow(surprises, shared) for surprises, shared, _ in rows]
        alarms = [alarm for alarm, _ in followed if alarm is not None]
        if not alarms:
            break
        at, count = min(alarms, key=lambda alarm: alarm[0])
        begins.append(since + at + 1 - count)
    level = max(level for _, level in followed) / ALARM
    quantity = max(range(len(rows)), key=lambda row: abs(rows[row][0][-1]))
    surprises, _, away = rows[quantity]
    return Watched(tuple(begins), level, surprises[-1], quantity, away)


_MOVED = 1.0  # of a logarithm: how far a change moves a quantity, if it does
_AGAIN_FAVOUR = 1.0  # log odds for the same state


def alike(values: Array, deviations: Array, begins: Sequence[int]) -> list[bool]:
    """For each period that one of these changes ended, whether the place was then in its present state.

    Quantities are compared one by one, each as likely to be the same as to have moved. The state just left is another.
    """
    spells = [slice(*pair) for pair in pairwise([0, *begins, values.shape[1]])]
    means, variances = np.array([_mean(values[:, s], deviations[:, s]) for s in spells]).swapaxes(0, 1)
    apart, variance = (means - means[-1]) ** 2, variances + variances[-1] + 2 * _WEATHER**2
    moved = variance + _MOVED**2
    stood_over_moved = np.sqrt(moved / variance) * np.exp(-apart / 2 * (1 / variance - 1 / moved))
    favour = np.log(2 * stood_over_moved / (1 + stood_over_moved)).sum(axis=1)
    return [bool(much > _AGAIN_FAVOUR) for much in favour[:-2]] + [False]


def _mean(values: Array, deviations: Array) -> tuple[Array, Array]:
    """The mean of each quantity and its variance, which is so great for one not measured that it says nothing."""
    precision = (1.0 / deviations**2).sum(axis=1) + _PRECISION_MIN
    return (values / deviations**2).sum(axis=1) / precision, 1.0 / precision


_PRECISION_MIN = 1e-6  # of a quantity that was not measured


def _follow(surprises: Sequence[float], shared: Sequence[float]) -> tuple[tuple[int, int] | None, float]:
    """The first significant alarm and the final level of the sums.

    An alarm is the index of the measurement and how many have changed by then; None if there is none.
    """
    state = Cusum()
    for at, surprise in enumerate(surprises):
        state = state.after(surprise)
        seen = surprises[: at + 1]
        count = changed_count(seen[-state.run :]) if state.is_alarm else 0
        if count < _CHANGED_MIN:
            continue
        if _stands_out(seen[-count:], float(np.mean(shared[at + 1 - count : at + 1]))) >= _STANDS_OUT_MIN:
            return (at, count), state.level
    return None, state.level


# Standard deviation of a logarithm: differences between hours, which do not average out. It is the prior; the value of
# each quantity is learned from how far its earlier measurements were from their mean. Where hours differ by .15, a
# false change is seen once in 270 to 700 simulated measurements of four quantities; with a fixed .1, independent for
# each measurement, it was once in 50 to 110.
_WEATHER = 0.1
_WEATHER_MIN = 0.03
_WEATHER_COUNT = 4  # measurements, as which the prior of weather counts
_WEATHER_CLIP = 2.0  # deviations, so that a change does not count as weather
_EXCESS_MIN = 0.75  # times the stated deviations, which a few even steps reduce no further
_EARLIER_MIN = 3  # measurements that the next is compared with, at least
_CHANGED_MIN = 2  # measurements after a change, at least; one may be a dip
# Deviations of the mean of those after a change, by normal noise and weather together.
_STANDS_OUT_MIN = 4.4


def _beside_earlier(values: Array, deviations: Array) -> tuple[list[float], list[float], float]:
    """How far each value is from the mean of earlier ones, in standard deviations; 0 while these are few.

    Also the share of weather in that variance, and how far the last value is from the mean in its own unit. An outlier
    moves the mean by no more than a value at `_CLIP` deviations would.
    """
    surprises, shared = [0.0] * len(values), [0.0] * len(values)
    count, precision, mean, weather, away = 0, 0.0, 0.0, _WEATHER_COUNT * _WEATHER**2, 0.0
    for at in np.flatnonzero(np.isfinite(deviations)):
        value, own = values[at], deviations[at] ** 2
        if count:
            away, apart = value - mean, own + 1.0 / precision
            usual = max(weather / (_WEATHER_COUNT + count - 1), _WEATHER_MIN**2)
            scale = (apart + usual) ** 0.5
            shared[at] = usual / scale**2
            surprises[at] = float(away / scale) if count >= _EARLIER_MIN else 0.0
            weather += np.clip(away, -_WEATHER_CLIP * scale, _WEATHER_CLIP * scale) ** 2 - apart
            value = mean + np.clip(away, -_CLIP * scale, _CLIP * scale) if count > 1 else value
        count, precision = count + 1, precision + 1.0 / own
        mean += (value - mean) / own / precision
    return surprises, shared, float(away)


def _excess(values: Array, deviations: Array) -> float:
    """The median step over what the deviations imply; a change is a single step and has little effect on it."""
    is_seen = np.isfinite(deviations)
    value, deviation = values[is_seen], deviations[is_seen]
    steps = np.abs(np.diff(value)) / np.hypot(deviation[1:], deviation[:-1])
    return max(_EXCESS_MIN, 1.4826 * float(np.median(steps))) if steps.size else 1.0
