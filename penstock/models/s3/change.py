"""Knows since when a place is another one: surprises raise an alarm, and a second look finds one place or two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np

from penstock.models.inference import drift, shapeless
from penstock.models.inference.posterior import Gaussian
from penstock.models.inference.regression import Peak, maximise, refine
from penstock.models.model import SURPRISE_AFTER, SURPRISE_MIN, Suspicion
from penstock.models.s3.evidence import Evidence
from penstock.models.s3.explanations import OFF_MODEL_EVIDENCE, favour_of_law, starts
from penstock.models.s3.second_look import (
    BEGINNINGS,
    CHANGE_EVIDENCE,
    CHANGE_EVIDENCE_LEAST,
    RETURN_EVIDENCE,
    TRUSTED_EVIDENCE,
    WATCH_AFTER,
    Before,
    how_surprising,
)


@dataclass(frozen=True, slots=True)
class Change:
    """What was found: the first observation after the first change; where there is none, how near it comes to one.

    `home` says which of the places that it was before it is again, None where it is a new one; `until` which
    observation is the first after it was over, for the place is again what it was before the change.
    """

    observation: int | None
    suspicion: Suspicion
    home: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One measurement: how far it fell from what was expected, in standard deviations and as a logarithm."""

    observation: int
    surprise: float
    away: float
    is_certain: bool  # the first refusal of the place: no dip
    peak: Peak  # from which it was expected


_REFIT_ALWAYS = 9  # observations: up to here each one is learned from before the next is judged
_REFIT_EVERY = 6
_SEEN_COUNT = 24  # observations: enough to expect the next
_LOUDER = 2.4  # of the sums, until the alarm has half died down: less than one clear surprise adds
_PLACED_AMONG = 20  # measurements: what came before a change may have surprised, too, and be confirmed by it
_ANSWERED_AFTER = 6  # measurements: what an alarm was about is known by then, and it is over
_STRIKING_AMONG = 3  # measurements, of which two that surprise are looked at again


def find_change(
    evidence: Evidence, prior: Gaussian, homes: Sequence[Gaussian] = (), *, known_until: int = -1
) -> Change:
    """The first observation after a change, when the sums of surprises raise the alarm and a second look agrees.

    What it was before, `homes`, it may be again. Up to `known_until`, an observation, it is known not to have changed.

    One client is followed, penstock itself where it measured: another one that comes and goes is no change of the
    place.
    """
    evidence = evidence.seen()
    evidence = evidence.upto(int(evidence.column("observation")[evidence.is_sight()].max(initial=0)))
    steps, state, loudest, before = list[_Step](), drift.Cusum(), 0.0, None
    for step in _follow(evidence, prior, known_until):
        steps.append(step)
        state = state.after(step.surprise, is_certain=step.is_certain)
        if state.level < loudest / 2:
            loudest = 0.0
        firsts = _striking(steps, enough=1 if homes else 2)
        if is_loud := state.is_alarm and state.level >= loudest + _LOUDER:
            loudest = state.level
            changed = drift.changed_count([each.surprise for each in steps[-state.run :]])
            firsts |= {each.observation for each in steps[-changed:][:BEGINNINGS]}
        if not firsts:
            continue
        if before is None or before.peak is not step.peak:
            before = Before(evidence, prior, step.peak, homes)
        look = before.look(step.observation)
        support, first = max((look.support(each), each) for each in firsts)
        around = before.look(first + _PLACED_AMONG)
        # What was measured since may confirm it.
        if 0 < support <= CHANGE_EVIDENCE:
            support = max(support, around.support(first))
        is_back = around.home(first) is not None and support > RETURN_EVIDENCE
        if is_back or (support > CHANGE_EVIDENCE_LEAST and _is_told(support, evidence, first, prior)):
            placed = around.place(first, known_until)
            if placed is not None:
                return Change(placed, Suspicion(), around.home(placed))
            if (until := around.over(first)) is not None:
                return Change(first, Suspicion(), until=until)
        is_answered = int(evidence.column("observation").max()) >= step.observation + _ANSWERED_AFTER
        state = drift.Cusum() if is_loud and (support < 0 or is_answered) else state
    if not steps:
        return Change(None, Suspicion())
    last = steps[-1]
    surprise = last.surprise if WATCH_AFTER + len(steps) > SURPRISE_AFTER else 0.0
    suspicion = Suspicion(level=state.level / drift.ALARM, surprise=surprise, value_ratio=exp(last.away))
    return Change(None, suspicion)


def _striking(steps: Sequence[_Step], *, enough: int) -> set[int]:
    """The first of a few measurements that surprise, whichever way: more connections may do better, and fewer worse."""
    known = steps[SURPRISE_AFTER - WATCH_AFTER :]
    far = [each.observation for each in known[-_STRIKING_AMONG:] if abs(each.surprise) >= SURPRISE_MIN]
    return {far[0]} if len(far) >= enough and far[-1] == steps[-1].observation else set()


def _is_told(support: float, evidence: Evidence, first: int, prior: Gaussian) -> bool:
    """Whether so much support is enough, by how the law has stood up to what came before.

    Where it had been given up, or was too new to be judged, no law has to find two places as well.
    """
    before, after = evidence.split(first)
    problem = before.problem(prior)
    favour = favour_of_law(before, problem, maximise(problem, starts(before, prior)))
    if favour is not None and favour >= TRUSTED_EVIDENCE:
        return True
    if support <= CHANGE_EVIDENCE:
        return False
    if favour is not None and favour >= -OFF_MODEL_EVIDENCE:
        return True
    whole, earlier, later = (
        shapeless.log_evidence(each.sightings(np.ones(len(each.rows)))) for each in (evidence, before, after)
    )
    return earlier + later - whole > CHANGE_EVIDENCE


def _follow(evidence: Evidence, prior: Gaussian, known_until: int) -> Iterator[_Step]:
    """The measurements one by one, each beside what was expected of it."""
    observation, is_trusted = evidence.column("observation"), evidence.column("is_trusted") > 0
    rows = [int(row) for row in np.flatnonzero(evidence.is_sight())]
    peak, seen_count, surprises, away = None, 0, np.zeros(0), np.zeros(0)
    known_count = int((observation[rows] <= known_until).sum())
    for count in range(max(WATCH_AFTER, known_count), len(rows)):
        row = rows[count]
        if peak is None or count < _REFIT_ALWAYS or count - seen_count >= _REFIT_EVERY:
            seen = Evidence(rows=evidence.rows[rows[max(0, count - _SEEN_COUNT)] : row])
            start = peak or maximise(seen.problem(prior), starts(seen, prior))
            peak, seen_count = refine(seen.problem(prior), start, iterations=2), count
            ahead = rows[count : count + _REFIT_EVERY]
            surprises, away = how_surprising(Evidence(rows=tuple(evidence.rows[i] for i in ahead)), peak)
        yield _Step(
            observation=int(observation[row]),
            surprise=float(surprises[count - seen_count]),
            away=float(away[count - seen_count]),
            is_certain=bool(is_trusted[row] and not is_trusted[:row].any()),
            peak=peak,
        )
