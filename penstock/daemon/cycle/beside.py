"""Knows what transfers that applications report moved beside each other: what the host did is the sum of theirs.

Four processes that upload at a time each see a quarter of what the host carries, with a quarter of its connections.
Taken for itself, each report tells of a ceiling that is not there. So a report is read as what all transfers of the
same user and place moved in its time: of another that took d seconds, o of them within the t seconds of this one, o / d
of its bytes and requests, over o / t of its connections. Other users' reports change nothing in it: nobody may bend
what another one says.

Reports about queues do not say which queue they are about, and each queue has limits of its own: they stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from penstock.operations.operation import Service
from penstock.operations.table import OPERATIONS
from penstock.optimizer.reports import reports_by_user
from penstock.vocabulary import Observation, Setting, divided_knobs, knobs

_OVERLAP_FRACTION_MIN = 0.05  # of this one's time: less changes less than transfers differ among themselves


def together(reports: Sequence[Observation[Any]]) -> list[Observation[Any]]:
    """The same reports of one place, each with what the user's others moved beside it."""
    if not reports or OPERATIONS[reports[0].context.operation].service is not Service.S3:
        return list(reports)
    theirs = reports_by_user(reports)
    return [_with_others(report, theirs[report.reporter_uid]) for report in reports]


def _with_others(report: Observation[Any], of_user: Iterable[Observation[Any]]) -> Observation[Any]:
    beside = [(other, overlap_seconds(report, other)) for other in of_user if other is not report]
    beside = [(other, seconds) for other, seconds in beside if seconds > 0]
    overlap_fraction = sum(seconds for _, seconds in beside) / report.duration_seconds
    if overlap_fraction < _OVERLAP_FRACTION_MIN:
        return report
    in_use_of = OPERATIONS[report.context.operation].model.in_use

    def total(own: int, counts: Iterable[int]) -> int:
        return own + round(sum(n * s / o.duration_seconds for n, (o, s) in zip(counts, beside, strict=True)))

    others, in_use = [other for other, _ in beside], [(in_use_of(report), 1.0)]
    in_use += [(in_use_of(o), s / report.duration_seconds) for o, s in beside]
    return replace(
        report,
        setting=_added(report.setting, in_use),
        transferred_bytes=total(report.transferred_bytes, (o.transferred_bytes for o in others)),
        request_count=total(report.request_count, (o.request_count for o in others)),
        throttled_count=total(report.throttled_count, (o.throttled_count for o in others)),
        failed_count=total(report.failed_count, (o.failed_count for o in others)),
    )


def overlap_seconds(one: Observation[Any], other: Observation[Any]) -> float:
    """How long both were under way."""
    later_seconds = (other.started_at - one.started_at).total_seconds()
    return min(one.duration_seconds, later_seconds + other.duration_seconds) - max(0.0, later_seconds)


def _added(setting: Setting, in_use: Sequence[tuple[Setting, float]]) -> Setting:
    """The setting with what all of these had in use together, each for a part of the time."""
    bounds = knobs(setting)
    summed = {
        name: round(sum(getattr(one, name) * part for one, part in in_use)) for name in divided_knobs(setting)
    }
    return replace(setting, **{name: min(value, int(bounds[name].high)) for name, value in summed.items()})
