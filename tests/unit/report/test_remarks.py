"""When the reader is warned, and with which numbers."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from penstock.optimizer.reports import HEARD_COUNT_MAX_PER_USER
from penstock.report import remarks
from penstock.report.findings import Report
from penstock.vocabulary import Basis, Cost, Estimate, Origin
from tests.factories import PLACE, an_inconclusive
from tests.unit.report.materials import HOUR, UPLOAD, a_real_fit, a_report, real_advice, some_observations


def codes(report: Report) -> set[str]:
    """Of the first place and of the whole."""
    return {remark.code for remark in (*report.places[0].remarks, *report.remarks)}


def reason(report: Report, code: str) -> str:
    """The numbers behind a remark."""
    found = (*report.places[0].remarks, *report.remarks)
    return next(remark.reason for remark in found if remark.code == code)


def test_fresh_advice_of_a_calm_place_earns_no_warning() -> None:
    """A warning means something."""
    report = a_report(inconclusives=[])
    assert not [r for r in report.places[0].remarks if r.is_warning]
    assert not report.remarks


def test_advice_is_out_of_date_when_its_newest_evidence_is() -> None:
    """Exactly from its end on."""
    end = a_report().places[0].advice[0].recommendation.expires_at
    assert "advice-expired" in codes(a_report(generated_at=end))
    assert "advice-expired" not in codes(a_report(generated_at=end - HOUR / 60))


def test_throttling_and_failures_are_counted() -> None:
    """The reason says in how many measurements, and how many requests."""
    observations = some_observations()
    observations[2] = dataclasses.replace(observations[2], throttled_count=7, failed_count=1)
    report = a_report(observations={PLACE: observations})
    assert {"throttled", "failed-requests"} <= codes(report)
    assert "In 1 of the last 6 measurements (17 %" in reason(report, "throttled")
    assert "7 requests" in reason(report, "throttled")


def test_probes_without_a_result_warn_only_when_they_are_many() -> None:
    """One in seven is life, one in two is trouble; the most frequent reason is told either way."""
    few, many = a_report(), a_report(inconclusives=[an_inconclusive(reason="access denied")] * 6)
    assert "no route to the host" in reason(few, "inconclusive")
    assert not any(r.is_warning for r in few.places[0].remarks)
    assert any(r.is_warning and r.code == "inconclusive" for r in many.places[0].remarks)
    assert "6 of 12 probes (50 %" in reason(many, "inconclusive")


def test_reports_of_applications_do_not_hide_probes_without_a_result() -> None:
    """The share is one of probes."""
    said = dataclasses.replace(some_observations()[0], origin=Origin.APPLICATION, reporter_uid=1)
    observations = {PLACE: [*some_observations(), *[said] * 60]}  # of one user, who is heard so often
    report = a_report(inconclusives=[an_inconclusive()] * 6, observations=observations)
    assert "6 of 12 probes (50 %" in reason(report, "inconclusive")
    assert report.places[0].observation_count == 6 + HEARD_COUNT_MAX_PER_USER


def test_advice_that_stands_is_not_called_the_default_for_want_of_a_fit() -> None:
    """After an upgrade the fit of before cannot be read; what it led to still stands."""
    report = a_report(fits=[])
    assert "the last that was issued" in reason(report, "no-fit")
    nothing = dataclasses.replace(real_advice(), basis=Basis.DEFAULT)
    assert "the SDK's default" in reason(a_report(fits=[], recommendations=[nothing]), "no-fit")


@pytest.mark.parametrize("is_measured", [True, False])
def test_what_was_measured_by_hand_waits_for_a_daemon(*, is_measured: bool) -> None:
    """After an experiment there are observations and no fit: what to do about it is said, and only then.

    One that does not probe there learns nothing of it.
    """
    observations = {PLACE: some_observations() if is_measured else []}
    report = a_report(
        observations=observations, fits=[], recommendations=[], inconclusives=[an_inconclusive()]
    )
    assert ("until a daemon starts with this database" in reason(report, "no-fit")) is is_measured
    assert ("probes here and learns" in reason(report, "no-fit")) is is_measured


def test_nothing_near_was_measured_is_said_only_where_that_is_so() -> None:
    """A wide interval may be what measurements of the very setting vary by."""
    made = real_advice()
    ((metric, expected),) = [p for p in made.prediction.items() if p[0] == UPLOAD.value_metric]
    wide = {**made.prediction, metric: Estimate(expected.low / 9, expected.expected, expected.high * 9)}
    for basis, words in ((Basis.MEASURED, "vary as much"), (Basis.MODEL, "Nothing similar was measured")):
        advice = dataclasses.replace(made, prediction=wide, basis=basis)
        report = a_report(fits=[], recommendations=[advice])
        assert words in reason(report, "wide-interval")
        (title,) = (r.title for r in report.places[0].remarks if r.code == "wide-interval")
        assert title == "1 of 1 prediction is little more than a guess"


def test_a_day_that_used_up_its_budget_is_named() -> None:
    """From nine tenths on, field by field; without a limit there is nothing to say."""
    assert "budget-used-up" in codes(a_report(daily_limit=Cost(request_count=85)))
    assert "budget-used-up" not in codes(a_report(daily_limit=Cost(request_count=100)))
    assert "budget-used-up" not in codes(a_report(daily_limit=None))


def test_the_dollars_of_an_operation_with_a_limit_of_its_own_are_told() -> None:
    """The dearest day beside what is allowed; from nine tenths on it says that probes wait."""
    assert "$0.001" in reason(a_report(usd_limits={"s3_upload": 0.03}), "dollars-of-a-day")
    assert "allows $0.03." in reason(a_report(usd_limits={"s3_upload": 0.03}), "dollars-of-a-day")
    assert "probes wait" in reason(a_report(usd_limits={"s3_upload": 0.0011}), "dollars-of-a-day")
    assert "dollars-of-a-day" not in codes(a_report(usd_limits={"sqs_delivery": 0.03}))


def test_a_model_that_does_not_describe_the_place_and_a_change_are_told() -> None:
    """The reader may trust the curve as far as the fit trusts itself."""
    fit = dataclasses.replace(a_real_fit(), is_off_model=True, drift_count=2, residual_fraction_p50=0.31)
    report = a_report(fits=[fit])
    assert "The median of 6 measurements is off by 31 %" in reason(report, "off-model")
    assert reason(report, "place-changed").startswith("2 times")


def test_leftovers_and_rows_that_were_left_out_are_told() -> None:
    """Nothing is dropped in silence."""
    assert {"leftovers-open", "rows-left-out"} <= codes(a_report(leftover_count=2, unreadable_count=3))


def test_the_page_names_every_code() -> None:
    """Whoever filters by a code finds what it says."""
    page = (Path(__file__).parents[3] / "docs/report.md").read_text(encoding="utf-8")
    written = re.findall(r'code=f?"([\w-]+)', inspect.getsource(remarks))
    assert len(written) > 10
    assert [code for code in written if f"`{code}" not in page] == []


@pytest.mark.parametrize(("gain", "is_explained"), [(0.0, True), (0.6, False)])
def test_connections_that_are_the_limit_and_of_which_more_bring_nothing(
    gain: float, is_explained: bool
) -> None:
    """One half of the sentence contradicts the other, unless it says why: an object has no more parts than that."""
    report = a_report()
    place = report.places[0]
    made = dataclasses.replace(place.advice[0].recommendation, bottleneck="connections")
    advice = dataclasses.replace(place.advice[0], recommendation=made, doubled_gain_fraction=gain)
    changed = dataclasses.replace(report, places=(dataclasses.replace(place, advice=(advice,)),))
    told = reason(remarks.remark(changed), "limit-connections")
    assert ("too little work here for more" in told) is is_explained
