"""Knows a small world of downloads with a law of its own, and makes observations of it by naming only what matters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, exp

import numpy as np

from penstock.models.s3.download import S3DownloadSetting
from penstock.units import GiB, MiB
from penstock.vocabulary import UNKNOWN, Context, Observation, Place
from tests.unit.models.s3.upload_world import an_observation


def a_place(*, region: str = "eu-west-1", instance_type: str = UNKNOWN) -> Place:
    """A place for downloads."""
    return Place(operation="s3_download", region=region, instance_type=instance_type)


def a_context(*, size: int = GiB, place: Place | None = None) -> Context:
    """A context for downloads."""
    return Context(place=place or a_place(), payload_size_bytes=size)


def a_setting(threads: int, range_mib: float = 8) -> S3DownloadSetting:
    """A setting in the units that people use."""
    return S3DownloadSetting(thread_count=threads, range_size_bytes=round(range_mib * MiB))


@dataclass(frozen=True)
class DownloadWorld:
    """Connections that share a host: min(n s / (L + s/B), C)."""

    first_byte_seconds: float = 0.03
    connection_bytes_per_second: float = 80e6
    host_bytes_per_second: float = 1.2e9
    noise: float = 0.03
    place: Place = field(default_factory=a_place)
    size: int = GiB

    @property
    def context(self) -> Context:
        """Where the world is."""
        return a_context(size=self.size, place=self.place)

    def rate(self, thread_count: int, request_size_bytes: int) -> float:
        """Bytes per second with so many requests of a size on their way."""
        alone = self.first_byte_seconds + request_size_bytes / self.connection_bytes_per_second
        rate = thread_count * request_size_bytes / alone
        return float((rate**-12 + self.host_bytes_per_second**-12) ** (-1 / 12))

    def truth(self, setting: S3DownloadSetting) -> float:
        """Bytes per second of a whole object, without noise: waves that dissolve into a flow."""
        s = min(setting.range_size_bytes, self.size)
        return self.rate(min(setting.thread_count, ceil(self.size / s)), s)

    def observe(
        self,
        setting: S3DownloadSetting,
        index: int,
        measures: Mapping[str, float] | None = None,
        *,
        seed: int = 0,
    ) -> Observation[S3DownloadSetting]:
        """Probe number `index`, with further measures."""
        draw = np.random.default_rng([seed, index]).standard_normal()
        s = min(setting.range_size_bytes, self.size)
        ranges = ceil(self.size / s)
        n = min(setting.thread_count, ranges)
        rate = self.rate(n, s) * exp(self.noise * draw)
        usual = {
            "range_count": float(ranges),
            "range_seconds_mean": n * s / rate,
            "first_byte_seconds_mean": self.first_byte_seconds,
        }
        return an_observation(
            setting,
            context=self.context,
            index=index,
            seconds=self.size / rate,
            measures={**usual, **(measures or {})},
        )


DESIGN = [
    a_setting(*pair) for pair in ((4, 8), (16, 8), (48, 8), (24, 16), (10, 32), (64, 4), (32, 8), (96, 8))
]


def history(world: DownloadWorld, count: int, *, seed: int = 0) -> list[Observation[S3DownloadSetting]]:
    """Probes of the design, round and round."""
    return [world.observe(DESIGN[i % len(DESIGN)], i, seed=seed) for i in range(count)]
