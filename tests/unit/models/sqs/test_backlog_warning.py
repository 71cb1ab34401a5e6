from datetime import UTC, datetime, timedelta

import pytest

from penstock.models.sqs.backlog_warning import AgeSample, Alarm, age_from_attributes, assess

START = datetime(2026, 1, 1, tzinfo=UTC)


def samples(*ages: float, every_seconds: float = 60.0) -> list[AgeSample]:
    return [
        AgeSample(at=START + timedelta(seconds=index * every_seconds), oldest_undeleted_seconds=age)
        for index, age in enumerate(ages)
    ]


@pytest.mark.parametrize(
    ("age_seconds", "alarm"),
    [(0.0, Alarm.CALM), (9.9, Alarm.CALM), (10.0, Alarm.WARN), (15.0, Alarm.ACT), (30.0, Alarm.COLLAPSED)],
)
def test_the_age_sets_the_alarm(age_seconds: float, alarm: Alarm) -> None:
    """A third of the visibility timeout warns, half asks to act, all of it is the collapse."""
    assert assess(samples(age_seconds), 30.0).alarm is alarm


def test_a_rising_age_has_a_date() -> None:
    """A minute a sample and one second of age more each: 12 s old, so 18 minutes are left of 30 s."""
    warning = assess(samples(*[float(second) for second in range(13)]), 30.0)
    assert warning.reaches_timeout_at == START + timedelta(minutes=12 + 18)
    assert "in 18 min: add a deleter or delete in batches" in warning.explanation


def test_an_unsteady_rise_has_an_earlier_near_end() -> None:
    """The scatter of the samples widens the interval of the date."""
    warning = assess(samples(4, 7, 6, 9, 8, 11), 30.0)
    assert warning.reaches_timeout_at_earliest is not None
    assert warning.reaches_timeout_at is not None
    assert warning.reaches_timeout_at_earliest < warning.reaches_timeout_at


def test_a_falling_age_has_no_date() -> None:
    """What heals needs no date, however old it still is."""
    warning = assess(samples(18, 17, 16), 30.0)
    assert warning.alarm is Alarm.ACT
    assert warning.reaches_timeout_at is None


def test_attributes_tell_the_age_by_littles_law() -> None:
    """500 messages not visible at 50 deletes a second are 10 s; none are none; no deletes never end."""
    assert age_from_attributes(500, 50.0) == 10.0
    assert age_from_attributes(0, 0.0) == 0.0
    assert age_from_attributes(1, 0.0) == float("inf")
