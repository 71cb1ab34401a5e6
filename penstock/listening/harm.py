"""Knows how much a probe slows down the applications beside it: their latencies, against those before and after.

For each application and API that was heard often enough in all windows, it is the difference of mean latencies; over
all of them, the mean of these, weighted by attempts beside the probe. The reference is halfway between the mean before
the probe and the one after it, where there is one, so that an application that slows down steadily by itself is not
taken for harmed. The interval assumes that attempts are independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.listening.tally import Sender, Totals
from penstock.vocabulary import NORMAL_90, Estimate

ATTEMPT_COUNT_MIN = 20  # in each window: fewer give no useful mean
_NONE = Totals()

Window = Mapping[Sender, Totals]


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """What one probe cost the applications beside it."""

    attempt_count: int  # heard beside it, and compared
    latency_increase_seconds: Estimate
    refused_fraction_increase: float


def window(earlier: Window, later: Window) -> Window:
    """What was heard between two moments; senders that were forgotten in between count from zero."""
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


def harm(before: Window, beside: Window, after: Window | None = None) -> Harm | None:
    """The harm of a probe, with a 90 % interval; None where no sender was heard often enough."""
    windows = [before] if after is None else [before, after]
    count, increase, variance, refused = 0, 0.0, 0.0, 0.0
    for sender, now in beside.items():
        then = [one.get(sender, _NONE) for one in windows]
        if min(one.attempt_count for one in (now, *then)) < ATTEMPT_COUNT_MIN:
            continue
        n, share = now.attempt_count, 1.0 / len(then)
        count += n
        increase += n * (_mean(now) - share * sum(map(_mean, then)))
        variance += n**2 * (_variance_of_mean(now) + share**2 * sum(map(_variance_of_mean, then)))
        refused += now.refused_count - n * share * sum(one.refused_count / one.attempt_count for one in then)
    if not count:
        return None
    expected, spread = increase / count, NORMAL_90 * math.sqrt(variance) / count
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
