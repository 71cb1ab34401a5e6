"""Knows how often requests had to be sent again, by day: those refused by the service, or failed on the way.

A retry is a request that was answered with an error, or not at all, so that its client has to send it again. Data that
was written or read wrongly is no retry: a probe that finds it measures nothing, and counts as a probe without a result.
(Counted as in Garfinkel, An Evaluation of Amazon's Grid Computing Services, 2007.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import groupby
from typing import Any

from penstock.report.tally import Beat
from penstock.units import counted, number
from penstock.vocabulary import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOfRetries:
    """All measurements of one day in UTC."""

    day: date
    measurement_count: int
    request_count: int
    refused_count: int
    failed_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """All days, and the longest run of measurements with at least one retry each."""

    days: tuple[DayOfRetries, ...]
    in_a_row_count_max: int


def retries(beats: Sequence[Beat], newest: Sequence[Observation[Any]]) -> Retries | None:
    """The retries of all beats, oldest first; None without any. Runs are known only among the newest observations."""
    if not beats:
        return None
    days: dict[date, list[Beat]] = defaultdict(list)
    for beat in beats:
        days[datetime.fromtimestamp(beat.first_at, UTC).date()].append(beat)
    runs = [
        len(list(group))
        for had_some, group in groupby(newest, key=lambda o: o.throttled_count + o.failed_count > 0)
        if had_some
    ]
    return Retries(
        days=tuple(
            DayOfRetries(
                day=day,
                measurement_count=sum(beat.measured_count for beat in some),
                request_count=sum(beat.request_count for beat in some),
                refused_count=sum(beat.refused_count for beat in some),
                failed_count=sum(beat.failed_count for beat in some),
            )
            for day, some in sorted(days.items())
        ),
        in_a_row_count_max=max(runs, default=0),
    )


def retries_sentence(found: Retries) -> str:
    """``In 120 measurements (9,000 requests) 6 requests had to be sent again: ...``."""
    requests = sum(day.request_count for day in found.days)
    refused, failed = (
        sum(getattr(day, f"{kind}_count") for day in found.days) for kind in ("refused", "failed")
    )
    measured = counted(sum(day.measurement_count for day in found.days), "measurement")
    if not refused + failed:
        return f"In {measured} ({counted(requests, 'request')}) none had to be sent again."
    return (
        f"In {measured} ({counted(requests, 'request')}) {number(refused + failed)} had to be sent again, one in "
        f"{number(requests / (refused + failed))}: {number(refused)} refused by the service, {number(failed)} failed; "
        f"at most {counted(found.in_a_row_count_max, 'measurement')} in a row had any."
    )
