"""When a change counts as met."""

from __future__ import annotations

from math import inf

import pytest

from bench.change import Met


@pytest.mark.parametrize(
    ("shares", "after"), [([1.0, 1.0], 0), ([0.6, 0.97, 0.9, 0.96, 0.99], 3), ([0.6, 0.97, 0.9], inf)]
)
def test_advice_has_recovered_where_it_stays_good(shares: list[float], after: float) -> None:
    """A good moment between two bad ones is none."""
    met = Met("uploads", "connections", 0.25, shares=shares)
    assert met.recovered_after == after
    assert met.is_felt == (shares[0] < 0.95)
