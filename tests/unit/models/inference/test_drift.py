"""Rules of the change detector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.models.inference.drift import Cusum, Watched, alike, changed_count, watch
from penstock.models.model import Array


def run(surprises: Sequence[float]) -> Cusum:
    """The sums after all of them."""
    state = Cusum()
    for surprise in surprises:
        state = state.after(surprise)
    return state


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


def watched(*steps: tuple[int, float], count: int = 40) -> Watched:
    """Two quantities, the second of which steps up at these measurements."""
    values = 0.1 * np.random.default_rng(4).standard_normal((2, count))
    for at, height in steps:
        values[1, at:] += height
    return watch(values, np.full(values.shape, 0.1))


def test_each_change_of_a_place_is_found_where_it_was() -> None:
    """Also an older one, when more was measured since than before."""
    assert watched((8, 1.1), (30, -0.8)).begins == (8, 30)


def test_a_change_is_seen_after_two_measurements() -> None:
    """The first is a surprise, the second makes it certain."""
    assert watched((20, 1.1), count=21).surprise > 2.6
    assert watched((20, 1.1), count=21).begins == ()
    assert watched((20, 1.1), count=22).begins == (20,)


def test_a_single_stray_is_no_change() -> None:
    """However far it lies."""
    assert watched((20, 9.0), (21, -9.0)).begins == ()


def test_a_place_that_does_not_change_is_hardly_ever_said_to() -> None:
    """Once in 200 measurements at most, also where deviations were stated too small by half."""
    values = 0.1 * np.random.default_rng(5).standard_normal((20, 3, 60))
    for stated in (0.1, 0.05):
        found = [watch(row, np.full(row.shape, stated)).begins for row in values]
        assert sum(map(len, found)) <= 6


def weathered(weather: float, seed: int, count: int = 40) -> tuple[Array, Array]:
    """Four quantities in hours that are alike, and differ by so much."""
    rng, deviations = np.random.default_rng(seed), np.full((4, count), 0.1)
    wander = rng.standard_normal((4, count))
    for at in range(1, count):
        wander[:, at] = 0.9 * wander[:, at - 1] + (1 - 0.9**2) ** 0.5 * wander[:, at]
    return weather * wander + 0.1 * rng.standard_normal((4, count)), deviations


def test_slow_weather_is_hardly_ever_a_change() -> None:
    """Hours that differ by 15 % are a change once in 200 measurements at most."""
    assert sum(len(watch(*weathered(0.15, seed)).begins) for seed in range(40)) <= 8


def test_where_all_hours_are_alike_half_as_long_again_is_a_change() -> None:
    """Calm is learned as well, so that four measurements tell even that in nine places of ten."""
    found = 0
    for seed in range(40):
        values, deviations = weathered(0.0, seed, count=20)
        values[:3, 16:] += np.log(1.5)
        found += any(begin >= 15 for begin in watch(values, deviations).begins)
    assert found >= 36


def test_a_spell_is_recognised_where_all_quantities_are_as_they_were() -> None:
    """Up, down and half as high again; the last is like none of those before it."""
    values = 0.1 * np.random.default_rng(6).standard_normal((2, 40))
    values[1, 10:20] += 1.1
    values[0, 28:34] -= 0.8
    values[1, 34:] += 0.5
    deviations = np.full(values.shape, 0.1)

    def like_the_last(count: int, *begins: int) -> list[bool]:
        return alike(values[:, :count], deviations[:, :count], begins)

    assert like_the_last(22, 10, 20) == [True, False]
    assert like_the_last(32, 10, 20, 28) == [False, False, False]
    assert like_the_last(40, 10, 20, 28, 34) == [False, False, False, False]


def test_what_was_not_seen_says_nothing() -> None:
    """Neither of a change nor against one."""
    values = np.zeros((1, 16))
    values[:, 8:] = 2.0
    deviations = np.full(values.shape, np.inf)
    assert watch(values, deviations) == Watched()
    deviations[:, ::2] = 0.1
    assert watch(values, deviations).begins == (8,)
