"""Knows what measurements are off by beside a law: misfit, weather, other clients, and the noise of each.

    y_i = f_i(theta) + g(x_i) + w(t_i) + e_i,    g ~ GP(0, amplitude^2 Matern-5/2)
    w ~ GP(0, weather^2 exp(-|t - t'| / hour)),    the slow mode of a network that others use as well

How large each of them is, and over what lengths, is never known: all of it is averaged over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from math import log

import numpy as np
from numpy.typing import NDArray

from penstock.models.inference.posterior import WEIGHT_MIN, Array

SIGMA_TYPICAL = 0.08  # of a measurement whose noise scale is 1
_SIGMA_SPREAD = 0.7  # of its logarithm: places whose measurements vary by 4 to 16 % are usual
_CLIENT_SPREAD = 0.2  # how far another client may be off, as a whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured, as arrays of shape (measurements,); `coordinates` is (measurements, 3)."""

    log_values: Array
    noise_scale: Array  # c_i: 1 for an ordinary probe, less where many requests were averaged
    is_trusted: NDArray[np.bool_]
    # Where the Gaussian process sees it: octaves of threads and of part size, and whether on credits.
    coordinates: Array
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

    amplitude: float = 0.0
    length_octaves: tuple[float, float] = (1.5, 3.0)
    # How far all that is measured within the same hour may be off together, where that is known.
    weather: float = 0.0

    def alike(self, left: Array, right: Array) -> Array:
        """Covariance of what the law is off by at coordinates (a, 3) and (b, 3)."""
        return next(covariances([self], left, right))


def covariances(misfits: Sequence[Misfit], left: Array, right: Array) -> Iterator[Array]:
    """Of each of some misfits; those of the same lengths differ by their amplitude alone."""
    lengths = {each.length_octaves for each in misfits if each.amplitude > 0}
    correlations = {each: matern(left, right, (*each, _REGIME_LENGTH)) for each in lengths}
    for each in misfits:
        if each.amplitude > 0:
            yield each.amplitude**2 * correlations[each.length_octaves]
        else:
            yield np.zeros((len(left), len(right)))


@dataclass(frozen=True, slots=True, eq=False)
class Unexplained:
    """What measurements are off by beside the law: its misfit, the noise of each, and how much each tells."""

    misfit: Misfit
    sigma: float
    weights: Array  # (measurements,); a dip tells next to nothing


def noise_covariance(data: Measurements, beside: Unexplained) -> Array:
    """Covariance of the measurements around the law."""
    shared = structure(data, beside.misfit)
    one = noise_covariances(data, shared, np.array([beside.sigma]), beside.weights[None])
    return np.asarray(one[0], dtype=np.float64)


def noise_covariances(data: Measurements, shared: Array, sigma: Array, weights: Array) -> Array:
    """The same for noise of several sizes, (problems,), with weights (problems, measurements)."""
    return shared + own_variances(data, sigma, weights)[:, :, None] * np.eye(len(data))


def own_variances(data: Measurements, sigma: Array, weights: Array) -> Array:
    """The part that each has for itself, (problems, measurements)."""
    return np.asarray(data.spread(sigma) ** 2 / np.maximum(weights, WEIGHT_MIN), dtype=np.float64)


def structure(data: Measurements, misfit: Misfit) -> Array:
    """The part of the covariance that measurements share: the misfit where they are near, and the client."""
    same_client = (data.group[:, None] == data.group[None, :]) & (data.group[:, None] >= 0)
    shared = np.asarray(_CLIENT_SPREAD**2 * same_client, dtype=np.float64)
    both = data.has_misfit[:, None] & data.has_misfit[None, :]
    if misfit.weather > 0:
        shared += both * misfit.weather**2 * same_hour(data)
    return shared + both * misfit.alike(data.coordinates, data.coordinates)


def same_hour(data: Measurements) -> Array:
    """Correlation of the weather that measurements met."""
    apart = np.abs(data.hours[:, None] - data.hours[None, :])
    return np.asarray(np.exp(-apart / _WEATHER_HOURS), dtype=np.float64)


def matern(left: Array, right: Array, lengths: tuple[float, ...]) -> Array:
    """Matern-5/2 correlation between coordinates (a, k) and (b, k), each with its own length."""
    left, right = left / np.array(lengths), right / np.array(lengths)
    square = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    distance = np.sqrt(5.0 * np.maximum(square, 0.0))
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance), dtype=np.float64)


# How far laws of this kind are off, before any measurement: mostly by little. How wide in octaves of threads and of
# parts is anybody's guess: waves of parts and blocks of a store make combs that are a third of an octave apart.
_AMPLITUDES = {0.0: 0.25, 0.05: 0.25, 0.1: 0.22, 0.2: 0.15, 0.4: 0.08, 0.8: 0.05}
_LENGTHS = ((0.3, 0.6), (1.0, 2.0), (2.5, 4.0))
# What the law is off by on credits is half of what it is off by without: two ceilings are seldom off alike.
_REGIME_LENGTH = 1.0
_WEATHERS = (0.0, 0.1, 0.2)  # how far hours may differ
_WEATHER_HOURS = 1.0  # after which a slow mode of a shared network is another one
SIGMAS = (0.018, 0.03, 0.05, 0.08, 0.12, 0.18, 0.27)  # noise, where all sizes of it are tried
MISFIT_MEASUREMENT_COUNT_MIN = 5


def sigma_log_prior(sigma: Array) -> Array:
    """Logarithm of how likely noise of these sizes is before any measurement, up to a constant."""
    return np.asarray(-0.5 * (np.log(sigma / SIGMA_TYPICAL) / _SIGMA_SPREAD) ** 2, dtype=np.float64)


def weather_log_prior(weather: float) -> Array:
    """Logarithm of how likely it is that hours differ so far, beside noise of each size (noises,).

    Half a Cauchy law as wide as the noise (Polson and Scott, Bayesian Analysis 7, 2012): who varies within minutes
    varies over hours, too, and the quiet hardly do.
    """
    own = {each: 1.0 / (1.0 + np.square(each / np.array(SIGMAS))) for each in _WEATHERS}
    return np.asarray(np.log(own[weather] / sum(own.values())), dtype=np.float64)


# Each with how likely it is before any measurement. A straight law has no lengths.
_CHANCES = {
    Misfit(amplitude=amplitude, length_octaves=lengths, weather=weather): of_amplitude / len(of_lengths)
    for amplitude, of_amplitude in _AMPLITUDES.items()
    for of_lengths in (_LENGTHS if amplitude else _LENGTHS[:1],)
    for lengths in of_lengths
    for weather in _WEATHERS
}
MISFITS = list(_CHANCES)
LOG_CHANCES = np.array([log(chance) + weather_log_prior(each.weather) for each, chance in _CHANCES.items()])
"""(misfits, noises): of each misfit, beside noise of each size."""


@dataclass(frozen=True, slots=True)
class Chances:
    """How likely each misfit is, and each size of the noise beside it: (misfits, noises), one in all."""

    table: Array

    @property
    def sigma(self) -> float:
        """The noise, as the root of the mean square over what it may be."""
        return float(np.sqrt(self.table.sum(axis=0) @ np.square(SIGMAS)))

    @property
    def likeliest(self) -> Misfit:
        """The one that is likelier than any other."""
        return MISFITS[int(np.argmax(self.table.sum(axis=1)))]

    def drawn(self, count: int) -> list[tuple[Misfit, float]]:
        """So many of them, each as often as it is likely, as far as the count allows."""
        places = np.searchsorted(np.cumsum(self.table), (np.arange(count) + 0.5) / count)
        rows, columns = np.unravel_index(np.minimum(places, self.table.size - 1), self.table.shape)
        return [(MISFITS[row], SIGMAS[column]) for row, column in zip(rows, columns, strict=True)]


class Remainder:
    """What a misfit makes of the residuals that draws of a law leave, (draws, measurements).

    `reach` is its covariance between settings and measurements, (settings, measurements).
    """

    def __init__(self, unexplained: Unexplained, data: Measurements, residual: Array) -> None:
        self._misfit = unexplained.misfit
        self._noise = noise_covariance(data, unexplained)
        self._pull = np.linalg.solve(self._noise, residual.T)

    def means(self, reach: Array) -> Array:
        """What is expected besides each draw: (draws, settings)."""
        return np.asarray((reach @ self._pull).T, dtype=np.float64)

    def variance(self, reach: Array) -> Array:
        """What is not known of each, (settings,)."""
        known = np.einsum("sn,ns->s", reach, np.linalg.solve(self._noise, reach.T))
        return np.asarray(np.maximum(self._misfit.amplitude**2 - known, 0.0), dtype=np.float64)

    def known(self, reach: Array) -> Array:
        """What is known of them together, of the misfit's covariance: (settings, settings)."""
        return np.asarray(reach @ np.linalg.solve(self._noise, reach.T), dtype=np.float64)


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
