"""All that was measured, counted: bounded, and two of them add up."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from penstock.models.inference.histogram import class_of, histogram_of, pairs_of
from penstock.models.s3.upload import S3UploadSetting
from penstock.report.density import over_knob, over_time
from penstock.report.tally import beats, middles, tally_of
from penstock.units import MiB
from penstock.vocabulary import Observation
from tests.factories import CONTEXT, NOON, an_observation
from tests.unit.report.materials import UPLOAD

HOUR = timedelta(hours=1)


def many(count: int) -> list[Observation[Any]]:
    """Every quarter of an hour; one in twenty is refused."""
    chance = random.Random(1)
    return [
        an_observation(
            setting=S3UploadSetting(thread_count=chance.choice((1, 2, 4, 8)), part_size_bytes=8 * MiB),
            started_at=NOON + n * HOUR / 4,
            duration_seconds=chance.uniform(0.5, 2.0),
            request_count=20,
            throttled_count=9 * (n % 20 == 7),
            histograms={"request_seconds": histogram_of(chance.uniform(0.1, 1.0) for _ in range(9))},
            successive=pairs_of([[chance.uniform(0.1, 1.0) for _ in range(9)]]),
        )
        for n in range(count)
    ]


def a_hundred(_size: int, settings: Sequence[Any]) -> list[float | None]:
    """As many MB/s of any setting."""
    return [100e6] * len(settings)


def test_pieces_come_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are read at a time."""
    seen = many(200)
    whole = tally_of(seen, UPLOAD.measured_value, a_hundred)
    monkeypatch.setattr("penstock.report.tally._COUNTED_TOGETHER_MAX", 77)
    pieces = tally_of(seen, UPLOAD.measured_value, a_hundred)
    assert (pieces.levels, pieces.course, pieces.times) == (whole.levels, whole.course, whole.times)
    assert (pieces.measured_count, pieces.beats) == (200, whole.beats)
    size = CONTEXT.payload_size_bytes
    assert pieces.pairs[size].xy == pytest.approx(whole.pairs[size].xy)


def test_the_newest_are_told_one_by_one_and_nothing_is_told_twice() -> None:
    """Before them by the hour, whatever their number."""
    seen = many(200)
    tally = tally_of(seen, UPLOAD.measured_value, a_hundred)
    told = beats(tally, seen[-50:])
    assert sum(beat.measured_count for beat in told) == 200
    assert 40 < sum(beat.measured_count == 1 and beat.first_at == beat.last_at for beat in told) < 80
    assert len(beats(tally, seen)) == 200


def test_every_measurement_is_in_the_fields() -> None:
    """In the column of its knob and the row of its value; over time within a factor of what is expected."""
    seen = many(400)
    tally = tally_of(seen, UPLOAD.measured_value, a_hundred)
    found = over_knob(tally, CONTEXT.payload_size_bytes, "thread_count")
    assert found is not None
    assert found.count == 400
    alone = sum(o.setting.thread_count == 1 for o in seen)
    assert sum(row[0] for row in found.counts) == alone
    assert found.x[0] < 1.0 < found.x[1]
    course = over_time(tally)
    assert course is not None
    assert course.count == sum(o.went_well for o in seen)
    assert over_knob(tally, 1, "thread_count") is None


def test_an_hour_has_the_middle_of_what_it_measured() -> None:
    """Within a class, that is 2.2 %."""
    seen = [one for one in many(40) if one.went_well]
    tally = tally_of(seen, UPLOAD.measured_value, a_hundred)
    (at, middle, count), *_ = middles(tally, before=(NOON + HOUR).timestamp())
    assert at == (NOON + HOUR / 2).timestamp()
    assert count == 4
    ratios = sorted(UPLOAD.measured_value(o) / 100e6 for o in seen if o.started_at < NOON + HOUR)
    assert min(ratios) * 0.95 < middle < max(ratios) * 1.05
    assert class_of(middle) in range(class_of(ratios[1]) - 1, class_of(ratios[2]) + 2)
    assert math.isfinite(middle)
