"""Knows when a place has changed: a cumulative sum over how far each measurement fell from what was expected of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from penstock.models.model import Array

ALLOWANCE = 0.5  # in standard deviations: what is forgiven each time
ALARM = 5.0  # by normal noise alone it is raised about once in 500 measurements
_CLIP = 3.0  # a single dip must not raise the alarm by itself
_CLIP_CERTAIN = 6.0  # what is known to be no dip may


@dataclass(frozen=True, slots=True)
class Cusum:
    """Two sums, one for each direction, and how many measurements ago each of them last was zero."""

    low: float = 0.0
    high: float = 0.0
    low_run: int = 0
    high_run: int = 0

    def after(self, surprise: float, *, is_certain: bool = False) -> Cusum:
        """The sums after one more standardised residual; `is_certain` when it was no dip."""
        clip = _CLIP_CERTAIN if is_certain else _CLIP
        clipped = max(-clip, min(clip, surprise))
        low = max(0.0, self.low - clipped - ALLOWANCE)
        high = max(0.0, self.high + clipped - ALLOWANCE)
        return Cusum(low, high, self.low_run + 1 if low > 0 else 0, self.high_run + 1 if high > 0 else 0)

    @property
    def level(self) -> float:
        """The larger of both sums."""
        return max(self.low, self.high)

    @property
    def is_alarm(self) -> bool:
        """Whether the place has changed."""
        return self.level >= ALARM

    @property
    def run(self) -> int:
        """How many measurements the change is old."""
        return self.low_run if self.low >= self.high else self.high_run


def changed_count(surprises: Sequence[float]) -> int:
    """How many of the last measurements came after the change: those whose sum stands out most; at least one.

    The sums begin where chance has begun to lean to one side, which is often some measurements too early.
    """
    return max(range(1, len(surprises) + 1), key=lambda count: _stands_out(surprises[-count:]))


def _stands_out(surprises: Sequence[float], shared: float = 0.0) -> float:
    """How far their mean is from nothing, in standard deviations; `shared` of their variance is common to them all."""
    count, total = len(surprises), np.clip(surprises, -_STRIKING, _STRIKING).sum()
    return float(abs(total) / (count * (1.0 + (count - 1) * shared)) ** 0.5)


_STRIKING = 6.0  # standard deviations: what is farther off tells no more


@dataclass(frozen=True, slots=True)
class Watched:
    """What became of a place: where it changed, and what speaks for another change since."""

    begins: tuple[int, ...] = ()  # the first measurement after each change
    level: float = 0.0  # of the sums since then, over what raises the alarm
    surprise: float = 0.0  # of the newest measurement, in standard deviations: of what it surprises by most
    quantity: int = 0  # which of the quantities that was
    away: float = 0.0  # how far it lay from what was expected


def watch(values: Array, deviations: Array) -> Watched:
    """Follow several quantities through the same measurements, (quantities, measurements); inf where one is not seen.

    Each is held against the mean of those before it in the same place, so that an expectation that is off by the same
    everywhere is no matter. How far stated deviations are off is told by the steps from one to the next.
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


_MOVED = 1.0  # of a logarithm: how far a change moves a quantity, where it moves it
_AGAIN_FAVOUR = 1.0  # of the logarithm of the odds


def alike(values: Array, deviations: Array, begins: Sequence[int]) -> list[bool]:
    """Of each spell that these changes ended, whether the place was then what it is since the last of them.

    Compared is quantity by quantity: alike, or moved as likely as not. What it left just now is another.
    """
    spells = [slice(*pair) for pair in pairwise([0, *begins, values.shape[1]])]
    means, variances = np.array([_mean(values[:, s], deviations[:, s]) for s in spells]).swapaxes(0, 1)
    apart, variance = (means - means[-1]) ** 2, variances + variances[-1] + 2 * _WEATHER**2
    moved = variance + _MOVED**2
    stood_over_moved = np.sqrt(moved / variance) * np.exp(-apart / 2 * (1 / variance - 1 / moved))
    favour = np.log(2 * stood_over_moved / (1 + stood_over_moved)).sum(axis=1)
    return [bool(much > _AGAIN_FAVOUR) for much in favour[:-2]] + [False]


def _mean(values: Array, deviations: Array) -> tuple[Array, Array]:
    """Of each quantity, and its variance; that of what was not seen is so great that it says nothing."""
    precision = (1.0 / deviations**2).sum(axis=1) + _PRECISION_MIN
    return (values / deviations**2).sum(axis=1) / precision, 1.0 / precision


_PRECISION_MIN = 1e-6  # of a quantity that was not seen: next to nothing


def _follow(surprises: Sequence[float], shared: Sequence[float]) -> tuple[tuple[int, int] | None, float]:
    """The first alarm that is no chance: at which measurement, and how many have changed by then; and the sums' end."""
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


# Of a logarithm: hours that are alike, and do not average out. What they come to is learned of each row, from how far
# those before lay from their mean. Where hours differ by .15, a change is seen once in 270 to 700 made-up measurements
# of four quantities; it was once in 50 to 110 while .1 was taken everywhere, each measurement for itself.
_WEATHER = 0.1
_WEATHER_MIN = 0.03
_WEATHER_COUNT = 4  # measurements, as which the usual weather counts
_WEATHER_CLIP = 2.0  # deviations: a change is no weather
_EXCESS_MIN = 0.75  # of the deviations that are stated: fewer steps tell no better
_EARLIER_MIN = 3  # measurements, from which the next is expected
_CHANGED_MIN = 2  # measurements: one may be a dip
# Deviations of the mean of those that changed, by normal noise and weather together.
_STANDS_OUT_MIN = 4.4


def _beside_earlier(values: Array, deviations: Array) -> tuple[list[float], list[float], float]:
    """How far each lies from the mean of those before it, in standard deviations; 0 while these are few.

    And how much of that variance is weather; and how far the last one lies in the values' own measure. A stray moves
    the mean by no more than what is just surprising would.
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
    """How much larger steps are than their deviations say, by their median: a change is one step and counts little."""
    is_seen = np.isfinite(deviations)
    value, deviation = values[is_seen], deviations[is_seen]
    steps = np.abs(np.diff(value)) / np.hypot(deviation[1:], deviation[:-1])
    return max(_EXCESS_MIN, 1.4826 * float(np.median(steps))) if steps.size else 1.0
