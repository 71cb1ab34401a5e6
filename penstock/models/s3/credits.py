"""Knows how transfers use a host's burst credits: how many one takes, and how many the measurements left."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Whether each observation counts for the burst ceiling. Only those clearly faster than the baseline certainly do.

    The others are explained as well without credits, whether there were any or not, because other traffic is unknown.
    If none was faster, all count, because credits then bring no more than was measured: the path is no faster, or there
    are none.
    """
    if limits is None:
        return [False] * len(observations)
    fast = ON_CREDITS * limits.baseline_bytes_per_second
    flags = [o.throughput_bytes_per_second > fast for o in observations]
    return flags if any(flags) else [True] * len(observations)


def credits_left(place: Place, observations: Sequence[Observation[S3SettingT]]) -> float | None:
    """The credits in bytes after these observations, oldest first; None if the host is not burstable."""
    limits = burst_ceiling(place)
    if limits is None:
        return None
    if not observations:
        return limits.credit_bytes_max
    if _are_spent(limits, observations):
        return 0.0
    start = observations[0].started_at
    transfers = [
        ((o.started_at - start).total_seconds(), o.duration_seconds, float(o.transferred_bytes))
        for o in observations
    ]
    return burst.credits_at(
        limits, transfers, at_seconds=max(begin + lasted for begin, lasted, _ in transfers)
    )


def _are_spent(limits: burst.Ceiling, observations: Sequence[Observation[S3SettingT]]) -> bool:
    """Whether the newest observations that could have been much faster on credits all were not.

    One could have been if others of its size, with no more threads, were. Then the credits are spent, whatever the
    known transfers left, because other traffic of the host may have spent them.
    """
    pairs = list(zip(observations, burst_flags(limits, observations), strict=True))
    fast = [one for one, is_burst in pairs if is_burst]

    def could(one: Observation[S3SettingT]) -> bool:
        return not one.throttled_count and any(
            other.throughput_bytes_per_second > _MUCH_FASTER * one.throughput_bytes_per_second
            for other in fast
            if other.context.payload_size_bytes == one.context.payload_size_bytes
            and other.setting.thread_count <= one.setting.thread_count
        )

    told = [is_burst for one, is_burst in pairs if is_burst or could(one)]
    return len(told) >= _SPENT_COUNT and not any(told[-_SPENT_COUNT:])
