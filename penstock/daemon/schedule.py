"""Knows when each context is due for its next probe: at the moments of a Poisson process.

Probes at regular intervals see a periodic world at one phase only; with exponential gaps, each state of the world is
seen as often as it lasts. The gap after attempt n of a context is

    gap(n) = mean interval * pace * stretch * min(E, 5),   E = -ln(1 - u),   u uniform in [0, 1) from (seed, context, n)

so a restart computes the same due time. A due time that passed while nothing could run (the daemon was down, the budget
was spent) is drawn again from the moment when running resumed: the process is memoryless, so its rate stays the same,
and contexts that waited together do not run together. The pace is evaluated whenever the due time is asked for: while
applications report, the due time moves away, and it comes back when they fall silent. After a measurement far from the
prediction, the gap is at most a quarter of the mean interval. Where a budget binds, gaps are stretched so that it lasts
the day (`rationing`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.vocabulary import Context

LEARNING_COUNT = 16  # observations that a context needs before it is probed at its own pace
LEARNING_PACE = 0.25
STEADY_PACE = 2.0
SUSPECT_GAP = 0.25  # of the mean interval: the longest gap while a change is suspected
APPLICATIONS_PACE = 4.0
REPORT_COUNT_ENOUGH = 8
REPORT_FRESH_INTERVALS = 8.0  # mean intervals: older reports replace no probe
GAP_MEANS_MAX = 5.0  # cuts off one gap in 150 and shortens the mean by 0.7 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the schedule knows of a context."""

    context: Context
    mean_interval_seconds: float
    attempt_count: int = 0
    last_attempt_at: datetime | None = None
    observation_count: int = 0  # of this context, since it last changed
    is_steady: bool = False  # the last observations were as predicted
    is_suspect: bool = False  # the last observation was not as predicted: the place may have changed
    # When the transfers began whose reports are believed.
    reports_at: tuple[datetime, ...] = ()
    postponed_until: datetime | None = None  # by the budget or the host
    stretch: float = 1.0  # of the gaps, where a budget binds


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A context, and the moment from which it is due."""

    context: Context
    due_at: datetime


def pace(standing: Standing, now: datetime) -> float:
    """The factor on the mean interval: 0.25 while learning or after a change, 8 at most.

    Fresh reports of applications that agree with the measurements replace probes, but never all of them: only a probe
    is certain to notice a change.
    """
    if standing.observation_count < LEARNING_COUNT:
        return LEARNING_PACE
    steady = STEADY_PACE if standing.is_steady else 1.0
    supply = min(1.0, fresh_report_count(standing, now) / REPORT_COUNT_ENOUGH)
    return steady * (1.0 + (APPLICATIONS_PACE - 1.0) * supply)


def is_in_a_hurry(standing: Standing) -> bool:
    """Whether the context is new, or may have changed."""
    return standing.is_suspect or standing.observation_count < LEARNING_COUNT


def mean_gap_seconds(standing: Standing, now: datetime) -> float:
    """The mean gap between two probes, before budgets stretch it."""
    intervals = SUSPECT_GAP * -math.expm1(-1.0) if standing.is_suspect else pace(standing, now)
    return standing.mean_interval_seconds * intervals


def fresh_report_count(standing: Standing, now: datetime) -> int:
    """How many believed reports are not older than a few mean intervals."""
    oldest = now - timedelta(seconds=REPORT_FRESH_INTERVALS * standing.mean_interval_seconds)
    return sum(at >= oldest for at in standing.reports_at)


def due_at(seed: int, standing: Standing, *, resumed_at: datetime, now: datetime) -> datetime:
    """When the context is due; `resumed_at` is when running began or resumed."""
    last_at = standing.last_attempt_at
    if last_at is not None and last_at > now:
        # The clock stepped back: an attempt in the future says nothing, but a postponement since then holds.
        return max(now, standing.postponed_until or now)
    held_until = max(resumed_at, standing.postponed_until or resumed_at)
    if last_at is not None:
        due = last_at + _gap(seed, standing, "", now)
        if due >= held_until:
            return due
    return held_until + _gap(seed, standing, held_until.isoformat(), now)


def next_due(seed: int, standings: Iterable[Standing], *, resumed_at: datetime, now: datetime) -> Due | None:
    """The context that is due first; None when there are none."""
    dues = (
        Due(context=standing.context, due_at=due_at(seed, standing, resumed_at=resumed_at, now=now))
        for standing in standings
    )
    return min(dues, key=lambda due: due.due_at, default=None)


def _gap(seed: int, standing: Standing, salt: str, now: datetime) -> timedelta:
    draw = min(-math.log1p(-_uniform(seed, standing.context, standing.attempt_count, salt)), GAP_MEANS_MAX)
    intervals = SUSPECT_GAP * min(draw, 1.0) if standing.is_suspect else pace(standing, now) * draw
    return timedelta(seconds=standing.mean_interval_seconds * intervals * standing.stretch)


def _uniform(seed: int, context: Context, count: int, salt: str) -> float:
    place = context.place
    words = (seed, place.operation, place.region, place.instance_type, place.service_class)
    text = "\x1f".join(map(str, (*words, context.payload_size_bytes, count, salt)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
