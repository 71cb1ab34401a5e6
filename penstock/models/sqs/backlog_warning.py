"""Knows whether a backlog of undeleted messages is growing towards the duplicate loop, and when it will get there.

The signal is the age of the oldest message received and not deleted. An application knows it exactly; from a queue's
attributes it is the messages not visible over the deletes per second (Little's law). The age itself raises the alarm,
not its slope: in simulated runs, a third of the visibility timeout never raised a false alarm up to 0.99 of capacity,
and raised one a quarter of an hour ahead at 1.014, while the slope alone missed slow drifts. The slope predicts when
the queue collapses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from penstock.units import format_seconds
from penstock.vocabulary import NORMAL_90

WARN_FRACTION = 1.0 / 3.0  # of the visibility timeout
ACT_FRACTION = 1.0 / 2.0
DRIFT_SPAN_SECONDS = 1200.0  # of samples that the prediction uses; the drift of a random walk shows slowly


class Alarm(StrEnum):
    """How close the duplicate loop is."""

    CALM = "calm"
    WARN = "warn"  # add delete capacity soon
    ACT = "act"  # add it now, or apply a receive window
    COLLAPSED = "collapsed"  # copies are coming back


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeSample:
    """The oldest undeleted message at one moment."""

    at: datetime
    oldest_undeleted_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogWarning:
    """The alarm, the predicted date and a sentence for the operator; no date if the age does not rise."""

    alarm: Alarm
    oldest_undeleted_seconds: float
    drift_seconds_per_second: float
    reaches_timeout_at: datetime | None
    reaches_timeout_at_earliest: datetime | None  # the early end of the 90 % interval
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogSpell:
    """The most messages that an application's queue held during a period, and the greatest age of the oldest one."""

    region: str
    queue: str
    began_at: datetime
    visible_message_count: float
    not_visible_message_count: float
    oldest_undeleted_seconds: float | None  # None if the rate of deletes is not known
    visibility_timeout_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogSample:
    """The messages in a queue at one moment: waiting to be received, and received but not deleted."""

    at: datetime
    visible_message_count: float
    not_visible_message_count: float


def growth_messages_per_second(samples: Sequence[BacklogSample]) -> float:
    """Sends less deletes per second, by least squares over recent samples (oldest first); 0 if there are too few."""
    if not samples:
        return 0.0
    recent = [s for s in samples if (samples[-1].at - s.at).total_seconds() <= DRIFT_SPAN_SECONDS]
    seconds = [(s.at - recent[0].at).total_seconds() for s in recent]
    counts = [s.visible_message_count + s.not_visible_message_count for s in recent]
    if len(recent) < 3 or seconds[-1] <= 0:
        return 0.0
    middle, mean = sum(seconds) / len(seconds), sum(counts) / len(counts)
    spread = sum((at - middle) ** 2 for at in seconds)
    return sum((at - middle) * (n - mean) for at, n in zip(seconds, counts, strict=True)) / spread


def age_from_attributes(not_visible_count: float, delete_rate_per_second: float) -> float:
    """The age of the oldest undeleted message, from a queue's attributes; inf if nothing is deleted."""
    if not_visible_count <= 0:
        return 0.0
    return not_visible_count / delete_rate_per_second if delete_rate_per_second > 0 else math.inf


def assess(samples: Sequence[AgeSample], visibility_timeout_seconds: float) -> BacklogWarning:
    """The warning at the newest of these samples (oldest first), for a queue with this visibility timeout."""
    age = samples[-1].oldest_undeleted_seconds if samples else 0.0
    alarm = _alarm(age, visibility_timeout_seconds)
    drift, deviation = _drift(samples)
    left = visibility_timeout_seconds - age
    at = earliest = None
    if samples and drift > 0 and left > 0:
        at = samples[-1].at + timedelta(seconds=min(left / drift, 1e8))
        earliest = samples[-1].at + timedelta(seconds=min(left / (drift + NORMAL_90 * deviation), 1e8))
    return BacklogWarning(
        alarm=alarm,
        oldest_undeleted_seconds=age,
        drift_seconds_per_second=drift,
        reaches_timeout_at=at,
        reaches_timeout_at_earliest=earliest,
        explanation=_explanation(alarm, age, left / drift if drift > 0 else math.inf),
    )


def _alarm(age_seconds: float, timeout_seconds: float) -> Alarm:
    if age_seconds >= timeout_seconds:
        return Alarm.COLLAPSED
    if age_seconds >= ACT_FRACTION * timeout_seconds:
        return Alarm.ACT
    return Alarm.WARN if age_seconds >= WARN_FRACTION * timeout_seconds else Alarm.CALM


def _drift(samples: Sequence[AgeSample]) -> tuple[float, float]:
    """The growth of the age in seconds per second and its standard deviation, over recent samples.

    The best estimate of a random walk's drift uses its two ends; its steps give the deviation.
    """
    recent = [s for s in samples if (samples[-1].at - s.at).total_seconds() <= DRIFT_SPAN_SECONDS]
    if len(recent) < 3:
        return 0.0, 0.0
    span = (recent[-1].at - recent[0].at).total_seconds()
    if span <= 0:
        return 0.0, 0.0
    drift = (recent[-1].oldest_undeleted_seconds - recent[0].oldest_undeleted_seconds) / span
    variance = 0.0
    for before, after in pairwise(recent):
        elapsed = (after.at - before.at).total_seconds()
        step = after.oldest_undeleted_seconds - before.oldest_undeleted_seconds
        variance += (step - drift * elapsed) ** 2
    return drift, math.sqrt(variance) / span


def _explanation(alarm: Alarm, age_seconds: float, seconds_left: float) -> str:
    age = format_seconds(age_seconds)
    if alarm is Alarm.COLLAPSED:
        return (
            f"the oldest undeleted message is {age} old and copies are coming back: apply the advised "
            "receive window and delete in batches; stopping the senders does not help"
        )
    if alarm is Alarm.CALM:
        return f"the oldest undeleted message is {age} old: no danger"
    when = (
        f"at this rate the backlog reaches the visibility timeout in {format_seconds(seconds_left)}"
        if math.isfinite(seconds_left)
        else f"the oldest undeleted message is {age} old and no longer getting older"
    )
    return f"{when}: add a deleter or delete in batches"
