"""Knows the successive states of a place, and which measurements are about its present state.

A place that changed may return to an earlier state: a neighbour leaves, the evening ends. Then measurements of that
state count again.
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

_HOMES_MAX = 3  # the newest earlier states; each is tested with every possible change


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A state of the place during one or more periods: the measurements made in it, and the prior before them.

    `changed_at` is when the place last entered it, None if it was the first; `earlier` are the periods before that.
    """

    evidence: Evidence
    prior: Gaussian
    changed_at: datetime | None = None
    earlier: Periods = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """A state that the place has left, and the belief about its parameters."""

    stay: Stay
    belief: Gaussian


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The present state of the place, how often it changed, and how strongly another change is suspected."""

    stay: Stay
    change_count: int
    suspicion: Suspicion


def follow(evidence: Evidence, prior: Gaussian) -> Known:
    """Find the changes of the place one after the other, and return its present state."""
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
