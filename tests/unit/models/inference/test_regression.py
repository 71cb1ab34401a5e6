"""Rules of the regression: exact where mathematics is exact, robust where measurements are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.models.inference.misfit import MISFITS, Chances, Measurements, Misfit, Unexplained
from penstock.models.inference.posterior import Array, Gaussian
from penstock.models.inference.regression import (
    Peak,
    Problem,
    explain,
    log_evidence,
    maximise,
    refine,
    sample,
    settle,
    unexplained,
)

X = np.linspace(0.0, 4.0, 24)


def line(theta: Array) -> Array:
    """A law that is linear: level and slope."""
    return np.asarray(theta[:, :1] + theta[:, 1:2] * X, dtype=np.float64)


def measured(values: Array, *, trusted: Array | None = None, hours: Array | None = None) -> Measurements:
    """Measurements of the line, all alike."""
    count = len(values)
    return Measurements(
        log_values=values,
        noise_scale=np.ones(count),
        is_trusted=np.zeros(count, dtype=np.bool_) if trusted is None else trusted.astype(np.bool_),
        coordinates=np.stack([X[:count], np.zeros(count), np.zeros(count)], axis=1),
        has_misfit=np.ones(count, dtype=np.bool_),
        group=np.full(count, -1, dtype=np.int64),
        hours=np.arange(count, dtype=np.float64) if hours is None else hours,
    )


WIDE = Gaussian(mean=np.zeros(2), covariance=4.0 * np.eye(2))
STARTS = np.zeros((1, 2))


def noisy_line(seed: int = 0, sigma: float = 0.08) -> Array:
    """Level 1, slope a half, with noise."""
    draws = np.random.default_rng(seed).standard_normal(len(X))
    return np.asarray(1.0 + 0.5 * X + sigma * draws, dtype=np.float64)


def test_line_is_found() -> None:
    """With ordinary noise the peak is at the truth, within what the covariance says."""
    peak = maximise(Problem(law=line, data=measured(noisy_line()), prior=WIDE), STARTS)
    assert np.all(np.abs(peak.theta - [1.0, 0.5]) < 3.5 * np.sqrt(np.diag(peak.covariance)))
    assert peak.sigma == pytest.approx(0.08, rel=0.5)


def test_dips_lose_their_weight_and_rises_move_no_more_than_they_must() -> None:
    """Three measurements at a third of their value are recognised and hardly move the line."""
    values = noisy_line()
    values[[3, 11, 19]] -= 1.1
    peak = maximise(Problem(law=line, data=measured(values), prior=WIDE), STARTS)
    assert np.all(peak.weights[[3, 11, 19]] < 0.05)
    assert peak.theta == pytest.approx([1.0, 0.5], abs=0.08)


def test_trusted_measurements_are_never_explained_away() -> None:
    """Evidence of throttling keeps its weight, however unlikely it looks."""
    values, trusted = noisy_line(), np.zeros(len(X))
    values[5], trusted[5] = values[5] - 1.1, 1.0
    peak = maximise(Problem(law=line, data=measured(values, trusted=trusted), prior=WIDE), STARTS)
    assert peak.weights[5] == 1.0


def test_draws_of_a_linear_law_have_the_exact_posterior() -> None:
    """Mean and covariance of many draws are those of linear regression."""
    problem = Problem(law=line, data=measured(noisy_line()), prior=WIDE)
    peak = maximise(problem, STARTS)
    draws = sample(problem, peak, [noise_of(peak)], count=2000, seed=5)
    assert draws.mean(axis=0) == pytest.approx(peak.theta, abs=2e-3)
    assert np.cov(draws.T) == pytest.approx(peak.covariance, rel=0.15, abs=2e-5)


def noise_of(peak: Peak) -> Unexplained:
    """Its noise alone: the law is right."""
    return Unexplained(Misfit(), peak.sigma, peak.weights)


def test_what_may_be_a_dip_is_one_in_some_of_the_draws() -> None:
    """What is far below surely is one, what is as expected none, and what is trusted or no throughput none either."""
    values, trusted = noisy_line(), np.zeros(len(X))
    values[[3, 8, 14, 16]] = 1.0 + 0.5 * X[[3, 8, 14, 16]] + [-1.1, -0.25, -0.25, 0.02]
    trusted[8] = 1.0
    data = measured(values, trusted=trusted)
    problem = Problem(law=line, data=data, prior=WIDE)
    problem, peak, chances = explain(problem, maximise(problem, STARTS))
    drawn = unexplained(problem, peak, chances, count=200, seed=4)
    share = np.mean([each.weights < 0.5 for each in drawn], axis=0)
    assert share[3] > 0.99
    assert 0.15 < share[14] < 0.95
    assert share[16] < 0.1
    assert share[8] == 0.0
    aside = replace(problem, data=replace(data, has_misfit=np.arange(len(X)) != 14))
    assert all(
        each.weights[14] == peak.weights[14] for each in unexplained(aside, peak, chances, count=8, seed=4)
    )


def test_draws_depend_on_the_seed_alone() -> None:
    """The same seed gives the same draws."""
    problem = Problem(law=line, data=measured(noisy_line()), prior=WIDE)
    peak = maximise(problem, STARTS)
    first, second = (sample(problem, peak, [noise_of(peak)], count=8, seed=1) for _ in range(2))
    assert np.array_equal(first, second)


def test_without_measurements_the_posterior_is_the_prior() -> None:
    """Nothing measured, nothing learned."""
    problem = Problem(law=lambda theta: theta[:, :0], data=measured(np.zeros(0)), prior=WIDE)
    peak = maximise(problem, STARTS)
    assert np.array_equal(peak.theta, WIDE.mean)
    assert sample(problem, peak, [noise_of(peak)], count=4000, seed=2).std(axis=0) == pytest.approx(
        [2.0, 2.0], rel=0.1
    )


def doubt(chances: Chances) -> float:
    """How far the law may be off: the root of the mean square."""
    return float(np.sqrt(chances.table.sum(axis=1) @ [each.amplitude**2 for each in MISFITS]))


def test_misfit_grows_where_the_law_is_wrong() -> None:
    """A wave on the line is misfit; a straight line is not."""
    straight = Problem(law=line, data=measured(noisy_line(sigma=0.03)), prior=WIDE)
    bent = Problem(law=line, data=measured(noisy_line(sigma=0.03) + 0.4 * np.sin(2.0 * X)), prior=WIDE)
    small, large = (doubt(explain(p, maximise(p, STARTS))[2]) for p in (straight, bent))
    assert small < 0.1
    assert large > 0.2


def test_what_the_misfit_explains_is_no_noise() -> None:
    """Where each setting was measured often, the noise is that of the repeats, though the law is far off."""
    bent = noisy_line(sigma=0.03) + 0.4 * np.sin(2.0 * X)
    problem = Problem(law=line, data=measured(bent), prior=WIDE)
    alone = maximise(problem, STARTS)
    _, beside, _ = explain(problem, alone)
    assert alone.sigma > 0.15
    assert beside.sigma == pytest.approx(0.03, rel=0.5)


def test_noise_stays_noise_beside_a_misfit() -> None:
    """Straight lines under much noise: no misfit takes it, whatever the order of its ups and downs."""
    lines = [Problem(law=line, data=measured(noisy_line(seed, sigma=0.15)), prior=WIDE) for seed in range(12)]
    found = [explain(each, maximise(each, STARTS))[1].sigma for each in lines]
    assert np.mean(found) == pytest.approx(0.15, rel=0.3)


def test_a_dip_is_seen_by_those_around_it_where_the_law_is_wrong() -> None:
    """What all others of the same bend contradict is a dip; the bend itself is none."""
    bent = noisy_line(sigma=0.03) + 0.4 * np.sin(2.0 * X)
    bent[7] -= 0.7
    problem = Problem(law=line, data=measured(bent), prior=WIDE)
    _, peak, _ = explain(problem, maximise(problem, STARTS))
    assert peak.weights[7] < 0.1
    assert np.delete(peak.weights, 7).mean() > 0.8


def test_weather_that_lasts_is_told_from_the_noise_of_each_measurement() -> None:
    """Measured in a random order, a slow mode is no wave over the settings: only the clock shows it."""
    shuffled = np.random.default_rng(3).permutation(len(X))
    hours = np.argsort(shuffled) / 4.0
    slow = 0.25 * np.sign(np.sin(2 * np.pi * hours / 6.0))
    calm, changing = (
        explain(problem, maximise(problem, STARTS))[0].misfit.weather
        for problem in (
            Problem(law=line, data=measured(noisy_line(sigma=0.03) + mode, hours=hours), prior=WIDE)
            for mode in (np.zeros(len(X)), slow)
        )
    )
    assert calm < 0.05
    assert changing > 0.08


def test_weather_within_an_hour_is_no_misfit() -> None:
    """Measured in a random order: what the second half of an hour was better in says nothing of the settings."""
    hours = np.argsort(np.random.default_rng(3).permutation(len(X))) / 30.0
    slow = 0.2 * np.sign(hours - hours.mean())
    problem = Problem(law=line, data=measured(noisy_line(sigma=0.03) + slow, hours=hours), prior=WIDE)
    assert not problem.data.tells_weather
    found, peak, chances = explain(problem, maximise(problem, STARTS))
    assert found.misfit.weather >= 0.1
    assert doubt(chances) < 0.15
    assert peak.sigma < 0.08


def test_a_peak_far_from_what_was_believed_is_found() -> None:
    """Starting near it, the belief must not pull the search away before the measurements had their word."""
    prior = Gaussian(mean=np.array([4.0, 0.0]), covariance=np.diag([1.5, 1.5]))
    problem = Problem(law=line, data=measured(noisy_line(sigma=0.03)), prior=prior)
    peak = maximise(problem, np.array([prior.mean, [0.9, 0.6]]))
    assert peak.theta == pytest.approx(np.array([1.0, 0.5]), abs=0.1)
    assert peak.sigma < 0.08


def test_evidence_prefers_the_prior_that_expected_what_came() -> None:
    """Two beliefs are told apart by a handful of measurements."""
    near = Gaussian(mean=np.array([1.0, 0.5]), covariance=0.01 * np.eye(2))
    far = Gaussian(mean=np.array([-1.0, 2.0]), covariance=0.01 * np.eye(2))
    scores = [
        log_evidence(Problem(law=line, data=measured(noisy_line()), prior=p), p.mean[None], sigma=0.1)
        for p in (near, far)
    ]
    assert scores[0] > scores[1] + 10


def test_refining_from_a_peak_finds_the_same_peak() -> None:
    """The cheap step and the full search agree."""
    problem = Problem(law=line, data=measured(noisy_line()), prior=WIDE, misfit=Misfit(amplitude=0.05))
    full = maximise(problem, STARTS)
    assert refine(problem, full).theta == pytest.approx(full.theta, abs=5e-3)


def test_settling_near_a_peak_finds_the_evidence_of_the_full_search() -> None:
    """At the noise that was given, not at the one that the measurements show."""
    problem = Problem(law=line, data=measured(noisy_line()), prior=WIDE)
    peak, score = settle(problem, maximise(problem, STARTS).theta[None], sigma=0.3)
    assert score == pytest.approx(log_evidence(problem, STARTS, sigma=0.3), abs=1e-2)
    assert peak.sigma == 0.3


def test_of_several_peaks_the_likeliest_counts() -> None:
    """One that is followed to the top beside one that is too far away to get there."""
    prior = Gaussian(mean=np.array([1.0, 0.5]), covariance=np.eye(2))
    problem = Problem(law=line, data=measured(noisy_line()), prior=prior)
    near, far = np.array([1.0, 0.5]), np.array([-400.0, 300.0])
    alone = settle(problem, near[None], sigma=0.1)[1]
    assert settle(problem, np.array([far, near]), sigma=0.1)[1] == pytest.approx(alone)
    assert settle(problem, far[None], sigma=0.1)[1] < alone - 10
