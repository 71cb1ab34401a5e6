"""The walk of a backlog is that of a queue with one deleter."""

import pytest

from bench.backlog_walk import oldest_undeleted_seconds


@pytest.mark.parametrize(("load", "age_seconds"), [(0.5, 0.0), (1.1, 3600.0 * (1 - 1 / 1.1))])
def test_the_backlog_ages_by_what_the_deleter_lacks(load: float, age_seconds: float) -> None:
    """With room it stays young; at load rho the head of the line is 1 - 1/rho of the time old."""
    ages = oldest_undeleted_seconds(
        arrival_rate_per_second=50.0,
        load=load,
        variation=1.0,
        duration_seconds=3600.0,
        sample_seconds=1.0,
        seed=1,
    )
    assert ages[-1] == pytest.approx(age_seconds, rel=0.1, abs=0.5)
