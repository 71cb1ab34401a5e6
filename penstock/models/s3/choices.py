"""Knows the settings of a transfer to choose from: what S3 accepts, how to begin, and what is worth trying."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Generic

from penstock.models.model import Fit
from penstock.models.s3.directions import REQUEST_SIZE_BYTES_MAX, Direction, S3SettingT, in_flight_count
from penstock.models.s3.law import THREAD_COUNT_MAX
from penstock.units import MiB
from penstock.vocabulary import Context, Demand

_THREADS = (1, 2, 3, 4, 5, 6, 7, 8)
_THREAD_RATIO = 1.13
_WAVE_COUNT_MAX = 4  # request sizes that make up to this many full waves are always considered
_RAMP_THREADS = (4, 16, 64, 256)
_RAMP_REQUEST_BYTES = 8 * MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Choices(ABC, Generic[S3SettingT]):
    """The settings of one direction. The fields limit which of them are ever considered."""

    thread_count_max: int = THREAD_COUNT_MAX
    request_size_bytes_min: int
    request_size_bytes_max: int

    @property
    @abstractmethod
    def setting_type(self) -> type[S3SettingT]:
        """The dataclass of threads and request size."""

    @abstractmethod
    def default_setting(self, context: Context) -> S3SettingT:
        """The SDK's default without advice."""

    @abstractmethod
    def size_bytes_least(self, context: Context) -> int:
        """The smallest request that S3 accepts for this payload."""

    @abstractmethod
    def request_sizes_bytes(self, context: Context, demand: Demand) -> Sequence[int]:
        """Request sizes worth considering for an object of this size, in ascending order."""

    @property
    def direction(self) -> Direction:
        """Which way the bytes go."""
        return self.setting_type.direction

    def setting(self, thread_count: int, request_size_bytes: int) -> S3SettingT:
        """A setting with these values, which need not be legal (see `legal`)."""
        size = {self.direction.size_knob: request_size_bytes}
        return self.setting_type(thread_count=thread_count, **size)

    def legal(self, context: Context, setting: S3SettingT) -> S3SettingT:
        """The nearest setting that S3 accepts for this payload, without requests larger than it; idempotent."""
        low = self.size_bytes_least(context)
        high = max(low, min(REQUEST_SIZE_BYTES_MAX, context.payload_size_bytes))
        return self.setting(
            round(min(max(setting.thread_count, 1), THREAD_COUNT_MAX)),
            round(min(max(setting.request_size_bytes, low), high)),
        )

    def advisable_default(self, fit: Fit, context: Context, demand: Demand) -> S3SettingT | None:
        """The SDK's default, limited to the threads that have work; None if it is outside the limits of the fields."""
        del fit
        low, high = self.request_size_bytes_min, self.request_size_bytes_max
        default = self.default_setting(context)
        own = self._useful(
            default.thread_count, default.request_size_bytes, max(context.payload_size_bytes, 1), demand
        )
        can_be_told = low <= own.request_size_bytes <= high and own.thread_count <= self.thread_count_max
        return own if can_be_told else None

    def payload_bytes(self, context: Context, demand: Demand) -> int:
        """The bytes that one transfer moves: those of the object, at least 1."""
        del demand
        return max(context.payload_size_bytes, 1)

    def ramp(self, context: Context) -> Sequence[S3SettingT]:
        """Four threads, then four times as many each time."""
        part = min(max(_RAMP_REQUEST_BYTES, self.request_size_bytes_min), self.request_size_bytes_max)
        threads = [n for n in _RAMP_THREADS if n <= self.thread_count_max] or [self.thread_count_max]
        return [self.legal(context, self.setting(n, part)) for n in threads]

    def candidates(self, fit: Fit, context: Context, demand: Demand) -> Sequence[S3SettingT]:
        """A grid of ratios, and also even part sizes, full waves, settings that fill the memory, and the SDK's default.

        Sorted by threads, then by request size.
        """
        size = max(context.payload_size_bytes, 1)
        threads = self._thread_ladder(demand)
        sizes = self.request_sizes_bytes(context, demand)
        pairs = {(n, s) for n in threads for s in sizes}
        pairs |= {(n, ceil(size / (n * m))) for n in threads for m in range(1, _WAVE_COUNT_MAX + 1)}
        if demand.memory_bytes_max is not None:
            held = {(demand.memory_bytes_max // min(s, size), s) for s in sizes}
            pairs |= {(n, s) for n, s in held if 1 <= n <= threads[-1]}
        own = self.advisable_default(fit, context, demand)
        if own is not None and own.thread_count <= threads[-1]:
            pairs.add((own.thread_count, own.request_size_bytes))
        settings = {
            self.legal(context, self._useful(n, s, size, demand))
            for n, s in pairs
            if sizes[0] <= s <= sizes[-1]
        }
        most = demand.memory_bytes_max or inf
        allowed = [x for x in settings if held_bytes(x, context, demand) <= most]
        least = self.legal(context, self.setting(1, sizes[0]))
        return sorted(allowed or [least], key=lambda x: (x.thread_count, x.request_size_bytes))

    def _useful(self, n: int, s: int, size: int, demand: Demand) -> S3SettingT:
        """The setting without threads that would have no request to make."""
        return self.setting(in_flight_count(self.setting(n, s), size, demand.object_count), s)

    def _thread_ladder(self, demand: Demand) -> list[int]:
        most = min(self.thread_count_max, demand.thread_count_max or THREAD_COUNT_MAX)
        ladder = [n for n in _THREADS if n <= most]
        while ladder[-1] < most:
            ladder.append(min(most, max(ladder[-1] + 1, round(ladder[-1] * _THREAD_RATIO))))
        return ladder


def held_bytes(setting: S3SettingT, context: Context, demand: Demand) -> int:
    """The bytes that buffers hold at a time."""
    return setting.memory_bytes(context.payload_size_bytes, demand.object_count)
