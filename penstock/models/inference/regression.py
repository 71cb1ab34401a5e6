"""Knows how the law of a transfer is found beside what measurements are off by otherwise (`misfit`): peaks and draws.

The noise of the measurements of throughput is learned as one, in units of what is known of each. Evidence that must
not be explained away (throttling) is `trusted` and keeps its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.models.inference import posterior
from penstock.models.inference.misfit import (
    LOG_CHANCES,
    MISFIT_MEASUREMENT_COUNT_MIN,
    MISFITS,
    SIGMA_TYPICAL,
    SIGMAS,
    Chances,
    Measurements,
    Misfit,
    Unexplained,
    covariances,
    noise_covariance,
    noise_covariances,
    noise_log_likelihoods,
    own_variances,
    same_hour,
    sigma_log_prior,
    structure,
    weather_log_prior,
)
from penstock.models.inference.posterior import (
    WEIGHT_MIN,
    Array,
    Gaussian,
    Goal,
    Law,
    derivatives,
    inverse,
    no_dip,
)


@dataclass(frozen=True, kw_only=True)  # without slots: what is shared is worked out once
class Problem:
    """A law, what was measured, and what was believed before."""

    law: Law
    data: Measurements
    prior: Gaussian
    misfit: Misfit = field(default_factory=Misfit)

    @cached_property
    def shared(self) -> Array:
        """The part of the covariance that measurements share."""
        return structure(self.data, self.misfit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most probable parameters, with what the search learned about the noise."""

    theta: Array
    sigma: float
    weights: Array
    covariance: Array

    @property
    def belief(self) -> Gaussian:
        """About the parameters, as if the posterior had the shape of its peak."""
        return Gaussian(mean=self.theta, covariance=self.covariance)


def maximise(problem: Problem, starts: Array) -> Peak:
    """The best peak that is found from the starts (starts, parameters)."""
    data = problem.data
    if not len(data):
        prior = problem.prior
        return Peak(theta=prior.mean, sigma=SIGMA_TYPICAL, weights=np.ones(0), covariance=prior.covariance)
    theta, weights = _search(problem, starts)
    sigma = _sigma(data.log_values - problem.law(theta), weights, data)
    theta, sigma, weights = _followed(problem, theta, sigma, weights, learns_noise=True)
    best = int(np.argmax(log_evidence_at(problem, theta, sigma)))
    return _peak_at(problem, theta[best], float(sigma[best]), weights[best])


def _followed(
    problem: Problem, theta: Array, sigma: Array, weights: Array, *, learns_noise: bool
) -> tuple[Array, Array, Array]:
    """Parameters, noise and weights, each found beside the others until the weights stand (EM).

    Between two explanations, of which one takes a measurement for a dip and the other does not, the first rounds hardly
    move.
    """
    data = problem.data
    for _ in range(_ROUNDS_MAX):
        theta = _descend(problem, theta, sigma, weights, iterations=5)
        residual, before = data.log_values - problem.law(theta), weights
        sigma = _sigma(residual, weights, data) if learns_noise else sigma
        weights = _weights(residual, sigma, data)
        if np.abs(weights - before).max(initial=0.0) < _STANDS:
            break
    return theta, sigma, weights


_ROUNDS_MAX = 12
_STANDS = 0.02  # of the probability that a measurement is no dip


def _search(problem: Problem, starts: Array) -> tuple[Array, Array]:
    """The different peaks to which the starts lead: parameters, and weights of the measurements."""
    data = problem.data
    theta = np.concatenate([starts, starts])
    caps = np.repeat([_TRUSTING, _DOUBTING], len(starts), axis=0)
    sigma, weights = caps[:, 0], np.ones((len(theta), len(data)))
    for cap in caps.T:
        theta = _descend(problem, theta, sigma, weights, iterations=5)
        sigma, weights = cap, _weights(data.log_values - problem.law(theta), cap, data)
    kept = _different_peaks(problem, theta, sigma)
    return theta[kept], weights[kept]


# How large the noise is supposed to be at each round of the search, before it is learned. What was believed before has
# the first word where noise is great, and what was measured where it is small: neither finds every peak.
_DOUBTING = (1.0, 0.4, 0.2)
_TRUSTING = (0.3, 0.2, 0.2)
_EXPLAINING_ROUNDS = 2  # misfit and noise depend on the peak, and the peak on them
_PEAK_COUNT = 3  # explanations that are followed to their end
_SAME_PEAK = 0.5  # of log evidence


def _different_peaks(problem: Problem, theta: Array, sigma: Array) -> list[int]:
    """The best few of where the search has led so far; many starts lead to the same peak."""
    scores = log_evidence_at(problem, theta, sigma)
    kept: list[int] = []
    for index in np.argsort(-scores):
        if all(abs(scores[index] - scores[other]) > _SAME_PEAK for other in kept):
            kept.append(int(index))
    return kept[:_PEAK_COUNT]


def refine(problem: Problem, peak: Peak, *, iterations: int = 4) -> Peak:
    """Follow a peak to new data, a new prior or a new misfit from where it was; cheap, for one step at a time."""
    theta, sigma, data = peak.theta[None], np.array([peak.sigma]), problem.data
    for _ in range(2):
        weights = _weights(data.log_values - problem.law(theta), sigma, data)
        theta = _descend(problem, theta, sigma, weights, iterations=iterations)
        sigma = _sigma(data.log_values - problem.law(theta), weights, data)
    return _peak_at(problem, theta[0], float(sigma[0]), weights[0])


def explain(problem: Problem, peak: Peak) -> tuple[Problem, Peak, Chances]:
    """The problem with its likeliest misfit, its peak, and how likely each misfit is: learned together with the noise.

    The noise is what neither the law nor its misfit explains. Taken from the residual of the law alone, the misfit
    would be counted twice: repeats would lose their force, and the law would slide back to its prior.
    """
    for _ in range(_EXPLAINING_ROUNDS):
        chances = _chances(problem, peak)
        problem, sigma = replace(problem, misfit=chances.likeliest), chances.sigma
        theta, sigmas, weights = peak.theta[None], np.array([sigma]), peak.weights[None]
        for _ in range(2):
            residual = problem.data.log_values - problem.law(theta)
            beside = _beside_the_others(problem, residual, sigmas, weights)
            weights = np.where(problem.data.is_trusted, 1.0, no_dip(*beside))
            theta = _descend(problem, theta, sigmas, weights, iterations=4)
        peak = _peak_at(problem, theta[0], sigma, weights[0])
    return problem, peak, chances


def beside_the_others(problem: Problem, peak: Peak) -> tuple[Array, Array]:
    """How far each measurement is from what the law and all others expect of it, and the deviation of that."""
    residual = problem.data.log_values - problem.law(peak.theta[None])
    away, own, unsure = _beside_the_others(problem, residual, np.array([peak.sigma]), peak.weights[None])
    return away[0], np.hypot(own, unsure)[0]


def _beside_the_others(
    problem: Problem, residual: Array, sigma: Array, weights: Array
) -> tuple[Array, Array, Array]:
    precision = inverse(noise_covariances(problem.data, problem.shared, sigma, weights))
    return _left_out(problem.data, precision, residual, sigma, weights)


def _left_out(
    data: Measurements, precision: Array, residual: Array, sigma: Array, weights: Array
) -> tuple[Array, Array, Array]:
    """How far each is from what all others expect of it, the deviation of its noise, and that of what is expected."""
    certainty = np.einsum("kii->ki", precision)
    own = data.spread(sigma)
    expected = np.maximum(1.0 / certainty - own**2 / np.maximum(weights, WEIGHT_MIN), 0.0)
    away = np.einsum("kij,kj->ki", precision, residual) / certainty
    return away, own, np.sqrt(expected)


def _peak_at(problem: Problem, theta: Array, sigma: float, weights: Array) -> Peak:
    """The peak at parameters that were found, with the covariance of its neighbourhood."""
    information = _goal(problem, np.array([sigma]), weights[None]).information(theta[None])[0]
    return Peak(theta=theta, sigma=sigma, weights=weights, covariance=inverse(information))


def unexplained(
    problem: Problem, peak: Peak, chances: Chances, *, count: int, seed: int
) -> tuple[Unexplained, ...]:
    """So many draws of what is off beside the law, each with those measurements that are dips beside it.

    Dips and parameters are drawn in turns (Gibbs): where a measurement may be a dip or tell of another law, it is one
    in some of the draws, and none in the others. Of throughput alone: what else is known of hosts does not dip.
    """
    data, drawn = problem.data, [Unexplained(*each, weights=peak.weights) for each in chances.drawn(count)]
    sigma, may_dip = np.array([each.sigma for each in drawn]), data.has_misfit & ~data.is_trusted
    # By numbers of their own, and the same for each measurement when another one follows.
    chance = np.random.default_rng((seed, 1)).random((len(data), count)).T
    for _ in range(_SWEEPS):
        goal = _beside(problem, drawn)
        at = posterior.draw(goal, problem.prior, peak.theta, count=count, seed=seed, iterations=3)
        precision = np.swapaxes(goal.whiten, 1, 2) @ goal.whiten
        weights = np.stack([each.weights for each in drawn])
        expected = _left_out(data, precision, data.log_values - problem.law(at), sigma, weights)
        dips = np.where(chance < no_dip(*expected), 1.0, WEIGHT_MIN)
        drawn = [
            replace(each, weights=own)
            for each, own in zip(drawn, np.where(may_dip, dips, weights), strict=True)
        ]
    return tuple(drawn)


_SWEEPS = 3  # of the draws that are thrown away, before those that count


def _beside(problem: Problem, drawn: Sequence[Unexplained]) -> Goal:
    """To find parameters beside each of what is drawn."""
    spreads = np.stack([noise_covariance(problem.data, each) for each in drawn])
    whiten = inverse(np.asarray(np.linalg.cholesky(spreads), dtype=np.float64))
    return posterior.goal(problem.law, problem.data.log_values, whiten, problem.prior)


def sample(problem: Problem, peak: Peak, drawn: Sequence[Unexplained], *, count: int, seed: int) -> Array:
    """Draws from the posterior, (count, parameters); the first half mirrors the second, so that means are quiet.

    Each has one of what is `drawn` beside it, in turns.
    """
    goal = _beside(problem, drawn)
    goal = replace(goal, whiten=np.tile(goal.whiten, (count // len(drawn), 1, 1)))
    return posterior.draw(goal, problem.prior, peak.theta, count=count, seed=seed, iterations=6)


def _chances(problem: Problem, peak: Peak) -> Chances:
    """Around the peak."""
    scores = LOG_CHANCES + _marginals(problem, peak, MISFITS)
    if int(problem.data.has_misfit.sum()) < MISFIT_MEASUREMENT_COUNT_MIN:
        # So few cannot tell weather from noise.
        scores = np.where([[each.weather > 0] for each in MISFITS], -np.inf, scores - weather_log_prior(0.0))
    chances = np.exp(scores - scores.max())
    return Chances(chances / chances.sum())


def law_log_evidence(
    problem: Problem, peak: Peak, is_counted: NDArray[np.bool_], is_given: NDArray[np.bool_]
) -> float:
    """How likely some of the measurements were under the law, whatever its parameters, its misfit and its noise.

    Side evidence that is `given` is no word against the law: that a place has an unusual limit is not.
    """
    scores = LOG_CHANCES + _marginals(*_part(problem, peak, is_counted | is_given), MISFITS)
    given = np.logaddexp.reduce(_marginals(*_part(problem, peak, is_given), [Misfit()])[0])
    given -= _WITHOUT_NOISE
    return float(np.logaddexp.reduce(scores, axis=None) - given)


_WITHOUT_NOISE = float(np.logaddexp.reduce(sigma_log_prior(np.array(SIGMAS))))  # side evidence has its own


def _part(problem: Problem, peak: Peak, is_chosen: NDArray[np.bool_]) -> tuple[Problem, Peak]:
    """The same for some of the measurements."""
    law, chosen = problem.law, np.flatnonzero(is_chosen)
    part = replace(problem, law=lambda theta: law(theta)[:, chosen], data=problem.data.of(chosen))
    return part, replace(peak, weights=peak.weights[chosen])


def _marginals(problem: Problem, peak: Peak, shapes: Sequence[Misfit]) -> Array:
    """Logarithm of the likelihood of each shape (rows) and noise (columns), with the law linearised and its prior."""
    law, data, misfit = problem.law, problem.data, problem.misfit
    jacobian = derivatives(law, peak.theta[None])[0]
    explained = np.asarray(jacobian @ problem.prior.covariance @ jacobian.T, dtype=np.float64)
    away = jacobian @ (peak.theta - problem.prior.mean)
    residual = data.log_values - law(peak.theta[None])[0] + away
    residual, explained, score = _beside_what_is_known(data, peak.weights, residual, explained)
    seen = data.of(np.flatnonzero(data.has_misfit))
    clients = structure(seen, replace(misfit, amplitude=0.0, weather=0.0))
    alike, hours = covariances(shapes, seen.coordinates, seen.coordinates), same_hour(seen)
    shared = [
        explained + clients + each + m.weather**2 * hours for m, each in zip(shapes, alike, strict=True)
    ]
    scale = seen.noise_scale / np.sqrt(peak.weights[data.has_misfit])
    return score + noise_log_likelihoods(residual, np.stack(shared), scale)


def _beside_what_is_known(
    data: Measurements, weights: Array, residual: Array, explained: Array
) -> tuple[Array, Array, float]:
    """What side evidence, whose noise is known, leaves to be explained of the rest; and how likely it was itself."""
    side, rest = np.flatnonzero(~data.has_misfit), np.flatnonzero(data.has_misfit)
    if not len(side):
        return residual, explained, 0.0
    own = (SIGMA_TYPICAL * data.noise_scale[side]) ** 2 / weights[side]
    covariance = explained[np.ix_(side, side)] + np.diag(own)
    gain = explained[np.ix_(rest, side)] @ inverse(covariance)
    likelihood = residual[side] @ np.linalg.solve(covariance, residual[side])
    score = -0.5 * float(likelihood + np.linalg.slogdet(covariance)[1])
    left = explained[np.ix_(rest, rest)] - gain @ explained[np.ix_(side, rest)]
    return residual[rest] - gain @ residual[side], left, score


def _weights(residual: Array, sigma: Array, data: Measurements) -> Array:
    """Probability that each measurement is no dip."""
    weights = no_dip(residual, data.spread(sigma))
    return np.where(data.is_trusted, 1.0, weights)


def _sigma(residual: Array, weights: Array, data: Measurements) -> Array:
    return posterior.deviation(residual / data.noise_scale, weights * data.has_misfit, SIGMA_TYPICAL)


def log_evidence(problem: Problem, starts: Array, *, sigma: float) -> float:
    """How likely the measurements are under the prior, all parameters together, with noise of this size.

    Noise and misfit are given: two explanations can only be compared at the same.
    """
    if not len(problem.data):
        return 0.0
    return settle(problem, _search(problem, starts)[0], sigma=sigma)[1]


def settle(problem: Problem, theta: Array, *, sigma: float) -> tuple[Peak, float]:
    """The best of the peaks near parameters (peaks, parameters), with noise of this size, and its log evidence."""
    sigmas = np.full(len(theta), sigma)
    weights = _weights(problem.data.log_values - problem.law(theta), sigmas, problem.data)
    theta, _, weights = _followed(problem, theta, sigmas, weights, learns_noise=False)
    scores = log_evidence_at(problem, theta, sigmas)
    best = int(np.argmax(scores))
    return _peak_at(problem, theta[best], sigma, weights[best]), float(scores[best])


def log_evidence_at(problem: Problem, theta: Array, sigma: Array) -> Array:
    """The same around peaks (peaks, parameters) that were found: Laplace's approximation, dips in the likelihood."""
    data, prior = problem.data, problem.prior
    residual, scale = data.log_values - problem.law(theta), data.spread(sigma)
    likelihood = posterior.log_likelihood(residual, scale, data.is_trusted)
    away, precision = theta - prior.mean, inverse(prior.covariance)
    distance = np.einsum("ki,ij,kj->k", away, precision, away)
    information = _goal(problem, sigma, _weights(residual, sigma, data)).information(theta)
    volume = np.linalg.slogdet(information)[1] + np.linalg.slogdet(prior.covariance)[1]
    return np.asarray(likelihood - 0.5 * (distance + volume), dtype=np.float64)


def _descend(problem: Problem, theta: Array, sigma: Array, weights: Array, *, iterations: int) -> Array:
    return posterior.descend(_goal(problem, sigma, weights), theta, iterations=iterations)


def _goal(problem: Problem, sigma: Array, weights: Array) -> Goal:
    """Beside noise and weights by problems."""
    if problem.shared.any():
        covariances = noise_covariances(problem.data, problem.shared, sigma, weights)
        whiten = inverse(np.asarray(np.linalg.cholesky(covariances), dtype=np.float64))
    else:
        whiten = 1.0 / np.sqrt(own_variances(problem.data, sigma, weights))
    return posterior.goal(problem.law, problem.data.log_values, whiten, problem.prior)
