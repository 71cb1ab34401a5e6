"""Knows stores that admit a client for gigabytes and then refuse it for minutes, which short probes cannot see.

Reports of applications show it: long transfers were refused with no more connections than a shorter one that went
well. Such reports say nothing about the load, so the law does not learn from them. They tell how long a load is
tolerated, and what a long transfer reaches on average, including the minutes of refusals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.vocabulary import Observation, is_stray

# Times the bytes of a transfer that went well: if refusals come so much later, load is not their cause.
_LONGER = 4.0
_TOLD_COUNT_MIN = 2  # reports; a single one may be one application's bad day
_RATE_SHARE_MIN = 0.25  # of the fastest that went well: reports alone do not slow a transfer further


@dataclass(frozen=True, slots=True)
class Patience:
    """Transfers of more than `transferred_bytes` reach no more than `bytes_per_second` on average."""

    transferred_bytes: float
    bytes_per_second: float


def refused_late(
    probes: Sequence[Observation[Any]], reports: Sequence[Observation[Any]]
) -> list[Observation[Any]]:
    """The reports of refused transfers for which a shorter probe with as many connections went well."""
    borne = [o for o in probes if o.went_well]
    return [report for report in reports if _is_late(report, borne)]


def _is_late(report: Observation[Any], borne: Sequence[Observation[Any]]) -> bool:
    if is_stray(report.throttled_count, report.request_count):
        return False
    return any(
        probe.setting.thread_count >= report.setting.thread_count
        and _LONGER * probe.transferred_bytes <= report.transferred_bytes
        and probe.throughput_bytes_per_second > report.throughput_bytes_per_second
        for probe in borne
    )


def patience(probes: Sequence[Observation[Any]], late: Sequence[Observation[Any]]) -> Patience | None:
    """The patience that late refusals imply; None if there are too few of them.

    Its size is the geometric mean of the longest transfer that went well and the shortest that did not.
    """
    if len(late) < _TOLD_COUNT_MIN:
        return None
    borne = [o for o in probes if o.went_well]
    longest = max(o.transferred_bytes for o in borne)
    fastest = max(o.throughput_bytes_per_second for o in borne)
    reached = float(np.median([o.throughput_bytes_per_second for o in late]))
    soonest = min(o.transferred_bytes for o in late)
    return Patience((longest * soonest) ** 0.5, max(reached, _RATE_SHARE_MIN * fastest))
