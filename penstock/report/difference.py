"""Knows the result of a comparison: a place and size on both sides, and by how much they differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

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


_TRIMMED = 0.2  # of the values on each side of each group


def welch(one: Sequence[float], other: Sequence[float]) -> Estimate | None:
    """The mean of one side over that of the other, as a ratio minus one, for values that are logarithms.

    With the 90 % interval of Welch's test for trimmed means (Yuen, Biometrika 61, 1974), because a single measurement
    at a tenth of the usual would hide any difference. None if there are too few values to estimate the variance.
    """
    if min(len(one), len(other)) < 2:
        return None
    from scipy import stats  # takes a third of a second, so only reports that need it pay

    groups = [_trimmed(values) for values in (one, other)]
    variances = [each for _, each, _ in groups]
    reach, total = 0.0, sum(variances)
    if total:
        freedom = total**2 / sum(each**2 / (count - 1) for _, each, count in groups)
        reach = float(stats.t.ppf(0.95, freedom)) * math.sqrt(total)
    middle = groups[0][0] - groups[1][0]
    return Estimate(*(math.expm1(value) for value in (middle - reach, middle, middle + reach)))


def _trimmed(values: Sequence[float]) -> tuple[float, float, int]:
    """The trimmed mean, its variance, and how many values are left."""
    ordered, cut = sorted(values), int(_TRIMMED * len(values))
    kept = ordered[cut : len(values) - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    spread = (len(values) - 1) * variance(winsorized)
    return fmean(kept), spread / (len(kept) * (len(kept) - 1)), len(kept)
