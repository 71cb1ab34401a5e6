"""Rules of the search for a peak and of its draws, whatever the law."""

import numpy as np
import pytest

from penstock.models.inference.posterior import (
    Array,
    Gaussian,
    derivatives,
    descend,
    deviation,
    draw,
    goal,
    inverse,
    no_dip,
)

X = np.linspace(0.0, 4.0, 24)
WIDE = Gaussian(mean=np.zeros(2), covariance=4.0 * np.eye(2))


def line(theta: Array) -> Array:
    """A law that is linear: level and slope."""
    return np.asarray(theta[:, :1] + theta[:, 1:2] * X, dtype=np.float64)


def test_deviations_are_a_diagonal_of_what_whitens() -> None:
    """Measurements that share no noise need no matrix: the same peak, information and draws."""
    rng = np.random.default_rng(0)
    deviations = rng.uniform(0.02, 0.3, len(X))
    values = 1.0 + 0.5 * X + deviations * rng.standard_normal(len(X))
    each, matrix = (
        goal(line, values, whiten[None], WIDE) for whiten in (1 / deviations, np.diag(1 / deviations))
    )
    start = np.array([[3.0, -1.0]])
    peak = descend(each, start, iterations=10)
    assert peak == pytest.approx(descend(matrix, start, iterations=10))
    assert each.information(peak) == pytest.approx(matrix.information(peak))
    told, again = (draw(g, WIDE, peak[0], count=8, seed=1, iterations=3) for g in (each, matrix))
    assert told == pytest.approx(again)


def test_draws_of_a_linear_law_scatter_as_the_information_says() -> None:
    """Around the peak, with the inverse of what measurements and prior say together."""
    at = goal(line, 1.0 + 0.5 * X, np.full((1, len(X)), 10.0), WIDE)
    peak = descend(at, np.zeros((1, 2)), iterations=10)
    draws = draw(at, WIDE, peak[0], count=4000, seed=2, iterations=3)
    covariance = inverse(at.information(peak))[0]
    assert draws.mean(axis=0) == pytest.approx(peak[0], abs=1e-3)
    assert np.cov(draws.T) == pytest.approx(covariance, rel=0.1, abs=1e-5)


def test_the_deviation_of_the_rest_does_not_hear_of_dips() -> None:
    """Three of twenty-four are a third of the usual: weights find them, and the deviation comes down without them."""
    away = 0.05 * np.random.default_rng(3).standard_normal(24)
    away[[2, 9, 20]] -= 1.1
    scale, weights = 0.2, np.ones(24)
    for _ in range(4):
        weights = no_dip(away, np.full(24, scale))
        scale = float(deviation(away, weights, 0.05))
    assert weights[[2, 9, 20]].max() < 0.01
    assert scale == pytest.approx(0.05, rel=0.35)


def test_derivatives_do_not_depend_on_how_many_are_asked_for_at_once() -> None:
    """Those of a line are its own columns, for one point or for many."""
    theta = np.random.default_rng(0).standard_normal((40, 2))
    assert derivatives(line, theta) == pytest.approx(
        np.broadcast_to(np.stack([np.ones(len(X)), X], axis=1), (40, len(X), 2)), abs=1e-6
    )
