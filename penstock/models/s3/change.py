"""Knows how a change of the place is found: surprises raise an alarm, and a second look decides between one and two.

One place explains all measurements; two places explain those before and after a change.
"""

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
    """The first change that was found, by its first observation; None if there is none, with the suspicion of one.

    `home` is the index of the earlier state to which the place returned, None if the state is new. `until` is the first
    observation after the change was over, if the place returned to the state just before it.
    """

    observation: int | None
    suspicion: Suspicion
    home: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One measurement, and how far it is from its prediction."""

    observation: int
    surprise: float  # in standard deviations
    away: float  # as a logarithm
    is_certain: bool  # the first refusal of the place, which cannot be a dip
    is_found: bool  # whether a new law explains the last measurements, which surprised the law before
    peak: Peak  # the basis of the prediction


_REFIT_ALWAYS = 9  # observations, up to which each is learned from before the next is judged
_REFIT_EVERY = 6
_LOST_AFTER = 2  # surprises in a row, after which the law is searched for anew
_SEEN_COUNT = 24  # observations that suffice to predict the next
# How much the sums must grow to raise the alarm again before it has half died down: less than a clear surprise adds.
_LOUDER = 2.4
# Measurements, from the first suspected one on, among which the change is placed.
_PLACED_AMONG = 20
_ANSWERED_AFTER = 6  # measurements after which an alarm has been decided and is over
_STRIKING_AMONG = 3  # measurements, of which two surprises call for a second look


def find_change(
    evidence: Evidence, prior: Gaussian, homes: Sequence[Gaussian] = (), *, known_until: int = -1
) -> Change:
    """Find the first change, and say how strongly one is suspected if there is none.

    Cumulative sums of surprises, or a few striking measurements, suggest a change, and a second look decides. `homes`
    are beliefs about earlier states, to which the place may return. Up to the observation `known_until` it is known not
    to have changed. Only one client is followed, penstock itself if it measured, because another client that comes and
    goes is no change of the place.
    """
    evidence = evidence.seen()
    evidence = evidence.upto(int(evidence.column("observation")[evidence.is_sight()].max(initial=0)))
    steps, state, loudest, before = list[_Step](), drift.Cusum(), 0.0, None
    for step in _follow(evidence, prior, known_until):
        steps.append(step)
        state = drift.Cusum() if step.is_found else state
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
        # Later measurements may confirm it.
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
    """The first of `enough` surprises among the latest measurements, if the newest is one of them; else empty.

    Surprises in both directions count, because more connections may do better and fewer worse.
    """
    known = steps[SURPRISE_AFTER - WATCH_AFTER :]
    far = [each.observation for each in known[-_STRIKING_AMONG:] if abs(each.surprise) >= SURPRISE_MIN]
    return {far[0]} if len(far) >= enough and far[-1] == steps[-1].observation else set()


def _is_told(support: float, evidence: Evidence, first: int, prior: Gaussian) -> bool:
    """Whether the support is enough, given how well the law explained the measurements before.

    If the law was given up, or cannot be judged yet, a model without a law has to find two places as well.
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
    """The measurements one by one, each compared with its prediction from those before.

    After surprises in a row the law is searched for anew: a refined one would stay where it was, and take measurements
    of settings or sizes that it was never told of for dips, one after the other.
    """
    observation, is_trusted = evidence.column("observation"), evidence.column("is_trusted") > 0
    rows = [int(row) for row in np.flatnonzero(evidence.is_sight())]
    peak, seen_count, surprises, away = None, 0, np.zeros(0), np.zeros(0)
    known_count = int((observation[rows] <= known_until).sum())
    for count in range(max(WATCH_AFTER, known_count), len(rows)):
        last = np.abs(surprises[: count - seen_count][-_LOST_AFTER:])
        is_lost = len(last) == _LOST_AFTER and bool((last >= SURPRISE_MIN).all())
        if peak is None or is_lost or count < _REFIT_ALWAYS or count - seen_count >= _REFIT_EVERY:
            seen = Evidence(rows=evidence.rows[rows[max(0, count - _SEEN_COUNT)] : rows[count]])
            if peak is None or is_lost:
                peak = maximise(seen.problem(prior), starts(seen, prior))
            peak, seen_count = refine(seen.problem(prior), peak, iterations=2), count
            surprises, away = how_surprising(evidence.of(rows[count : count + _REFIT_EVERY]), peak)
        if is_lost:
            last = np.abs(how_surprising(evidence.of(rows[count - _LOST_AFTER : count]), peak)[0])
        yield _Step(
            observation=int(observation[rows[count]]),
            surprise=float(surprises[count - seen_count]),
            away=float(away[count - seen_count]),
            is_certain=bool(is_trusted[rows[count]] and not is_trusted[: rows[count]].any()),
            is_found=is_lost and bool((last < SURPRISE_MIN).all()),
            peak=peak,
        )
