"""Rules of what measurements are off by beside a law: each size as often as it is likely, and near is alike."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.models.inference.misfit import (
    LOG_CHANCES,
    MISFITS,
    SIGMAS,
    Chances,
    Misfit,
    noise_log_likelihoods,
    sigma_log_prior,
    weather_log_prior,
)


def test_each_misfit_is_drawn_as_often_as_it_is_likely() -> None:
    """Of twelve nine are the one of three quarters; what is likelier than the rest is the likeliest."""
    table = np.zeros((len(MISFITS), len(SIGMAS)))
    table[3, 2], table[7, 5] = 0.75, 0.25
    chances = Chances(table)
    drawn = chances.drawn(12)
    assert drawn == [(MISFITS[3], SIGMAS[2])] * 9 + [(MISFITS[7], SIGMAS[5])] * 3
    assert chances.likeliest == MISFITS[3]
    assert chances.sigma == pytest.approx((0.75 * SIGMAS[2] ** 2 + 0.25 * SIGMAS[5] ** 2) ** 0.5)


def test_all_that_is_possible_before_a_measurement_is_possible_once() -> None:
    """A straight law has no lengths, and no two misfits are the same."""
    assert len(set(MISFITS)) == len(MISFITS)
    assert sum(not each.amplitude for each in MISFITS) == len({each.weather for each in MISFITS})


def test_who_varies_within_minutes_varies_over_hours() -> None:
    """Before any measurement: hours of a quiet place are alike, those of a stormy one are not; one in all."""
    likely = {weather: np.exp(weather_log_prior(weather)) for weather in (0.0, 0.1, 0.2)}
    assert sum(likely.values()) == pytest.approx(np.ones(len(SIGMAS)))
    assert likely[0.0][0] > 0.95
    assert likely[0.0][-1] < likely[0.1][-1] + likely[0.2][-1]
    assert np.exp(LOG_CHANCES).sum(axis=0) == pytest.approx(np.ones(len(SIGMAS)))


def test_what_a_law_is_off_by_without_credits_is_half_true_with_them() -> None:
    """The same knobs under another ceiling."""
    misfit = Misfit(amplitude=0.2)
    knobs, on_credits = np.array([[4.0, 23.0, 0.0]]), np.array([[4.0, 23.0, 1.0]])
    assert misfit.alike(knobs, knobs) == pytest.approx(0.04)
    assert misfit.alike(knobs, on_credits)[0, 0] / 0.04 == pytest.approx(0.52, abs=0.01)


def test_likelihoods_of_all_noises_are_those_of_the_definition() -> None:
    """Minus half of residual, inverse covariance, residual, and of the logarithm of the determinant; and the prior."""
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((3, 5, 5))
    shared = np.asarray(roots @ np.swapaxes(roots, 1, 2), dtype=np.float64)
    residual, scale = 3.0 * rng.standard_normal(5), rng.uniform(0.5, 2.0, 5)
    found = noise_log_likelihoods(residual, shared, scale)
    for k, known in enumerate(shared):
        for column, sigma in enumerate(SIGMAS):
            covariance = known + np.diag((sigma * scale) ** 2)
            likely = residual @ np.linalg.solve(covariance, residual) + np.linalg.slogdet(covariance)[1]
            expected = -0.5 * likely + sigma_log_prior(np.array([sigma]))[0]
            assert found[k, column] == pytest.approx(expected)
