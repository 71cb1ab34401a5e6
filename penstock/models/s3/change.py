"""Knows since when a place is another one: surprises raise an alarm, and a second look finds one place or two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp

import numpy as np

from penstock.models.inference import drift, shapeless
from penstock.models.inference.posterior import Gaussian, derivatives
from penstock.models.inference.regression import Peak, maximise, refine
from penstock.models.model import SURPRISE_AFTER, SURPRISE_MIN, Array, Suspicion
from penstock.models.s3.evidence import Evidence
from penstock.models.s3.explanations import (
    OFF_MODEL_EVIDENCE,
    SIGMA_COMPARED,
    favour_of_law,
    settled,
    starts,
)
from penstock.models.s3.priors import loosen


@dataclass(frozen=True, slots=True)
class Change:
    """What was found: the first observation after the newest change; where there is none, how near it comes to one."""

    observation: int | None
    suspicion: Suspicion


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One measurement: how far it fell from what was expected, in standard deviations and as a logarithm."""

    observation: int
    surprise: float
    away: float
    is_certain: bool  # the first refusal of the place: no dip
    peak: Peak  # from which it was expected


_WATCH_AFTER = 5  # observations
_REFIT_ALWAYS = 9  # observations: up to here each one is learned from before the next is judged
_REFIT_EVERY = 6
_SEEN_COUNT = 24  # observations: enough to expect the next
_LOUDER = 2.4  # of the sums, until the alarm has half died down: less than one clear surprise adds
# Measurements with which a change may have begun: a dip just before it looks like a part of it.
_BEGINNINGS = 2
_PLACED_AMONG = 20  # measurements: what came before a change may have surprised, too, and be confirmed by it
_ANSWERED_AFTER = 6  # measurements: what an alarm was about is known by then, and it is over
_PLACES_APART = 2  # measurements: every second is tried, and then those beside the best
_STRIKING_AMONG = 3  # measurements, of which two that surprise are looked at again
_MODEL_SPREAD = 0.07  # of the logarithm: what the law may be off by at a place it has not seen


def find_change(evidence: Evidence, prior: Gaussian) -> Change:
    """The first observation after a change, when the sums of surprises raise the alarm and a second look agrees.

    One client is followed, penstock itself where it measured: another one that comes and goes is no change of the
    place.
    """
    evidence = evidence.seen()
    evidence = evidence.upto(int(evidence.column("observation")[evidence.is_sight()].max(initial=0)))
    steps, state, loudest = list[_Step](), drift.Cusum(), 0.0
    for step in _follow(evidence, prior):
        steps.append(step)
        state = state.after(step.surprise, is_certain=step.is_certain)
        if state.level < loudest / 2:
            loudest = 0.0
        firsts = _striking(steps)
        if is_loud := state.is_alarm and state.level >= loudest + _LOUDER:
            loudest = state.level
            changed = drift.changed_count([each.surprise for each in steps[-state.run :]])
            firsts |= {each.observation for each in steps[-changed:][:_BEGINNINGS]}
        if not firsts:
            continue
        before = _Before(evidence, prior, step.peak)
        look = _SecondLook(evidence.upto(step.observation), before)
        support, first = max((look.support(each), each) for each in firsts)
        around = _SecondLook(evidence.upto(first + _PLACED_AMONG), before)
        # What was measured since may confirm it.
        if 0 < support <= _CHANGE_EVIDENCE and len(around.evidence.rows) != len(look.evidence.rows):
            support = max(support, around.support(first))
        if support > _CHANGE_EVIDENCE_LEAST and _is_told(support, evidence, first, prior):
            placed = around.place(first)
            if placed is not None:
                return Change(placed, Suspicion())
        is_answered = int(evidence.column("observation").max()) >= step.observation + _ANSWERED_AFTER
        state = drift.Cusum() if is_loud and (support < 0 or is_answered) else state
    if not steps:
        return Change(None, Suspicion())
    last = steps[-1]
    surprise = last.surprise if _WATCH_AFTER + len(steps) > SURPRISE_AFTER else 0.0
    suspicion = Suspicion(level=state.level / drift.ALARM, surprise=surprise, value_ratio=exp(last.away))
    return Change(None, suspicion)


def _striking(steps: Sequence[_Step]) -> set[int]:
    """The first of a few measurements that surprise, whichever way: more connections may do better, and fewer worse."""
    known = steps[SURPRISE_AFTER - _WATCH_AFTER :]
    far = [each.observation for each in known[-_STRIKING_AMONG:] if abs(each.surprise) >= SURPRISE_MIN]
    return {far[0]} if len(far) > 1 and far[-1] == steps[-1].observation else set()


def _is_told(support: float, evidence: Evidence, first: int, prior: Gaussian) -> bool:
    """Whether so much support is enough, by how the law has stood up to what came before.

    Where it had been given up, or was too new to be judged, no law has to find two places as well.
    """
    before, after = evidence.split(first)
    problem = before.problem(prior)
    favour = favour_of_law(before, problem, maximise(problem, starts(before, prior)))
    if favour is not None and favour >= _TRUSTED_EVIDENCE:
        return True
    if support <= _CHANGE_EVIDENCE:
        return False
    if favour is not None and favour >= -OFF_MODEL_EVIDENCE:
        return True
    whole, earlier, later = (
        shapeless.log_evidence(each.sightings(np.ones(len(each.rows)))) for each in (evidence, before, after)
    )
    return earlier + later - whole > _CHANGE_EVIDENCE


def _follow(evidence: Evidence, prior: Gaussian) -> Iterator[_Step]:
    """The measurements one by one, each beside what was expected of it."""
    observation, is_trusted = evidence.column("observation"), evidence.column("is_trusted") > 0
    rows = [int(row) for row in np.flatnonzero(evidence.is_sight())]
    peak, seen_count, surprises, away = None, 0, np.zeros(0), np.zeros(0)
    for count in range(_WATCH_AFTER, len(rows)):
        row = rows[count]
        if peak is None or count < _REFIT_ALWAYS or count - seen_count >= _REFIT_EVERY:
            seen = Evidence(rows=evidence.rows[rows[max(0, count - _SEEN_COUNT)] : row])
            start = peak or maximise(seen.problem(prior), starts(seen, prior))
            peak, seen_count = refine(seen.problem(prior), start, iterations=2), count
            ahead = rows[count : count + _REFIT_EVERY]
            surprises, away = _surprises(Evidence(rows=tuple(evidence.rows[i] for i in ahead)), peak)
        yield _Step(
            observation=int(observation[row]),
            surprise=float(surprises[count - seen_count]),
            away=float(away[count - seen_count]),
            is_certain=bool(is_trusted[row] and not is_trusted[:row].any()),
            peak=peak,
        )


# Logarithm: eighteen hundred to one, for it is looked for at many places. With 7.5, 6.5 and 6 good advice came back
# after 7, 5.5 and 5 probes; of 1,344 probes of places that did not change 3, 3 and 5 raised an alarm, and of 1,920 in
# weeks of slow weather, by a tenth to a quarter, 19, 19 and 20. On a curve that follows no law 24 probes raised one
# with 2 of 12 noises at 7.5, and with 9 at 6.
_CHANGE_EVIDENCE = 7.5
# Where the law explained what came before so much better than no law did, a change takes less: made-up changes of that
# curve were found where it had a favour of 2 at the most, over what were ten measurements at the most.
_CHANGE_EVIDENCE_LEAST, _TRUSTED_EVIDENCE = 6.0, 3.0


# Of the logarithm. In a place that never changed, of quiet measurements and a dip in ten, 25 changes within sixty
# measurements had a support of 6 to 21 and a step of .14 at the median; places that changed by 2 to 4 had .3 and more.
_STEP_MIN = 0.25


class _Before:
    """What came before each observation that may be the first after a change, whatever was measured since."""

    def __init__(self, evidence: Evidence, prior: Gaussian, peak: Peak) -> None:
        self._evidence, self._prior, self._peak = evidence, prior, peak  # where the law was before the alarm
        self._known = dict[int, tuple[Peak, float]]()
        self.sigma = max(SIGMA_COMPARED, peak.sigma)

    def settled(self, evidence: Evidence) -> tuple[Peak, float]:
        """One place, and the logarithm of its evidence."""
        return settled(evidence, self._prior, self._peak, self.sigma)

    def known(self, first: int) -> tuple[Peak, float]:
        """The same of what came before this observation."""
        if first not in self._known:
            self._known[first] = self.settled(self._evidence.split(first)[0])
        return self._known[first]


class _SecondLook:
    """How much better two places, one after the other, explain measurements than one, as a logarithm of evidence.

    One place is looked for as widely as two: what is stuck at half a good explanation looks like no explanation.
    """

    def __init__(self, evidence: Evidence, before: _Before) -> None:
        self.evidence = evidence
        self._before = before
        self._two_places = dict[int, float]()
        self._steps = dict[int, float]()

    @cached_property
    def _one_place(self) -> float:
        return self._before.settled(self.evidence)[1]

    def support(self, first: int) -> float:
        """Of a change with this observation as the first after it."""
        if first not in self._two_places:
            after = self.evidence.split(first)[1]
            known, earlier = self._before.known(first)
            loosened = loosen(Gaussian(mean=known.theta, covariance=known.covariance))
            new, later = settled(after, loosened, known, self._before.sigma)
            self._two_places[first] = earlier + later
            then, now = after.law()(np.stack([known.theta, new.theta]))
            self._steps[first] = _step((now - then)[after.is_throughput()])
        return self._two_places[first] - self._one_place

    def place(self, first: int) -> int | None:
        """Where a change that is found near this observation explains best what was measured around it.

        None where that does not bear it out, for two dips in a row look like a change until the next measurement; and
        where hardly anything moved: two laws fit many measurements better than one where neither fits well.
        """
        numbers = [int(n) for n in np.unique(self.evidence.column("observation")[self.evidence.is_sight()])]
        possible = [number for number in numbers[_WATCH_AFTER:-1] if number > first - _BEGINNINGS]
        possible = sorted({first, *possible})
        best = max((first, *possible[::_PLACES_APART]), key=self.support)
        at = possible.index(best)
        best = max(possible[max(0, at - _PLACES_APART + 1) : at + _PLACES_APART], key=self.support)
        is_borne_out = self.support(best) > _CHANGE_EVIDENCE_LEAST and self._steps[best] > _STEP_MIN
        return best if is_borne_out else None


def _step(moved: Array) -> float:
    """By how much throughput moved, as a logarithm: what a few measurements show of it counts nearly by itself."""
    return float(np.mean(moved**4) ** 0.25) if len(moved) else 0.0


def _surprises(evidence: Evidence, peak: Peak) -> tuple[Array, Array]:
    """How far each measurement fell from what was expected of it, in standard deviations and as a logarithm."""
    law, data, at = evidence.law(), evidence.measurements(), peak.theta[None]
    slopes = derivatives(law, at)[0]
    known = np.einsum("mp,pq,mq->m", slopes, peak.covariance, slopes)
    variance = data.spread(np.array([peak.sigma]))[0] ** 2 + known + _MODEL_SPREAD**2
    away = np.asarray(data.log_values - law(at)[0], dtype=np.float64)
    return away / np.sqrt(variance), away
