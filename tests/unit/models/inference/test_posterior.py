"""Rules of the search for a peak and of its draws, whatever the law."""

import numpy as np
import pytest

from penstock.models.inference.misfit import SIGMA_TYPICAL
from penstock.models.inference.posterior import (
    Array,
    Gaussian,
    _core_density,
    _stray_density,
    derivatives,
    descend,
    deviation,
    dip_fraction,
    draw,
    goal,
    inverse,
    no_dip,
    quantile_beside_dips,
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


def test_slopes_are_taken_anew_only_where_a_step_led() -> None:
    """No step is better than where these two begin: each is looked at once with its slopes, and once for each step."""
    starts, asked = np.array([[3.0, -1.0], [-3.0, 1.0]]), list[int]()

    def cliff(theta: Array) -> Array:
        asked.append(len(theta))
        is_near = np.abs(theta[:, None] - starts).max(axis=2).min(axis=1) < 0.01
        return np.where(is_near[:, None], line(theta), 1e3)

    at = goal(cliff, 1.0 + 0.5 * X, np.full((1, len(X)), 10.0), WIDE)
    assert (descend(at, starts, iterations=3) == starts).all()
    assert asked == [2 * (1 + 2), 2, 2, 2]


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


def test_who_does_not_know_what_to_expect_takes_nothing_for_a_dip() -> None:
    """As many are as usually are; the surer it is what to expect, the more it counts how low a measurement is."""
    low, high = np.array([-0.5, 0.0, 0.5]), np.full(3, 0.08)
    assert no_dip(low, high, 50.0) == pytest.approx(np.full(3, 0.91), abs=0.01)
    told = [float(no_dip(low, high, unsure)[0]) for unsure in (0.0, 0.1, 0.3, 1.0)]
    assert told == sorted(told)
    assert told[0] < 0.01


def test_what_is_no_dip_and_what_is_one_are_all_that_there_is() -> None:
    """The densities come to one, however unsure it is what to expect."""
    residual = np.linspace(-9.0, 9.0, 60_001)
    for unsure in (0.0, 0.05, 0.4):
        core = _core_density(residual, np.full(len(residual), np.hypot(0.1, unsure)))
        assert np.trapezoid(core + _stray_density(residual, unsure), residual) == pytest.approx(1.0, abs=1e-3)


def test_derivatives_do_not_depend_on_how_many_are_asked_for_at_once() -> None:
    """Those of a line are its own columns, for one point or for many."""
    theta = np.random.default_rng(0).standard_normal((40, 2))
    assert derivatives(line, theta) == pytest.approx(
        np.broadcast_to(np.stack([np.ones(len(X)), X], axis=1), (40, len(X), 2)), abs=1e-6
    )


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.3])
def test_dips_are_counted_where_there_are_some(fraction: float) -> None:
    """Forty measurements tell how many dip; shallow ones cannot be told from noise, which counts a little."""
    rng = np.random.default_rng(3)
    residual = 0.05 * rng.standard_normal(40)
    residual[: round(fraction * 40)] -= 0.6
    counted = dip_fraction(no_dip(residual, np.full(40, 0.05)), 0.05)
    assert fraction < counted < fraction + 0.05


@pytest.mark.parametrize(("noise", "fraction"), [(0.02, 0.0125), (SIGMA_TYPICAL, 0.05), (0.16, 0.1)])
def test_what_was_not_measured_dips_as_its_noise_has_it(noise: float, fraction: float) -> None:
    """One probe in twenty where they vary as is typical, hardly one where they are quiet."""
    assert dip_fraction(np.ones(0), noise) == pytest.approx(fraction)


@pytest.mark.parametrize("dips", [0.0, 0.02, 0.08, 0.3])
@pytest.mark.parametrize("scale", [0.03, 0.2])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_quantiles_are_those_of_measurements(dips: float, scale: float, share: float) -> None:
    """As many of a hundred thousand lie below as it says; depths are twelve instead of all."""
    rng = np.random.default_rng(5)
    depth = np.where(rng.random(100_000) < dips, 0.5 * np.abs(rng.standard_normal(100_000)), 0.0)
    measured = scale * rng.standard_normal(100_000) - depth
    reached = quantile_beside_dips(share, deviation=scale, dip_fraction=dips)
    assert np.mean(measured < reached) == pytest.approx(share, abs=0.004)
