"""Knows when a place has changed: a cumulative sum over how far each measurement fell from what was expected of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def run(surprises: Sequence[float]) -> Cusum:
    """The sums after all of them."""
    state = Cusum()
    for surprise in surprises:
        state = state.after(surprise)
    return state


def changed_count(surprises: Sequence[float]) -> int:
    """How many of the last measurements came after the change: those whose sum stands out most; at least one.

    The sums begin where chance has begun to lean to one side, which is often some measurements too early.
    """
    total, best, count = 0.0, -1.0, 1
    for number, surprise in enumerate(reversed(surprises), start=1):
        total += max(-_STRIKING, min(_STRIKING, surprise))
        if abs(total) / number**0.5 > best:
            best, count = abs(total) / number**0.5, number
    return count


_STRIKING = 6.0
