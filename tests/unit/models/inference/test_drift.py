"""Rules of the change detector."""

from __future__ import annotations

import numpy as np

from penstock.models.inference.drift import Cusum, changed_count, run


def test_lasting_shift_raises_the_alarm_in_a_few() -> None:
    """Three measurements far below what was expected are enough, and the run says when it began."""
    state = run([0.3, -0.2, 0.4, -4.0, -4.0, -4.0])
    assert state.is_alarm
    assert state.run == 3


def test_rises_count_as_well() -> None:
    """A place that became faster has changed too."""
    assert run([3.0, 3.0, 3.0]).is_alarm


def test_single_dip_is_no_alarm() -> None:
    """However deep, one measurement alone is forgiven, and forgotten after a few good ones."""
    assert not run([-50.0]).is_alarm
    assert run([-50.0, 0.5, 0.5, 0.5]).level == 0.0


def test_what_was_certainly_no_dip_raises_it_at_once() -> None:
    """A measurement that cannot be explained away needs no second one."""
    assert Cusum().after(-50.0, is_certain=True).is_alarm


def test_ordinary_noise_is_quiet() -> None:
    """Of a hundred rows of 200 ordinary measurements, at least seventy never raise the alarm."""
    rows = np.random.default_rng(4).standard_normal((100, 200)) * 0.8
    alarms = 0
    for row in rows:
        alarms += any(run(row[: i + 1].tolist()).is_alarm for i in range(0, 200, 7))
    assert alarms <= 30


def test_noise_alone_raises_the_alarm_about_once_in_five_hundred() -> None:
    """Neither so seldom that changes go unnoticed, nor so often that every alarm is false."""
    rng, raised, count = np.random.default_rng(4), 0, 50_000
    state = Cusum()
    for surprise in rng.standard_normal(count).tolist():
        state = state.after(surprise)
        if state.is_alarm:
            raised, state = raised + 1, Cusum()
    assert 350 < count / raised < 750


def test_the_change_is_where_the_sum_stands_out() -> None:
    """A little bad luck before it, and one that the change does not touch, do not belong to it."""
    assert changed_count([-0.6, -0.7, -0.2, -8.0, -7.5]) == 2
    assert changed_count([0.3, 5.0, 6.0, 5.5]) == 3


def test_at_least_the_last_has_changed() -> None:
    """An alarm is about something."""
    assert changed_count([0.0]) == 1
