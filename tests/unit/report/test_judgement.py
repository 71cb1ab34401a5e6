"""Whether it was right, as the report judges it."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from penstock.models.s3.upload import S3UploadSetting
from penstock.report.figures import place_figures
from penstock.report.first_screen import first_screens
from penstock.report.judgement import hearsay, mean_regret, regrets, sharpness
from penstock.report.markdown import render_markdown
from penstock.report.retries import retries, retries_sentence
from penstock.report.study import JUDGED_COUNT_MAX, study
from penstock.report.tally import beat_of
from penstock.units import MiB
from penstock.vocabulary import Basis, Estimate, Observation, Origin, Reason
from tests.factories import NOON, PLACE, a_context, a_recommendation, an_observation, recommended
from tests.unit.report.materials import (
    HOUR,
    UPLOAD,
    a_material,
    a_real_fit,
    a_report,
    html_of,
    some_observations,
)

SLOW, FAST = (S3UploadSetting(thread_count=n, part_size_bytes=8 * MiB) for n in (2, 8))
VALUES = {SLOW: Estimate(50e6, 60e6, 70e6), FAST: Estimate(90e6, 120e6, 130e6)}


def test_advice_is_judged_by_what_is_known_today_and_for_as_long_as_it_stood() -> None:
    """An hour with half of what could be had, and three with all of it: an eighth was lost."""
    advised = [
        a_recommendation(setting=SLOW, issued_at=NOON, basis=Basis.DEFAULT),
        a_recommendation(setting=SLOW, issued_at=NOON + HOUR),
        a_recommendation(setting=FAST, issued_at=NOON + 2 * HOUR),
    ]
    again = a_recommendation(setting=FAST, issued_at=NOON + 4 * HOUR, bottleneck="host-ceiling")
    course = regrets([*advised, again], VALUES.get, best=FAST, since=NOON)
    assert [r.lost_fraction for r in course] == [0.5, 0.0]
    assert mean_regret(course, NOON + 5 * HOUR) == pytest.approx(0.125)
    (since,) = regrets(advised, VALUES.get, best=FAST, since=NOON + 3 * HOUR)
    assert (since.at, since.lost_fraction) == (NOON + 3 * HOUR, 0.0)


def test_what_was_foreseen_is_kept_and_held_against_what_was_seen() -> None:
    """Of every measurement, not of the advised setting alone; the figure says why each was tried."""
    observations = [
        dataclasses.replace(o, foreseen=Estimate(10e6, 20e6, 40e6), reason=Reason.EXPLORE)
        for o in some_observations()
    ]
    (place,) = study(a_material(observations={observations[0].context.place: observations})).places
    assert place.promised_coverage.count == len(observations)
    figure = next(f for f in place_figures(place) if f.title.startswith("Was it right"))
    assert (
        "than predicted. Why these were tried: where least was known for the price, 6 times"
        in figure.description
    )
    assert "the interval reached 100 % to either side" in figure.description
    found = sharpness([(30e6, Estimate(10e6, 20e6, 40e6))])
    assert found is not None
    assert found.bias_fraction == pytest.approx(0.5)


def said(client: str, uid: int, times_faster: float, **changes: Any) -> list[Observation[Any]]:
    """Reports of what eight threads do, once an hour: as fast as was measured, or a multiple of that."""
    return [
        an_observation(
            setting=S3UploadSetting(thread_count=8, part_size_bytes=8 * MiB),
            started_at=NOON + n * HOUR,
            duration_seconds=64 * MiB / (18e6 * 8 * times_faster) + 0.1 / times_faster,
            origin=Origin.APPLICATION,
            client=client,
            reporter_uid=uid,
            **changes,
        )
        for n in range(4)
    ]


def test_reports_are_told_by_who_sent_them_and_what_became_of_them() -> None:
    """One that agrees with what was measured is believed, one that boasts is not."""
    found, believed = hearsay(
        UPLOAD,
        a_real_fit(),
        some_observations(),
        [*said("boto3", 1000, 1.0), *said("liar", 1001, 50.0)],
    )
    told = {one.client: (one.reported_count, one.heard_count, one.believed_count) for one in found}
    assert told == {"boto3 of user 1000": (4, 4, 4), "liar of user 1001": (4, 4, 0)}
    assert {one.client for one in believed} == {"boto3 of user 1000"}


def test_what_is_not_believed_is_told_as_that_and_changes_nothing_else() -> None:
    """Medians, refusals, curves, what changed, what is said first: all as if the liar had said nothing."""
    true = [*some_observations(), *said("boto3", 1000, 1.0)]
    lies = [
        *said("liar", 1001, 50.0, throttled_count=3, failed_count=2),
        *said("liar", 1001, 50.0, context=a_context(payload_size_bytes=1024 * MiB)),
    ]
    lies = [dataclasses.replace(o, started_at=o.started_at + 3 * HOUR) for o in lies]
    believing, doubting = (
        a_report(observations={PLACE: sorted(seen, key=lambda o: o.started_at)})
        for seen in (true, [*true, *lies])
    )
    (place,), (other,) = believing.places, doubting.places
    assert place.measured_count < place.observation_count
    (remark,) = [one for one in other.remarks if one not in place.remarks]
    assert (remark.code, "liar of user 1001: " in remark.reason) == ("reports-not-believed", True)
    assert other == dataclasses.replace(place, hearsay=other.hearsay, remarks=other.remarks)
    for page in (html_of(doubting), render_markdown(doubting, is_full=True)):
        assert "10 observations, 4 of them reported by applications, the newest " in page
        assert "; 8 reports not believed." in page
        assert "Whose reports were believed" in page


def test_reports_push_no_measurement_off_the_page() -> None:
    """A client reports a hundred times while penstock measures once."""
    many = [
        dataclasses.replace(o, started_at=o.started_at + n * timedelta(minutes=1), reporter_uid=1000 + uid)
        for uid in range(4)
        for n in range(32)
        for o in said("boto3", 1000, 1.0)
    ]
    seen = sorted([*some_observations(), *many], key=lambda o: o.started_at)
    (place,) = a_report(observations={PLACE: seen}).places
    assert place.observation_count > JUDGED_COUNT_MAX
    probes = [m for m in place.measured if m.origin == Origin.PROBE.value]
    assert len(probes) == len(some_observations())


def test_where_nothing_is_measured_reports_are_held_against_what_is_known_without_them() -> None:
    """A fit to the lies themselves agrees with all of them."""
    lies = said("liar", 1001, 3e-5)
    before = UPLOAD.fit(PLACE, [], prior=None, seed=1)
    fit = dataclasses.replace(
        UPLOAD.fit(PLACE, lies, prior=None, seed=1), is_from_reports=True, unreported=before
    )
    (told,), believed = hearsay(UPLOAD, fit, [], lies)
    assert (told.believed_count, believed) == (0, ())
    circular, _ = hearsay(UPLOAD, dataclasses.replace(fit, unreported=None), [], lies)
    assert circular[0].believed_count == len(lies)


def test_what_was_reported_alone_is_not_called_measured() -> None:
    """Beside 'nothing was measured here' another line would else say when."""
    told = said("boto3", 1000, 1.0, throttled_count=3)
    fit = dataclasses.replace(UPLOAD.fit(PLACE, told, prior=None, seed=1), is_from_reports=True)
    advice = recommended(UPLOAD, fit, a_context())
    report = a_report(fits=[fit], observations={PLACE: told}, recommendations=[advice], changes=[])
    (screen,), (place,) = first_screens(report), report.places
    assert advice.basis is Basis.REPORTED
    assert dict(screen.facts)["How fresh"].startswith("reported ")
    (remark,) = [one for one in place.remarks if one.code == "throttled"]
    assert remark.reason.startswith("In 4 of the last 4 believed reports (100 %")


def test_reports_that_nothing_was_fitted_to_are_counted_and_not_believed() -> None:
    """Whoever reports to a daemon that has learned nothing yet would else be told that nothing came."""
    (place,) = a_report(fits=[], observations={PLACE: said("boto3", 1000, 1.0)}).places
    (told,) = place.hearsay
    assert (told.reported_count, told.heard_count, place.observation_count) == (4, 0, 0)


def test_retries_are_counted_by_day_and_in_a_row() -> None:
    """Refused and failed apart; two measurements in a row had some, then one."""
    troubles = ((0, 0), (1, 0), (0, 2), (0, 0), (3, 0))
    seen = [
        an_observation(
            started_at=NOON + n * timedelta(hours=10),
            request_count=100,
            throttled_count=refused,
            failed_count=failed,
        )
        for n, (refused, failed) in enumerate(troubles)
    ]
    found = retries([beat_of(one) for one in seen], seen)
    assert found is not None
    told = [(d.measurement_count, d.refused_count, d.failed_count) for d in found.days]
    assert told == [(2, 1, 0), (2, 0, 2), (1, 3, 0)]
    assert found.in_a_row_count_max == 2
    assert retries_sentence(found) == (
        "In 5 measurements (500 requests) 6 had to be sent again, one in 83.3: 4 refused by the service, 2 failed; "
        "at most 2 measurements in a row had any."
    )
    quiet = an_observation(request_count=9)
    calm = retries([beat_of(quiet)], [quiet])
    assert calm is not None
    assert retries_sentence(calm).endswith("none had to be sent again.")
