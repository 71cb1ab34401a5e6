"""Histograms on a logarithmic scale: small, mergeable, and right to a few hundredths."""

from __future__ import annotations

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.inference.histogram import (
    added,
    correlation,
    count_of,
    distribution,
    histogram_of,
    merged,
    pairs_of,
    quantile,
    tail_ratio,
)

TIMES = st.lists(st.floats(1e-4, 100.0), min_size=1, max_size=60)


@given(TIMES, st.floats(0.01, 1.0))
def test_a_quantile_is_right_to_a_few_hundredths(values: list[float], fraction: float) -> None:
    """As one reads it from the values themselves."""
    exact = sorted(values)[max(math.ceil(fraction * len(values)), 1) - 1]
    assert quantile(histogram_of(values), fraction) == pytest.approx(exact, rel=0.023)


@given(TIMES, TIMES)
def test_two_add_up_to_that_of_all_values(one: list[float], other: list[float]) -> None:
    """A week is the sum of its probes, in any order."""
    whole = histogram_of([*one, *other])
    assert merged([histogram_of(one), histogram_of(other)]) == whole
    assert count_of(whole) == len(one) + len(other)
    assert distribution(whole)[-1][1] == 1.0


def test_a_probe_of_a_thousand_requests_takes_a_few_hundred_bytes() -> None:
    """Else they could not be kept with each observation."""
    chance = random.Random(1)
    histogram = histogram_of(0.05 * math.exp(0.5 * chance.gauss(0, 1)) for _ in range(1000))
    assert len(msgspec.json.encode(histogram)) < 400


def test_requests_that_follow_each_other_alike_correlate() -> None:
    """Within each run: that one run is slower than another is no correlation."""
    chance = random.Random(2)
    alike, apart = [], []
    for level in (0.01, 1.0):
        times = [level * math.exp(chance.gauss(0, 0.3)) for _ in range(400)]
        apart.append(pairs_of([times]))
        alike.append(pairs_of([[t for t in times for _ in range(2)]]))
    together, alone = added(p for p in alike if p), added(p for p in apart if p)
    assert correlation(together) == pytest.approx(0.5, abs=0.1)
    assert correlation(alone) == pytest.approx(0.0, abs=0.1)
    assert pairs_of([[1.0], []]) is None


def test_the_tail_of_many_settings_is_one_ratio() -> None:
    """Runs of other speeds are laid over each other; too few requests have no tail."""
    chance = random.Random(3)
    runs = [
        histogram_of(level * (4.0 if chance.random() < 0.03 else 1.0) for _ in range(100))
        for level in (0.01, 0.1, 2.0)
    ]
    assert tail_ratio(runs, 0.99, count_min=200) == pytest.approx(4.0, rel=0.05)
    assert tail_ratio(runs[:1], 0.99, count_min=200) is None
