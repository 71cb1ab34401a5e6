"""Knows how parameters of a law are learned that were normal before any measurement: peaks and draws; NumPy alone.

With the law f, parameters theta and measurements y, all of them logarithms,

    y_i = f_i(theta) + e_i,    theta ~ N(mean, covariance)
    e_i ~ (1 - d - r) N(0, s_i^2) + d Dip + r Rise,          a dip lowers y_i by half a normal law

What is measured is disturbed downwards and hardly ever upwards, so a low measurement may be a dip while a high one is
not: each gets the probability of being neither as its weight (EM), while the deviation comes down to its own size.

Draws from the posterior are made by solving the same problem for disturbed measurements and disturbed prior means
("randomised maximum likelihood"): exact for a linear law, and right about ceilings that were never reached, where a
quadratic approximation at the peak is not.
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
WEIGHT_MIN = 1e-3  # what is surely a dip tells next to nothing
_DEVIATION_MIN = 0.015
_DEVIATION_MAX = 0.35  # beyond what measurements vary by: more must be explained, not called noise
_DEVIATION_FREEDOM = 3.0  # the typical deviation counts as this many measurements
_TAKEN_UP = 3.0  # measurements, at most, whose noise the parameters follow
_STEP_MAX = 1.5  # of a logarithm, in one step
_DIFFERENCE = 1e-4
_GAIN_MIN = 0.02  # of the sum of squares: what a step promised; the next one promises a tenth
_BLOCK = 12  # problems whose derivatives are taken at a time: they stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaussian:
    """A belief about the parameters."""

    mean: Array
    covariance: Array


@dataclass(frozen=True, slots=True)
class Goal:
    """Many least-squares problems at once: each may have a noise, a prior mean and a disturbance of its own.

    What whitens the measurements is one over the deviation of each, or a matrix where they share some of their noise.
    """

    law: Law
    log_values: Array  # (measurements,)
    whiten: Array  # (problems or 1, measurements) or (problems or 1, measurements, measurements)
    means: Array  # (problems or 1, parameters)
    precision: Array
    disturbance: Array  # of the whitened measurements, (problems or 1, measurements)

    def of(self, chosen: NDArray[np.intp]) -> Goal:
        """Some of the problems."""
        names = ("whiten", "means", "disturbance")
        own = {name: each[chosen] for name in names if len(each := getattr(self, name)) > 1}
        return replace(self, **own)

    def whitened(self, values: Array) -> Array:
        """Measurements, or columns of them (problems, measurements, columns), in units of their noise."""
        return np.asarray(self.whiten @ values if self.whiten.ndim == 3 else self.whiten[:, :, None] * values)

    def cost(self, at: Array, expected: Array) -> tuple[Array, Array]:
        """Sum of squares, and the whitened residuals; `expected` is the law's."""
        residual = self.whitened((self.log_values - expected)[:, :, None])[:, :, 0] + self.disturbance
        away = self.means - at
        return (residual**2).sum(axis=1) + np.einsum("mi,ij,mj->m", away, self.precision, away), residual

    def information(self, at: Array) -> Array:
        """What measurements and prior say together around parameters, the inverse of a covariance."""
        jacobian = self.whitened(derivatives(self.law, at))
        return np.asarray(np.swapaxes(jacobian, 1, 2) @ jacobian + self.precision)


def goal(law: Law, log_values: Array, whiten: Array, prior: Gaussian) -> Goal:
    """To find what explains the measurements beside the prior."""
    return Goal(law, log_values, whiten, prior.mean[None], inverse(prior.covariance), np.zeros((1, 1)))


def descend(goal: Goal, theta: Array, *, iterations: int) -> Array:
    """Levenberg-Marquardt, each problem with its own damping, until it has little left to gain."""
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
    """Draws from the posterior, (count, parameters); the first half mirrors the second, so that means are quiet."""
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
    """Derivatives of the law, (problems, measurements, parameters)."""
    return linearised(law, theta)[1]


def linearised(law: Law, theta: Array) -> tuple[Array, Array]:
    """The law, (problems, measurements), and its derivatives, (problems, measurements, parameters)."""
    count = len(theta) if (theta == theta[:1]).all() else 1
    theta = theta[::count]
    moves = np.concatenate([_DIFFERENCE * np.eye(theta.shape[1]), np.zeros((1, theta.shape[1]))])
    blocks = [_moved(law, theta[i : i + _BLOCK], moves) for i in range(0, len(theta), _BLOCK)]
    values = np.concatenate(blocks)
    slopes = np.swapaxes(values[:, :-1] - values[:, -1:], 1, 2) / _DIFFERENCE
    return np.repeat(values[:, -1], count, axis=0), np.repeat(slopes, count, axis=0)


def _moved(law: Law, theta: Array, moves: Array) -> Array:
    """The law where each move leads, (problems, moves, measurements)."""
    values = law((theta[:, None, :] + moves).reshape(-1, theta.shape[1]))
    return values.reshape(len(theta), len(moves), values.shape[1])


def inverse(matrices: Array) -> Array:
    """Of each of some matrices."""
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64)


def no_dip(residual: Array, scale: Array, unsure: Array | float = 0.0) -> Array:
    """Probability that a measurement so far from what was expected, with this standard deviation, is no dip.

    Where what was expected is `unsure` itself by a standard deviation, a dip is as unsure as all others are.
    """
    core = _core_density(residual, np.hypot(scale, unsure))
    weights = core / (core + _stray_density(residual, unsure) + 1e-300)
    return np.asarray(np.maximum(weights, WEIGHT_MIN), dtype=np.float64)


def log_likelihood(residual: Array, scale: Array, is_trusted: NDArray[np.bool_]) -> Array:
    """Of measurements so far from what is expected, by problems; those that are trusted are no dips."""
    stray = np.where(is_trusted, 0.0, _stray_density(residual))
    return np.asarray(np.log(_core_density(residual, scale) + stray + 1e-300).sum(axis=1), dtype=np.float64)


def _core_density(residual: Array, scale: Array) -> Array:
    """Of a measurement that is neither a dip nor a rise."""
    core = (1 - _DIP_FRACTION - _RISE_FRACTION) * np.exp(-0.5 * (residual / scale) ** 2) / (scale * 2.5066)
    return np.asarray(core, dtype=np.float64)


def _stray_density(residual: Array, unsure: Array | float = 0.0) -> Array:
    """Half a normal law on each side: dips to a half are common, to a tenth unheard of.

    Around what is unsure it is skew normal (Azzalini 1985).
    """
    wide = np.hypot(unsure, _DIP_SCALE)
    is_low = _normal_below(-_DIP_SCALE * residual / (wide * np.maximum(unsure, 1e-9)))
    fraction = _DIP_FRACTION * is_low + _RISE_FRACTION * (1.0 - is_low)
    return np.asarray(fraction * np.exp(-0.5 * (residual / wide) ** 2) * 0.798 / wide, dtype=np.float64)


def _normal_below(value: Array) -> Array:
    """The normal distribution, to two ten-thousandths (Page 1977); NumPy has none."""
    value = np.clip(value, -9.0, 9.0)
    return np.asarray(0.5 + 0.5 * np.tanh(0.7979 * (value + 0.044715 * value**3)), dtype=np.float64)


_UNKNOWN_NOISE = 1.8  # measurements


def widened(count: float) -> float:
    """How much wider an interval is while so many measurements have shown how much they vary; roughly Student's."""
    return 1.0 + _UNKNOWN_NOISE / (_DEVIATION_FREEDOM + count)


# Of a place before any measurement, as so many of its probes would say it, by its noise: one in twenty at the typical.
_DIP_FRACTION_OVER_NOISE = 0.625
_DIP_FRACTION_FREEDOM = 5.0
_DIP_FRACTION_ROUNDS = 8  # from one to the next it moves by less than a tenth of itself by then


def dip_fraction(weights: Array, noise: float) -> float:
    """How many of a place's measurements are dips, by the probability of each that it is none (measurements,).

    Those were found with the fraction that is usual (`no_dip`); where there were none, none is likely. What makes a
    place vary makes it dip as well: the quiet have none.
    """
    typical = _DIP_FRACTION_OVER_NOISE * noise
    usual, fraction = 1.0 / weights - 1.0, typical
    for _ in range(_DIP_FRACTION_ROUNDS):
        odds = usual * (fraction / (1.0 - fraction)) / (_DIP_FRACTION / (1.0 - _DIP_FRACTION))
        counted = _DIP_FRACTION_FREEDOM * typical + float((odds / (1.0 + odds)).sum())
        fraction = counted / (_DIP_FRACTION_FREEDOM + len(weights))
    return fraction


# Quantiles of half a normal law, all of them equally likely.
_DEPTHS = (0.052, 0.157, 0.264, 0.374, 0.489, 0.61, 0.742, 0.887, 1.054, 1.258, 1.534, 2.037)
_DIP_DEPTHS = [_DIP_SCALE * depth for depth in _DEPTHS]
_BISECTIONS = 17  # to a hundred-thousandth


def quantile_beside_dips(share: float, *, deviation: float, dip_fraction: float) -> float:
    """What a measurement stays below with this probability, as a logarithm beside what is expected of it.

    It is a dip with the probability `dip_fraction`, as in the likelihood of measurements.
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
    """Of measurements from what was expected, (problems,): their own, with some typical ones beside them."""
    effective = weights.sum(axis=-1)
    taken_up = np.minimum(_TAKEN_UP, effective / 2)
    squares = _DEVIATION_FREEDOM * typical**2 + (weights * residual**2).sum(axis=-1)
    variance = squares / (_DEVIATION_FREEDOM + effective - taken_up)
    return np.asarray(np.clip(np.sqrt(variance), _DEVIATION_MIN, _DEVIATION_MAX), dtype=np.float64)
