"""Knows scikit-optimize: this is the only file that imports it, and only when it is needed.

It has two uses. A model without a joint belief gets one here: with the model as prior mean, a Gaussian process learns
the logarithm of measured over expected value. And where the law does not describe the place, the same Gaussian process
takes over without it.

scikit-optimize is used in the way that was found to work: knobs in octaves, the logarithm of the value, the settings
that were really measured (clipped into the space), only one model kept, never NaN. `tell` does the fitting.

If it cannot be imported, a Gaussian process of our own takes its place, averaged over hyperparameters as in
`penstock.models.inference.shapeless`, but for any number of knobs:

    y_i = level + g(x_i) + e_i,    level ~ N(median of y, 2^2),    g ~ GP(0, amplitude^2 Matern-5/2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np

from penstock.models.inference.misfit import SIGMAS, matern, noise_log_likelihoods
from penstock.models.model import Array, Belief, Fit, PerformanceModel
from penstock.optimizer.objective import coordinates
from penstock.vocabulary import Context, Demand, Observation, knobs

_TOLD_COUNT_MAX = 60  # newest measurements: the time grows with the cube of their number
_TOLD_COUNT_MIN = 3  # fewer measurements show no shape
_FLOOR = 3.5  # of the logarithm, below the best: how far down a collapse is modelled
_TILT = 0.15  # of the logarithm per octave: the prior standard deviation of slopes
_LEVEL = 0.3  # of the logarithm: the prior standard deviation of all settings together
_AMPLITUDES = (0.3, 0.6, 1.2)  # of the logarithm
_LENGTHS = (1.0, 2.0, 4.0, 8.0)  # in octaves, the same for every knob
_LEVEL_SPREAD = 2.0  # of the logarithm: next to nothing is known beforehand


def is_native() -> bool:
    """Whether our own Gaussian process is used, because scikit-optimize is not installed."""
    return find_spec("skopt") is None


def belief(
    model: PerformanceModel[Any],
    fit: Fit,
    own: Sequence[Observation[Any]],
    settings: Sequence[Any],
    *,
    context: Context,
    demand: Demand,
    seed: int,
) -> Belief:
    """The joint belief about the logarithm of each setting's value, learned from `own`: measurements at this size."""
    points = coordinates(model.setting_type, settings)
    told = _usable(model, own)
    mean = _log_mean(model, fit, context, settings, demand)
    if len(told) < _TOLD_COUNT_MIN:
        return _tilted(mean, points)
    measured_at = coordinates(model.setting_type, [o.setting for o in told])
    measured = np.log([model.measured_value(o) for o in told])
    measured = np.maximum(measured, measured.max() - _FLOOR)
    if fit.is_off_model:
        return _gaussian_process(model, points, measured_at, measured, seed)
    expected = _log_mean(model, fit, context, [o.setting for o in told], demand)
    beside = _gaussian_process(model, points, measured_at, measured - expected, seed)
    return replace(beside, draws=mean + beside.draws)


def _usable(model: PerformanceModel[Any], own: Sequence[Observation[Any]]) -> list[Observation[Any]]:
    """The newest measurements whose value is positive, so that it has a logarithm."""
    return [o for o in own if model.measured_value(o) > 0][-_TOLD_COUNT_MAX:]


def _log_mean(
    model: PerformanceModel[Any], fit: Fit, context: Context, settings: Sequence[Any], demand: Demand
) -> Array:
    return np.log(np.maximum(model.appraise(fit, context, settings, demand).value, 1e-12))


def _tilted(mean: Array, points: Array) -> Belief:
    """Straight lines of unknown slope and level around the mean, so that both ends are worth measuring."""
    away = _TILT * (points - points.mean(axis=0))
    return Belief(draws=mean[None], besides=np.asarray(away @ away.T + _LEVEL**2, dtype=np.float64))


def _gaussian_process(
    model: PerformanceModel[Any], points: Array, measured_at: Array, measured: Array, seed: int
) -> Belief:
    try:
        optimizer = _told(model, points, measured_at, measured, seed)
    except (ImportError, AttributeError):  # not installed, or too old for the installed NumPy
        return _native(points, measured_at, measured)
    clipped = np.clip(points, _low(points, measured_at), _high(points, measured_at))
    mean, besides = optimizer.models[-1].predict(optimizer.space.transform(clipped.tolist()), return_cov=True)
    # scikit-optimize minimises.
    return Belief(draws=-np.asarray(mean)[None], besides=np.asarray(besides, dtype=np.float64))


def _told(
    model: PerformanceModel[Any], points: Array, measured_at: Array, measured: Array, seed: int
) -> Any:  # skopt.Optimizer, which has no types
    from skopt import Optimizer
    from skopt.space import Real

    low, high = _low(points, measured_at), _high(points, measured_at)
    names = list(knobs(model.setting_type))
    optimizer = Optimizer(
        [Real(a, max(b, a + 1e-3), name=name) for a, b, name in zip(low, high, names, strict=True)],
        base_estimator="GP",
        acq_func="EI",
        acq_optimizer="sampling",
        acq_optimizer_kwargs={"n_points": 200, "n_restarts_optimizer": 2},
        n_initial_points=1,
        model_queue_size=1,
        random_state=seed % 2**32,
    )
    optimizer.tell(measured_at.tolist(), (-measured).tolist())
    return optimizer


def _native(points: Array, measured_at: Array, measured: Array) -> Belief:
    """The belief averaged over hyperparameters: about a hundred draws, shared out by marginal likelihood."""
    level, noiseless = float(np.median(measured)), np.ones(len(measured))
    shapes = list(product(_AMPLITUDES, _LENGTHS))
    known = np.stack([_covariance(measured_at, measured_at, *shape) for shape in shapes])
    scores = noise_log_likelihoods(measured - level, known, noiseless)
    chances = np.exp(scores - scores.max())
    counts = np.round(100 * chances / chances.sum()).astype(int)
    means, besides = list[Array](), np.zeros((len(points), len(points)))
    for which, noise in zip(*np.nonzero(counts), strict=True):
        told = known[which] + np.diag(SIGMAS[noise] ** 2 * noiseless)
        reach = _covariance(measured_at, points, *shapes[which])
        weights = np.linalg.solve(told, reach)
        left = _covariance(points, points, *shapes[which]) - reach.T @ weights
        means += [level + weights.T @ (measured - level)] * counts[which, noise]
        besides += counts[which, noise] * left
    return Belief(draws=np.stack(means), besides=besides / len(means))


def _covariance(left: Array, right: Array, amplitude: float, length: float) -> Array:
    alike = matern(left, right, (length,) * left.shape[1])
    return np.asarray(_LEVEL_SPREAD**2 + amplitude**2 * alike, dtype=np.float64)


def _low(points: Array, measured_at: Array) -> Array:
    return np.asarray(np.minimum(points.min(axis=0), measured_at.min(axis=0)), dtype=np.float64)


def _high(points: Array, measured_at: Array) -> Array:
    return np.asarray(np.maximum(points.max(axis=0), measured_at.max(axis=0)), dtype=np.float64)
