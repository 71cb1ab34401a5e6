"""Knows what a probe costs the applications beside it: how much longer their attempts take than just before.

For each application and API that was heard often enough in both windows, the difference of the two means; over all of
them the mean, each by its attempts beside the probe. The interval takes attempts for independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.listening.tally import Sender, Totals
from penstock.vocabulary import Estimate

ATTEMPT_COUNT_MIN = 20  # in each window: fewer have no mean to speak of
_NORMAL_90 = 1.6449
_NONE = Totals()

Window = Mapping[Sender, Totals]


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """Of one probe."""

    attempt_count: int  # that were heard beside it, and compared
    latency_increase_seconds: Estimate
    refused_fraction_increase: float


def window(earlier: Window, later: Window) -> Window:
    """What was heard between two moments; who was forgotten meanwhile begins anew."""
    found = {}
    for sender, now in later.items():
        then = earlier.get(sender, _NONE)
        if then.attempt_count > now.attempt_count:
            then = _NONE
        found[sender] = Totals(
            now.attempt_count - then.attempt_count,
            now.latency_seconds - then.latency_seconds,
            now.latency_seconds_squared - then.latency_seconds_squared,
            now.refused_count - then.refused_count,
        )
    return found


def harm(before: Window, beside: Window) -> Harm | None:
    """What the probe cost; None where nobody was heard often enough."""
    count, increase, variance, refused = 0, 0.0, 0.0, 0.0
    for sender, now in beside.items():
        then = before.get(sender, _NONE)
        if min(now.attempt_count, then.attempt_count) < ATTEMPT_COUNT_MIN:
            continue
        count += now.attempt_count
        increase += now.attempt_count * (_mean(now) - _mean(then))
        variance += now.attempt_count**2 * (_variance_of_mean(now) + _variance_of_mean(then))
        refused += now.refused_count - now.attempt_count * then.refused_count / then.attempt_count
    if not count:
        return None
    expected, spread = increase / count, _NORMAL_90 * math.sqrt(variance) / count
    return Harm(
        attempt_count=count,
        latency_increase_seconds=Estimate(expected - spread, expected, expected + spread),
        refused_fraction_increase=refused / count,
    )


def _mean(totals: Totals) -> float:
    return totals.latency_seconds / totals.attempt_count


def _variance_of_mean(totals: Totals) -> float:
    variance = totals.latency_seconds_squared / totals.attempt_count - _mean(totals) ** 2
    return max(0.0, variance) / (totals.attempt_count - 1)
