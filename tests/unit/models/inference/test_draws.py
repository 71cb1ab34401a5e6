"""Draws in a few numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.inference.draws import quantiles


@given(seed=st.integers(0, 2**32 - 1), shape=st.sampled_from([(1,), (2,), (50,), (9, 3), (4, 2, 2)]))
def test_they_are_numpys_own(seed: int, shape: tuple[int, ...]) -> None:
    """Along the first axis, at both ends too."""
    draws = np.random.default_rng(seed).normal(size=shape)
    fractions = [0.0, 0.05, 0.5, 0.95, 1.0]
    assert quantiles(draws, fractions) == pytest.approx(np.quantile(draws, fractions, axis=0))
