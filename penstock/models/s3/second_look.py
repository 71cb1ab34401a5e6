"""Knows how much better two places explain the measurements than one, and whether the second is an earlier state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.models.inference.posterior import Gaussian, derivatives
from penstock.models.inference.regression import Peak
from penstock.models.model import Array
from penstock.models.s3.evidence import Evidence
from penstock.models.s3.explanations import SIGMA_COMPARED, settled
from penstock.models.s3.priors import loosen, revisited

WATCH_AFTER = 5  # observations
# Measurements with which a change may have begun, because a dip just before it looks like a part of it.
BEGINNINGS = 2
_PLACES_APART = 2  # measurements: every second is tried, and then those around the best
_MODEL_SPREAD = 0.07  # of the logarithm: the law's misfit at a setting that it was not fitted to

# Log evidence: odds of 1,800 to one, because many moments are tested. With 7.5, 6.5 and 6, good advice returned after
# 7, 5.5 and 5 probes. Of 1,344 probes in places that did not change, 3, 3 and 5 raised an alarm; of 1,920 in weeks of
# slow weather, by a tenth to a quarter, 19, 19 and 20. On a curve that follows no law, 24 probes raised one with 2 of
# 12 noises at 7.5, and with 9 at 6.
CHANGE_EVIDENCE = 7.5
# Less is enough if the law explained the measurements before by at least `TRUSTED_EVIDENCE` better than no law. On that
# curve, false changes were found only where this was at most 2, over at most ten measurements.
CHANGE_EVIDENCE_LEAST, TRUSTED_EVIDENCE = 6.0, 3.0

RETURN_EVIDENCE = 4.5  # log evidence: returning to an earlier state is more likely than a new one


# Of the logarithm. In a quiet place that never changed, with one dip in ten, 25 changes found within sixty measurements
# had a support of 6 to 21 and a median step of .14; places that changed by factors of 2 to 4 had .3 and more.
_STEP_MIN = 0.25


_ALIKE = 1.0  # log evidence: moments of a return that are no worse than the best by more than this
# Log evidence by which an earlier state must explain the later measurements better than a new one.
_HOME_FAVOUR = 1.0
# Squared standard deviations: beyond the first, a measurement counts against the earlier state, up to the second.
_FOREIGN, _FOREIGN_MAX = 2.0, 9.0
_SPELL_MIN = 3  # measurements; two in a row are dips if the place is then as before


@dataclass(frozen=True, slots=True, kw_only=True)
class _TwoPlaces:
    """The explanation by two places: its log evidence, and how far they are apart in the logarithm of throughput.

    `home` is the index of the earlier state that the second one is; None if it is new.
    """

    log_evidence: float
    step: float
    home: int | None


class Before:
    """Caches explanations of what came before each possible change, which do not depend on later measurements.

    `homes` are beliefs about earlier states, the newest last.
    """

    def __init__(self, evidence: Evidence, prior: Gaussian, peak: Peak, homes: Sequence[Gaussian]) -> None:
        self._evidence, self._prior, self.peak = evidence, prior, peak  # the peak is that before the alarm
        self._homes = homes
        self._known = dict[int, tuple[Peak, float]]()
        self._looks = dict[int, SecondLook]()
        self._sigma = max(SIGMA_COMPARED, peak.sigma)

    def known(self, evidence: Evidence) -> tuple[Peak, float]:
        """The peak and the log evidence of one place that explains this evidence, the earliest part of all."""
        if (count := len(evidence.rows)) not in self._known:
            self._known[count] = settled(evidence, self._prior, self.peak, self._sigma)
        return self._known[count]

    def look(self, last: int) -> SecondLook:
        """A second look at the measurements up to and including this observation."""
        evidence = self._evidence.upto(last)
        return self._looks.setdefault(len(evidence.rows), SecondLook(evidence, self))

    def changed(self, evidence: Evidence, first: int) -> _TwoPlaces:
        """The best explanation by a second place from this observation on, in a new or an earlier state."""
        before, after = evidence.split(first)
        (known, earlier), home = self.known(before), None
        new, later = settled(after, loosen(known.belief), known, self._sigma)
        for number, belief in enumerate(self._homes):
            again, likelier = settled(after, belief, known, self._sigma)
            if likelier > later + _HOME_FAVOUR * (home is None):
                new, later, home = again, likelier, number
        then, now = after.law()(np.stack([known.theta, new.theta]))
        moved = (now - then)[after.is_throughput()]
        # Of the logarithm of throughput; the fourth power lets a few measurements that show the step dominate.
        step = float(np.mean(moved**4) ** 0.25) if len(moved) else 0.0
        return _TwoPlaces(log_evidence=earlier + later, step=step, home=home)

    def again(self, evidence: Evidence, known: Peak) -> float:
        """The log evidence of these measurements in the state of the known peak."""
        return settled(evidence, revisited(known.belief), known, self._sigma)[1]


class SecondLook:
    """How much better two places, one after the other, explain measurements than one, in log evidence.

    The search for one place is as wide as that for two, because a poor local optimum would look like no explanation.
    """

    def __init__(self, evidence: Evidence, before: Before) -> None:
        self.evidence = evidence
        self._before = before
        self._two_places = dict[int, _TwoPlaces]()

    @property
    def _one_place(self) -> float:
        return self._before.known(self.evidence)[1]

    def support(self, first: int) -> float:
        """The log evidence of a change with this observation as the first after it, less that of no change."""
        return self.changed(first).log_evidence - self._one_place

    def home(self, first: int) -> int | None:
        """The index of the earlier state to which the place returned then; None if the state is new."""
        return self.changed(first).home

    def changed(self, first: int) -> _TwoPlaces:
        """The explanation by two places with this observation as the first of the second."""
        if first not in self._two_places:
            self._two_places[first] = self._before.changed(self.evidence, first)
        return self._two_places[first]

    def place(self, first: int, known_until: int) -> int | None:
        """The first observation of a change suspected near this one, placed where it explains the measurements best.

        None if the measurements around it do not confirm it, because two dips in a row look like a change until the
        next measurement. None also if hardly anything moved: two laws fit better than one where neither fits well.
        """
        numbers = [int(n) for n in np.unique(self.evidence.column("observation")[self.evidence.is_sight()])]
        earliest = max(first - BEGINNINGS, known_until)
        possible = [number for number in numbers[WATCH_AFTER:-1] if number > earliest]
        possible = sorted({first, *possible})
        best = max((first, *possible[::_PLACES_APART]), key=self.support)
        at = possible.index(best)
        best = max(possible[max(0, at - _PLACES_APART + 1) : at + _PLACES_APART], key=self.support)
        found = self.changed(best)
        # For a return, the latest of equally good moments: measurements that are alike in both states tell nothing.
        if found.home is not None:
            alike = [each for each in possible if self.support(each) > self.support(best) - _ALIKE]
            best = max(each for each in alike if self.home(each) == found.home)
        needed = CHANGE_EVIDENCE_LEAST if found.home is None else RETURN_EVIDENCE
        return best if self.support(best) > needed and found.step > _STEP_MIN else None

    def over(self, first: int) -> int | None:
        """The first observation after a change that is over again; None if that does not explain more."""
        before, after = self.evidence.split(first)
        known, _ = self._before.known(before)
        rows = after.is_sight()
        surprises = how_surprising(after, known)[0][rows]
        foreign = np.cumsum(np.minimum(surprises**2, _FOREIGN_MAX) - _FOREIGN)
        count = int(np.argmax(foreign)) + 1
        if not _SPELL_MIN <= count < len(foreign):
            return None
        until = int(after.column("observation")[rows][count])
        away = self._before.look(until - 1).changed(first)
        back = self._before.again(after.split(until)[1], known)
        is_explained = away.log_evidence + back > self._one_place + CHANGE_EVIDENCE
        return until if is_explained and away.step > _STEP_MIN else None


def how_surprising(evidence: Evidence, peak: Peak) -> tuple[Array, Array]:
    """How far each measurement is from its prediction, in standard deviations and as a logarithm: (rows,) each."""
    law, data, at = evidence.law(), evidence.measurements(), peak.theta[None]
    slopes = derivatives(law, at)[0]
    known = np.einsum("mp,pq,mq->m", slopes, peak.covariance, slopes)
    variance = data.spread(np.array([peak.sigma]))[0] ** 2 + known + _MODEL_SPREAD**2
    away = np.asarray(data.log_values - law(at)[0], dtype=np.float64)
    return away / np.sqrt(variance), away
