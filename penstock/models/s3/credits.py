"""Knows how transfers use a host's burst credits: how many one takes, and how many the measurements left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil

from penstock.models import burst
from penstock.models.s3.directions import S3SettingT, burst_ceiling
from penstock.vocabulary import Observation, Place

ON_CREDITS = 1.3  # times the baseline; what is faster certainly uses credits
_SPENT_COUNT = 3  # slow measurements in a row; one may be a dip, and now and then two
_MUCH_FASTER = 1.5


def credits_taken(place: Place, transferred_bytes: float, *, seconds: float) -> int:
    """The burst credits that a transfer takes, in bytes; 0 if the host has none."""
    limits = burst_ceiling(place)
    return 0 if limits is None else ceil(limits.credits_spent(transferred_bytes, seconds=seconds))


def burst_flags(limits: burst.Ceiling | None, observations: Sequence[Observation[S3SettingT]]) -> list[bool]:
    """Whether each observation, oldest first, counts for the burst ceiling: unless it was made without credits.

    Several slow ones in a row were, or the newest. If each counted by its own throughput, what chance made faster would
    raise the burst ceiling, and what it made slower would lower the sustained one.

    If none was clearly faster than the baseline, all count, because credits then bring no more than was measured: the
    path is no faster, or there are none.
    """
    flags = [limits is not None] * len(observations)
    for spell in _slow_spells(limits, observations) if limits is not None else ():
        if spell.is_last or spell.count >= _SPENT_COUNT:
            flags[spell.first : spell.end] = [False] * (spell.end - spell.first)
    return flags


def credits_left(place: Place, observations: Sequence[Observation[S3SettingT]]) -> float | None:
    """The credits in bytes after these observations, oldest first; None if the host is not burstable."""
    limits = burst_ceiling(place)
    if limits is None:
        return None
    if not observations:
        return limits.credit_bytes_max
    spells = _slow_spells(limits, observations)
    # Whatever the known transfers left, because other traffic of the host may have spent them.
    if spells and spells[-1].is_last and spells[-1].count >= _SPENT_COUNT:
        return 0.0
    start = observations[0].started_at
    transfers = [
        ((o.started_at - start).total_seconds(), o.duration_seconds, float(o.transferred_bytes))
        for o in observations
    ]
    return burst.credits_at(
        limits, transfers, at_seconds=max(begin + lasted for begin, lasted, _ in transfers)
    )


@dataclass(frozen=True, slots=True)
class _Spell:
    """Observations from `first` until before `end`, of which `count` could have been much faster, and none was."""

    first: int
    end: int
    count: int
    is_last: bool


def _slow_spells(limits: burst.Ceiling, observations: Sequence[Observation[S3SettingT]]) -> list[_Spell]:
    """The spells between observations that were clearly faster than the baseline, oldest first.

    An observation could have been much faster if others of its size, with no more threads, were.
    """
    least = ON_CREDITS * limits.baseline_bytes_per_second
    is_fast = [one.throughput_bytes_per_second > least for one in observations]
    fast = [one for one, was_fast in zip(observations, is_fast, strict=True) if was_fast]

    def could(one: Observation[S3SettingT]) -> bool:
        return not one.throttled_count and any(
            other.throughput_bytes_per_second > _MUCH_FASTER * one.throughput_bytes_per_second
            for other in fast
            if other.context.payload_size_bytes == one.context.payload_size_bytes
            and other.setting.thread_count <= one.setting.thread_count
        )

    told = [index for index, one in enumerate(observations) if is_fast[index] or could(one)]
    rows = [list(row) for was_fast, row in groupby(told, key=is_fast.__getitem__) if not was_fast]
    ends = [len(observations) if row[-1] == told[-1] else row[-1] + 1 for row in rows]
    return [_Spell(row[0], end, len(row), row[-1] == told[-1]) for row, end in zip(rows, ends, strict=True)]
