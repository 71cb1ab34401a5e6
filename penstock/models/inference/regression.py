"""Knows what else a transfer's measurements are off by than the law's parameters: misfit, weather, other clients.

Beside the law's parameters and the noise of each measurement (`posterior`) there are Gaussian processes that
measurements share:

    y_i = f_i(theta) + g(x_i) + w(t_i) + e_i,    g ~ GP(0, amplitude^2 Matern-5/2)
    w ~ GP(0, weather^2 exp(-|t - t'| / hour)),    the slow mode of a network that others use as well

The noise of the measurements of throughput is learned as one, in units of what is known of each. Evidence that must
not be explained away (throttling) is `trusted` and keeps its weight.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from penstock.models.inference import posterior
from penstock.models.inference.posterior import Array, Gaussian, Goal, Law, derivatives, inverse, no_dip

SIGMA_TYPICAL = 0.08  # of a measurement whose noise scale is 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured, as arrays of shape (measurements,); `coordinates` is (measurements, 2)."""

    log_values: Array
    noise_scale: Array  # c_i: 1 for an ordinary probe, less where many requests were averaged
    is_trusted: NDArray[np.bool_]
    coordinates: Array  # where the Gaussian process sees it, in octaves
    has_misfit: NDArray[np.bool_]  # whether the Gaussian process applies at all
    group: NDArray[np.int64]  # the client that measured; -1 is penstock itself
    hours: Array  # when, from any origin

    def __len__(self) -> int:
        return len(self.log_values)

    @property
    def tells_weather(self) -> bool:
        """Whether they span long enough to show what one hour has that another has not."""
        hours = self.hours[self.has_misfit]
        return bool(len(hours) and np.ptp(hours) >= _WEATHER_HOURS)

    def of(self, chosen: NDArray[np.int64]) -> Measurements:
        """Some of them."""
        return Measurements(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    def spread(self, sigma: Array) -> Array:
        """Standard deviation of each measurement, for noise of these sizes (problems,).

        The noise that is learned is that of what the law is for; side evidence has its own, which is known.
        """
        learned = np.where(self.has_misfit, sigma[:, None], SIGMA_TYPICAL)
        return np.asarray(learned * self.noise_scale, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """The Gaussian process of what the law does not say."""

    amplitude: float = 0.0  # the likeliest: what corrects predictions
    # The root of the mean square over what it may be: what widens intervals and invites probes.
    doubt: float = 0.0
    length_octaves: tuple[float, float] = (1.5, 3.0)
    group_spread: float = 0.2  # how far another client may be off, as a whole
    # How far all that is measured within the same hour may be off together, where that is known.
    weather: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A law, what was measured, and what was believed before."""

    law: Law
    data: Measurements
    prior: Gaussian
    misfit: Misfit = field(default_factory=Misfit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most probable parameters, with what the search learned about the noise."""

    theta: Array
    sigma: float
    weights: Array
    covariance: Array


def maximise(problem: Problem, starts: Array) -> Peak:
    """The best peak that is found from the starts (starts, parameters)."""
    data = problem.data
    if not len(data):
        prior = problem.prior
        return Peak(theta=prior.mean, sigma=SIGMA_TYPICAL, weights=np.ones(0), covariance=prior.covariance)
    theta, weights = _search(problem, starts)
    sigma = _sigma(data.log_values - problem.law(theta), weights, data)
    for _ in range(_LEARNING_ROUNDS):
        theta = _descend(problem, theta, sigma, weights, iterations=5)
        residual = data.log_values - problem.law(theta)
        sigma = _sigma(residual, weights, data)
        weights = _weights(residual, sigma, data)
    best = int(np.argmax(log_evidence_at(problem, theta, sigma)))
    return _peak_at(problem, theta[best], float(sigma[best]), weights[best])


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
_LEARNING_ROUNDS = 3
_PEAK_COUNT = 3
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


def explain(problem: Problem, peak: Peak, *, rounds: int = 2) -> tuple[Problem, Peak]:
    """The problem with its misfit, and its peak: misfit and noise are learned together.

    The noise is what neither the law nor its misfit explains. Taken from the residual of the law alone, the misfit
    would be counted twice: repeats would lose their force, and the law would slide back to its prior.
    """
    for _ in range(rounds):
        misfit, sigma = _learn_misfit(problem, peak)
        problem = replace(problem, misfit=misfit)
        theta, sigmas, weights = peak.theta[None], np.array([sigma]), peak.weights[None]
        for _ in range(2):
            residual = problem.data.log_values - problem.law(theta)
            beside = _beside_the_others(problem, residual, sigmas, weights)
            weights = np.where(problem.data.is_trusted, 1.0, no_dip(*beside))
            theta = _descend(problem, theta, sigmas, weights, iterations=4)
        peak = _peak_at(problem, theta[0], sigma, weights[0])
    return problem, peak


def beside_the_others(problem: Problem, peak: Peak) -> tuple[Array, Array]:
    """How far each measurement is from what the law and all others expect of it, and the deviation of that."""
    residual = problem.data.log_values - problem.law(peak.theta[None])
    away, deviation = _beside_the_others(problem, residual, np.array([peak.sigma]), peak.weights[None])
    return away[0], deviation[0]


def _beside_the_others(
    problem: Problem, residual: Array, sigma: Array, weights: Array
) -> tuple[Array, Array]:
    precision = inverse(_noise_covariances(problem.data, problem.misfit, sigma, weights))
    certainty = np.einsum("kii->ki", precision)
    own = problem.data.spread(sigma) ** 2
    expected = np.maximum(1.0 / certainty - own / np.maximum(weights, posterior.WEIGHT_MIN), 0.0)
    away = np.einsum("kij,kj->ki", precision, residual) / certainty
    return away, np.asarray(np.sqrt(expected + own), dtype=np.float64)


def _peak_at(problem: Problem, theta: Array, sigma: float, weights: Array) -> Peak:
    """The peak at parameters that were found, with the covariance of its neighbourhood."""
    information = _goal(problem, np.array([sigma]), weights[None]).information(theta[None])[0]
    return Peak(theta=theta, sigma=sigma, weights=weights, covariance=inverse(information))


def sample(problem: Problem, peak: Peak, *, count: int, seed: int) -> Array:
    """Draws from the posterior, (count, parameters); the first half mirrors the second, so that means are quiet."""
    at = _goal(problem, np.array([peak.sigma]), peak.weights[None])
    return posterior.draw(at, problem.prior, peak.theta, count=count, seed=seed, iterations=6)


def noise_covariance(data: Measurements, misfit: Misfit, sigma: float, weights: Array) -> Array:
    """Covariance of the measurements around the law."""
    one = _noise_covariances(data, misfit, np.array([sigma]), weights[None])
    return np.asarray(one[0], dtype=np.float64)


def _noise_covariances(data: Measurements, misfit: Misfit, sigma: Array, weights: Array) -> Array:
    own = data.spread(sigma) ** 2 / np.maximum(weights, posterior.WEIGHT_MIN)
    return structure(data, misfit) + own[:, :, None] * np.eye(len(data))


def structure(data: Measurements, misfit: Misfit) -> Array:
    """The part of the covariance that measurements share: the misfit where they are near, and the client."""
    same_client = (data.group[:, None] == data.group[None, :]) & (data.group[:, None] >= 0)
    shared = np.asarray(misfit.group_spread**2 * same_client, dtype=np.float64)
    both = data.has_misfit[:, None] & data.has_misfit[None, :]
    if misfit.weather > 0:
        shared += both * misfit.weather**2 * _same_hour(data)
    if misfit.amplitude > 0:
        shared += (
            both * misfit.amplitude**2 * matern(data.coordinates, data.coordinates, misfit.length_octaves)
        )
    return shared


def _same_hour(data: Measurements) -> Array:
    """Correlation of the weather that measurements met."""
    apart = np.abs(data.hours[:, None] - data.hours[None, :])
    return np.asarray(np.exp(-apart / _WEATHER_HOURS), dtype=np.float64)


def matern(left: Array, right: Array, lengths: tuple[float, ...]) -> Array:
    """Matern-5/2 correlation between coordinates (a, k) and (b, k), each with its own length."""
    scaled = (left[:, None, :] - right[None, :, :]) / np.array(lengths)
    distance = np.sqrt(5.0 * np.einsum("abk,abk->ab", scaled, scaled))
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance), dtype=np.float64)


# How far laws of this kind are off, before any measurement: mostly by little.
_AMPLITUDES = {0.0: 0.25, 0.05: 0.25, 0.1: 0.22, 0.2: 0.15, 0.4: 0.08, 0.8: 0.05}
_LENGTHS = ((1.0, 2.0), (2.5, 4.0))
_WEATHERS = {0.0: 0.7, 0.1: 0.2, 0.2: 0.1}  # most hours are like the ones before
_WEATHER_HOURS = 1.0  # after which a slow mode of a shared network is another one
SIGMAS = (0.018, 0.03, 0.05, 0.08, 0.12, 0.18, 0.27)  # noise, where all sizes of it are tried
MISFIT_MEASUREMENT_COUNT_MIN = 5


def sigma_log_prior(sigma: Array) -> Array:
    """Logarithm of how likely noise of these sizes is before any measurement, up to a constant."""
    return np.asarray(-0.5 * (np.log(sigma / SIGMA_TYPICAL) / 0.7) ** 2, dtype=np.float64)


def _learn_misfit(problem: Problem, peak: Peak) -> tuple[Misfit, float]:
    """The likeliest misfit around the peak, how large it may be all the same, and the noise beside it."""
    shapes, data = _MISFITS, problem.data
    is_told = int(data.has_misfit.sum()) >= MISFIT_MEASUREMENT_COUNT_MIN
    likelihoods = _marginals(problem, peak, shapes) if is_told else np.zeros((len(shapes), len(SIGMAS)))
    if not is_told:  # so few cannot tell weather from noise: all of it is noise
        likelihoods[[weather > 0 for _, _, weather in shapes]] = -np.inf
    scores = _log_chances()[:, None] + likelihoods
    chances = np.exp(scores - scores.max())
    chances /= chances.sum()
    sigma = float(np.sqrt(chances.sum(axis=0) @ np.square(SIGMAS))) if is_told else peak.sigma
    of_shape = chances.sum(axis=1)
    likeliest = int(np.argmax([c if a > 0 else 0.0 for c, (a, _, _) in zip(of_shape, shapes, strict=True)]))
    amplitude = {
        a: sum(c for c, (b, _, _) in zip(of_shape, shapes, strict=True) if a == b) for a in _AMPLITUDES
    }
    weather = {w: sum(c for c, (_, _, v) in zip(of_shape, shapes, strict=True) if v == w) for w in _WEATHERS}
    misfit = Misfit(
        amplitude=max(amplitude, key=lambda a: amplitude[a]),
        doubt=float(np.sqrt(sum(c * a**2 for a, c in amplitude.items()))),
        length_octaves=shapes[likeliest][1],
        weather=float(np.sqrt(sum(c * w**2 for w, c in weather.items()))),
    )
    return misfit, sigma


_Shape = tuple[float, tuple[float, float], float]
_MISFITS: list[_Shape] = [(a, lengths, w) for a in _AMPLITUDES for lengths in _LENGTHS for w in _WEATHERS]


def _log_chances() -> Array:
    """Of each misfit, before any measurement."""
    return np.log([_AMPLITUDES[a] * _WEATHERS[w] / len(_LENGTHS) for a, _, w in _MISFITS])


def law_log_evidence(
    problem: Problem, peak: Peak, is_counted: NDArray[np.bool_], is_given: NDArray[np.bool_]
) -> float:
    """How likely some of the measurements were under the law, whatever its parameters, its misfit and its noise.

    Side evidence that is `given` is no word against the law: that a place has an unusual limit is not.
    """
    scores = _log_chances()[:, None] + _marginals(*_part(problem, peak, is_counted | is_given), _MISFITS)
    given = np.logaddexp.reduce(_marginals(*_part(problem, peak, is_given), [(0.0, _LENGTHS[0], 0.0)])[0])
    given -= _WITHOUT_NOISE
    return float(np.logaddexp.reduce(scores, axis=None) - given)


_WITHOUT_NOISE = float(np.logaddexp.reduce(sigma_log_prior(np.array(SIGMAS))))  # side evidence has its own


def _part(problem: Problem, peak: Peak, is_chosen: NDArray[np.bool_]) -> tuple[Problem, Peak]:
    """The same for some of the measurements."""
    law, chosen = problem.law, np.flatnonzero(is_chosen)
    part = replace(problem, law=lambda theta: law(theta)[:, chosen], data=problem.data.of(chosen))
    return part, replace(peak, weights=peak.weights[chosen])


def _marginals(problem: Problem, peak: Peak, shapes: list[_Shape]) -> Array:
    """Logarithm of the likelihood of each shape (rows) and noise (columns), with the law linearised and its prior."""
    law, data, misfit = problem.law, problem.data, problem.misfit
    jacobian = derivatives(law, peak.theta[None])[0]
    explained = np.asarray(jacobian @ problem.prior.covariance @ jacobian.T, dtype=np.float64)
    away = jacobian @ (peak.theta - problem.prior.mean)
    residual = data.log_values - law(peak.theta[None])[0] + away
    residual, explained, score = _beside_what_is_known(data, peak.weights, residual, explained)
    seen = data.of(np.flatnonzero(data.has_misfit))
    clients = structure(seen, replace(misfit, amplitude=0.0, weather=0.0))
    waves = {lengths: matern(seen.coordinates, seen.coordinates, lengths) for lengths in _LENGTHS}
    hours = _same_hour(seen)
    shared = [explained + clients + a**2 * waves[lengths] + w**2 * hours for a, lengths, w in shapes]
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


def noise_log_likelihoods(residual: Array, shared: Array, scale: Array) -> Array:
    """Logarithm of the likelihood of a residual for covariances it may share (k, n, n), beside noise of each size.

    In the axes of a covariance, with the scale of the noise taken out, every size of noise adds the same to each. The
    result is (k, noises) and holds how likely each size of noise is by itself.
    """
    values, axes = np.linalg.eigh(shared / np.outer(scale, scale))
    along = np.einsum("kij,i->kj", axes, residual / scale)
    variance = np.maximum(values, 0.0)[:, :, None] + np.square(SIGMAS)
    fits = (along[:, :, None] ** 2 / variance + np.log(variance)).sum(axis=1)
    return np.asarray(-0.5 * fits - np.log(scale).sum() + sigma_log_prior(np.array(SIGMAS)), dtype=np.float64)


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
    data, sigmas = problem.data, np.full(len(theta), sigma)
    for _ in range(2):
        weights = _weights(data.log_values - problem.law(theta), sigmas, data)
        theta = _descend(problem, theta, sigmas, weights, iterations=5)
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
    covariances = _noise_covariances(problem.data, problem.misfit, sigma, weights)
    whiten = inverse(np.asarray(np.linalg.cholesky(covariances), dtype=np.float64))
    return posterior.goal(problem.law, problem.data.log_values, whiten, problem.prior)
