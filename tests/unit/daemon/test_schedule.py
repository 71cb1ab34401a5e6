"""The schedule: who is next, and at which pace."""

import dataclasses
from datetime import timedelta

from penstock.daemon.schedule import LEARNING_COUNT, Standing, due_at, fresh_report_count, next_due, pace
from tests.factories import CONTEXT, NOON, a_context

SETTLED = Standing(
    context=CONTEXT,
    mean_interval_seconds=600.0,
    attempt_count=40,
    last_attempt_at=NOON,
    observation_count=LEARNING_COUNT,
)
DAY = timedelta(days=1)


def test_pace_is_faster_while_learning_and_slower_when_nothing_is_new() -> None:
    """A context with few observations since it changed comes often; a known one seldom."""
    assert pace(SETTLED, NOON) == 1.0
    assert pace(dataclasses.replace(SETTLED, observation_count=3, is_steady=True), NOON) == 0.25
    assert pace(dataclasses.replace(SETTLED, is_steady=True), NOON) == 2.0


def test_fresh_reports_stand_in_for_probes_but_never_for_all_of_them() -> None:
    """The more there are, the seldomer probes come, down to an eighth; what is old does not count."""
    steady = dataclasses.replace(SETTLED, is_steady=True)
    paces = [
        pace(dataclasses.replace(steady, reports_at=(NOON,) * count), NOON) for count in (0, 4, 8, 10_000)
    ]
    assert paces == [2.0, 5.0, 8.0, 8.0]
    silent = dataclasses.replace(steady, reports_at=(NOON,) * 8)
    later = NOON + timedelta(seconds=9 * 600)
    assert fresh_report_count(silent, later) == 0
    assert pace(silent, later) == 2.0
    learning = dataclasses.replace(silent, observation_count=3)
    assert pace(learning, NOON) == 0.25  # a new place, or one that has changed: only probes tell


def test_a_surprise_hastens_the_next_probe() -> None:
    """Also where applications report much: it comes within a quarter of the mean interval, whatever the draw."""
    known = dataclasses.replace(SETTLED, is_steady=True, reports_at=(NOON,) * 8, is_suspect=True)
    quarter = timedelta(seconds=known.mean_interval_seconds / 4)
    for count in range(50):
        standing = dataclasses.replace(known, attempt_count=count)
        assert NOON < due_at(7, standing, resumed_at=NOON, now=NOON) <= NOON + quarter


def test_a_restart_comes_to_the_same_moment() -> None:
    """While the moment has not passed, it does not matter when the daemon started."""
    before = due_at(7, SETTLED, resumed_at=NOON - DAY, now=NOON)
    assert due_at(7, SETTLED, resumed_at=NOON, now=NOON) == before
    assert before > NOON


def test_what_waited_together_does_not_run_together() -> None:
    """After a day without the daemon, overdue contexts are spread anew from the start."""
    standings = [dataclasses.replace(SETTLED, context=a_context(payload_size_bytes=n)) for n in range(50)]
    start = NOON + DAY
    dues = [due_at(7, standing, resumed_at=start, now=start) for standing in standings]
    assert len(set(dues)) == 50
    assert min(dues) > start
    assert max(dues) > start + timedelta(seconds=600)


def test_a_postponed_context_waits_for_its_moment() -> None:
    """A refusal of the budget is not asked again before its `retry_at`."""
    standing = dataclasses.replace(SETTLED, postponed_until=NOON + DAY)
    assert due_at(7, standing, resumed_at=NOON, now=NOON) >= NOON + DAY


def test_a_clock_that_stepped_back_does_not_silence_a_context() -> None:
    """An attempt in the future says nothing: the context is due at once."""
    standing = dataclasses.replace(SETTLED, last_attempt_at=NOON + 365 * DAY)
    assert due_at(7, standing, resumed_at=NOON, now=NOON) == NOON


def test_a_refusal_holds_after_the_clock_stepped_back() -> None:
    """While the last attempt lies in the future, a refused context is not asked again and again."""
    standing = dataclasses.replace(
        SETTLED, last_attempt_at=NOON + DAY, postponed_until=NOON + timedelta(minutes=1)
    )
    assert due_at(7, standing, resumed_at=NOON, now=NOON) == NOON + timedelta(minutes=1)


def test_the_first_probe_of_a_new_context_comes_soon() -> None:
    """Within the longest gap of the learning pace."""
    new = Standing(context=CONTEXT, mean_interval_seconds=600.0)
    assert NOON < due_at(7, new, resumed_at=NOON, now=NOON) <= NOON + timedelta(seconds=600 * 0.25 * 5)


def test_the_earliest_context_is_next() -> None:
    """And without contexts, nothing is."""
    late = dataclasses.replace(SETTLED, context=a_context(payload_size_bytes=1), postponed_until=NOON + DAY)
    due = next_due(7, [late, SETTLED], resumed_at=NOON, now=NOON)
    assert due is not None
    assert due.context == CONTEXT
    assert next_due(7, [], resumed_at=NOON, now=NOON) is None
