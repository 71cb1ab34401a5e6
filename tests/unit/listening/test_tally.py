"""What was heard is added up: rates, Little's law, hidden retries; in bounded memory, and forgotten in time."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.listening.datagram import Application, Heard, Key
from penstock.listening.tally import (
    PERIOD_COUNT,
    PERIOD_SECONDS,
    SERIES_COUNT_MAX,
    SERIES_COUNT_MAX_PER_USER,
    Series,
    Tally,
)
from penstock.models.inference.histogram import count_of, quantile

BACKUP = Application(name="backup", product="Boto3", version="1.43.117")
ATTEMPT = Heard(
    key=Key(application=BACKUP, service="S3", api="UploadPart", region="eu-central-1"),
    latency_seconds=0.1,
    is_call=False,
)
CALL = replace(ATTEMPT, is_call=True, attempt_count=1)


def the_one(tally: Tally, now_seconds: float) -> Series:
    """What was heard of the only application and API."""
    (series,) = tally.series(now_seconds)
    return series


@pytest.mark.parametrize(("thread_count", "pause_seconds"), [(1, 0.0), (10, 0.0), (32, 0.0), (8, 7.0)])
def test_in_flight_is_that_of_the_threads(thread_count: int, pause_seconds: float) -> None:
    """Threads that send one request after another are so many in flight, over pauses and the ends of minutes."""
    chance, intervals = random.Random(5), []
    for _ in range(thread_count):
        at = 1000.0
        for burst in range(6):
            at = max(at, 1000.0 + burst * (20.0 + pause_seconds))
            while at < 1020.0 + burst * (20.0 + pause_seconds):
                latency = chance.uniform(1.0, 2.0)
                intervals.append((at + latency, latency))
                at += latency
    tally = Tally()
    for ended, latency in sorted(intervals):
        tally.hear(replace(ATTEMPT, latency_seconds=latency), ended)
    heard = the_one(tally, max(intervals)[0])
    assert heard.in_flight_count_mean == pytest.approx(thread_count, rel=0.1)
    assert heard.in_flight_count_max == pytest.approx(thread_count, rel=0.1)
    assert quantile(heard.latencies, 0.5) == pytest.approx(1.5, rel=0.1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(100.0, 159.0), st.floats(0.001, 50.0)), min_size=1, max_size=40))
def test_time_in_flight_is_the_union_of_the_attempts(attempts: list[tuple[float, float]]) -> None:
    """However attempts overlap, the time with at least one of them is counted once."""
    attempts.sort()
    tally = Tally()
    for ended, latency in attempts:
        tally.hear(replace(ATTEMPT, latency_seconds=latency), ended)
    edges = sorted({edge for ended, latency in attempts for edge in (ended - latency, ended)})
    active = sum(
        high - low
        for low, high in pairwise(edges)
        if any(ended - latency <= low and high <= ended for ended, latency in attempts)
    )
    expected = sum(latency for _, latency in attempts) / active
    assert the_one(tally, 160.0).in_flight_count_mean == pytest.approx(expected, rel=1e-6)


def test_calls_retries_and_refusals_are_counted_apart() -> None:
    """A call is one, however often the SDK tried; what it hid is beside it."""
    tally = Tally()
    for second in range(10):
        tally.hear(replace(ATTEMPT, is_refused=True), 100.0 + second)
        tally.hear(ATTEMPT, 100.4 + second)
        tally.hear(replace(CALL, attempt_count=2), 100.4 + second)
    heard = the_one(tally, 109.9)
    assert (heard.call_count, heard.attempt_count, heard.retry_count) == (10, 20, 10)
    assert (heard.refused_count, heard.failed_count) == (10, 0)
    assert heard.calls_per_second == pytest.approx(1.0)
    assert count_of(heard.latencies) == 20


def test_what_is_silent_is_forgotten() -> None:
    """Only the last minutes are told, and whoever says nothing in them makes room."""
    tally = Tally()
    tally.hear(CALL, 0.0)
    tally.hear(CALL, PERIOD_SECONDS)
    assert the_one(tally, PERIOD_COUNT * PERIOD_SECONDS - 1).call_count == 2
    assert the_one(tally, PERIOD_COUNT * PERIOD_SECONDS + 1).call_count == 1
    assert not tally.series((PERIOD_COUNT + 2) * PERIOD_SECONDS)


def test_a_crowd_of_names_takes_no_more_room_than_is_set_aside() -> None:
    """Names beyond the bound are counted and not kept; they get room when others have fallen silent."""
    tally = Tally()
    for number in range(10 * SERIES_COUNT_MAX):
        said = replace(CALL, key=replace(CALL.key, api=f"Api{number}"))
        tally.hear(said, 1.0, user_id=number % 2)
    assert len(tally.series(2.0)) == SERIES_COUNT_MAX
    assert tally.unplaced_count == 9 * SERIES_COUNT_MAX
    tally.hear(CALL, 1000.0)
    assert the_one(tally, 1000.0).key.api == "UploadPart"


def test_one_user_leaves_room_for_others() -> None:
    """However many names he sends."""
    tally = Tally()
    for number in range(2 * SERIES_COUNT_MAX):
        tally.hear(replace(CALL, key=replace(CALL.key, api=f"Api{number}")), 1.0, user_id=7)
    tally.hear(CALL, 1.0, user_id=8)
    assert len(tally.series(2.0)) == SERIES_COUNT_MAX_PER_USER + 1


def test_threads_are_told_from_what_is_in_flight_at_once() -> None:
    """Six threads that upload twenty parts end with two of them: the mean is less, the most is not."""
    tally, latency = Tally(), 1.7
    for number in range(20):
        tally.hear(replace(ATTEMPT, latency_seconds=latency), 100.0 + latency * (1 + number // 6))
    heard = the_one(tally, 120.0)
    assert heard.in_flight_count_mean == pytest.approx(5.0)
    assert heard.in_flight_count_max == pytest.approx(6.0)
    tally.hear(replace(ATTEMPT, latency_seconds=0.01), 350.0)
    assert the_one(tally, 350.0).in_flight_count_max == pytest.approx(6.0)
    (past,) = tally.past(700.0, is_over=True)
    assert past.in_flight_count_max == pytest.approx(6.0)


def test_what_lasts_longer_than_the_window_is_in_flight_all_the_while() -> None:
    """Told of at its end, as all attempts are."""
    tally = Tally()
    tally.hear(replace(ATTEMPT, latency_seconds=2000.0), 3000.0)
    tally.hear(replace(ATTEMPT, latency_seconds=20.0), 3000.0)
    assert the_one(tally, 3000.0).in_flight_count_max == pytest.approx(2.0)


def test_the_pasts_add_up_to_all_that_was_heard() -> None:
    """Nothing is counted twice at the end of an hour, and nothing is left out, also of who has fallen silent."""
    tally, told = Tally(), Counter[str]()
    other = replace(ATTEMPT, key=replace(ATTEMPT.key, api="ListParts"), is_refused=True)
    for number in range(30 * 60):
        at_seconds = 4.0 * number
        tally.hear(ATTEMPT, at_seconds)
        if number < 300:
            tally.hear(other, at_seconds)
        if number in {400, 900, 1500}:
            for series in tally.past(at_seconds, is_over=True):
                told[series.key.api] += series.attempt_count
    live = tally.past(4.0 * 30 * 60, is_over=False)
    assert tally.past(4.0 * 30 * 60, is_over=False) == live
    for series in live:
        told[series.key.api] += series.attempt_count
        assert series.in_flight_count_max == pytest.approx(1.0)
    assert told == {"UploadPart": 1800, "ListParts": 300}
