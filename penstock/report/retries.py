"""Knows how often requests had to be sent again: refused by the service or broken on the way, by day.

A retry is a request that was answered with an error or with nothing, and that its client has to send again. What was
written or read wrongly is no retry: a probe that finds such a body measures nothing, and is among those without a
result. (So counted by Garfinkel, An Evaluation of Amazon's Grid Computing Services, 2007.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Any

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
    """All days, and how many measurements in a row had at least one."""

    days: tuple[DayOfRetries, ...]
    in_a_row_count_max: int


def retries(observations: Sequence[Observation[Any]]) -> Retries | None:
    """Of these, oldest first; None of none."""
    if not observations:
        return None
    days = []
    for day, group in groupby(observations, key=lambda o: o.started_at.date()):
        of_day = list(group)
        days.append(
            DayOfRetries(
                day=day,
                measurement_count=len(of_day),
                request_count=sum(o.request_count for o in of_day),
                refused_count=sum(o.throttled_count for o in of_day),
                failed_count=sum(o.failed_count for o in of_day),
            )
        )
    runs = [
        len(list(group))
        for had_some, group in groupby(observations, key=lambda o: o.throttled_count + o.failed_count > 0)
        if had_some
    ]
    return Retries(days=tuple(days), in_a_row_count_max=max(runs, default=0))


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
