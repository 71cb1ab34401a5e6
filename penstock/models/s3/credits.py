"""Knows the burst credits of a host by what was moved: what a transfer takes, and what the measurements left."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from penstock.models import burst
from penstock.models.s3.directions import S3SettingT, burst_ceiling
from penstock.vocabulary import Observation, Place

ON_CREDITS = 1.3  # times the baseline: what is faster is on credits for certain
_SPENT_COUNT = 3  # a dip of the path makes one slow, and two now and then
_MUCH_FASTER = 1.5


def credits_taken(place: Place, transferred_bytes: float, *, seconds: float) -> int:
    """What a transfer takes of the bucket, where there is one."""
    limits = burst_ceiling(place)
    return 0 if limits is None else ceil(limits.credits_spent(transferred_bytes, seconds=seconds))


def burst_flags(limits: burst.Ceiling | None, observations: Sequence[Observation[S3SettingT]]) -> list[bool]:
    """Whether each observation was made on credits. Only what was faster than the baseline says so for certain.

    What was slower is as well explained without credits, whether there were some or not: nobody knows the traffic
    that others sent. Where nothing was faster, credits bring no more than was measured: the way is no wider, or there
    are none.
    """
    if limits is None:
        return [False] * len(observations)
    fast = ON_CREDITS * limits.baseline_bytes_per_second
    flags = [o.throughput_bytes_per_second > fast for o in observations]
    return flags if any(flags) else [True] * len(observations)


def credits_left(place: Place, observations: Sequence[Observation[S3SettingT]]) -> float | None:
    """Bytes above the baseline after these, oldest first; None where the host has no such credits."""
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
    """Whether the newest that could have gone much faster on credits, as others did with no more threads, all did not.

    Then there are none, whatever was left of them by what is known: others on the host may have spent them.
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
