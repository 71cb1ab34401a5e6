"""Knows what a comparison comes to: a place and size on both sides, and by how much they differ."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.optimizer.verdict import signed_percent
from penstock.vocabulary import NORMAL_90, Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place and size on both sides."""

    what: str
    one: str
    other: str
    fraction: Estimate | None  # of this side over the other, less one; None where one of them is not known

    @property
    def is_certain(self) -> bool:
        """Whether it goes one way for certain."""
        return self.fraction is not None and (self.fraction.low > 0 or self.fraction.high < 0)

    @property
    def words(self) -> str:
        """``-33 % (-40 to -25 %)``."""
        return "too little was measured" if self.fraction is None else signed_span(self.fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What was compared, and what came of it."""

    title: str
    one: str  # what the columns are called
    other: str
    differences: tuple[Difference, ...]

    @property
    def sentences(self) -> list[str]:
        """What differs for certain; else that nothing does."""
        if not self.differences:
            return ["No place and size is on both sides"]
        certain = [f"{each.what}: {each.words}" for each in self.differences if each.is_certain]
        return certain or ["Nothing differs for certain"]


def signed_span(fraction: Estimate) -> str:
    """``-33 % (-40 to -25 %)``."""
    middle, low, high = map(signed_percent, (fraction.expected, fraction.low, fraction.high))
    return f"{middle} ({low} to {high})"


def ratio(one: Estimate | None, other: Estimate | None) -> Estimate | None:
    """Of two estimates that have nothing to do with each other, less one; None where one of them is not positive."""
    if one is None or other is None or min(one.low, one.expected, other.low, other.expected) <= 0:
        return None
    middle = math.log(one.expected / other.expected)
    reach = NORMAL_90 * math.hypot(log_deviation(one), log_deviation(other))
    return Estimate(*(math.expm1(v) for v in (middle - reach, middle, middle + reach)))


def log_deviation(estimate: Estimate) -> float:
    """The standard deviation of its logarithm."""
    return math.log(estimate.high / estimate.low) / (2 * NORMAL_90)


def welch(one: Sequence[float], other: Sequence[float]) -> Estimate | None:
    """How much more the one is than the other on average, as a ratio less one, of values that are logarithms.

    With Welch's interval of 90 %; None where there is nothing to tell chance by.
    """
    if min(len(one), len(other)) < 2:
        return None
    from scipy import stats  # a third of a second, for those reports alone that need it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of values that are all alike
        ends = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.90)
    middle = sum(one) / len(one) - sum(other) / len(other)
    if not (math.isfinite(ends.low) and math.isfinite(ends.high)):
        return None
    return Estimate(*(float(math.expm1(v)) for v in (ends.low, middle, ends.high)))
