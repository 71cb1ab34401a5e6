"""Knows how to restrict the models of transfers to the settings that one client accepts: ranges, and whole MiB.

A client has its own limits, such as a fixed part size or a minimum of threads. They restrict only what may be tried and
advised; the law stays that of the models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Any, TypeAlias

from penstock.models.model import Fit
from penstock.models.s3.directions import S3Setting, S3SettingT
from penstock.models.s3.download import RANGE_SIZE_BYTES_MIN, S3DownloadModel, S3DownloadSetting
from penstock.models.s3.law import THREAD_COUNT_MAX
from penstock.models.s3.parts import PART_SIZE_BYTES_MAX, PART_SIZE_BYTES_MIN
from penstock.models.s3.transfer import S3TransferModel
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting, part_size_bytes_least
from penstock.units import MiB, format_bytes
from penstock.vocabulary import UNKNOWN, Context, Cost, Demand, Place, Tariff

TransferSetting: TypeAlias = S3UploadSetting | S3DownloadSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges(ABC):
    """The settings that a client accepts in one direction, both ends included."""

    thread_count_min: int = 1
    thread_count_max: int = 256

    def trouble(self, object_size_bytes: int, memory_bytes_max: int | None) -> str | None:
        """A sentence on why no setting within the ranges is possible for this size; None if one is."""
        if not 1 <= self.thread_count_min <= self.thread_count_max <= THREAD_COUNT_MAX:
            return f"threads go from 1 to {THREAD_COUNT_MAX}, the lower end first"
        if (wrong := self._size_trouble(object_size_bytes)) is not None:
            return wrong
        least = self.memory_bytes_least(object_size_bytes)
        if least <= (memory_bytes_max or inf):
            return None
        return f"every setting holds at least {format_bytes(least)} in memory, which is more than is allowed"

    def memory_bytes_least(self, object_size_bytes: int) -> int:
        """The least memory in bytes that a setting within the ranges needs.

        It has the fewest threads, with the smallest requests or with the largest. The largest need less if an object
        has fewer of them than there must be threads.
        """
        model: _OneClient[Any] = ranged_model(self)  # of either direction
        place = Place(operation=model.operation, region=UNKNOWN, instance_type=UNKNOWN)
        context = Context(place=place, payload_size_bytes=object_size_bytes)
        fewest: list[S3Setting] = [
            model.legal(context, model.setting(self.thread_count_min, size))
            for size in self.request_size_bytes_ends
        ]
        return min(setting.memory_bytes(object_size_bytes) for setting in fewest)

    @property
    @abstractmethod
    def request_size_bytes_ends(self) -> tuple[int, int]:
        """The smallest and the largest part or range."""

    @abstractmethod
    def _size_trouble(self, object_size_bytes: int) -> str | None:
        """Like `trouble`, for the sizes of requests alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRanges(Ranges):
    """The ranges of uploads."""

    part_size_bytes_min: int = PART_SIZE_BYTES_MIN
    part_size_bytes_max: int = 512 * MiB

    @property
    def request_size_bytes_ends(self) -> tuple[int, int]:
        return self.part_size_bytes_min, self.part_size_bytes_max

    def _size_trouble(self, object_size_bytes: int) -> str | None:
        least, most = self.part_size_bytes_min, self.part_size_bytes_max
        if not PART_SIZE_BYTES_MIN <= least <= most <= PART_SIZE_BYTES_MAX:
            return "S3 takes parts from 5MiB to 5GiB, and the lower end of a range comes first"
        if most < (needed := part_size_bytes_least(object_size_bytes)):
            size, part = format_bytes(object_size_bytes), format_bytes(needed)
            return f"an object has at most 10,000 parts: {size} needs parts of {part} or more"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadRanges(Ranges):
    """The ranges of downloads."""

    range_size_bytes_min: int = MiB
    range_size_bytes_max: int = 512 * MiB

    @property
    def request_size_bytes_ends(self) -> tuple[int, int]:
        return self.range_size_bytes_min, self.range_size_bytes_max

    def _size_trouble(self, object_size_bytes: int) -> str | None:
        del object_size_bytes
        if RANGE_SIZE_BYTES_MIN <= self.range_size_bytes_min <= self.range_size_bytes_max:
            return None
        return "a range has 4KiB or more, and the lower end comes first"


@dataclass(frozen=True, kw_only=True)  # without slots: the limits of the models are their own fields
class _OneClient(S3TransferModel[S3SettingT]):
    """A model for one client. Sizes are whole MiB if the ranges allow it, because every client accepts those.

    `avoided` are settings that are neither tried nor advised.
    """

    thread_count_min: int = 1
    avoided: frozenset[S3Setting] = frozenset()

    def legal(self, context: Context, setting: S3SettingT) -> S3SettingT:
        """The nearest setting within the ranges that S3 accepts; its requests may be larger than the object."""
        legal = super().legal(context, setting)
        low = max(self.request_size_bytes_min, self.size_bytes_least(context))
        return self.setting(
            min(max(legal.thread_count, self.thread_count_min), self.thread_count_max),
            _nearest_size_bytes(legal.request_size_bytes, low, self.request_size_bytes_max),
        )

    def ramp(self, context: Context) -> Sequence[S3SettingT]:
        """The model's ramp, moved into the ranges."""
        steps = [self.legal(context, step) for step in super().ramp(context)]
        return self._allowed(list(dict.fromkeys(steps)))

    def candidates(self, fit: Fit, context: Context, demand: Demand) -> Sequence[S3SettingT]:
        """The model's candidates, moved into the ranges."""
        size, memory_bytes_max = context.payload_size_bytes, demand.memory_bytes_max or inf
        moved = {self.legal(context, x) for x in super().candidates(fit, context, demand)}
        light = [x for x in moved if x.memory_bytes(size, demand.object_count) <= memory_bytes_max]
        least = self.legal(context, self.setting(1, 1))
        return self._allowed(sorted(light or [least], key=lambda x: (x.thread_count, x.request_size_bytes)))

    def probe_costs(
        self, fit: Fit, context: Context, settings: Sequence[S3SettingT], tariff: Tariff
    ) -> Sequence[Cost]:
        """Only the expected duration: a client moves the whole object whatever the setting."""
        del tariff
        rates = self.appraise(fit, context, settings, Demand()).value
        return [Cost(duration_seconds=context.payload_size_bytes / float(rate)) for rate in rates]

    def probe_seconds_min(self, fit: Fit, context: Context, setting: S3SettingT) -> float:
        """0: the caller bounds the client's time, and the seconds of a proposal are only its price."""
        del fit, context, setting
        return 0.0

    def _allowed(self, settings: list[S3SettingT]) -> list[S3SettingT]:
        """The settings without those to avoid; all of them if nothing else is left, because there must be an answer."""
        return [x for x in settings if x not in self.avoided] or settings


@dataclass(frozen=True, kw_only=True)
class RangedS3UploadModel(_OneClient[S3UploadSetting], S3UploadModel):
    """The model of uploads by one client."""


@dataclass(frozen=True, kw_only=True)
class RangedS3DownloadModel(_OneClient[S3DownloadSetting], S3DownloadModel):
    """The model of downloads by one client."""


def _nearest_size_bytes(wanted: int, low: int, high: int) -> int:
    """The size rounded up to whole MiB if the ends allow it; `low` takes precedence over `high`."""
    return max(min(ceil(max(wanted, low) / MiB) * MiB, high), low)


def ranged_model(
    ranges: Ranges, avoided: frozenset[TransferSetting] = frozenset()
) -> RangedS3UploadModel | RangedS3DownloadModel:
    """The model of the ranges' direction, restricted to them, without the settings to be avoided."""
    kind = RangedS3DownloadModel if isinstance(ranges, DownloadRanges) else RangedS3UploadModel
    size_min, size_max = ranges.request_size_bytes_ends
    return kind(
        thread_count_min=ranges.thread_count_min,
        thread_count_max=ranges.thread_count_max,
        request_size_bytes_min=size_min,
        request_size_bytes_max=size_max,
        avoided=avoided,
    )
