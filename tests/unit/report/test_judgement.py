"""Whether it was right, as the report judges it."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from penstock.models.s3.upload import S3UploadSetting
from penstock.report.figures import place_figures
from penstock.report.judgement import hearsay, mean_regret, regrets, sharpness
from penstock.report.retries import retries, retries_sentence
from penstock.report.study import study
from penstock.report.tally import beat_of
from penstock.units import MiB
from penstock.vocabulary import Basis, Estimate, Origin, Reason
from tests.factories import NOON, a_recommendation, an_observation
from tests.unit.report.materials import HOUR, UPLOAD, a_material, a_real_fit, some_observations

SLOW, FAST = (S3UploadSetting(thread_count=n, part_size_bytes=8 * MiB) for n in (2, 8))
VALUES = {SLOW: Estimate(50e6, 60e6, 70e6), FAST: Estimate(90e6, 120e6, 130e6)}


def test_advice_is_judged_by_what_is_known_today_and_for_as_long_as_it_stood() -> None:
    """An hour with half of what could be had, and three with all of it: an eighth was lost."""
    advised = [
        a_recommendation(setting=SLOW, issued_at=NOON, basis=Basis.DEFAULT),
        a_recommendation(setting=SLOW, issued_at=NOON + HOUR),
        a_recommendation(setting=FAST, issued_at=NOON + 2 * HOUR),
    ]
    course = regrets(advised, VALUES.get, best=FAST, since=None)
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
    assert "Chosen: where least was known for the price, 6 times" in figure.description
    assert "it reached 100 % to either side" in figure.description
    found = sharpness([(30e6, Estimate(10e6, 20e6, 40e6))])
    assert found is not None
    assert found.bias_fraction == pytest.approx(0.5)


def test_reports_are_told_by_who_sent_them_and_what_became_of_them() -> None:
    """One that agrees with what was measured is believed, one that boasts is not."""
    honest, boasting = (
        [
            an_observation(
                setting=S3UploadSetting(thread_count=8, part_size_bytes=8 * MiB),
                started_at=NOON + n * HOUR,
                duration_seconds=64 * MiB / (18e6 * 8 * factor) + 0.1 / factor,
                origin=Origin.APPLICATION,
                client=client,
                reporter_uid=uid,
            )
            for n in range(4)
        ]
        for client, uid, factor in (("boto3", 1000, 1.0), ("liar", 1001, 50.0))
    )
    found = hearsay(UPLOAD, a_real_fit(), [*some_observations(), *honest, *boasting])
    told = {one.client: (one.reported_count, one.believed_count) for one in found}
    assert told == {"boto3 of user 1000": (4, 4), "liar of user 1001": (4, 0)}


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
