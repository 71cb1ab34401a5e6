"""Knows how the law of a transfer is learned together with its misfit, weather and noise (`misfit`): peaks and draws.

All measurements of throughput share one size of noise, which is learned, times the noise scale of each. Evidence that
must not be explained away as dips (throttling) is `trusted` and keeps its weight.
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


@dataclass(frozen=True, kw_only=True)  # without slots, for the cached property
class Problem:
    """A law, measurements, a prior, and a misfit."""

    law: Law
    data: Measurements
    prior: Gaussian
    misfit: Misfit = field(default_factory=Misfit)

    @cached_property
    def shared(self) -> Array:
        """The covariance that measurements share."""
        return structure(self.data, self.misfit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most probable parameters, and the noise and dips found with them."""

    theta: Array  # (parameters,)
    sigma: float
    weights: Array  # (measurements,): the probability that each is no dip
    covariance: Array  # (parameters, parameters), of the posterior at this peak

    @property
    def belief(self) -> Gaussian:
        """The normal approximation of the posterior at this peak."""
        return Gaussian(mean=self.theta, covariance=self.covariance)


def maximise(problem: Problem, starts: Array) -> Peak:
    """The best peak found from these starts (starts, parameters)."""
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
    """Parameters, noise and weights, each updated given the others until the weights converge (EM).

    Between two explanations, one of which takes a measurement for a dip and the other does not, the first rounds hardly
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
    """The best distinct peaks to which the starts lead: parameters, and weights of the measurements."""
    data = problem.data
    theta = np.concatenate([starts, starts])
    caps = np.repeat([_TRUSTING, _DOUBTING], len(starts), axis=0)
    sigma, weights = caps[:, 0], np.ones((len(theta), len(data)))
    for cap in caps.T:
        theta = _descend(problem, theta, sigma, weights, iterations=5)
        sigma, weights = cap, _weights(data.log_values - problem.law(theta), cap, data)
    kept = _different_peaks(problem, theta, sigma)
    return theta[kept], weights[kept]


# The size of noise that is assumed in each round of the search, before it is learned. With great noise the prior leads
# the search, with small noise the measurements; neither finds every peak.
_DOUBTING = (1.0, 0.4, 0.2)
_TRUSTING = (0.3, 0.2, 0.2)
_EXPLAINING_ROUNDS = 2  # misfit and noise depend on the peak, and the peak on them
_PEAK_COUNT = 3  # peaks that are followed until they converge
_SAME_PEAK = 0.5  # of log evidence


def _different_peaks(problem: Problem, theta: Array, sigma: Array) -> list[int]:
    """The indices of the best few distinct peaks found so far; many starts lead to the same one."""
    scores = log_evidence_at(problem, theta, sigma)
    kept: list[int] = []
    for index in np.argsort(-scores):
        if all(abs(scores[index] - scores[other]) > _SAME_PEAK for other in kept):
            kept.append(int(index))
    return kept[:_PEAK_COUNT]


def refine(problem: Problem, peak: Peak, *, iterations: int = 4) -> Peak:
    """Follow a known peak to new data, a new prior or a new misfit; cheap, for one step at a time."""
    theta, sigma, data = peak.theta[None], np.array([peak.sigma]), problem.data
    for _ in range(2):
        weights = _weights(data.log_values - problem.law(theta), sigma, data)
        theta = _descend(problem, theta, sigma, weights, iterations=iterations)
        sigma = _sigma(data.log_values - problem.law(theta), weights, data)
    return _peak_at(problem, theta[0], float(sigma[0]), weights[0])


def explain(problem: Problem, peak: Peak) -> tuple[Problem, Peak, Chances]:
    """The problem with its most probable misfit, its peak, and the probabilities of misfits and noise.

    Noise is what neither the law nor its misfit explains. If it were taken from the law's residuals alone, misfit would
    be counted twice: repeated measurements would lose their weight, and the law would fall back to its prior.
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
    """How far each measurement is from its prediction by the law and all others, and its standard deviation."""
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
    """How far each measurement is from its prediction by all others, and the deviations of noise and prediction.

    Three arrays (problems, measurements).
    """
    certainty = np.einsum("kii->ki", precision)
    own = data.spread(sigma)
    expected = np.maximum(1.0 / certainty - own**2 / np.maximum(weights, WEIGHT_MIN), 0.0)
    away = np.einsum("kij,kj->ki", precision, residual) / certainty
    return away, own, np.sqrt(expected)


def _peak_at(problem: Problem, theta: Array, sigma: float, weights: Array) -> Peak:
    """The peak at these parameters, with its covariance."""
    information = _goal(problem, np.array([sigma]), weights[None]).information(theta[None])[0]
    return Peak(theta=theta, sigma=sigma, weights=weights, covariance=inverse(information))


def unexplained(
    problem: Problem, peak: Peak, chances: Chances, *, count: int, seed: int
) -> tuple[Unexplained, ...]:
    """`count` draws of misfit and noise, each with a draw of which measurements are dips.

    Dips and parameters are drawn in turn (Gibbs): a measurement that may be a dip or evidence of other parameters is a
    dip in some of the draws, and none in others. Only throughput dips, not side evidence.
    """
    data, drawn = problem.data, [Unexplained(*each, weights=peak.weights) for each in chances.drawn(count)]
    sigma, may_dip = np.array([each.sigma for each in drawn]), data.has_misfit & ~data.is_trusted
    # From an own generator, so that a measurement's numbers stay the same when another one follows.
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


_SWEEPS = 3  # rounds of drawing parameters and dips in turn


def _beside(problem: Problem, drawn: Sequence[Unexplained]) -> Goal:
    """The problems of finding parameters given each of these draws."""
    spreads = np.stack([noise_covariance(problem.data, each) for each in drawn])
    whiten = inverse(np.asarray(np.linalg.cholesky(spreads), dtype=np.float64))
    return posterior.goal(problem.law, problem.data.log_values, whiten, problem.prior)


def sample(problem: Problem, peak: Peak, drawn: Sequence[Unexplained], *, count: int, seed: int) -> Array:
    """Draws from the posterior, (count, parameters); the second half mirrors the first, which reduces noise in means.

    Each draw uses one of `drawn`, in turn.
    """
    goal = _beside(problem, drawn)
    goal = replace(goal, whiten=np.tile(goal.whiten, (count // len(drawn), 1, 1)))
    return posterior.draw(goal, problem.prior, peak.theta, count=count, seed=seed, iterations=6)


def _chances(problem: Problem, peak: Peak) -> Chances:
    """The probabilities of misfits and noise, with the law linearised at the peak."""
    scores = LOG_CHANCES + _marginals(problem, peak, MISFITS)
    if int(problem.data.has_misfit.sum()) < MISFIT_MEASUREMENT_COUNT_MIN:
        # So few measurements cannot tell weather from noise.
        scores = np.where([[each.weather > 0] for each in MISFITS], -np.inf, scores - weather_log_prior(0.0))
    chances = np.exp(scores - scores.max())
    return Chances(chances / chances.sum())


def law_log_evidence(
    problem: Problem, peak: Peak, is_counted: NDArray[np.bool_], is_given: NDArray[np.bool_]
) -> float:
    """Log evidence of the counted measurements under the law, averaged over parameters, misfit and noise.

    It is conditional on the side evidence in `is_given`: an unusual limit of the place does not speak against the law.
    """
    scores = LOG_CHANCES + _marginals(*_part(problem, peak, is_counted | is_given), MISFITS)
    given = np.logaddexp.reduce(_marginals(*_part(problem, peak, is_given), [Misfit()])[0])
    given -= _WITHOUT_NOISE
    return float(np.logaddexp.reduce(scores, axis=None) - given)


# The sum of the prior over sizes of noise, which do not matter to side evidence.
_WITHOUT_NOISE = float(np.logaddexp.reduce(sigma_log_prior(np.array(SIGMAS))))


def _part(problem: Problem, peak: Peak, is_chosen: NDArray[np.bool_]) -> tuple[Problem, Peak]:
    """The problem and the peak, restricted to some of the measurements."""
    law, chosen = problem.law, np.flatnonzero(is_chosen)
    part = replace(problem, law=lambda theta: law(theta)[:, chosen], data=problem.data.of(chosen))
    return part, replace(peak, weights=peak.weights[chosen])


def _marginals(problem: Problem, peak: Peak, shapes: Sequence[Misfit]) -> Array:
    """Log marginal likelihood of each misfit (rows) and noise (columns), with the law linearised at the peak."""
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
    """Residual and covariance of the other measurements, given the side evidence, and the latter's log likelihood."""
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
    """The probability that each measurement is no dip, (problems, measurements)."""
    weights = no_dip(residual, data.spread(sigma))
    return np.where(data.is_trusted, 1.0, weights)


def _sigma(residual: Array, weights: Array, data: Measurements) -> Array:
    return posterior.deviation(residual / data.noise_scale, weights * data.has_misfit, SIGMA_TYPICAL)


def log_evidence(problem: Problem, starts: Array, *, sigma: float) -> float:
    """Log evidence of the measurements under the prior, averaged over parameters, with noise of this size.

    Noise and misfit are given, because explanations can be compared only if these are the same.
    """
    if not len(problem.data):
        return 0.0
    return settle(problem, _search(problem, starts)[0], sigma=sigma)[1]


def settle(problem: Problem, theta: Array, *, sigma: float) -> tuple[Peak, float]:
    """The best peak reached from parameters (peaks, parameters) with noise of this size, and its log evidence."""
    sigmas = np.full(len(theta), sigma)
    weights = _weights(problem.data.log_values - problem.law(theta), sigmas, problem.data)
    theta, _, weights = _followed(problem, theta, sigmas, weights, learns_noise=False)
    scores = log_evidence_at(problem, theta, sigmas)
    best = int(np.argmax(scores))
    return _peak_at(problem, theta[best], sigma, weights[best]), float(scores[best])


def log_evidence_at(problem: Problem, theta: Array, sigma: Array) -> Array:
    """Log evidence at peaks (peaks, parameters): (peaks,), by Laplace's approximation, with dips in the likelihood."""
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
    """The least-squares problems with these sizes of noise (problems,) and weights (problems, measurements)."""
    if problem.shared.any():
        covariances = noise_covariances(problem.data, problem.shared, sigma, weights)
        whiten = inverse(np.asarray(np.linalg.cholesky(covariances), dtype=np.float64))
    else:
        whiten = 1.0 / np.sqrt(own_variances(problem.data, sigma, weights))
    return posterior.goal(problem.law, problem.data.log_values, whiten, problem.prior)
