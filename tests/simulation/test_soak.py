"""Seasons of weather; `make soak` lives through twenty of them."""

import pytest

from tests.soak import lived, season


def test_a_season_is_made_of_its_seed() -> None:
    """The same seed gives the same weather, with every kind of it in a few of them."""
    assert season(3, 90.0) == season(3, 90.0)
    kinds = {spell.what for seed in range(1, 6) for spell in season(seed, 90.0).spells}
    assert kinds >= {"outage", "throttling", "delayed refusals", "clock back", "credits"}


@pytest.mark.parametrize(
    "days", [0.15, pytest.param(90.0, marks=[pytest.mark.long, pytest.mark.timeout(7200)])]
)
def test_what_has_to_hold_each_hour_holds(days: float) -> None:
    """Nothing stays outside, no budget is overdrawn, no advice expires, and none is worse than the SDK's own."""
    found = lived(1, days)
    assert found.violations == []
    assert found.measured_count > 0
