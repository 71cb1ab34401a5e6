"""Rules of network credits."""

from __future__ import annotations

from math import inf

import pytest

from penstock.models.burst import Ceiling, ceiling, credits_at

LIMITS = Ceiling(baseline_bytes_per_second=100e6, burst_bytes_per_second=1000e6)


@pytest.mark.parametrize("kind", ["c6g.large", "m5.xlarge", "c6i.4xlarge", "t3.medium", "c7gn.large"])
def test_small_instances_have_two_ceilings(kind: str) -> None:
    """Up to 4xlarge there is a burst rate above the baseline."""
    found = ceiling(kind)
    assert found is not None
    assert found.is_burstable


@pytest.mark.parametrize("kind", ["m5.24xlarge", "c6i.8xlarge", "c5n.18xlarge", "p5.4xlarge"])
def test_large_instances_have_one(kind: str) -> None:
    """Above, the baseline is all there is, and there are no credits to spend."""
    found = ceiling(kind)
    assert found is not None
    assert not found.is_burstable
    assert found.credit_bytes_max == 0.0


@pytest.mark.parametrize(
    ("kind", "gigabits"),
    [
        ("c6in.32xlarge", 200),
        ("m7i.48xlarge", 50),
        ("c7gn.16xlarge", 200),
        ("r8in.96xlarge", 600),
        ("p5.48xlarge", 3200),
    ],
)
def test_the_largest_are_there(kind: str, gigabits: float) -> None:
    """Whoever moves most has them."""
    found = ceiling(kind)
    assert found is not None
    assert found.baseline_bytes_per_second == gigabits * 1e9 / 8


def test_unknown_types_are_not_invented() -> None:
    """What is not in the table is not guessed."""
    assert ceiling("unknown") is None
    assert ceiling("c6i.gigantic") is None


def test_what_is_above_the_baseline_is_spent() -> None:
    """Where there is a bucket: below the baseline, and on hosts with one ceiling, nothing is."""
    assert LIMITS.credits_spent(1000e6, seconds=2.0) == 800e6
    assert LIMITS.credits_spent(1000e6, seconds=20.0) == 0.0
    assert Ceiling(100e6, 100e6).credits_spent(1000e6, seconds=2.0) == 0.0


def test_credits_last_as_long_as_was_measured() -> None:
    """A full c6g.large bursts for about five minutes: 298 to 326 s were measured."""
    found = ceiling("c6g.large")
    assert found is not None
    rate = found.burst_bytes_per_second
    lasting = found.burst_seconds_left(found.credit_bytes_max, rate_bytes_per_second=rate)
    assert lasting == pytest.approx(300, rel=0.3)
    assert found.burst_seconds_left(0.0, rate_bytes_per_second=found.baseline_bytes_per_second) == inf


def test_bursting_spends_and_resting_refills() -> None:
    """The account never leaves its bounds."""
    full = LIMITS.credit_bytes_max
    spent = LIMITS.credits_after(full, rate_bytes_per_second=1000e6, seconds=100)
    assert spent == full - 900e6 * 100
    assert LIMITS.credits_after(spent, rate_bytes_per_second=0, seconds=1e9) == full
    assert LIMITS.credits_after(0.0, rate_bytes_per_second=1000e6, seconds=5) == 0.0


def test_account_follows_transfers_and_pauses() -> None:
    """A transfer above the baseline costs what is above it; the pause after it earns the baseline."""
    transfers = [(0.0, 100.0, 1000e6 * 100)]
    full = LIMITS.credit_bytes_max
    assert credits_at(LIMITS, transfers, at_seconds=100.0) == pytest.approx(full - 90e9)
    assert credits_at(LIMITS, transfers, at_seconds=400.0) == pytest.approx(full - 60e9)


def test_transfers_at_the_same_time_earn_the_baseline_once() -> None:
    """Three at the baseline at once spend twice the baseline, and one within another adds only its own bytes."""
    full = LIMITS.credit_bytes_max
    three = [(0.0, 100.0, 100e6 * 100)] * 3
    assert credits_at(LIMITS, three, at_seconds=100.0) == pytest.approx(full - 200e6 * 100)
    nested = [(0.0, 100.0, 300e6 * 100), (50.0, 10.0, 1.0)]
    assert credits_at(LIMITS, nested, at_seconds=100.0) == pytest.approx(full - 200e6 * 100)
