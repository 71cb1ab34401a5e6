"""Knows what a response surface is: a noise-free truth over settings, its optimum, and the noise of measuring it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from math import exp, isfinite, log, log2
from typing import Any, TypeAlias

import numpy as np

from bench.physics import Array, Flow
from penstock.models.inference.histogram import histogram_of
from penstock.models.s3.directions import S3Setting
from penstock.models.s3.download import S3DownloadSetting
from penstock.models.s3.upload import S3UploadSetting
from penstock.units import MiB
from penstock.vocabulary import UNKNOWN, Context, Observation, Place

PART_SIZES_ENUMERATED = 96
PARTS_TIMED_MAX = 4000
FIRST_PROBE_AT = datetime(2026, 1, 5, tzinfo=UTC)
PROBE_EVERY = timedelta(minutes=10)

Field = Callable[[Array, Array], Flow]  # of thread counts and part sizes


BenchSetting: TypeAlias = S3Setting  # of an upload or a download


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """How uploads and downloads differ for a tuner: the operation, its setting, the sizes to try, its terms."""

    operation: str
    setting_type: type[BenchSetting]
    request_size_bytes_low: int
    request_size_bytes_high: int
    noun: str  # of a request, in the names of measures
    moved_measure: str

    def setting(self, thread_count: int, request_size_bytes: int) -> BenchSetting:
        """The setting of the right type."""
        if self.setting_type is S3DownloadSetting:
            return S3DownloadSetting(thread_count=thread_count, range_size_bytes=request_size_bytes)
        return S3UploadSetting(thread_count=thread_count, part_size_bytes=request_size_bytes)


UPLOADING = Transfer(
    operation="s3_upload",
    setting_type=S3UploadSetting,
    request_size_bytes_low=5 * MiB,
    request_size_bytes_high=512 * MiB,
    noun="part",
    moved_measure="uploaded_bytes",
)
DOWNLOADING = Transfer(
    operation="s3_download",
    setting_type=S3DownloadSetting,
    request_size_bytes_low=MiB,
    request_size_bytes_high=256 * MiB,
    noun="range",
    moved_measure="downloaded_bytes",
)


class Group(StrEnum):
    """How the surface was made."""

    CALIBRATED = "calibrated"
    GENERIC = "generic"
    FLAT = "flat"
    OFF_MODEL = "off-model"


class Split(StrEnum):
    """Whether it may be used while a tuner is developed."""

    DEVELOPMENT = "development"
    HELD_OUT = "held-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The range that a tuner may use, which it is told beforehand."""

    object_size_bytes: int
    thread_count_max: int
    part_size_bytes_min: int
    part_size_bytes_max: int  # equal to the minimum if only threads can be chosen
    memory_bytes_max: int | None = None  # connections in use x part size may not exceed it
    transfer: Transfer = UPLOADING

    def clip(self, thread_count: float, part_size_bytes: float) -> BenchSetting:
        """The nearest legal setting; if memory is short, smaller parts first and then fewer threads."""
        n = round(min(max(thread_count, 1), self.thread_count_max))
        s = round(min(max(part_size_bytes, self.part_size_bytes_min), self.part_size_bytes_max))
        if self.memory_bytes_max is not None and n * s > self.memory_bytes_max:
            s = max(self.memory_bytes_max // n, self.part_size_bytes_min)
            n = max(1, min(n, self.memory_bytes_max // s))
        return self.transfer.setting(n, s)

    def even(self, thread_count: float, part_size_bytes: float) -> BenchSetting:
        """The same with the smallest parts of that number, so that the last one is not a mere rest."""
        setting = self.clip(thread_count, part_size_bytes)
        part_count = -(-self.object_size_bytes // setting.request_size_bytes)
        return self.clip(setting.thread_count, -(-self.object_size_bytes // part_count))


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceDescription:
    """Everything that an operator could know about a surface without measuring."""

    context: Context
    limits: Limits
    nominal_nic_bytes_per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Log-normal noise, wider with more threads, with one-sided dips; on some surfaces a slow common mode."""

    cv_few_threads: float
    cv_many_threads: float
    dip_probability: float
    dip_low: float = 0.25
    dip_high: float = 0.75
    slow_sigma: float = 0.0
    slow_rho: float = 0.85
    part_cv: float = 0.25

    def cv(self, thread_count: int, thread_count_max: int) -> float:
        """Coefficient of variation of a probe without its dips."""
        share = log2(thread_count) / max(log2(thread_count_max), 1.0)
        return self.cv_few_threads + (self.cv_many_threads - self.cv_few_threads) * min(share, 1.0)

    def times(self, share: float) -> Noise:
        """The same with this share of its variation, and without dips."""
        return replace(
            self,
            cv_few_threads=share * self.cv_few_threads,
            cv_many_threads=share * self.cv_many_threads,
            dip_probability=0.0,
            slow_sigma=share * self.slow_sigma,
        )

    def factor(self, thread_count: int, thread_count_max: int, rng: np.random.Generator) -> float:
        """The factor on one probe's throughput; 1 on average, apart from dips."""
        sigma = log(1 + self.cv(thread_count, thread_count_max) ** 2) ** 0.5
        draw, dips, depth = rng.normal(), rng.random(), rng.uniform(self.dip_low, self.dip_high)
        return exp(sigma * draw - sigma**2 / 2) * (depth if dips < self.dip_probability else 1.0)


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best of the legal grid, and the fewest connections that reach 95 % of it."""

    setting: BenchSetting
    bytes_per_second: float
    n95: int


@dataclass(frozen=True, kw_only=True)
class Surface:
    """One place, one object size, and the truth about it. Without slots, for `cached_property`."""

    name: str
    group: Group
    object_size_bytes: int
    field: Field
    noise: Noise
    thread_count_max: int = 256
    part_size_bytes: int | None = None  # fixed: only threads can be chosen
    region: str = "eu-west-1"
    instance_type: str = UNKNOWN
    nominal_nic_bytes_per_second: float | None = None
    memory_bytes_max: int | None = None
    probe_every: timedelta = PROBE_EVERY
    tells_totals_alone: bool = False  # only bytes and seconds, as from somebody else's client
    split: Split = Split.DEVELOPMENT
    transfer: Transfer = UPLOADING

    @cached_property
    def limits(self) -> Limits:
        """What a tuner is told."""
        fixed = self.part_size_bytes
        return Limits(
            object_size_bytes=self.object_size_bytes,
            thread_count_max=self.thread_count_max,
            part_size_bytes_min=fixed or min(self.transfer.request_size_bytes_low, self.object_size_bytes),
            part_size_bytes_max=fixed or min(self.transfer.request_size_bytes_high, self.object_size_bytes),
            memory_bytes_max=self.memory_bytes_max,
            transfer=self.transfer,
        )

    @cached_property
    def context(self) -> Context:
        """Place and size, as the product names them."""
        place = Place(operation=self.transfer.operation, region=self.region, instance_type=self.instance_type)
        return Context(place=place, payload_size_bytes=self.object_size_bytes)

    @cached_property
    def description(self) -> SurfaceDescription:
        """What is known without measuring."""
        return SurfaceDescription(
            context=self.context,
            limits=self.limits,
            nominal_nic_bytes_per_second=self.nominal_nic_bytes_per_second,
        )

    def part_count(self, setting: BenchSetting) -> int:
        """Requests that carry the object's bytes."""
        return -(-self.object_size_bytes // setting.request_size_bytes)

    def connections(self, setting: BenchSetting) -> int:
        """How many connections the setting actually uses."""
        return min(setting.thread_count, self.part_count(setting))

    def flow(self, setting: BenchSetting) -> Flow:
        """Everything about one setting, without noise; arrays of length one."""
        return self.field(
            np.array([float(setting.thread_count)]), np.array([float(setting.request_size_bytes)])
        )

    def truth(self, setting: BenchSetting) -> float:
        """Bytes per second without noise."""
        return float(self.flow(setting).throughput[0])

    def regret(self, setting: BenchSetting) -> float:
        """1 - truth / best: 0 is perfect."""
        return max(0.0, 1.0 - self.truth(setting) / self.optimum.bytes_per_second)

    @cached_property
    def grid(self) -> tuple[Array, Array]:
        """All legal pairs to enumerate: thread counts and part sizes."""
        threads = np.arange(1, self.thread_count_max + 1, dtype=float)
        if self.thread_count_max > 256:
            steps = np.unique(np.round(np.geomspace(128, self.thread_count_max, 160)))
            threads = np.concatenate([threads[:128], steps[steps > 128]])
        n, s = np.meshgrid(threads, self._part_sizes(), indexing="ij")
        n, s = n.ravel(), s.ravel()
        if self.memory_bytes_max is None:
            return n, s
        brim = np.clip(self.memory_bytes_max // threads, s.min(), s.max())  # the largest in memory
        n, s = np.concatenate([n, threads]), np.concatenate([s, brim])
        legal = n * s <= self.memory_bytes_max
        return n[legal], s[legal]

    def _part_sizes(self) -> Array:
        """The smallest part for each part count, and as many sizes that leave a smaller last part."""
        low, high = self.limits.part_size_bytes_min, self.limits.part_size_bytes_max
        if low == high:
            return np.array([float(low)])
        fewest, most = -(-self.object_size_bytes // high), -(-self.object_size_bytes // low)
        counts = np.arange(fewest, most + 1)
        if counts.size > PART_SIZES_ENUMERATED:
            counts = np.unique(np.round(np.geomspace(fewest, most, PART_SIZES_ENUMERATED)).astype(int))
        even = np.clip(np.ceil(self.object_size_bytes / counts), low, high)
        return np.unique(np.concatenate([even, np.round(np.geomspace(low, high, PART_SIZES_ENUMERATED))]))

    @cached_property
    def grid_values(self) -> Array:
        """Bytes per second of each pair of the grid."""
        return self.field(*self.grid).throughput

    @cached_property
    def optimum(self) -> Optimum:
        """By enumeration of the grid."""
        (n, s), values = self.grid, self.grid_values
        best = int(np.argmax(values))
        connections = np.minimum(n, np.ceil(self.object_size_bytes / s))
        good = values >= 0.95 * values[best]
        setting = self.transfer.setting(int(n[best]), int(s[best]))
        return Optimum(setting, float(values[best]), int(connections[good].min()))

    def measure(
        self, setting: BenchSetting, rng: np.random.Generator, *, probe_index: int = 0, slow: float = 1.0
    ) -> Observation[Any]:
        """One probe: the truth with noise. `slow` is the common mode of a `Session`."""
        factor = slow * self.noise.factor(setting.thread_count, self.thread_count_max, rng)
        at = FIRST_PROBE_AT + probe_index * self.probe_every
        return self._observation(setting, self.flow(setting), factor, rng, at)

    def _observation(
        self, setting: BenchSetting, flow: Flow, factor: float, rng: np.random.Generator, at: datetime
    ) -> Observation[Any]:
        part_count = self.part_count(setting)
        seconds = self.object_size_bytes / (float(flow.throughput[0]) * factor)
        parts = self._timed_parts(float(flow.part_seconds[0]) / factor, part_count, seconds, rng)
        throttled = int(rng.binomial(part_count, min(float(flow.throttled_fraction[0]), 0.95)))
        return Observation(
            context=self.context,
            setting=setting,
            started_at=at,
            duration_seconds=seconds,
            transferred_bytes=self.object_size_bytes,
            request_count=part_count + (2 if part_count > 1 else 0) + throttled,
            throttled_count=throttled,
            latency_seconds_mean=float(parts.mean()),
            latency_seconds_p50=float(np.quantile(parts, 0.5)),
            latency_seconds_p99=float(np.quantile(parts, 0.99)),
            client_cpu_fraction=float(flow.cpu_fraction[0]) * factor,
            measures={} if self.tells_totals_alone else self._measures(setting, parts, flow, factor, rng),
            histograms={} if self.tells_totals_alone else {"request_seconds": histogram_of(parts)},
        )

    def _measures(
        self, setting: BenchSetting, parts: Array, flow: Flow, factor: float, rng: np.random.Generator
    ) -> dict[str, float]:
        """The measures under the names of the product's own probe; what the surface does not know is absent."""
        part_count, noun = float(self.part_count(setting)), self.transfer.noun
        also = rng.lognormal(0.0, [0.3, 0.3, 0.03])
        found = {
            f"{noun}_count": part_count,
            f"object_{noun}_count": part_count,
            "connection_count": float(self.connections(setting)),
            f"{noun}_seconds_mean": float(parts.mean()),
            f"{noun}_seconds_p50": float(np.quantile(parts, 0.5)),
            f"{noun}_seconds_p90": float(np.quantile(parts, 0.9)),
            "first_byte_seconds_mean": float(flow.first_byte_seconds[0] * also[0] ** 0.5),
            self.transfer.moved_measure: float(self.object_size_bytes),
            "attempted_bytes": float(self.object_size_bytes),
            "client_cpu_demand_fraction": float(flow.cpu_demand_fraction[0]) * factor,
            "create_seconds": float(flow.create_seconds[0] * also[0]),
            "complete_seconds": float(flow.complete_seconds[0] * also[1]),
            "steady_throughput_bytes_per_second": float(flow.steady_throughput[0] * factor * also[2]),
        }
        return {name: value for name, value in found.items() if isfinite(value)}

    def _timed_parts(
        self, mean_seconds: float, part_count: int, seconds: float, rng: np.random.Generator
    ) -> Array:
        """Times of single parts, around a mean that agrees with the upload's duration; none exceeds that.

        None is late by chance: the truth is about typical requests.
        """
        count = min(part_count, PARTS_TIMED_MAX)
        sigma = log(1 + self.noise.part_cv**2) ** 0.5
        spread = np.exp(rng.normal(-(sigma**2) / 2, sigma, count))
        times = mean_seconds * spread / spread.mean()
        return np.asarray(np.minimum(times, seconds))


class Session:
    """A series of probes of one surface with its own seed: the same for every tuner.

    Probe i draws from (surface, seed, i), so a tuner's earlier choices do not change its later luck.
    """

    def __init__(self, surface: Surface, seed: int) -> None:
        self.surface = surface
        self._key = (sum(ord(c) * 31**i for i, c in enumerate(surface.name)) % 2**32, seed)
        self.slow_log = 0.0  # of the last probe, in standard units
        self.probe_count = 0
        self.seconds = 0.0
        self.bytes = 0

    def measure(self, setting: BenchSetting) -> Observation[Any]:
        """The next probe."""
        noise, rng = self.surface.noise, np.random.default_rng([*self._key, self.probe_count])
        innovation = (1 - noise.slow_rho**2) ** 0.5 * rng.normal()
        self.slow_log = noise.slow_rho * self.slow_log + innovation
        slow = exp(noise.slow_sigma * self.slow_log)
        observation = self.surface.measure(setting, rng, probe_index=self.probe_count, slow=slow)
        self.probe_count += 1
        self.seconds += observation.duration_seconds
        self.bytes += observation.transferred_bytes
        return observation
