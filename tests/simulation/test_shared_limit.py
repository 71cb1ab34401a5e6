"""Eight hosts on one prefix, from a fifth of what it bears to three times that."""

import pytest

from bench.shared_limit import LIMIT_PER_SECOND, Adaptive, Boundless, Weather, baseline, fleet

LIMIT = 700.0  # a fifth of a prefix: the same share of it, and fewer requests to simulate


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
@pytest.mark.parametrize(
    "are_leases_held", [True, pytest.param(False, marks=pytest.mark.days)], ids=["leases", "reports alone"]
)
def test_hosts_that_see_each_other_use_all_of_it_and_are_not_refused(
    seed: int, *, are_leases_held: bool
) -> None:
    """Fairly, in the worst ten minutes as well; demand is spread anew every ten, and told or guessed."""
    weather = Weather.of(seed, phase_seconds=600.0, tick_seconds=0.5, limit=LIMIT_PER_SECOND)
    found = fleet(weather, LIMIT_PER_SECOND, are_leases_held=are_leases_held)
    assert found["admitted_over_possible"] >= 0.95, found
    assert found["refused"] < 0.01, found
    assert found["jain_min"] >= 0.97, found


@pytest.mark.long
def test_hosts_that_do_not_are_refused_or_leave_much_unused() -> None:
    """In the same weather: each at its own optimum, and botocore's adaptive mode."""
    weather = Weather.of(1, phase_seconds=600.0, tick_seconds=0.1, limit=LIMIT)
    assert baseline(weather, lambda: Boundless(LIMIT * weather.tick_seconds), LIMIT)["refused"] > 0.2
    adaptive = baseline(weather, lambda: Adaptive(weather.tick_seconds), LIMIT)
    assert adaptive["admitted_over_possible"] < 0.95
