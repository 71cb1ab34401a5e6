"""Knows what a place was, one after the other, and which of what was measured is about what it is now.

A place that changes is another one, and may become again what it was: a neighbour goes, the evening ends. What was
measured then is about now as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from penstock.models.inference.posterior import Gaussian
from penstock.models.inference.regression import maximise
from penstock.models.model import Periods, Suspicion
from penstock.models.s3.change import find_change
from penstock.models.s3.evidence import Evidence
from penstock.models.s3.explanations import starts
from penstock.models.s3.priors import loosen, revisited

_HOMES_MAX = 3  # the newest: each is asked about beside every change that is thought of


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """What the place was for a time, or in turns: what was measured, and what was believed before it was.

    `changed_at` is when it last became this, None where nothing came before; `earlier` when it was, before that.
    """

    evidence: Evidence
    prior: Gaussian
    changed_at: datetime | None = None
    earlier: Periods = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """What the place was until it changed, and what is believed of it."""

    stay: Stay
    belief: Gaussian


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the place is now, how often it changed, and how near it comes to another change."""

    stay: Stay
    change_count: int
    suspicion: Suspicion


def follow(evidence: Evidence, prior: Gaussian) -> Known:
    """Everything that the place was, one change after the other."""
    stay, known_until, change_count = Stay(evidence=evidence, prior=prior), -1, 0
    left = list[_Left]()
    while True:
        homes = left[-_HOMES_MAX:]
        beliefs = [revisited(home.belief) for home in homes]
        change = find_change(stay.evidence, stay.prior, beliefs, known_until=known_until)
        if change.observation is None:
            return Known(stay=stay, change_count=change_count, suspicion=change.suspicion)
        before, after = stay.evidence.split(change.observation)
        home = homes[change.home] if change.home is not None else None
        gone = _ended(stay, before, after.begins_at)
        known_until, change_count = change.observation, change_count + 1
        if change.until is not None:
            during, after = after.split(change.until)
            home, gone = gone, _ended(_new(gone, during), during, after.begins_at)
            known_until, change_count = change.until, change_count + 1
        left = [one for one in left if one is not home] + [gone]
        stay = _new(gone, after) if home is None else _again(home.stay, after)


def _ended(stay: Stay, evidence: Evidence, at: datetime) -> _Left:
    peak = maximise(evidence.problem(stay.prior), starts(evidence, stay.prior))
    earlier = (*stay.earlier, (stay.changed_at or stay.evidence.begins_at, at))
    return _Left(stay=replace(stay, evidence=evidence, earlier=earlier), belief=peak.belief)


def _new(gone: _Left, evidence: Evidence) -> Stay:
    return Stay(evidence=evidence, prior=loosen(gone.belief), changed_at=evidence.begins_at)


def _again(stay: Stay, evidence: Evidence) -> Stay:
    rows = stay.evidence.rows + evidence.rows
    return replace(stay, evidence=Evidence(rows=rows), changed_at=evidence.begins_at)
