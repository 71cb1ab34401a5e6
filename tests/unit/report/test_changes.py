"""What is said of a change: when, how much, and what moved."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from penstock.report.changes import change_findings, change_sentence
from penstock.vocabulary import Estimate, Moved, Observation
from tests.factories import CONTEXT, NOON, SETTING, a_change, a_fit, an_observation
from tests.unit.report.materials import HOUR, UPLOAD

SIZE = CONTEXT.payload_size_bytes


def observations(*, before: int, after: int, ratio: float) -> list[Observation[Any]]:
    """At about the advised setting, with a noise of 5 %."""
    chance = random.Random(3)
    rates = [chance.gauss(1, 0.05) for _ in range(before)] + [
        ratio * chance.gauss(1, 0.05) for _ in range(after)
    ]
    return [
        an_observation(started_at=NOON + (n - before) * HOUR, duration_seconds=2.0 / rate)
        for n, rate in enumerate(rates)
    ]


def test_measurements_on_both_sides_tell_the_size() -> None:
    """Where there are enough of about the advised setting, their interval holds the truth."""
    (found,) = change_findings(UPLOAD, [a_change()], observations(before=10, after=8, ratio=0.57), SIZE)
    assert found.is_measured
    assert found.is_certain
    assert found.fraction is not None
    assert found.fraction.low < -0.43 < found.fraction.high
    assert found.fraction.high - found.fraction.low < 0.1
    words = change_sentence(found, "throughput_bytes_per_second")
    assert words.startswith("Throughput fell by 4")
    assert "on 2026-03-01 at 12:00 UTC; host from 500 MB/s to 300 MB/s." in words


def test_a_place_that_is_again_what_it_was_is_said_to_be() -> None:
    """With when it ceased to be."""
    (found,) = change_findings(UPLOAD, [a_change(as_until=NOON - 3 * HOUR)], [], SIZE)
    words = change_sentence(found, "throughput_bytes_per_second")
    assert words.endswith("; the place is again as it was until 2026-03-01 at 09:00.")


@pytest.mark.parametrize(
    ("alike", "learned_count", "is_withdrawn"), [(True, 18, True), (False, 8, False), (True, 0, False)]
)
def test_what_did_not_last_is_no_change_for_good(alike: bool, learned_count: int, is_withdrawn: bool) -> None:
    """A path of two states "rose by 22 %" at the first of many moves, also when the fit had taken it back."""
    seen = observations(before=10, after=8, ratio=1.22)
    fit = dataclasses.replace(
        a_fit(), changed_at=None if alike else NOON, earlier=(), observation_count=learned_count
    )
    (found,) = change_findings(UPLOAD, [a_change(unchanged_at=NOON - HOUR)], seen, SIZE, fit)
    assert found.is_withdrawn is is_withdrawn
    words = change_sentence(found, "throughput_bytes_per_second")
    did_not_last = "Throughput varies: what changed on 2026-03-01 at 12:00 UTC did not last."
    assert words == did_not_last if is_withdrawn else words.startswith("Throughput rose by ")


def test_with_too_few_of_them_the_fits_tell_it() -> None:
    """A change outlives the measurements that showed it."""
    (found,) = change_findings(UPLOAD, [a_change()], [], SIZE)
    assert not found.is_measured
    assert found.fraction is not None
    assert found.fraction.expected == pytest.approx(1.1 / 2.0 - 1.0)


def test_a_size_that_may_be_none_is_no_certain_change() -> None:
    """It is told with both ends, and no verdict names it."""
    (moved,) = a_change().advice
    same = Estimate(1.0e8, 2e8, 3e8)
    unsure = a_change(advice=(dataclasses.replace(moved, value=Moved(same, same)),), parameters={})
    (found,) = change_findings(UPLOAD, [unsure], [], SIZE)
    assert not found.is_certain
    assert change_sentence(found, "throughput_bytes_per_second").startswith(
        "The place changed, throughput by +0 %"
    )


def test_a_change_ends_where_the_next_begins() -> None:
    """What was measured after that is not of this one."""
    later = a_change(changed_at=NOON + 6 * HOUR, noticed_at=NOON + 8 * HOUR)
    seen = observations(before=8, after=6, ratio=0.5) + [
        dataclasses.replace(o, started_at=o.started_at + 14 * HOUR)
        for o in observations(before=8, after=6, ratio=1.0)
    ]
    first, second = change_findings(UPLOAD, [later, a_change()], seen, SIZE)
    assert first.changed_at == NOON
    assert first.fraction is not None
    assert second.fraction is not None
    assert first.fraction.expected == pytest.approx(-0.5, abs=0.06)
    assert second.fraction.expected > 0.2
    assert first.advised_before == SETTING


def test_an_alarm_about_the_same_change_ends_nothing() -> None:
    """Raised again six measurements later, it is held against what came after the first: no second change."""
    again = a_change(changed_at=NOON + 6 * HOUR, noticed_at=NOON + 30 * HOUR)
    seen = observations(before=20, after=30, ratio=0.6)
    first, second = change_findings(UPLOAD, [a_change(), again], seen, SIZE)
    assert [first.is_certain, second.is_certain] == [True, False]
    assert first.fraction is not None
    assert first.fraction.expected == pytest.approx(-0.4, abs=0.04)


def test_what_is_left_of_nearly_nothing_is_not_rounded_away() -> None:
    """Three thousand times slower is not nothing at all."""
    moved = Moved(Estimate(0.8e9, 1e9, 1.2e9), Estimate(2.4e5, 3e5, 3.6e5))
    change = a_change()
    advice = tuple(dataclasses.replace(each, value=moved) for each in change.advice)
    (found,) = change_findings(UPLOAD, [dataclasses.replace(change, advice=advice)], [], SIZE)
    words = change_sentence(found, "throughput_bytes_per_second")
    assert words.startswith("Throughput fell by 99.97 % (99.96 to 99.98 %) on")
