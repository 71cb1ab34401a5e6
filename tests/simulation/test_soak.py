"""Seasons of weather; `make soak` lives through twenty of them."""

import pytest

from penstock.lab import worlds
from penstock.models.s3.download import S3DownloadSetting
from penstock.units import MiB
from tests.soak import judged, lived, season


def test_a_season_is_made_of_its_seed() -> None:
    """The same seed gives the same weather, with every kind of it in a few of them."""
    assert season(3, 90.0) == season(3, 90.0)
    kinds = {spell.what for seed in range(1, 6) for spell in season(seed, 90.0).spells}
    assert kinds >= {"outage", "throttling", "delayed refusals", "clock back", "credits"}


def test_advice_that_the_calm_link_condemns_is_judged_by_transfers_with_chance() -> None:
    """Without chance all requests of a wave end at once: two ranges at a time are as slow with it, many are not."""
    reads = worlds.REGIONAL.inbound
    assert reads is not None
    default = S3DownloadSetting(thread_count=10, range_size_bytes=8 * MiB)
    few = S3DownloadSetting(thread_count=2, range_size_bytes=8 * MiB)
    fraction, of_default = judged("s3_download", reads, 64 * MiB, few, default)
    assert fraction < of_default < 0.4


@pytest.mark.parametrize(
    "days", [0.15, pytest.param(90.0, marks=[pytest.mark.long, pytest.mark.timeout(7200)])]
)
def test_what_has_to_hold_each_hour_holds(days: float) -> None:
    """Nothing stays outside, no budget is overdrawn, no advice expires, and none is worse than the SDK's own."""
    found = lived(1, days)
    assert found.violations == []
    assert found.measured_count > 0
