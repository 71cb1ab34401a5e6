"""Knows the result of a comparison: a place and size on both sides, and by how much they differ."""

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
    fraction: Estimate | None  # this side over the other, minus one; None if either is unknown

    @property
    def is_certain(self) -> bool:
        """Whether the 90 % interval excludes zero."""
        return self.fraction is not None and (self.fraction.low > 0 or self.fraction.high < 0)

    @property
    def words(self) -> str:
        """``-33 % (-40 to -25 %)``."""
        return "too little was measured" if self.fraction is None else signed_span(self.fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What was compared, and the result."""

    title: str
    one: str  # headings of the columns
    other: str
    differences: tuple[Difference, ...]

    @property
    def sentences(self) -> list[str]:
        """The differences that are certain, or that there are none."""
        if not self.differences:
            return ["No place and size appears on both sides"]
        certain = [f"{each.what}: {each.words}" for each in self.differences if each.is_certain]
        return certain or ["No difference is certain"]


def signed_span(fraction: Estimate) -> str:
    """``-33 % (-40 to -25 %)``."""
    middle, low, high = map(signed_percent, (fraction.expected, fraction.low, fraction.high))
    return f"{middle} ({low} to {high})"


def ratio(one: Estimate | None, other: Estimate | None) -> Estimate | None:
    """The ratio of two independent estimates, minus one; None if one of them is not positive."""
    if one is None or other is None or min(one.low, one.expected, other.low, other.expected) <= 0:
        return None
    middle = math.log(one.expected / other.expected)
    reach = NORMAL_90 * math.hypot(log_deviation(one), log_deviation(other))
    return Estimate(*(math.expm1(v) for v in (middle - reach, middle, middle + reach)))


def log_deviation(estimate: Estimate) -> float:
    """The standard deviation of the estimate's logarithm."""
    return math.log(estimate.high / estimate.low) / (2 * NORMAL_90)


def welch(one: Sequence[float], other: Sequence[float]) -> Estimate | None:
    """The mean of one side over that of the other, as a ratio minus one, for values that are logarithms.

    With Welch's 90 % interval; None if there are too few values to estimate the variance.
    """
    if min(len(one), len(other)) < 2:
        return None
    from scipy import stats  # takes a third of a second, so only reports that need it pay

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # if all values are equal
        ends = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.90)
    middle = sum(one) / len(one) - sum(other) / len(other)
    if not (math.isfinite(ends.low) and math.isfinite(ends.high)):
        return None
    return Estimate(*(float(math.expm1(v)) for v in (ends.low, middle, ends.high)))
