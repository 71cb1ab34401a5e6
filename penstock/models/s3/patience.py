"""Knows stores that let a client run for gigabytes and then refuse it for minutes, which no short probe can see.

Applications tell: their long transfers were refused, with no more connections than a shorter one that went well. Such
reports say nothing of the load, so no law learns from them; they say for how long a load is borne, and what a long
transfer reaches on average, the minutes of refusals included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.vocabulary import Observation, is_stray

# Times the bytes of what went well: a refusal so much later is another one than that of the load.
_LONGER = 4.0
_TOLD_COUNT_MIN = 2  # reports: one may be the bad day of one application
_RATE_SHARE_MIN = 0.25  # of the fastest that went well: reports alone hold no transfer back further than that


@dataclass(frozen=True, slots=True)
class Patience:
    """Transfers of more bytes than these reach no more than this rate on average."""

    transferred_bytes: float
    bytes_per_second: float


def refused_late(
    probes: Sequence[Observation[Any]], reports: Sequence[Observation[Any]]
) -> list[Observation[Any]]:
    """The reports of transfers that were refused although a probe had borne as many connections for a shorter time."""
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
    """What the late refusals come to: half-way, by ratio, between what went well and what did not."""
    if len(late) < _TOLD_COUNT_MIN:
        return None
    borne = [o for o in probes if o.went_well]
    longest = max(o.transferred_bytes for o in borne)
    fastest = max(o.throughput_bytes_per_second for o in borne)
    reached = float(np.median([o.throughput_bytes_per_second for o in late]))
    soonest = min(o.transferred_bytes for o in late)
    return Patience((longest * soonest) ** 0.5, max(reached, _RATE_SHARE_MIN * fastest))
