"""Knows how to add up reports of transfers that overlapped in time: the host carried the sum of them.

Four processes that upload at the same time each see a quarter of the host's throughput, with a quarter of its
connections. Taken alone, each report would show a ceiling that does not exist. So a report is counted together with
the user's other transfers of the same place during its time: of another transfer that took d seconds and overlapped
this one, of t seconds, for o seconds, o / d of the bytes and requests and o / t of the connections are added. Other
users' reports are never added, so nobody can distort what another user reports.

Reports whose value is not their bytes over their time stay as they are: what one moved says nothing of the other's
value. Those about queues do not even say which queue they are about, and each queue has its own limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from penstock.models.model import THROUGHPUT
from penstock.operations.table import OPERATIONS
from penstock.optimizer.reports import reports_by_user
from penstock.vocabulary import Observation, Setting, divided_knobs, knobs

_OVERLAP_FRACTION_MIN = 0.05  # of the report's duration: less than that is lost in the usual variation


def together(reports: Sequence[Observation[Any]]) -> list[Observation[Any]]:
    """The reports of one place, each with what the same user's other transfers moved during its time."""
    if not reports or OPERATIONS[reports[0].context.operation].model.value_metric != THROUGHPUT:
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
    """How long both ran at the same time; not positive when they did not overlap."""
    later_seconds = (other.started_at - one.started_at).total_seconds()
    return min(one.duration_seconds, later_seconds + other.duration_seconds) - max(0.0, later_seconds)


def _added(setting: Setting, in_use: Sequence[tuple[Setting, float]]) -> Setting:
    """The setting with each divided knob at the sum of these, each weighted by its part of the time."""
    bounds = knobs(setting)
    summed = {
        name: round(sum(getattr(one, name) * part for one, part in in_use)) for name in divided_knobs(setting)
    }
    return replace(setting, **{name: min(value, int(bounds[name].high)) for name, value in summed.items()})
