"""Knows what can be said of a place whose physics nobody knows: that settings near each other do about the same.

A Gaussian process over the knobs alone, in octaves, with the size of the payload as one more coordinate:

    y_i = level + g(x_i) + e_i,    level ~ N(median of y, 2^2)
    g ~ GP(0, amplitude^2 M(knobs) (1 + M(size)) / 2),    M the correlation of Matern-5/2

averaged over its amplitude, its lengths and its noise, each in proportion to how well it explains the measurements.
How well all of them explain the measurements together is what a law has to beat before it is believed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from penstock.models.inference.misfit import SIGMAS, matern, noise_log_likelihoods
from penstock.models.inference.posterior import Array, no_dip

_LEVEL_SPREAD = 2.0  # of the logarithm: next to nothing is known before
# From what differs by a third to what differs fourfold, over a fraction of the knob's range to nearly all of it: nobody
# knows which beforehand, so each is as likely.
_AMPLITUDES = (0.3, 0.6, 1.2)
_THREAD_OCTAVES = (0.7, 1.5, 3.0)
_PART_OCTAVES = (1.0, 2.5, 6.0)
_SIZE_OCTAVES = 2.0  # of the payload: within which sizes are much alike
_TRUE_OF_ANY_SIZE = 0.5  # of the variance: what the knobs do whatever is moved
_SHAPES = [
    np.array([(*shape, sigma) for sigma in SIGMAS])
    for shape in product(_AMPLITUDES, _THREAD_OCTAVES, _PART_OCTAVES)
]
_EVERY = np.concatenate(_SHAPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sightings:
    """What was measured, without a law: arrays of shape (measurements,), `points` is (measurements, 3).

    Points are the logarithms to base 2 of connections, part size and payload size; `weights` the probability that a
    measurement was no dip, and `noise_scale` how noisy it is over the typical.
    """

    points: Array
    log_values: Array
    noise_scale: Array
    weights: Array

    @property
    def level(self) -> float:
        """What is expected of a setting far from all that were measured."""
        return float(np.median(self.log_values))

    def covariance(self, shape: Array) -> Array:
        """Of the measurements, for one shape: amplitude, both lengths in octaves, noise."""
        own = np.diag(shape[3] ** 2 * self.own_variance)
        return np.asarray(_alike(self.points, self.points, shape) + own, dtype=np.float64)

    @property
    def own_variance(self) -> Array:
        """Of each measurement for itself, where the noise is 1."""
        return np.asarray(self.noise_scale**2 / np.maximum(self.weights, 1e-3), dtype=np.float64)


def _alike(left: Array, right: Array, shape: Array) -> Array:
    """What payloads of one size show of the knobs is half true of those of any other."""
    knobs = matern(left[:, :2], right[:, :2], (float(shape[1]), float(shape[2])))
    sizes = _TRUE_OF_ANY_SIZE + (1.0 - _TRUE_OF_ANY_SIZE) * matern(
        left[:, 2:], right[:, 2:], (_SIZE_OCTAVES,)
    )
    return np.asarray(_LEVEL_SPREAD**2 + shape[0] ** 2 * knobs * sizes, dtype=np.float64)


def log_evidence(sightings: Sightings) -> float:
    """Logarithm of how likely the measurements are without any law."""
    return float(np.logaddexp.reduce(_scores(sightings)) - np.log(len(_SHAPES)))


def learn(sightings: Sightings, *, count: int, seed: int) -> Array:
    """`count` shapes, drawn by how likely they make the measurements: (count, 4)."""
    scores = _scores(sightings)
    chances = np.exp(scores - scores.max())
    drawn = np.random.default_rng(seed).choice(len(_EVERY), size=count, p=chances / chances.sum())
    return np.asarray(_EVERY[np.sort(drawn)], dtype=np.float64)


def weighed(sightings: Sightings) -> Sightings:
    """The same with the probability that each measurement was no dip, as those around it tell: no law is asked."""
    alike = replace(sightings, weights=np.ones(len(sightings.log_values)))
    likeliest = _EVERY[int(np.argmax(_scores(alike)))]
    precision = np.linalg.inv(alike.covariance(likeliest))
    variance = 1.0 / np.diag(precision)  # of each, expected from the others
    residual = variance * (precision @ (alike.log_values - alike.level))
    return replace(alike, weights=no_dip(residual, np.sqrt(variance)))


def newest_beside_the_others(sightings: Sightings, shapes: Array) -> tuple[float, float]:
    """How far the last measurement is from what all others lead to expect of it, and the deviation of that."""
    weights = np.append(sightings.weights[:-1], 1.0)  # whether it is a dip is not known yet
    sightings = replace(sightings, weights=weights)
    unique, counts = np.unique(shapes, axis=0, return_counts=True)
    precisions = np.stack([np.linalg.inv(sightings.covariance(shape))[-1] for shape in unique])
    variances = 1.0 / precisions[:, -1]
    away = variances * (precisions @ (sightings.log_values - sightings.level))
    mean, square = (float(counts @ each / counts.sum()) for each in (away, variances + away**2))
    return mean, (square - mean**2) ** 0.5


def _scores(sightings: Sightings) -> Array:
    """Logarithm of the likelihood of each shape, in the order of `_EVERY`, with how likely its noise is."""
    away = sightings.log_values - sightings.level
    shared = np.stack([_alike(sightings.points, sightings.points, shapes[0]) for shapes in _SHAPES])
    scores = noise_log_likelihoods(away, shared, np.sqrt(sightings.own_variance))
    return np.asarray(scores.reshape(-1), dtype=np.float64)


def means(sightings: Sightings, shapes: Array, points: Array) -> Array:
    """The expected logarithm at each of the points, for each of the shapes: (shapes, points)."""
    away = sightings.log_values - sightings.level
    unique, place = np.unique(shapes, axis=0, return_inverse=True)
    found = [
        sightings.level
        + _alike(points, sightings.points, shape) @ np.linalg.solve(sightings.covariance(shape), away)
        for shape in unique
    ]
    return np.stack(found)[place.reshape(-1)]


def variance(sightings: Sightings, shapes: Array, points: Array) -> Array:
    """What is not known of each point beyond the spread of `means`: (points,)."""
    unique, counts = np.unique(shapes, axis=0, return_counts=True)
    found = []
    for shape in unique:
        reach = _alike(points, sightings.points, shape)
        known = np.einsum("pm,mp->p", reach, np.linalg.solve(sightings.covariance(shape), reach.T))
        found.append(np.maximum(_LEVEL_SPREAD**2 + shape[0] ** 2 - known, 0.0))
    return np.asarray(counts @ np.stack(found) / counts.sum(), dtype=np.float64)


def covariance(sightings: Sightings, shapes: Array, points: Array) -> Array:
    """The same of a few points together: (points, points)."""
    unique, counts = np.unique(shapes, axis=0, return_counts=True)
    found = []
    for shape in unique:
        reach = _alike(points, sightings.points, shape)
        known = reach @ np.linalg.solve(sightings.covariance(shape), reach.T)
        found.append(_alike(points, points, shape) - known)
    return np.asarray(np.tensordot(counts, np.stack(found), axes=1) / counts.sum(), dtype=np.float64)
