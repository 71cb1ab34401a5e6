"""What is shown of transfers beside their knobs."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from penstock.models.burst import ceiling
from penstock.models.s3.download import S3DownloadModel
from penstock.models.s3.upload import S3UploadModel
from tests.factories import CONTEXT, NOON, PLACE, an_observation

MODEL = S3UploadModel()
HOST = dataclasses.replace(PLACE, instance_type="c6in.large")


def test_merging_is_shown_by_parts_and_credits_by_date() -> None:
    """What was measured lies on it; a transfer above the baseline takes credits, and a rest gives them back."""
    limits = ceiling("c6in.large")
    assert limits is not None
    fast = 3.0 * limits.baseline_bytes_per_second
    context = dataclasses.replace(CONTEXT, place=HOST)
    seen = [
        an_observation(
            context=context,
            started_at=NOON + n * timedelta(hours=3),
            duration_seconds=100.0,
            transferred_bytes=int(100 * fast),
            measures={"object_part_count": 8.0 * (n + 1), "create_seconds": 0.03, "complete_seconds": 0.05},
        )
        for n in range(2)
    ]
    fit = MODEL.fit(HOST, [], prior=None, seed=1)
    merge, bucket, ceilings = MODEL.studies(fit, context, MODEL.default_setting(context), seen)
    assert [s.x for s in merge.sightings] == [8.0, 16.0]
    assert [s.y for s in merge.sightings] == pytest.approx([0.08, 0.08])
    left = [y.expected for y in bucket.traces[0].y]
    assert left[0] == left[2] == limits.credit_bytes_max
    assert left[1] == pytest.approx(left[0] - 200 * limits.baseline_bytes_per_second)
    assert {t.y[0].expected for t in ceilings.traces} == {
        limits.baseline_bytes_per_second,
        limits.burst_bytes_per_second,
    }
    short = [dataclasses.replace(one, duration_seconds=1.0, transferred_bytes=int(fast)) for one in seen]
    untouched = MODEL.studies(fit, context, MODEL.default_setting(context), short)
    assert bucket.title not in {study.title for study in untouched}, "a flat line says nothing"


def test_nothing_is_shown_that_was_not_measured_or_is_not_there() -> None:
    """A host of unknown credits, uploads of one request, and downloads, which merge nothing."""
    fit = MODEL.fit(PLACE, [], prior=None, seed=1)
    plain = dataclasses.replace(fit, place=dataclasses.replace(PLACE, instance_type="unknown"))
    assert MODEL.studies(plain, CONTEXT, MODEL.default_setting(CONTEXT), [an_observation(measures={})]) == ()
    place = dataclasses.replace(PLACE, operation="s3_download", instance_type="unknown")
    context = dataclasses.replace(CONTEXT, place=place)
    reading = S3DownloadModel()
    learned = reading.fit(place, [], prior=None, seed=1)
    odd = an_observation(measures={"object_part_count": 8.0, "complete_seconds": 0.05})
    assert reading.studies(learned, context, reading.default_setting(context), [odd]) == ()
