"""What is printed beside a figure must be true."""

from __future__ import annotations

import pytest

from bench.harness import Job, Row, perform
from bench.verdict import DRIFT_AT, Figure, cost_to_good, detection_delay, probes_to_good, recovery


def a_row(*, regrets: list[float], alarms: list[int] | None = None) -> Row:
    """A run of which only this matters; each probe costs one second and ten bytes."""
    count = len(regrets)
    return Row(
        "cold", "penstock", "somewhere", "generic", "held-out", 0,
        regrets=regrets,
        seconds=[float(i + 1) for i in range(count)],
        bytes=[10 * (i + 1) for i in range(count)],
        alarms=alarms or [],
    )  # fmt: skip


def test_probes_count_until_it_stays_good() -> None:
    """A lucky recommendation that is lost again does not count."""
    assert probes_to_good([0.5, 0.01, 0.5, 0.04, 0.01]) == 4
    assert probes_to_good([0.01, 0.01]) == 1
    assert probes_to_good([0.01, 0.5]) == 3


def test_cost_is_what_was_spent_until_then() -> None:
    """Seconds and bytes of the probes that were needed, and of all probes where they did not suffice."""
    assert cost_to_good(a_row(regrets=[0.5, 0.01, 0.01])) == (2.0, 20.0)
    assert cost_to_good(a_row(regrets=[0.5, 0.5, 0.5])) == (3.0, 30.0)


def test_delay_counts_from_the_change() -> None:
    """An alarm before the change is no detection; none at all is past the horizon."""
    after = [0.5] * 10
    assert detection_delay(a_row(regrets=[0.0] * DRIFT_AT + after, alarms=[5, DRIFT_AT + 2])) == 2
    assert detection_delay(a_row(regrets=[0.0] * DRIFT_AT + after)) == 11


def test_recovery_must_hold() -> None:
    """Three good recommendations in a row, counted from the change."""
    before = [0.0] * DRIFT_AT
    assert recovery(a_row(regrets=[*before, 0.5, 0.01, 0.5, 0.01, 0.01, 0.01])) == 4
    assert recovery(a_row(regrets=[*before, 0.5, 0.5, 0.5])) == 4


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),
    [
        (1.0, None, 2.0, "pass"),
        (3.0, None, 2.0, "MISS"),
        (90.0, 85.0, 95.0, "pass"),
        (96.0, 85.0, 95.0, "MISS"),
    ],
)
def test_figure_says_pass_or_miss(value: float, low: float | None, high: float | None, verdict: str) -> None:
    """Both bounds belong to what is allowed."""
    assert Figure("x", value, low=low, high=high).verdict == verdict


def test_figure_that_was_not_measured_does_not_pass() -> None:
    """Absence is said, not counted as success."""
    assert Figure("x", None, high=1.0).verdict == "not measured"


def test_a_run_is_repeatable() -> None:
    """The same job gives the same row, but for the time that the tuner thought."""
    first, second = (perform(Job("cold", "powers-of-two", 3, 1)) for _ in range(2))
    assert first.regrets == second.regrets
    assert first.seconds == second.seconds
    assert len(first.regrets) == 20
