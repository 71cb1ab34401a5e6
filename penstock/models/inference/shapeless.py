"""Knows a model without a law, for places with unknown physics: settings close to each other perform about the same.

It is a Gaussian process over the knobs alone, in octaves, with the payload size as one more coordinate:

    y_i = level + g(x_i) + e_i,    level ~ N(median of y, 2^2)
    g ~ GP(0, amplitude^2 M(knobs) (1 + M(size)) / 2),    M the correlation of Matern-5/2

averaged over its amplitude, lengths and noise by their likelihood. A law is believed as long as it explains the
measurements better than this average does. A "shape" is one choice of these four hyperparameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from penstock.models.inference.misfit import SIGMAS, matern, noise_log_likelihoods
from penstock.models.inference.posterior import Array, no_dip

_LEVEL_SPREAD = 2.0  # of the logarithm: next to nothing is known beforehand
# From differences by a third to fourfold ones, over a fraction of a knob's range to nearly all of it; equally likely.
_AMPLITUDES = (0.3, 0.6, 1.2)
_THREAD_OCTAVES = (0.7, 1.5, 3.0)
_PART_OCTAVES = (1.0, 2.5, 6.0)
_SIZE_OCTAVES = 2.0  # correlation length in payload size
_TRUE_OF_ANY_SIZE = 0.5  # of the variance: the effect of knobs that is the same for all payload sizes
_SHAPES = [
    np.array([(*shape, sigma) for sigma in SIGMAS])
    for shape in product(_AMPLITUDES, _THREAD_OCTAVES, _PART_OCTAVES)
]
_EVERY = np.concatenate(_SHAPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sightings:
    """Measurements for a model without a law: arrays of shape (measurements,); `points` is (measurements, 3).

    Points are the base-2 logarithms of connections, part size and payload size. `weights` are the probabilities that
    measurements are no dips, and `noise_scale` is their noise relative to the typical.
    """

    points: Array
    log_values: Array
    noise_scale: Array
    weights: Array

    @property
    def level(self) -> float:
        """The expected logarithm at a setting far from all measurements."""
        return float(np.median(self.log_values))

    def covariance(self, shape: Array) -> Array:
        """Covariance of the measurements for one shape: amplitude, both lengths in octaves, noise."""
        own = np.diag(shape[3] ** 2 * self.own_variance)
        return np.asarray(_alike(self.points, self.points, shape) + own, dtype=np.float64)

    @property
    def own_variance(self) -> Array:
        """The variance of each measurement's own noise, for noise of size 1."""
        return np.asarray(self.noise_scale**2 / np.maximum(self.weights, 1e-3), dtype=np.float64)


def _alike(left: Array, right: Array, shape: Array) -> Array:
    """Covariance between points (a, 3) and (b, 3); half of the effect of knobs is shared by all payload sizes."""
    knobs = matern(left[:, :2], right[:, :2], (float(shape[1]), float(shape[2])))
    sizes = _TRUE_OF_ANY_SIZE + (1.0 - _TRUE_OF_ANY_SIZE) * matern(
        left[:, 2:], right[:, 2:], (_SIZE_OCTAVES,)
    )
    return np.asarray(_LEVEL_SPREAD**2 + shape[0] ** 2 * knobs * sizes, dtype=np.float64)


def log_evidence(sightings: Sightings) -> float:
    """Log evidence of the measurements without a law, averaged over all shapes."""
    return float(np.logaddexp.reduce(_scores(sightings)) - np.log(len(_SHAPES)))


def learn(sightings: Sightings, *, count: int, seed: int) -> Array:
    """`count` shapes drawn from their posterior: (count, 4)."""
    scores = _scores(sightings)
    chances = np.exp(scores - scores.max())
    drawn = np.random.default_rng(seed).choice(len(_EVERY), size=count, p=chances / chances.sum())
    return np.asarray(_EVERY[np.sort(drawn)], dtype=np.float64)


def weighed(sightings: Sightings) -> Sightings:
    """The sightings with the probability that each is no dip, as judged from the others around it, without a law."""
    alike = replace(sightings, weights=np.ones(len(sightings.log_values)))
    likeliest = _EVERY[int(np.argmax(_scores(alike)))]
    precision = np.linalg.inv(alike.covariance(likeliest))
    variance = 1.0 / np.diag(precision)  # of each, expected from the others
    residual = variance * (precision @ (alike.log_values - alike.level))
    return replace(alike, weights=no_dip(residual, np.sqrt(variance)))


def newest_beside_the_others(sightings: Sightings, shapes: Array) -> tuple[float, float]:
    """How far the last measurement is from its prediction by all others, and the standard deviation of that."""
    weights = np.append(sightings.weights[:-1], 1.0)  # whether the last one is a dip is not known yet
    sightings = replace(sightings, weights=weights)
    unique, counts = np.unique(shapes, axis=0, return_counts=True)
    precisions = np.stack([np.linalg.inv(sightings.covariance(shape))[-1] for shape in unique])
    variances = 1.0 / precisions[:, -1]
    away = variances * (precisions @ (sightings.log_values - sightings.level))
    mean, square = (float(counts @ each / counts.sum()) for each in (away, variances + away**2))
    return mean, (square - mean**2) ** 0.5


def _scores(sightings: Sightings) -> Array:
    """Log likelihood plus log prior of noise of each shape, in the order of `_EVERY`."""
    away = sightings.log_values - sightings.level
    shared = np.stack([_alike(sightings.points, sightings.points, shapes[0]) for shapes in _SHAPES])
    scores = noise_log_likelihoods(away, shared, np.sqrt(sightings.own_variance))
    return np.asarray(scores.reshape(-1), dtype=np.float64)


def means(sightings: Sightings, shapes: Array, points: Array) -> Array:
    """The expected logarithm at each point for each shape: (shapes, points)."""
    away = sightings.log_values - sightings.level
    unique, place = np.unique(shapes, axis=0, return_inverse=True)
    found = [
        sightings.level
        + _alike(points, sightings.points, shape) @ np.linalg.solve(sightings.covariance(shape), away)
        for shape in unique
    ]
    return np.stack(found)[place.reshape(-1)]


def variance(sightings: Sightings, shapes: Array, points: Array) -> Array:
    """The variance of each point beyond the spread of `means`: (points,)."""
    unique, counts = np.unique(shapes, axis=0, return_counts=True)
    found = []
    for shape in unique:
        reach = _alike(points, sightings.points, shape)
        known = np.einsum("pm,mp->p", reach, np.linalg.solve(sightings.covariance(shape), reach.T))
        found.append(np.maximum(_LEVEL_SPREAD**2 + shape[0] ** 2 - known, 0.0))
    return np.asarray(counts @ np.stack(found) / counts.sum(), dtype=np.float64)


def covariance(sightings: Sightings, shapes: Array, points: Array) -> Array:
    """The covariance of a few points beyond the spread of `means`: (points, points)."""
    unique, counts = np.unique(shapes, axis=0, return_counts=True)
    found = []
    for shape in unique:
        reach = _alike(points, sightings.points, shape)
        known = reach @ np.linalg.solve(sightings.covariance(shape), reach.T)
        found.append(_alike(points, points, shape) - known)
    return np.asarray(np.tensordot(counts, np.stack(found), axes=1) / counts.sum(), dtype=np.float64)
