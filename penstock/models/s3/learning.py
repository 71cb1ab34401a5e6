"""Knows how the law of a transfer is learned from evidence: from which prior, since which change, and whether at all.

A neighbour's posterior or tables serve as the prior. Where the place has changed, what came before serves as the
prior of what came after. Where no law at all explains the measurements better, that is what is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, lru_cache
from math import exp, inf, log
from typing import Any

import numpy as np

from penstock.models.inference import drift, shapeless
from penstock.models.inference.posterior import Gaussian, derivatives
from penstock.models.inference.regression import (
    Measurements,
    Misfit,
    Peak,
    Problem,
    beside_the_others,
    explain,
    law_log_evidence,
    log_evidence,
    matern,
    maximise,
    noise_covariance,
    refine,
    sample,
    settle,
)
from penstock.models.model import STATE_VERSION, SURPRISE_AFTER, SURPRISE_MIN, Array, Fit, Suspicion
from penstock.models.s3.directions import (
    behind_a_slower_path,
    from_the_other_direction,
    host_ceiling,
    perhaps_without_pause,
    table_prior,
    where_requests_are_refused,
)
from penstock.models.s3.evidence import COLUMNS, ON_CREDITS, Evidence
from penstock.models.s3.lateness import Lateness
from penstock.models.s3.law import (
    BURST_FACTOR,
    COLD_LATENCIES,
    CONNECTION_RATE,
    CPU_PER_BYTE,
    CPU_PER_REQUEST,
    HOST_RATE,
    LATENCY,
    OBJECT_SECONDS,
    OBJECT_SECONDS_PER_PART,
    PARAMETERS,
    PREFIX_RATE,
    TAIL_SHARE,
    WAVE_MIXING,
    Transfers,
)
from penstock.vocabulary import UNKNOWN, Place

# --- What a fit remembers. ---

FIT_STATE_VERSION = 8  # of what follows; fits that were stored under another are not read


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior:
    """Draws of the parameters, and the evidence around them: enough to predict.

    What is the same for every question is worked out with the first.
    """

    draws: Array
    sigma: float
    misfit: Misfit
    evidence: Evidence
    weights: Array
    shapes: Array | None  # of what is known without the law, where the law is not believed
    credit_bytes: float | None
    lateness: Lateness

    def to_state(self) -> dict[str, Any]:
        return {
            STATE_VERSION: FIT_STATE_VERSION,
            "draws": self.draws.tolist(),
            "sigma": self.sigma,
            "misfit_amplitude": self.misfit.amplitude,
            "misfit_doubt": self.misfit.doubt,
            "misfit_weather": self.misfit.weather,
            "misfit_unrest": self.misfit.unrest,
            "misfit_length_octaves": list(self.misfit.length_octaves),
            "rows": [list(row) for row in self.evidence.rows],
            "weights": self.weights.tolist(),
            "shapes": None if self.shapes is None else self.shapes.tolist(),
            "credit_bytes": self.credit_bytes,
            "late_fraction": self.lateness.fraction,
            "late_seconds": self.lateness.seconds,
            "late_seen_count": self.lateness.seen_count,
        }

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> Posterior:
        """What it was made of; nobody changes a state."""
        return _read(_Same(state))

    @cached_property
    def _sightings(self) -> shapeless.Sightings:
        return self.evidence.sightings(self.weights)

    @cached_property
    def _data(self) -> Measurements:
        return self.evidence.measurements()

    @cached_property
    def _residual(self) -> Array:
        """Of the evidence, by draws."""
        return self._data.log_values - self.evidence.law()(self.draws)

    @cached_property
    def _noise(self) -> Array:
        return noise_covariance(self._data, self.misfit, self.sigma, self.weights)

    @cached_property
    def _doubtful(self) -> Posterior:
        """The same, where the law is off by as much as it may be."""
        return replace(self, misfit=replace(self.misfit, amplitude=self.misfit.doubt))

    def log_throughput(self, transfers: Transfers) -> Array:
        """Draws of the logarithm, (draws, settings)."""
        if self.shapes is not None:
            return shapeless.means(self._sightings, self.shapes, _points(transfers))
        values = transfers.log_throughput(self.draws)
        if self.misfit.amplitude == 0 or not self.evidence.rows:
            return values
        return np.asarray(values + self.misfit_at(transfers)[0], dtype=np.float64)

    def misfit_variance(self, transfers: Transfers) -> Array:
        """How much the law may be off at each setting, as a variance (settings,)."""
        if self.shapes is not None:
            return shapeless.variance(self._sightings, self.shapes, _points(transfers))
        known = np.zeros(len(transfers.n))
        if self.evidence.rows:
            _, gain, reach = self._doubtful.misfit_at(transfers)
            known = np.einsum("sn,ns->s", reach, gain)
        return np.maximum(self.misfit.doubt**2 - known, 0.0)

    def strangeness(self, transfers: Transfers) -> Array:
        """How little the nearest measurement tells of each setting, as a share of a variance (settings,)."""
        seen = self._data.coordinates[self._data.has_misfit]
        if not len(seen):
            return np.ones(len(transfers.n))
        told = matern(_coordinates(transfers), seen, Misfit().length_octaves).max(axis=1)
        return np.asarray(1.0 - told**2, dtype=np.float64)

    def together(self, transfers: Transfers) -> Array:
        """Draws of the logarithm around what is predicted, (draws, settings), for comparing a few settings.

        They share the draws of the parameters and the misfit: only what tells the settings apart makes them differ.
        """
        centre = self.log_throughput(transfers)
        if self.shapes is None:
            values, covariance = self.doubted(transfers)
        else:
            values = centre
            covariance = shapeless.covariance(self._sightings, self.shapes, _points(transfers))
        variances, axes = np.linalg.eigh(covariance)  # of settings that do the same it has no inverse
        drawn = values + _wiggles(axes * np.sqrt(np.maximum(variances, 0.0)), len(values))
        return np.asarray(drawn - drawn.mean(axis=0) + centre.mean(axis=0), dtype=np.float64)

    def doubted(self, transfers: Transfers) -> tuple[Array, Array]:
        """What the law and the evidence say of the logarithm by draws, and how far the law may be off, together."""
        values = transfers.log_throughput(self.draws)
        here = _coordinates(transfers)
        covariance = self.misfit.doubt**2 * matern(here, here, self.misfit.length_octaves)
        if self.evidence.rows:
            shift, gain, reach = self._doubtful.misfit_at(transfers)
            values, covariance = values + shift, covariance - reach @ gain
        return values, np.asarray(covariance, dtype=np.float64)

    def misfit_at(self, transfers: Transfers) -> tuple[Array, Array, Array]:
        """What the Gaussian process adds to each draw, the gain that does it, and the covariance with the evidence."""
        reach = matern(_coordinates(transfers), self._data.coordinates, self.misfit.length_octaves)
        reach = np.asarray(self.misfit.amplitude**2 * reach * self._data.has_misfit, dtype=np.float64)
        gain = np.asarray(np.linalg.solve(self._noise, reach.T), dtype=np.float64)
        return np.asarray(self._residual @ gain, dtype=np.float64), gain, reach


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A state by which it is, not by what it says: what was read of it is kept as long as it."""

    state: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.state is self.state

    def __hash__(self) -> int:
        return id(self.state)


@lru_cache(maxsize=4)
def _read(same: _Same) -> Posterior:
    state = same.state
    first, second = state["misfit_length_octaves"]
    return Posterior(
        draws=np.array(state["draws"], dtype=np.float64),
        sigma=state["sigma"],
        misfit=Misfit(
            amplitude=state["misfit_amplitude"],
            doubt=state["misfit_doubt"],
            weather=state["misfit_weather"],
            unrest=state["misfit_unrest"],
            length_octaves=(first, second),
        ),
        evidence=Evidence(rows=tuple(tuple(row) for row in state["rows"])),
        weights=np.array(state["weights"], dtype=np.float64),
        shapes=None if state["shapes"] is None else np.array(state["shapes"], dtype=np.float64),
        credit_bytes=state["credit_bytes"],
        lateness=Lateness(
            fraction=state["late_fraction"],
            seconds=state["late_seconds"],
            seen_count=state["late_seen_count"],
        ),
    )


def _wiggles(factor: Array, count: int) -> Array:
    """So many draws around nothing, (draws, settings), the second half mirroring the first."""
    normal = np.random.default_rng(len(factor)).standard_normal((count // 2, len(factor)))
    return np.asarray(np.concatenate([normal, -normal])[:count] @ factor.T, dtype=np.float64)


def _points(transfers: Transfers) -> Array:
    return np.column_stack([_coordinates(transfers), np.log2(transfers.size)])


def _coordinates(transfers: Transfers) -> Array:
    return np.stack([np.log2(transfers.n), np.log2(transfers.s)], axis=1)


# --- Learning. ---

_DRAW_COUNT = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What was learned of a place since it last changed."""

    draws: Array
    evidence: Evidence
    peak: Peak
    misfit: Misfit
    residual_fraction_p50: float
    weights: Array
    shapes: Array | None
    drift_count: int
    changed_at: datetime | None
    suspicion: Suspicion

    def posterior(self, credit_bytes: float | None, lateness: Lateness) -> Posterior:
        return Posterior(
            draws=self.draws,
            sigma=self.peak.sigma,
            misfit=self.misfit,
            evidence=self.evidence,
            weights=self.weights,
            shapes=self.shapes,
            credit_bytes=credit_bytes,
            lateness=lateness,
        )


def learn(place: Place, evidence: Evidence, neighbour: Fit | None, seed: int) -> Learned:
    """The posterior since the last change, and how far to believe it."""
    prior = _choose_prior(place, evidence, neighbour)
    drift_count, changed_at = 0, None
    while (changed := _find_change(evidence, prior)).observation is not None:
        before, evidence = _split(evidence, changed.observation)
        prior = _loosen(_posterior_gaussian(before, prior))
        drift_count, changed_at = drift_count + 1, evidence.begins_at
    problem = evidence.problem(prior)
    peak = maximise(problem, _starts(evidence, prior))
    problem, peak = explain(problem, peak)
    weights, shapes, suspicion = peak.weights, None, changed.suspicion
    if _is_explained_without_law(evidence, problem, peak):
        weights, shapes, suspicion = _without_law(evidence, peak.weights, seed)
    return Learned(
        draws=sample(problem, peak, count=_DRAW_COUNT, seed=seed),
        evidence=evidence,
        peak=peak,
        misfit=problem.misfit,
        residual_fraction_p50=_residual_fraction(problem, peak),
        weights=weights,
        shapes=shapes,
        drift_count=drift_count,
        changed_at=changed_at,
        suspicion=suspicion,
    )


_OFF_MODEL_COUNT_MIN = 8
_OFF_MODEL_EVIDENCE = 1.0  # of the logarithm: how much better no law at all must explain what was measured


def _is_explained_without_law(evidence: Evidence, problem: Problem, peak: Peak) -> bool:
    """Whether no law explains the measurements better than the law does."""
    favour = _favour_of_law(evidence, problem, peak)
    return favour is not None and favour < -_OFF_MODEL_EVIDENCE


def _favour_of_law(evidence: Evidence, problem: Problem, peak: Peak) -> float | None:
    """By how much the law explains the measurements better than no law does, in log evidence; None while that is open.

    Where requests were refused the law is kept: nothing else knows what that means for the settings beyond.
    """
    if evidence.is_throttled().any():
        return 0.0
    sightings = evidence.sightings(peak.weights)
    if len(sightings.log_values) < _OFF_MODEL_COUNT_MIN:
        return None
    lawful = law_log_evidence(problem, peak, evidence.is_sight(), evidence.is_host_limit())
    return lawful - shapeless.log_evidence(sightings)


def _without_law(evidence: Evidence, weights: Array, seed: int) -> tuple[Array, Array, Suspicion]:
    """The probability that each row was no dip, draws of shapes, and what surprises, all without asking the law.

    A law that is given up is surprised by every measurement, which would keep advice as it is for ever.
    """
    is_sight, sightings = evidence.is_sight(), shapeless.weighed(evidence.sightings(weights))
    weights = weights.copy()
    weights[is_sight] = sightings.weights
    shapes = shapeless.learn(sightings, count=_DRAW_COUNT, seed=seed)
    away, deviation = shapeless.newest_beside_the_others(sightings, shapes)
    return weights, shapes, Suspicion(surprise=away / deviation, value_ratio=exp(away))


_SIGMA_COMPARED = 0.12  # noise, when explanations are compared; more where more was seen
_NEIGHBOUR_FAVOUR = 1.0  # of log evidence: a neighbour is believed until the measurements speak against it


def _choose_prior(place: Place, evidence: Evidence, neighbour: Fit | None) -> Gaussian:
    """The neighbour's posterior, widened, unless what was measured here is likelier from tables alone."""
    table = _table(place, evidence)
    if neighbour is None:
        return table
    inherited = _inherit(neighbour, place, table)
    if not evidence.rows:
        return inherited
    near, far = (
        _score(evidence, belief, _starts(evidence, belief), _SIGMA_COMPARED) for belief in (inherited, table)
    )
    return inherited if near + _NEIGHBOUR_FAVOUR >= far else table


def _table(place: Place, evidence: Evidence) -> Gaussian:
    """What tables say; where that is likelier, that the path is slower than the host, as through a gateway.

    Of a burstable host that is asked as soon as nothing was faster than its baseline: there is no burst to be seen.
    """
    table, limits = table_prior(place), host_ceiling(place)
    if evidence.is_throttled().any():
        table = where_requests_are_refused(table)
    if evidence.tells_totals_alone:
        table = perhaps_without_pause(table)
    log_fastest = evidence.column("log_value")[evidence.is_throughput()].max(initial=-inf)
    if limits is None:
        return table
    widest = ON_CREDITS if limits.is_burstable else 0.5
    if not -inf < log_fastest < table.mean[HOST_RATE] + log(widest):
        return table
    beliefs = (table, behind_a_slower_path(table))
    peaks = [maximise(evidence.problem(belief), _starts(evidence, belief)[:3]) for belief in beliefs]
    sigma = max(_SIGMA_LEAST, min(peak.sigma for peak in peaks))  # the wrong belief calls more of it noise
    direct, slower = (
        settle(evidence.problem(belief), peak.theta[None], sigma=sigma)[1]
        for belief, peak in zip(beliefs, peaks, strict=True)
    )
    return beliefs[int(slower > direct + _TABLE_FAVOUR)]


_SIGMA_LEAST = 0.03
_TABLE_FAVOUR = 0.5  # of log evidence


_OF_THE_SERVICE = (
    LATENCY,
    CONNECTION_RATE,
    PREFIX_RATE,
    OBJECT_SECONDS,
    OBJECT_SECONDS_PER_PART,
    COLD_LATENCIES,
)
_OF_THE_HOST = (HOST_RATE, BURST_FACTOR, CPU_PER_REQUEST, CPU_PER_BYTE)


def _inherit(neighbour: Fit, place: Place, table: Gaussian) -> Gaussian:
    """A neighbour's posterior with what differs between the places let loose.

    Latency and rate of one connection belong to the region and class; the ceiling belongs to the instance type.
    """
    draws = np.array(neighbour.state["draws"], dtype=np.float64)
    if neighbour.place.operation != place.operation:
        return from_the_other_direction(draws, neighbour.place, table)
    mean, covariance = draws.mean(axis=0), 1.5 * np.cov(draws.T) + 1e-6 * np.eye(len(PARAMETERS))
    there = neighbour.place
    is_same_service = (there.region, there.service_class) == (place.region, place.service_class)
    is_same_host = there.instance_type == place.instance_type
    familiar = 0.05 if there == place else 0.15
    extra = np.full(len(PARAMETERS), familiar)
    extra[list(_OF_THE_SERVICE)] = familiar if is_same_service else 0.6
    extra[list(_OF_THE_HOST)] = familiar if is_same_host else 0.8
    if not is_same_host and place.instance_type != UNKNOWN and host_ceiling(place) is not None:
        for index in (HOST_RATE, BURST_FACTOR):
            mean[index] = table.mean[index]
            covariance[index, :] = covariance[:, index] = 0.0
            extra[index] = table.covariance[index, index] ** 0.5
    return Gaussian(mean=mean, covariance=covariance + np.diag(extra**2))


def _loosen(belief: Gaussian) -> Gaussian:
    """After a change: everything may have moved, ceilings and what one connection carries most."""
    extra = np.full(len(PARAMETERS), 0.2)
    extra[[LATENCY, OBJECT_SECONDS, OBJECT_SECONDS_PER_PART, WAVE_MIXING, TAIL_SHARE]] = 0.4
    extra[[HOST_RATE, CONNECTION_RATE]] = 0.9
    return Gaussian(mean=belief.mean, covariance=2.0 * belief.covariance + np.diag(extra**2))


def _posterior_gaussian(evidence: Evidence, prior: Gaussian) -> Gaussian:
    peak = maximise(evidence.problem(prior), _starts(evidence, prior))
    return Gaussian(mean=peak.theta, covariance=peak.covariance)


def _starts(evidence: Evidence, prior: Gaussian) -> Array:
    """The prior mean, and what the measurements suggest: slow connections, slow or costly requests, a ceiling."""
    rates = evidence.table[evidence.is_throughput()]
    starts = np.repeat(prior.mean[None], 5, axis=0)
    if not len(rates):
        return starts[:1]
    log_value, n, s = rates[:, 1], rates[:, COLUMNS.index("n")], rates[:, COLUMNS.index("s")]
    best = int(np.argmax(log_value - np.log(n)))
    single = float(log_value[best] - np.log(n[best]))
    starts[1:, HOST_RATE] = np.maximum(log_value.max() + 0.02, prior.mean[HOST_RATE] - 4.0)
    starts[1, CONNECTION_RATE], starts[1, LATENCY] = single + 0.1, prior.mean[LATENCY] - 1.0
    starts[2, CONNECTION_RATE], starts[2, LATENCY] = single + 0.7, np.log(s[best]) - single - 0.7
    starts[3:, CONNECTION_RATE] = max(single + 0.2, float(prior.mean[CONNECTION_RATE]))
    starts[4, CPU_PER_REQUEST] = -float((log_value - np.log(s)).max())
    return starts


@dataclass(frozen=True, slots=True)
class _Change:
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
_STRIKING_AMONG = 3  # measurements, of which two that surprise are looked at again
_MODEL_SPREAD = 0.07  # of the logarithm: what the law may be off by at a place it has not seen


def _find_change(evidence: Evidence, prior: Gaussian) -> _Change:
    """The first observation after a change, when the sums of surprises raise the alarm and a second look agrees.

    One client is followed, penstock itself where it measured: another one that comes and goes is no change of the
    place.
    """
    evidence = evidence.seen()
    evidence = _upto(evidence, int(evidence.column("observation")[evidence.is_sight()].max(initial=0)))
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
        known = _upto(evidence, step.observation)
        support, first = max((_support_of_change(known, each, prior, step.peak), each) for each in firsts)
        if 0 < support <= _CHANGE_EVIDENCE:  # what was measured since may confirm it
            support = max(support, _support_of_change(evidence, first, prior, step.peak))
        if support > _CHANGE_EVIDENCE_LEAST and _is_told(support, evidence, first, prior):
            borne_out, placed = _placed(evidence, first, prior, step.peak)
            if borne_out > _CHANGE_EVIDENCE_LEAST:  # two dips in a row look like a change, until the next
                return _Change(placed, Suspicion())
        state = drift.Cusum() if is_loud and support < 0 else state
    if not steps:
        return _Change(None, Suspicion())
    last = steps[-1]
    surprise = last.surprise if _WATCH_AFTER + len(steps) > SURPRISE_AFTER else 0.0
    suspicion = Suspicion(level=state.level / drift.ALARM, surprise=surprise, value_ratio=exp(last.away))
    return _Change(None, suspicion)


def _placed(evidence: Evidence, first: int, prior: Gaussian, peak: Peak) -> tuple[float, int]:
    """Where a change that is found near this observation explains best what was measured around it, and how well."""
    around = _upto(evidence, first + _PLACED_AMONG)
    numbers = [int(number) for number in np.unique(around.column("observation")[around.is_sight()])]
    possible = [number for number in numbers[_WATCH_AFTER:-1] if number > first - _BEGINNINGS]
    support = {each: _support_of_change(around, each, prior, peak) for each in sorted({first, *possible})}
    best = max(support, key=lambda each: support[each])
    return support[best], best


def _striking(steps: Sequence[_Step]) -> set[int]:
    """The first of a few measurements that surprise, whichever way: more connections may do better, and fewer worse."""
    known = steps[SURPRISE_AFTER - _WATCH_AFTER :]
    far = [each.observation for each in known[-_STRIKING_AMONG:] if abs(each.surprise) >= SURPRISE_MIN]
    return {far[0]} if len(far) > 1 and far[-1] == steps[-1].observation else set()


def _is_told(support: float, evidence: Evidence, first: int, prior: Gaussian) -> bool:
    """Whether so much support is enough, by how the law has stood up to what came before.

    Where it had been given up, or was too new to be judged, no law has to find two places as well.
    """
    before, after = _split(evidence, first)
    problem = before.problem(prior)
    favour = _favour_of_law(before, problem, maximise(problem, _starts(before, prior)))
    if favour is not None and favour >= _TRUSTED_EVIDENCE:
        return True
    if support <= _CHANGE_EVIDENCE:
        return False
    if favour is not None and favour >= -_OFF_MODEL_EVIDENCE:
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
            start = peak or maximise(seen.problem(prior), _starts(seen, prior))
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
# Of the law, when explanations are compared.
_SPREAD_COMPARED = Misfit(amplitude=0.1, length_octaves=(2.0, 4.0))


def _support_of_change(evidence: Evidence, first: int, prior: Gaussian, peak: Peak) -> float:
    """How much better two places, one after the other, explain the measurements than one: the alarm's second look.

    The law is followed from where it was; only what came after is looked for anew.
    """
    before, after = _split(evidence, first)
    sigma = max(_SIGMA_COMPARED, peak.sigma)
    known, earlier = _settle(before, prior, [peak], sigma)
    loosened = _loosen(Gaussian(mean=known.theta, covariance=known.covariance))
    later = _score(after, loosened, _starts(after, loosened), sigma)
    return earlier + later - _settle(evidence, prior, [peak, known], sigma)[1]


def _score(evidence: Evidence, belief: Gaussian, starts: Array, sigma: float) -> float:
    return log_evidence(evidence.problem(belief, _SPREAD_COMPARED), starts, sigma=sigma)


def _settle(evidence: Evidence, belief: Gaussian, peaks: Sequence[Peak], sigma: float) -> tuple[Peak, float]:
    theta = np.array([peak.theta for peak in peaks])
    return settle(evidence.problem(belief, _SPREAD_COMPARED), theta, sigma=sigma)


def _upto(evidence: Evidence, observation: int) -> Evidence:
    index = COLUMNS.index("observation")
    return Evidence(rows=tuple(row for row in evidence.rows if row[index] <= observation))


def _surprises(evidence: Evidence, peak: Peak) -> tuple[Array, Array]:
    """How far each measurement fell from what was expected of it, in standard deviations and as a logarithm."""
    law, data, at = evidence.law(), evidence.measurements(), peak.theta[None]
    slopes = derivatives(law, at)[0]
    known = np.einsum("mp,pq,mq->m", slopes, peak.covariance, slopes)
    variance = data.spread(np.array([peak.sigma]))[0] ** 2 + known + _MODEL_SPREAD**2
    away = np.asarray(data.log_values - law(at)[0], dtype=np.float64)
    return away / np.sqrt(variance), away


def _split(evidence: Evidence, first: int) -> tuple[Evidence, Evidence]:
    index = COLUMNS.index("observation")
    before = tuple(row for row in evidence.rows if row[index] < first)
    return Evidence(rows=before), Evidence(rows=evidence.rows[len(before) :])


def _residual_fraction(problem: Problem, peak: Peak) -> float:
    if not problem.data.has_misfit.any():
        return 0.0
    residual = beside_the_others(problem, peak)[0][problem.data.has_misfit]
    return float(np.median(np.abs(np.expm1(np.clip(residual, -5.0, 5.0)))))
