"""When a service refused requests for a while."""

from __future__ import annotations

from dataclasses import replace

from penstock.report.episodes import episode_sentence, episodes
from penstock.report.tally import beat_of
from tests.factories import NOON, an_observation
from tests.unit.report.materials import HOUR


def test_refusals_one_after_another_are_one_episode() -> None:
    """It began and ended between measurements that asked for as much; those that asked for less say nothing."""
    seen = [
        an_observation(started_at=NOON + n * HOUR, throttled_count=refused, request_count=count)
        for n, (refused, count) in enumerate([(0, 20), (0, 2), (9, 20), (0, 2), (11, 20), (0, 20), (0, 20)])
    ]
    (one,) = episodes([beat_of(o) for o in seen])
    assert (one.begins_at, one.ends_at) == (NOON + 2 * HOUR, NOON + 4 * HOUR)
    assert (one.begins_after, one.ends_before) == (NOON, NOON + 5 * HOUR)
    words = "Requests were refused from 2026-03-01 14:00 to 16:00 UTC: 20 of the 40 (50 %) of 2 measurements"
    assert episode_sentence(one) == f"{words}; 1 in between met at most stray refusals."
    assert episode_sentence(replace(one, spared_count=0)) == f"{words}."


def test_many_refusals_are_counted_in_thousands() -> None:
    """As any other number of the page."""
    seen = [
        an_observation(started_at=NOON + n * HOUR, throttled_count=600, request_count=6000) for n in range(2)
    ]
    (one,) = episodes([beat_of(o) for o in seen])
    assert "1,200 of the 12,000 (10 %)" in episode_sentence(one)


def test_single_refusals_and_strays_are_none() -> None:
    """S3 refuses single requests while it divides a prefix anew; a day later is another story."""
    stray = [
        an_observation(started_at=NOON + n * HOUR, throttled_count=1, request_count=60) for n in range(9)
    ]
    apart = [
        an_observation(started_at=NOON + n * 30 * HOUR, throttled_count=9, request_count=20) for n in range(3)
    ]
    assert episodes([beat_of(o) for o in stray]) == ()
    assert episodes([beat_of(o) for o in apart]) == ()
