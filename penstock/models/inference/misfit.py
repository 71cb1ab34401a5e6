"""Knows why measurements deviate from a law: its misfit, weather, differences between clients, and noise.

    y_i = f_i(theta) + g(x_i) + w(t_i) + e_i,    g ~ GP(0, amplitude^2 Matern-5/2)
    w ~ GP(0, weather^2 exp(-|t - t'| / hour)),    slow variation of a network that others use as well

The amplitudes and length scales of these are unknown, and averaged over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from math import log

import numpy as np
from numpy.typing import NDArray

from penstock.models.inference.posterior import WEIGHT_MIN, Array

SIGMA_TYPICAL = 0.08  # of a measurement whose noise scale is 1
_SIGMA_SPREAD = 0.7  # of its logarithm: typically measurements vary by 4 to 16 %
_CLIENT_SPREAD = 0.2  # standard deviation of another client's constant offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Measurements as arrays of shape (measurements,); `coordinates` is (measurements, 3)."""

    log_values: Array
    noise_scale: Array  # over that of an ordinary measurement
    is_trusted: NDArray[np.bool_]  # certainly no dip
    # For the Gaussian process: octaves of threads and of part size, and whether on burst credits.
    coordinates: Array
    has_misfit: NDArray[np.bool_]  # whether it is one of what the law is for, and not side evidence
    group: NDArray[np.int64]  # the client that measured; -1 is penstock itself
    hours: Array  # times in hours, from any origin

    def __len__(self) -> int:
        return len(self.log_values)

    @property
    def tells_weather(self) -> bool:
        """Whether the measurements span long enough to show how hours differ."""
        hours = self.hours[self.has_misfit]
        return bool(len(hours) and np.ptp(hours) >= _WEATHER_HOURS)

    def of(self, chosen: NDArray[np.int64]) -> Measurements:
        """The measurements with these indices."""
        return Measurements(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    def spread(self, sigma: Array) -> Array:
        """Standard deviation of each measurement, (problems, measurements), for noise of these sizes (problems,).

        Noise is learned for the measurements that the law is for; that of side evidence is known.
        """
        learned = np.where(self.has_misfit, sigma[:, None], SIGMA_TYPICAL)
        return np.asarray(learned * self.noise_scale, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """The hyperparameters of the Gaussian processes of misfit and weather."""

    amplitude: float = 0.0
    length_octaves: tuple[float, float] = (1.5, 3.0)  # of threads, and of part size
    weather: float = 0.0  # standard deviation of what all measurements within an hour share

    def alike(self, left: Array, right: Array) -> Array:
        """Covariance of the misfit between coordinates (a, 3) and (b, 3): shape (a, b)."""
        return next(covariances([self], left, right))


def covariances(misfits: Sequence[Misfit], left: Array, right: Array) -> Iterator[Array]:
    """The covariance of each misfit between coordinates, as in `Misfit.alike`; equal lengths are computed once."""
    lengths = {each.length_octaves for each in misfits if each.amplitude > 0}
    correlations = {each: matern(left, right, (*each, _REGIME_LENGTH)) for each in lengths}
    for each in misfits:
        if each.amplitude > 0:
            yield each.amplitude**2 * correlations[each.length_octaves]
        else:
            yield np.zeros((len(left), len(right)))


@dataclass(frozen=True, slots=True, eq=False)
class Unexplained:
    """One draw of why measurements deviate from the law: its misfit, the size of noise, and which of them are dips."""

    misfit: Misfit
    sigma: float
    weights: Array  # (measurements,); a dip has next to no weight


def noise_covariance(data: Measurements, beside: Unexplained) -> Array:
    """Covariance of the measurements around the law."""
    shared = structure(data, beside.misfit)
    one = noise_covariances(data, shared, np.array([beside.sigma]), beside.weights[None])
    return np.asarray(one[0], dtype=np.float64)


def noise_covariances(data: Measurements, shared: Array, sigma: Array, weights: Array) -> Array:
    """Like `noise_covariance` for several sizes of noise (problems,), with weights (problems, measurements)."""
    return shared + own_variances(data, sigma, weights)[:, :, None] * np.eye(len(data))


def own_variances(data: Measurements, sigma: Array, weights: Array) -> Array:
    """The variance of each measurement's own noise, (problems, measurements)."""
    return np.asarray(data.spread(sigma) ** 2 / np.maximum(weights, WEIGHT_MIN), dtype=np.float64)


def structure(data: Measurements, misfit: Misfit) -> Array:
    """The covariance that measurements share: by misfit if they are close, by client, and by weather."""
    same_client = (data.group[:, None] == data.group[None, :]) & (data.group[:, None] >= 0)
    shared = np.asarray(_CLIENT_SPREAD**2 * same_client, dtype=np.float64)
    both = data.has_misfit[:, None] & data.has_misfit[None, :]
    if misfit.weather > 0:
        shared += both * misfit.weather**2 * same_hour(data)
    return shared + both * misfit.alike(data.coordinates, data.coordinates)


def same_hour(data: Measurements) -> Array:
    """Correlation of the weather between measurements: (measurements, measurements)."""
    apart = np.abs(data.hours[:, None] - data.hours[None, :])
    return np.asarray(np.exp(-apart / _WEATHER_HOURS), dtype=np.float64)


def matern(left: Array, right: Array, lengths: tuple[float, ...]) -> Array:
    """Matern-5/2 correlation between coordinates (a, k) and (b, k), with a length for each of the k."""
    left, right = left / np.array(lengths), right / np.array(lengths)
    square = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    distance = np.sqrt(5.0 * np.maximum(square, 0.0))
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance), dtype=np.float64)


# Prior probabilities of amplitudes: laws of this kind are mostly off by little. Lengths, in octaves of threads and of
# part size, are equally likely; waves of parts and a store's blocks make combs with teeth a third of an octave apart.
_AMPLITUDES = {0.0: 0.25, 0.05: 0.25, 0.1: 0.22, 0.2: 0.15, 0.4: 0.08, 0.8: 0.05}
_LENGTHS = ((0.3, 0.6), (1.0, 2.0), (2.5, 4.0))
# Misfit with and without burst credits is half correlated, because a law is seldom off alike at two ceilings.
_REGIME_LENGTH = 1.0
_WEATHERS = (0.0, 0.1, 0.2)  # sizes of weather that are considered
_WEATHER_HOURS = 1.0  # correlation time of weather
SIGMAS = (0.018, 0.03, 0.05, 0.08, 0.12, 0.18, 0.27)  # sizes of noise that are considered
MISFIT_MEASUREMENT_COUNT_MIN = 5


def sigma_log_prior(sigma: Array) -> Array:
    """Log prior of these sizes of noise, up to a constant."""
    return np.asarray(-0.5 * (np.log(sigma / SIGMA_TYPICAL) / _SIGMA_SPREAD) ** 2, dtype=np.float64)


def weather_log_prior(weather: float) -> Array:
    """Log prior of weather of this size, given each size of noise: (noises,).

    It is a half-Cauchy as wide as the noise (Polson and Scott, Bayesian Analysis 7, 2012): places that vary within
    minutes vary over hours too, and quiet ones hardly do.
    """
    own = {each: 1.0 / (1.0 + np.square(each / np.array(SIGMAS))) for each in _WEATHERS}
    return np.asarray(np.log(own[weather] / sum(own.values())), dtype=np.float64)


# Each misfit with its prior probability. Without an amplitude there are no lengths.
_CHANCES = {
    Misfit(amplitude=amplitude, length_octaves=lengths, weather=weather): of_amplitude / len(of_lengths)
    for amplitude, of_amplitude in _AMPLITUDES.items()
    for of_lengths in (_LENGTHS if amplitude else _LENGTHS[:1],)
    for lengths in of_lengths
    for weather in _WEATHERS
}
MISFITS = list(_CHANCES)
LOG_CHANCES = np.array([log(chance) + weather_log_prior(each.weather) for each, chance in _CHANCES.items()])
"""Log prior of each misfit, given each size of noise: (misfits, noises)."""


@dataclass(frozen=True, slots=True)
class Chances:
    """The posterior probability of each misfit with each size of noise: (misfits, noises), summing to one."""

    table: Array

    @property
    def sigma(self) -> float:
        """The root mean square of the noise."""
        return float(np.sqrt(self.table.sum(axis=0) @ np.square(SIGMAS)))

    @property
    def likeliest(self) -> Misfit:
        """The most probable misfit."""
        return MISFITS[int(np.argmax(self.table.sum(axis=1)))]

    def drawn(self, count: int) -> list[tuple[Misfit, float]]:
        """`count` misfits with their noise, each as often as it is probable, as far as the count allows."""
        places = np.searchsorted(np.cumsum(self.table), (np.arange(count) + 0.5) / count)
        rows, columns = np.unravel_index(np.minimum(places, self.table.size - 1), self.table.shape)
        return [(MISFITS[row], SIGMAS[column]) for row, column in zip(rows, columns, strict=True)]


class Remainder:
    """The posterior of a misfit, given the residuals that draws of a law leave, (draws, measurements).

    `reach` is the misfit's covariance between settings and measurements, (settings, measurements).
    """

    def __init__(self, unexplained: Unexplained, data: Measurements, residual: Array) -> None:
        self._misfit = unexplained.misfit
        self._noise = noise_covariance(data, unexplained)
        self._pull = np.linalg.solve(self._noise, residual.T)

    def means(self, reach: Array) -> Array:
        """The expected misfit for each draw: (draws, settings)."""
        return np.asarray((reach @ self._pull).T, dtype=np.float64)

    def variance(self, reach: Array) -> Array:
        """The remaining variance of the misfit, (settings,)."""
        known = np.einsum("sn,ns->s", reach, np.linalg.solve(self._noise, reach.T))
        return np.asarray(np.maximum(self._misfit.amplitude**2 - known, 0.0), dtype=np.float64)

    def known(self, reach: Array) -> Array:
        """The part of the misfit's covariance that the measurements explain: (settings, settings)."""
        return np.asarray(reach @ np.linalg.solve(self._noise, reach.T), dtype=np.float64)


def noise_log_likelihoods(residual: Array, shared: Array, scale: Array) -> Array:
    """Log likelihood of a residual (n,) for shared covariances (k, n, n) and each size of noise: (k, noises).

    It includes the prior of the noise. Scaled by `scale`, the noise is the same in all eigenvectors of a covariance, so
    that one decomposition serves every size of it.
    """
    values, axes = np.linalg.eigh(shared / np.outer(scale, scale))
    along = np.einsum("kij,i->kj", axes, residual / scale)
    variance = np.maximum(values, 0.0)[:, :, None] + np.square(SIGMAS)
    fits = (along[:, :, None] ** 2 / variance + np.log(variance)).sum(axis=1)
    return np.asarray(-0.5 * fits - np.log(scale).sum() + sigma_log_prior(np.array(SIGMAS)), dtype=np.float64)
