"""Knows a small world of uploads with a law of its own, and makes observations of it by naming only what matters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil, exp

import numpy as np

from penstock.models.s3.directions import S3SettingT
from penstock.models.s3.upload import S3UploadSetting
from penstock.units import GiB, MiB
from penstock.vocabulary import UNKNOWN, Context, Observation, Place

FIRST_AT = datetime(2026, 1, 5, tzinfo=UTC)


def a_place(
    *, region: str = "eu-west-1", instance_type: str = UNKNOWN, service_class: str = "standard"
) -> Place:
    """A place for uploads."""
    return Place(
        operation="s3_upload", region=region, instance_type=instance_type, service_class=service_class
    )


def a_context(*, size: int = 2 * GiB, place: Place | None = None) -> Context:
    """A context for uploads."""
    return Context(place=place or a_place(), payload_size_bytes=size)


def a_setting(threads: int, part_mib: float = 8) -> S3UploadSetting:
    """A setting in the units that people use."""
    return S3UploadSetting(thread_count=threads, part_size_bytes=round(part_mib * MiB))


@dataclass(frozen=True)
class UploadWorld:
    """Connections that share a host: min(n s / (L + s/B), C), and seconds at the end of each object."""

    request_seconds: float = 0.04
    connection_bytes_per_second: float = 15e6
    host_bytes_per_second: float = 600e6
    object_seconds: float = 0.15
    noise: float = 0.03
    place: Place = field(default_factory=a_place)
    size: int = 2 * GiB

    @property
    def context(self) -> Context:
        """Where the world is."""
        return a_context(size=self.size, place=self.place)

    def truth(self, setting: S3UploadSetting) -> float:
        """Bytes per second of a whole object, without noise."""
        return self.size / self._seconds(setting)[1]

    def _seconds(self, setting: S3UploadSetting) -> tuple[float, float]:
        """Of one part, and of the object."""
        s = min(setting.part_size_bytes, self.size)
        parts = ceil(self.size / s)
        n = min(setting.thread_count, parts)
        rate = n * s / (self.request_seconds + s / self.connection_bytes_per_second)
        rate = (rate**-12 + self.host_bytes_per_second**-12) ** (-1 / 12)
        return n * s / rate, self.size / rate + self.object_seconds

    def observe(
        self,
        setting: S3UploadSetting,
        index: int,
        *,
        factor: float = 1.0,
        seed: int = 0,
        throttled_count: int = 0,
    ) -> Observation[S3UploadSetting]:
        """Probe number `index`, slowed by `factor`."""
        draw = np.random.default_rng([seed, index]).standard_normal()
        part_seconds, seconds = (
            value / (factor * exp(self.noise * draw)) for value in self._seconds(setting)
        )
        parts = ceil(self.size / min(setting.part_size_bytes, self.size))
        return an_observation(
            setting,
            context=self.context,
            index=index,
            seconds=seconds,
            throttled_count=throttled_count,
            measures={"part_count": float(parts), "part_seconds_mean": part_seconds},
        )


def an_observation(
    setting: S3SettingT,
    *,
    context: Context | None = None,
    index: int = 0,
    seconds: float = 10.0,
    transferred_bytes: int | None = None,
    throttled_count: int = 0,
    client: str = "penstock",
    measures: Mapping[str, float] | None = None,
) -> Observation[S3SettingT]:
    """An observation of a whole object, unless bytes are given."""
    context = context or a_context()
    sent = context.payload_size_bytes if transferred_bytes is None else transferred_bytes
    return Observation(
        context=context,
        setting=setting,
        started_at=FIRST_AT + timedelta(minutes=10 * index),
        duration_seconds=seconds,
        transferred_bytes=sent,
        request_count=ceil(sent / setting.request_size_bytes) + throttled_count,
        throttled_count=throttled_count,
        client=client,
        measures=measures or {},
    )


def in_waves(
    threads: int, index: int, *, waves: int | None = None, size: int = 256 * MiB
) -> Observation[S3UploadSetting]:
    """A probe whose parts go in step, of the whole object or of so many full waves."""
    setting, context = a_setting(threads), a_context(size=size)
    parts = ceil(size / setting.part_size_bytes)
    wave_seconds = 0.04 + setting.part_size_bytes / 15e6
    sent = size if waves is None else waves * threads * setting.part_size_bytes
    moving_seconds = wave_seconds * (waves or ceil(parts / threads))
    return an_observation(
        setting,
        context=context,
        index=index,
        seconds=moving_seconds + 0.15,
        transferred_bytes=sent,
        measures={
            "part_count": sent / setting.part_size_bytes,
            "part_seconds_mean": wave_seconds,
            "object_part_count": float(parts),
            "steady_throughput_bytes_per_second": threads * setting.part_size_bytes / wave_seconds,
            "create_seconds": 0.05,
            "complete_seconds": 0.1,
        },
    )


DESIGN = [
    a_setting(*pair) for pair in ((4, 8), (16, 8), (64, 8), (200, 8), (48, 16), (32, 8), (90, 5), (40, 12))
]


def history(
    world: UploadWorld, count: int, *, first: int = 0, seed: int = 0
) -> list[Observation[S3UploadSetting]]:
    """Probes of the design, round and round."""
    return [world.observe(DESIGN[i % len(DESIGN)], i, seed=seed) for i in range(first, first + count)]
