"""Knows how the parameters of a law are learned, from a normal prior: peaks and draws of the posterior, in NumPy alone.

With the law f, parameters theta and measurements y, all of them logarithms,

    y_i = f_i(theta) + e_i,    theta ~ N(mean, covariance)
    e_i ~ (1 - d - r) N(0, s_i^2) + d Dip + r Rise,          a dip lowers y_i by the size of a half-normal variable

Disturbances lower a measurement and hardly ever raise it, so a low measurement may be a dip, while a high one is hardly
ever a rise. The weight of each measurement is the probability that it is neither (EM); the deviation s is that of the
others.

Draws from the posterior are made by solving the same problem for perturbed measurements and perturbed prior means
("randomised maximum likelihood"). This is exact for a linear law, and right about ceilings that were never reached,
unlike a quadratic approximation at the peak.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import erfc, sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Law = Callable[[Array], Array]
"""From parameters (problems, parameters) to the logarithm of each measurement (problems, measurements)."""

_DIP_FRACTION = 0.08  # of probes; 0.07 was counted on published S3 curves
_DIP_SCALE = 0.5  # of the logarithm: dips to 0.25-0.9 of the usual
_RISE_FRACTION = 0.01
WEIGHT_MIN = 1e-3  # of what is certainly a dip
_DEVIATION_MIN = 0.015
_DEVIATION_MAX = 0.35  # more than measurements vary by; the rest must be explained, not taken for noise
_DEVIATION_FREEDOM = 3.0  # measurements, as which the typical deviation counts
_TAKEN_UP = 3.0  # the most measurements whose noise the parameters follow (degrees of freedom)
_STEP_MAX = 1.5  # of a logarithm, in one step
_DIFFERENCE = 1e-4  # of a logarithm, for numerical derivatives
_GAIN_MIN = 0.02  # of the sum of squares, promised by a step; the next step would promise a tenth of it
_BLOCK = 12  # problems whose derivatives are taken at a time, so that they fit into the processor's cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaussian:
    """A normal distribution of parameters: `mean` (parameters,) and `covariance` (parameters, parameters)."""

    mean: Array
    covariance: Array


@dataclass(frozen=True, slots=True)
class Goal:
    """Many least-squares problems at once, each with its own noise, prior mean and perturbation if desired.

    `whiten` is one over each measurement's deviation, or a matrix if measurements share some of their noise.
    """

    law: Law
    log_values: Array  # (measurements,)
    whiten: Array  # (problems or 1, measurements) or (problems or 1, measurements, measurements)
    means: Array  # (problems or 1, parameters)
    precision: Array
    disturbance: Array  # perturbation of the whitened measurements, (problems or 1, measurements)

    def of(self, chosen: NDArray[np.intp]) -> Goal:
        """The problems with these indices."""
        names = ("whiten", "means", "disturbance")
        own = {name: each[chosen] for name in names if len(each := getattr(self, name)) > 1}
        return replace(self, **own)

    def whitened(self, values: Array) -> Array:
        """Columns of values (problems, measurements, columns), in units of the measurements' noise."""
        return np.asarray(self.whiten @ values if self.whiten.ndim == 3 else self.whiten[:, :, None] * values)

    def cost(self, at: Array, expected: Array) -> tuple[Array, Array]:
        """The sum of squares (problems,), and the whitened residuals; `expected` are the law's values at `at`."""
        residual = self.whitened((self.log_values - expected)[:, :, None])[:, :, 0] + self.disturbance
        away = self.means - at
        return (residual**2).sum(axis=1) + np.einsum("mi,ij,mj->m", away, self.precision, away), residual

    def information(self, at: Array) -> Array:
        """The precision matrix of measurements and prior together at these parameters."""
        jacobian = self.whitened(derivatives(self.law, at))
        return np.asarray(np.swapaxes(jacobian, 1, 2) @ jacobian + self.precision)


def goal(law: Law, log_values: Array, whiten: Array, prior: Gaussian) -> Goal:
    """The problems of finding parameters that explain the measurements, given the prior."""
    return Goal(law, log_values, whiten, prior.mean[None], inverse(prior.covariance), np.zeros((1, 1)))


def descend(goal: Goal, theta: Array, *, iterations: int) -> Array:
    """Levenberg-Marquardt from theta (problems, parameters), each with its own damping, until little can be gained."""
    theta, damping = theta.copy(), np.full(len(theta), 1e-2)
    expected, slopes = linearised(goal.law, theta)
    cost, residual = goal.cost(theta, expected)
    jacobian = goal.whitened(slopes)
    left, moved = np.arange(len(theta)), np.empty(0, dtype=np.intp)
    for _ in range(iterations):
        if len(moved):
            jacobian[moved] = goal.of(moved).whitened(linearised(goal.law, theta[moved])[1])
        rest, at, around = goal.of(left), theta[left], jacobian[left]
        slope = np.einsum("mni,mn->mi", around, residual[left]) + (rest.means - at) @ goal.precision
        curve = np.swapaxes(around, 1, 2) @ around + goal.precision
        curve += damping[left, None, None] * np.einsum("mii->mi", curve)[:, :, None] * np.eye(theta.shape[1])
        step = np.clip(np.linalg.solve(curve, slope[:, :, None])[:, :, 0], -_STEP_MAX, _STEP_MAX)
        tried, tried_residual = rest.cost(at + step, goal.law(at + step))
        is_better = tried < cost[left]
        moved = left[is_better]
        theta[moved] += step[is_better]
        cost[moved], residual[moved] = tried[is_better], tried_residual[is_better]
        damping[left] *= np.where(is_better, 0.2, 8.0)
        goes_on = np.einsum("mi,mi->m", step, slope) > _GAIN_MIN
        left, moved = left[goes_on], left[goes_on & is_better]
        if not len(left):
            break
    return theta


def draw(goal: Goal, prior: Gaussian, peak: Array, *, count: int, seed: int, iterations: int) -> Array:
    """Draws from the posterior, (count, parameters); the perturbations of the second half mirror those of the first."""
    rng = np.random.default_rng(seed)
    directions, disturbance = (
        np.concatenate([half, -half])
        for half in (
            rng.standard_normal((count // 2, size)) for size in (len(prior.mean), len(goal.log_values))
        )
    )
    means = np.asarray(prior.mean + directions @ np.linalg.cholesky(prior.covariance).T, dtype=np.float64)
    if not len(goal.log_values):
        return means
    disturbed = replace(goal, means=means, disturbance=disturbance)
    return descend(disturbed, np.repeat(peak[None], count, axis=0), iterations=iterations)


def derivatives(law: Law, theta: Array) -> Array:
    """Numerical derivatives of the law, (problems, measurements, parameters)."""
    return linearised(law, theta)[1]


def linearised(law: Law, theta: Array) -> tuple[Array, Array]:
    """The law's values, (problems, measurements), and derivatives, (problems, measurements, parameters)."""
    count = len(theta) if (theta == theta[:1]).all() else 1
    theta = theta[::count]
    moves = np.concatenate([_DIFFERENCE * np.eye(theta.shape[1]), np.zeros((1, theta.shape[1]))])
    blocks = [_moved(law, theta[i : i + _BLOCK], moves) for i in range(0, len(theta), _BLOCK)]
    values = np.concatenate(blocks)
    slopes = np.swapaxes(values[:, :-1] - values[:, -1:], 1, 2) / _DIFFERENCE
    return np.repeat(values[:, -1], count, axis=0), np.repeat(slopes, count, axis=0)


def _moved(law: Law, theta: Array, moves: Array) -> Array:
    """The law's values after each move of the parameters, (problems, moves, measurements)."""
    values = law((theta[:, None, :] + moves).reshape(-1, theta.shape[1]))
    return values.reshape(len(theta), len(moves), values.shape[1])


def inverse(matrices: Array) -> Array:
    """The inverse of each matrix (..., n, n)."""
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64)


def no_dip(residual: Array, scale: Array, unsure: Array | float = 0.0) -> Array:
    """The probability that measurements with these residuals and standard deviations are neither dips nor rises.

    `unsure` is the standard deviation of what was expected, which applies to dips as well.
    """
    core = _core_density(residual, np.hypot(scale, unsure))
    weights = core / (core + _stray_density(residual, unsure) + 1e-300)
    return np.asarray(np.maximum(weights, WEIGHT_MIN), dtype=np.float64)


def log_likelihood(residual: Array, scale: Array, is_trusted: NDArray[np.bool_]) -> Array:
    """Log likelihood of residuals (problems, measurements): (problems,); trusted measurements are no dips."""
    stray = np.where(is_trusted, 0.0, _stray_density(residual))
    return np.asarray(np.log(_core_density(residual, scale) + stray + 1e-300).sum(axis=1), dtype=np.float64)


def _core_density(residual: Array, scale: Array) -> Array:
    """The density of a residual that is neither a dip nor a rise."""
    core = (1 - _DIP_FRACTION - _RISE_FRACTION) * np.exp(-0.5 * (residual / scale) ** 2) / (scale * 2.5066)
    return np.asarray(core, dtype=np.float64)


def _stray_density(residual: Array, unsure: Array | float = 0.0) -> Array:
    """The density of dips and rises, half-normal on each side: dips to a half are common, to a tenth unheard of.

    With an uncertain expectation it is skew normal (Azzalini 1985).
    """
    wide = np.hypot(unsure, _DIP_SCALE)
    is_low = _normal_below(-_DIP_SCALE * residual / (wide * np.maximum(unsure, 1e-9)))
    fraction = _DIP_FRACTION * is_low + _RISE_FRACTION * (1.0 - is_low)
    return np.asarray(fraction * np.exp(-0.5 * (residual / wide) ** 2) * 0.798 / wide, dtype=np.float64)


def _normal_below(value: Array) -> Array:
    """The normal distribution function, to two ten-thousandths (Page 1977); NumPy has none."""
    value = np.clip(value, -9.0, 9.0)
    return np.asarray(0.5 + 0.5 * np.tanh(0.7979 * (value + 0.044715 * value**3)), dtype=np.float64)


_UNKNOWN_NOISE = 1.8  # measurements


def widened(count: float) -> float:
    """The factor that widens intervals because noise was learned from so few measurements; roughly Student's t."""
    return 1.0 + _UNKNOWN_NOISE / (_DEVIATION_FREEDOM + count)


# The prior of a place's fraction of dips, over its noise (one in twenty at typical noise), and the number of probes as
# which it counts.
_DIP_FRACTION_OVER_NOISE = 0.625
_DIP_FRACTION_FREEDOM = 5.0
_DIP_FRACTION_ROUNDS = 8  # after which it changes by less than a tenth of itself in a round


def dip_fraction(weights: Array, noise: float) -> float:
    """The fraction of a place's measurements that are dips, from the probabilities that each is none (measurements,).

    Those probabilities assume the usual fraction (`no_dip`); if a place has fewer dips, each of them is less likely. A
    place that varies more also dips more; quiet places have no dips.
    """
    typical = _DIP_FRACTION_OVER_NOISE * noise
    usual, fraction = 1.0 / weights - 1.0, typical
    for _ in range(_DIP_FRACTION_ROUNDS):
        odds = usual * (fraction / (1.0 - fraction)) / (_DIP_FRACTION / (1.0 - _DIP_FRACTION))
        counted = _DIP_FRACTION_FREEDOM * typical + float((odds / (1.0 + odds)).sum())
        fraction = counted / (_DIP_FRACTION_FREEDOM + len(weights))
    return fraction


# Equally likely quantiles of the half-normal distribution.
_DEPTHS = (0.052, 0.157, 0.264, 0.374, 0.489, 0.61, 0.742, 0.887, 1.054, 1.258, 1.534, 2.037)
_DIP_DEPTHS = [_DIP_SCALE * depth for depth in _DEPTHS]
_BISECTIONS = 17  # to a hundred-thousandth


def quantile_beside_dips(share: float, *, deviation: float, dip_fraction: float) -> float:
    """The quantile of a measurement, as a logarithm relative to its expectation without dips.

    It is a dip with the probability `dip_fraction`, distributed as in the likelihood.
    """

    def below(value: float) -> float:
        scaled = -value / (sqrt(2.0) * deviation)
        dips = sum(erfc(scaled - depth / (sqrt(2.0) * deviation)) for depth in _DIP_DEPTHS) / len(_DIP_DEPTHS)
        return 0.5 * ((1.0 - dip_fraction) * erfc(scaled) + dip_fraction * dips)

    low, high = -_DIP_DEPTHS[-1] - 8.0 * deviation, 8.0 * deviation
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if below(middle) < share else (low, middle)
    return 0.5 * (low + high)


def deviation(residual: Array, weights: Array, typical: float) -> Array:
    """The standard deviation of measurements, (problems,), shrunk towards the typical one."""
    effective = weights.sum(axis=-1)
    taken_up = np.minimum(_TAKEN_UP, effective / 2)
    squares = _DEVIATION_FREEDOM * typical**2 + (weights * residual**2).sum(axis=-1)
    variance = squares / (_DEVIATION_FREEDOM + effective - taken_up)
    return np.asarray(np.clip(np.sqrt(variance), _DEVIATION_MIN, _DEVIATION_MAX), dtype=np.float64)
