"""Knows how much better two places explain what was measured than one, and whether the second was there before."""

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
# Measurements with which a change may have begun: a dip just before it looks like a part of it.
BEGINNINGS = 2
_PLACES_APART = 2  # measurements: every second is tried, and then those beside the best
_MODEL_SPREAD = 0.07  # of the logarithm: what the law may be off by at a place it has not seen

# Logarithm: eighteen hundred to one, for it is looked for at many places. With 7.5, 6.5 and 6 good advice came back
# after 7, 5.5 and 5 probes; of 1,344 probes of places that did not change 3, 3 and 5 raised an alarm, and of 1,920 in
# weeks of slow weather, by a tenth to a quarter, 19, 19 and 20. On a curve that follows no law 24 probes raised one
# with 2 of 12 noises at 7.5, and with 9 at 6.
CHANGE_EVIDENCE = 7.5
# Where the law explained what came before so much better than no law did, a change takes less: made-up changes of that
# curve were found where it had a favour of 2 at the most, over what were ten measurements at the most.
CHANGE_EVIDENCE_LEAST, TRUSTED_EVIDENCE = 6.0, 3.0

RETURN_EVIDENCE = 4.5  # of the logarithm: where a place has been it is found again sooner than anywhere else


# Of the logarithm. In a place that never changed, of quiet measurements and a dip in ten, 25 changes within sixty
# measurements had a support of 6 to 21 and a step of .14 at the median; places that changed by 2 to 4 had .3 and more.
_STEP_MIN = 0.25


_ALIKE = 1.0  # of the logarithm: beginnings of a return that explain the measurements no worse than this
# Of the logarithm: by so much must what it was before explain what came after better than a new place would.
_HOME_FAVOUR = 1.0
# Squares of standard deviations: what lies farther off was not what it had been, and no farther than it counts for.
_FOREIGN, _FOREIGN_MAX = 2.0, 9.0
_SPELL_MIN = 3  # measurements: two in a row are dips once it is as it was


@dataclass(frozen=True, slots=True, kw_only=True)
class _TwoPlaces:
    """What two places come to: the logarithm of their evidence, how far apart they are, and which the second one is."""

    log_evidence: float
    step: float
    home: int | None


class Before:
    """What came before each observation that may be the first after a change, whatever was measured since.

    `homes` are the places that it was before, the newest last.
    """

    def __init__(self, evidence: Evidence, prior: Gaussian, peak: Peak, homes: Sequence[Gaussian]) -> None:
        self._evidence, self._prior, self.peak = evidence, prior, peak  # where the law was before the alarm
        self._homes = homes
        self._known = dict[int, tuple[Peak, float]]()
        self._looks = dict[int, SecondLook]()
        self._sigma = max(SIGMA_COMPARED, peak.sigma)

    def known(self, evidence: Evidence) -> tuple[Peak, float]:
        """One place, of the first of all measurements, and the logarithm of its evidence."""
        if (count := len(evidence.rows)) not in self._known:
            self._known[count] = settled(evidence, self._prior, self.peak, self._sigma)
        return self._known[count]

    def look(self, last: int) -> SecondLook:
        """At what was measured up to this observation."""
        evidence = self._evidence.upto(last)
        return self._looks.setdefault(len(evidence.rows), SecondLook(evidence, self))

    def changed(self, evidence: Evidence, first: int) -> _TwoPlaces:
        """Another place from this observation on: a new one, or one that it was before."""
        before, after = evidence.split(first)
        (known, earlier), home = self.known(before), None
        new, later = settled(after, loosen(known.belief), known, self._sigma)
        for number, belief in enumerate(self._homes):
            again, likelier = settled(after, belief, known, self._sigma)
            if likelier > later + _HOME_FAVOUR * (home is None):
                new, later, home = again, likelier, number
        then, now = after.law()(np.stack([known.theta, new.theta]))
        moved = (now - then)[after.is_throughput()]
        # Throughput, as a logarithm: what a few measurements show of it counts nearly by itself.
        step = float(np.mean(moved**4) ** 0.25) if len(moved) else 0.0
        return _TwoPlaces(log_evidence=earlier + later, step=step, home=home)

    def again(self, evidence: Evidence, known: Peak) -> float:
        """The logarithm of its evidence where it is what it was known as."""
        return settled(evidence, revisited(known.belief), known, self._sigma)[1]


class SecondLook:
    """How much better two places, one after the other, explain measurements than one, as a logarithm of evidence.

    One place is looked for as widely as two: what is stuck at half a good explanation looks like no explanation.
    """

    def __init__(self, evidence: Evidence, before: Before) -> None:
        self.evidence = evidence
        self._before = before
        self._two_places = dict[int, _TwoPlaces]()

    @property
    def _one_place(self) -> float:
        return self._before.known(self.evidence)[1]

    def support(self, first: int) -> float:
        """Of a change with this observation as the first after it."""
        return self.changed(first).log_evidence - self._one_place

    def home(self, first: int) -> int | None:
        """Which of the places before it is again then; None where it is another one."""
        return self.changed(first).home

    def changed(self, first: int) -> _TwoPlaces:
        """What comes of it."""
        if first not in self._two_places:
            self._two_places[first] = self._before.changed(self.evidence, first)
        return self._two_places[first]

    def place(self, first: int, known_until: int) -> int | None:
        """Where a change that is found near this observation explains best what was measured around it.

        None where that does not bear it out, for two dips in a row look like a change until the next measurement; and
        where hardly anything moved: two laws fit many measurements better than one where neither fits well.
        """
        numbers = [int(n) for n in np.unique(self.evidence.column("observation")[self.evidence.is_sight()])]
        earliest = max(first - BEGINNINGS, known_until)
        possible = [number for number in numbers[WATCH_AFTER:-1] if number > earliest]
        possible = sorted({first, *possible})
        best = max((first, *possible[::_PLACES_APART]), key=self.support)
        at = possible.index(best)
        best = max(possible[max(0, at - _PLACES_APART + 1) : at + _PLACES_APART], key=self.support)
        found = self.changed(best)
        if found.home is not None:  # what is alike in both places does not say that it was there already
            alike = [each for each in possible if self.support(each) > self.support(best) - _ALIKE]
            best = max(each for each in alike if self.home(each) == found.home)
        needed = CHANGE_EVIDENCE_LEAST if found.home is None else RETURN_EVIDENCE
        return best if self.support(best) > needed and found.step > _STEP_MIN else None

    def over(self, first: int) -> int | None:
        """Of a change that is over: the first observation of what had been before it; None where that explains less."""
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
    """How far each measurement fell from what was expected of it, in standard deviations and as a logarithm."""
    law, data, at = evidence.law(), evidence.measurements(), peak.theta[None]
    slopes = derivatives(law, at)[0]
    known = np.einsum("mp,pq,mq->m", slopes, peak.covariance, slopes)
    variance = data.spread(np.array([peak.sigma]))[0] ** 2 + known + _MODEL_SPREAD**2
    away = np.asarray(data.log_values - law(at)[0], dtype=np.float64)
    return away / np.sqrt(variance), away
