"""Knows how to keep the upload model to the settings that one client can be told: ranges, and whole MiB.

A client has limits of its own: a fixed part size, at least so many threads. The physics stay those of the upload
model; only what may be tried and advised is narrowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

from penstock.models.model import Fit
from penstock.models.s3_upload import (
    PART_COUNT_MAX,
    PART_SIZE_BYTES_MAX,
    PART_SIZE_BYTES_MIN,
    THREAD_COUNT_MAX,
    S3UploadModel,
    S3UploadSetting,
)
from penstock.units import MiB, format_bytes
from penstock.vocabulary import Context, Cost, Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRanges:
    """What a client can be told, both ends included."""

    thread_count_min: int = 1
    thread_count_max: int = 256
    part_size_bytes_min: int = PART_SIZE_BYTES_MIN
    part_size_bytes_max: int = 512 * MiB

    def trouble(self, object_size_bytes: int, memory_bytes_max: int | None) -> str | None:
        """Why no setting within them is possible for this size, in one sentence; None when one is."""
        part_size_bytes_least = ceil(object_size_bytes / PART_COUNT_MAX)
        if not 1 <= self.thread_count_min <= self.thread_count_max <= THREAD_COUNT_MAX:
            return f"threads go from 1 to {THREAD_COUNT_MAX}, the lower end first"
        if (
            not PART_SIZE_BYTES_MIN
            <= self.part_size_bytes_min
            <= self.part_size_bytes_max
            <= PART_SIZE_BYTES_MAX
        ):
            return "S3 takes parts from 5MiB to 5GiB, and the lower end of a range comes first"
        if self.part_size_bytes_max < part_size_bytes_least:
            return (
                f"an object has at most 10,000 parts: {format_bytes(object_size_bytes)} needs parts of "
                f"{format_bytes(part_size_bytes_least)} or more"
            )
        least = self.memory_bytes_least(object_size_bytes)
        if least > (memory_bytes_max or inf):
            return (
                f"every setting holds at least {format_bytes(least)} in memory, which is more than is allowed"
            )
        return None

    def memory_bytes_least(self, object_size_bytes: int) -> int:
        """What every setting within them holds: the fewest threads with the smallest parts, or with the largest.

        Large parts hold less where threads that cannot be fewer outnumber them.
        """
        smallest = max(PART_SIZE_BYTES_MIN, ceil(object_size_bytes / PART_COUNT_MAX))
        first = _nearest_part_size_bytes(
            smallest, max(self.part_size_bytes_min, smallest), self.part_size_bytes_max
        )
        fewest = (
            S3UploadSetting(thread_count=self.thread_count_min, part_size_bytes=part)
            for part in (first, max(first, self.part_size_bytes_max))
        )
        return min(setting.memory_bytes(object_size_bytes) for setting in fewest)


@dataclass(frozen=True, kw_only=True)  # without slots: the limits of the upload model are its own fields
class RangedS3UploadModel(S3UploadModel):
    """The upload model for one client. Part sizes are whole MiB where the ranges admit it: every client takes those.

    `avoided` are settings that are neither tried nor advised.
    """

    thread_count_min: int = 1
    avoided: frozenset[S3UploadSetting] = frozenset()

    def legal(self, context: Context, setting: S3UploadSetting) -> S3UploadSetting:
        """The nearest setting within the ranges that S3 accepts; a part may be larger than the object."""
        legal = S3UploadModel.legal(self, context, setting)
        low = max(self.part_size_bytes_min, ceil(context.payload_size_bytes / PART_COUNT_MAX))
        return S3UploadSetting(
            thread_count=min(max(legal.thread_count, self.thread_count_min), self.thread_count_max),
            part_size_bytes=_nearest_part_size_bytes(legal.part_size_bytes, low, self.part_size_bytes_max),
        )

    def ramp(self, context: Context) -> Sequence[S3UploadSetting]:
        """The upload model's safe start, as far as it lies within the ranges."""
        steps = [self.legal(context, step) for step in S3UploadModel.ramp(self, context)]
        return self._allowed(list(dict.fromkeys(steps)))

    def candidates(self, fit: Fit, context: Context, demand: Demand) -> Sequence[S3UploadSetting]:
        """The upload model's candidates, moved into the ranges."""
        size, memory_bytes_max = context.payload_size_bytes, demand.memory_bytes_max or inf
        moved = {self.legal(context, x) for x in S3UploadModel.candidates(self, fit, context, demand)}
        light = [x for x in moved if x.memory_bytes(size, demand.object_count) <= memory_bytes_max]
        least = self.legal(context, S3UploadSetting(thread_count=1, part_size_bytes=PART_SIZE_BYTES_MIN))
        return self._allowed(sorted(light or [least], key=lambda x: (x.thread_count, x.part_size_bytes)))

    def probe_cost(self, fit: Fit, context: Context, setting: S3UploadSetting) -> Cost:
        """Somebody else's client moves the whole object whatever the setting: settings differ in the time it takes."""
        rate = float(self.appraise(fit, context, [setting], Demand()).value[0])
        return Cost(duration_seconds=context.payload_size_bytes / rate)

    def probe_seconds_min(self, fit: Fit, context: Context, setting: S3UploadSetting) -> float:
        """None: whoever runs the client bounds its time, and the seconds of a proposal are only its price."""
        del fit, context, setting
        return 0.0

    def _allowed(self, settings: list[S3UploadSetting]) -> list[S3UploadSetting]:
        """Without those to be avoided; all of them where nothing else is left, for there must be an answer."""
        return [x for x in settings if x not in self.avoided] or settings


def _nearest_part_size_bytes(wanted: int, low: int, high: int) -> int:
    """In whole MiB where the ends admit it; the lower one has the last word."""
    return max(min(ceil(wanted / MiB) * MiB, high), low)


def ranged_model(
    ranges: UploadRanges, avoided: frozenset[S3UploadSetting] = frozenset()
) -> RangedS3UploadModel:
    """The upload model within these ranges."""
    return RangedS3UploadModel(
        thread_count_min=ranges.thread_count_min,
        thread_count_max=ranges.thread_count_max,
        part_size_bytes_min=ranges.part_size_bytes_min,
        part_size_bytes_max=ranges.part_size_bytes_max,
        avoided=avoided,
    )
