"""What is printed beside a figure must be true."""

from __future__ import annotations

import pytest

from bench.figures import Figure
from bench.harness import LONG, SHORT, SUITES, Form, Job, jobs, perform
from bench.verdict import (
    DRIFT_AT,
    GridCost,
    Row,
    cost_to_good,
    detection_delay,
    probes_to_good,
    recovery,
    targets,
)


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


def test_rival_is_compared_on_the_same_runs() -> None:
    """Cost counts pairs of the same place and seed alone; a run that the rival did not make is left out."""
    own, rival, alone = (a_row(regrets=[0.5] * good + [0.0] * (20 - good)) for good in (1, 5, 19))
    rival.tuner, alone.seed = "skopt-gp", 1
    figures = {
        f.name: f for f in targets([own, rival, alone], {"somewhere": GridCost(20.0, 200)}, [0.2, 0.4])
    }
    seconds = figures["seconds of probing to 95 %, in sum, over scikit-optimize's"]
    assert seconds.value == pytest.approx(2 / 6)
    assert seconds.verdict == "pass"
    assert figures["seconds of probing to 95 %, in sum, over the whole grid's"].value == pytest.approx(0.1)
    assert figures["a fit of 100 observations, CPU time, median"].verdict == "pass"
    assert figures["a fit of 100 observations, CPU time, most"].verdict == "MISS"


def test_changes_that_nobody_feels_do_not_count() -> None:
    """Detection is asked only where the old setting slowed or went stale."""
    felt, unfelt = (a_row(regrets=[0.0] * (DRIFT_AT + 10), alarms=alarms) for alarms in ([DRIFT_AT + 2], []))
    felt.kind = unfelt.kind = "drift"
    unfelt.is_felt = False
    figures = {f.name: f for f in targets([felt, unfelt], {}, [])}
    assert figures["drift: probes until noticed, median"].value == 2
    assert figures["a fit of 100 observations, CPU time, most"].verdict == "not measured"


@pytest.mark.parametrize("operation", SUITES)
@pytest.mark.parametrize("form", [SHORT, LONG])
def test_every_surface_is_judged(form: Form, operation: str) -> None:
    """No form leaves a surface out, and no run is made twice."""
    work = jobs(form, {"skopt-gp"}, operation)
    assert {job.index for job in work if job.kind == "cold"} == set(range(len(SUITES[operation].surfaces)))
    assert len(set(work)) == len(work)
