"""Knows whether penstock was right: predictions against measurements, what advice lost, whose reports were believed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from penstock.models.model import Fit, PerformanceModel, handed_on
from penstock.optimizer.reports import Hearing, hear, reporter
from penstock.vocabulary import Basis, Estimate, Observation, Reason, Recommendation

REASONS = {
    Reason.RAMP: "the safe start: few threads first",
    Reason.EXPLORE: "where least was known for the price",
    Reason.REFINE: "near the best so far",
    Reason.VERIFY: "what is advised, to check it",
    Reason.REQUESTED: "somebody asked for it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """Advice that stood from a moment on, and what it loses against today's advice, by today's fit."""

    at: datetime
    setting: Any  # of the operation's own type
    lost_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearsay:
    """What one client of one user reported, and what became of it."""

    client: str
    reported_count: int
    heard_count: int  # that were examined: the newest of each size and setting
    believed_count: int
    learned_count: int  # beside measurements, the weight of reports is limited
    newest_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharpness:
    """How narrow predictions were, and how far they were off in the median."""

    half_width_fraction: float  # median half width of the 90 % intervals
    bias_fraction: float  # median of measured over expected, minus one


def regrets(
    advised: Sequence[Recommendation[Any]],
    value_of: Callable[[Any], Estimate | None],
    *,
    best: Any,
    since: datetime,
) -> tuple[Regret, ...]:
    """For the ordinary advice on one size, one at each change of setting; only since the place last changed."""
    top = value_of(best)
    if top is None or top.expected <= 0:
        return ()
    known = [r for r in advised if r.basis is not Basis.DEFAULT]
    before = [r for r in known if r.issued_at < since]
    found = list[Regret]()
    for one in [*before[-1:], *known[len(before) :]]:
        value = value_of(one.setting)
        if value is not None and not (found and found[-1].setting == one.setting):
            at = max(one.issued_at, since)
            lost = max(0.0, 1.0 - value.expected / top.expected)
            found.append(Regret(at=at, setting=one.setting, lost_fraction=lost))
    return tuple(found)


def mean_regret(course: Sequence[Regret], until: datetime) -> float:
    """The lost fraction, averaged over time."""
    ends = [*(r.at for r in course[1:]), max(until, course[-1].at)]
    spans = [(end - r.at).total_seconds() for r, end in zip(course, ends, strict=True)]
    total = sum(spans)
    weighted = sum(r.lost_fraction * span for r, span in zip(course, spans, strict=True))
    return weighted / total if total > 0 else course[-1].lost_fraction


def hearsay(
    model: PerformanceModel[Any],
    fit: Fit | None,
    probes: Sequence[Observation[Any]],
    reports: Sequence[Observation[Any]],
) -> tuple[tuple[Hearsay, ...], tuple[Observation[Any], ...]]:
    """By client and user, most reports first: what became of their reports; and all reports that are believed.

    Reports are judged as the daemon judges them at a fit, oldest first. A believed report has the setting that was in
    use, and only what is learned from. Without a fit nothing is examined.
    """
    hearing = Hearing(heard=(), believed=(), learned_from=(), probes=())
    if fit is not None and reports:
        hearing = hear(model, fit.unreported or handed_on(fit), probes, reports)
    heard, believed, learned = (
        Counter(one.client for one in some)
        for some in (hearing.heard, hearing.believed, hearing.learned_from)
    )
    newest = {reporter(one): one.started_at for one in reports}
    told = tuple(
        Hearsay(
            client=name,
            reported_count=count,
            heard_count=heard[name],
            believed_count=believed[name],
            learned_count=learned[name],
            newest_at=newest[name],
        )
        for name, count in Counter(map(reporter, reports)).most_common()
    )
    return told, hearing.believed


def sharpness(pairs: Sequence[tuple[float, Estimate]]) -> Sharpness | None:
    """From pairs of measured value and prediction; None if there is nothing to judge."""
    kept = [(seen, e) for seen, e in pairs if seen > 0 and 0 < e.low <= e.expected]
    if not kept:
        return None
    widths = [math.sqrt(e.high / e.low) - 1.0 for _, e in kept]
    return Sharpness(
        half_width_fraction=median(widths), bias_fraction=median(seen / e.expected for seen, e in kept) - 1.0
    )
