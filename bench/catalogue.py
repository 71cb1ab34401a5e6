"""Knows the judge's forty-eight upload surfaces, which half of them is for development, and the pairs and changes.

The groups: published tables (`calibrated`), today's hosts with each trouble in turn (`generic`), ceilings that are
reached early (`flat`), and shapes that no law of uploads would give (`off-model`).
"""

# ruff: noqa: E501  (the rows of its tables are read across)
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from math import pi
from typing import Any

import numpy as np

from bench import calibration
from bench.physics import Array, Flow, Link, download, upload
from bench.surfaces import DOWNLOADING, Field, Group, Noise, Split, Surface
from penstock.units import GiB, MiB

MB = 1e6
SPLIT_SEED = 20261121


@dataclass(frozen=True, slots=True)
class Upload:
    """The field of a link, by the judge's own simulation."""

    link: Link
    object_size_bytes: int

    def __call__(self, thread_count: Array, part_size_bytes: Array) -> Flow:
        """Noise-free flows."""
        return upload(self.link, self.object_size_bytes, thread_count, part_size_bytes)


class Download(Upload):
    """The same for downloads."""

    def __call__(self, thread_count: Array, range_size_bytes: Array) -> Flow:
        """Noise-free flows."""
        return download(self.link, self.object_size_bytes, thread_count, range_size_bytes)


def noise(cv_few: float, cv_many: float, dips: float, *, slow_sigma: float = 0.0) -> Noise:
    """In fractions: `noise(0.05, 0.12, 0.04)`."""
    return Noise(cv_few_threads=cv_few, cv_many_threads=cv_many, dip_probability=dips, slow_sigma=slow_sigma)


def uploading(name: str, group: Group, link: Link, size: int, chance: Noise, **rest: Any) -> Surface:
    """A surface of the simulation. The tuner is told the link's memory limit."""
    known = int(link.memory_bytes) if np.isfinite(link.memory_bytes) else None
    fields = {"memory_bytes_max": known, **rest}
    return Surface(
        name=name, group=group, object_size_bytes=size, field=Upload(link, size), noise=chance, **fields
    )


def downloading(name: str, group: Group, link: Link, size: int, chance: Noise, **rest: Any) -> Surface:
    """The same for downloads."""
    surface = uploading(name, group, link, size, chance, **rest)
    return replace(surface, field=Download(link, size), transfer=DOWNLOADING)


def halved(everything: list[Surface]) -> tuple[Surface, ...]:
    """The surfaces, half of each group marked as held out by a fixed seed."""
    held_out: set[str] = set()
    for index, group in enumerate(Group):
        names = [s.name for s in everything if s.group is group]
        order = np.random.default_rng([SPLIT_SEED, index]).permutation(len(names))
        held_out |= {names[i] for i in order[: (len(names) + 1) // 2]}
    return tuple(
        replace(s, split=Split.HELD_OUT if s.name in held_out else Split.DEVELOPMENT) for s in everything
    )


def varied(surface: Surface) -> Surface:
    """With a random pace and service time, by about a third up or down: no table describes a place exactly."""
    if not isinstance(surface.field, Upload):
        raise TypeError(f"{surface.name} has no link whose pace could vary")
    pace, service = np.random.default_rng([SPLIT_SEED, *map(ord, surface.name)]).lognormal(0.0, 0.3, 2)
    link = surface.field.link
    link = replace(
        link,
        connection_bytes_per_second=link.connection_bytes_per_second * float(pace),
        service_seconds=link.service_seconds * float(service),
    )
    return replace(surface, field=replace(surface.field, link=link))


def by_name(name: str) -> Surface:
    """An upload surface by its name."""
    return next(s for s in UPLOADS.surfaces if s.name == name)


def _calibrated() -> list[Surface]:
    c, g, mb512 = calibration, Group.CALIBRATED, round(512 * MB)
    p5 = {"part_size_bytes": 5 * MiB}
    hosts = {"region": "us-east-1"}
    return [
        uploading("cal-000-hdd", g, c.HDD, mb512, noise(0.05, 0.12, 0.04), thread_count_max=64, **p5),
        uploading("cal-000-ram-disk", g, c.RAM_DISK, mb512, noise(0.05, 0.15, 0.04), thread_count_max=120, **p5),
        uploading("cal-000-faster-client", g, c.XEON, mb512, noise(0.06, 0.14, 0.03), thread_count_max=120),
        uploading("cal-001-surge", g, c.SURGE, GiB, noise(0.10, 0.20, 0.06, slow_sigma=0.12), **hosts, instance_type="m1.small"),
        uploading("cal-002-colo-https", g, c.COLO_HTTPS, 512 * MiB, noise(0.06, 0.16, 0.05)),
        uploading("cal-002-colo-http", g, c.COLO_HTTP, 512 * MiB, noise(0.06, 0.16, 0.05)),
        uploading("cal-002-m1-xlarge", g, c.M1_XLARGE, GiB, noise(0.08, 0.20, 0.06), instance_type="m1.xlarge"),
        uploading("cal-002-cc1-4xlarge", g, c.CC1_4XLARGE, 4 * GiB, noise(0.06, 0.15, 0.04), **hosts, instance_type="cc1.4xlarge", nominal_nic_bytes_per_second=1.25e9),
        uploading("cal-004-ssl-upload", g, c.SSL_UPLOAD, GiB, noise(0.05, 0.10, 0.03), **hosts, instance_type="m1.large"),
        uploading("cal-004-ssl-download", g, c.SSL_DOWNLOAD, GiB, noise(0.05, 0.10, 0.03), thread_count_max=64, part_size_bytes=16 * MiB, **hosts, instance_type="m1.large"),
        uploading("cal-004-plain-download", g, c.PLAIN_DOWNLOAD, GiB, noise(0.05, 0.10, 0.03), thread_count_max=64, part_size_bytes=32 * MiB, **hosts, instance_type="m1.large"),
        uploading("cal-m5d-24xlarge", g, c.M5D_24XLARGE, 4 * GiB, noise(0.05, 0.10, 0.07), instance_type="m5d.24xlarge", nominal_nic_bytes_per_second=3.125e9),
        uploading("cal-c5n-9xlarge", g, c.C5N_9XLARGE, 4 * GiB, noise(0.05, 0.12, 0.07), instance_type="c5n.9xlarge", nominal_nic_bytes_per_second=6.25e9),
        uploading("cal-c5n-18xlarge-upload", g, c.C5N_18XLARGE_UPLOAD, 8 * GiB, noise(0.05, 0.15, 0.05), thread_count_max=1024, instance_type="c5n.18xlarge", nominal_nic_bytes_per_second=12.5e9),
        uploading("cal-cross-region", g, c.CROSS_REGION, GiB, noise(0.08, 0.16, 0.05), region="ap-northeast-2"),
        uploading("cal-nixl", g, c.NIXL, 64 * GiB, noise(0.05, 0.15, 0.04), thread_count_max=1024, nominal_nic_bytes_per_second=50e9),
    ]  # fmt: skip


IN_REGION = Link(
    rtt_seconds=0.001,
    service_seconds=0.024,
    connection_bytes_per_second=26 * MB,  # 20 to 35 are reported; this is the middle, not a prior's value
    nic_bytes_per_second=1.19e9,
    burstiness=0.3,
    cpu_seconds_per_request=0.0005,
    cpu_seconds_per_byte=1e-9,
    overload_loss=0.03,
)
FAR = replace(
    IN_REGION,
    rtt_seconds=0.15,
    connection_bytes_per_second=40 * MB,
    window_bytes=1.5 * MB,
    nic_bytes_per_second=312 * MB,
)


def _generic() -> list[Surface]:
    g = Group.GENERIC
    near = IN_REGION
    return [
        uploading("gen-10gbps", g, near, GiB, noise(0.05, 0.12, 0.04), instance_type="c5n.2xlarge", nominal_nic_bytes_per_second=1.25e9),
        uploading("gen-25gbps", g, replace(near, nic_bytes_per_second=2.9e9, burstiness=0.8, gust_part_count=20), 4 * GiB, noise(0.05, 0.15, 0.05), instance_type="c5n.4xlarge", nominal_nic_bytes_per_second=3.125e9),
        uploading("gen-cpu-bound", g, replace(near, core_count=2, cpu_seconds_per_byte=6e-9, switch_fraction=0.03, burstiness=0.7, gust_part_count=5), GiB, noise(0.06, 0.18, 0.04)),
        uploading("gen-requests-cost-cpu", g, replace(near, core_count=1, cpu_seconds_per_request=0.030, cpu_seconds_per_byte=1.5e-9), 2 * GiB, noise(0.06, 0.15, 0.03)),
        uploading("gen-far", g, FAR, GiB, noise(0.10, 0.20, 0.05, slow_sigma=0.15), region="ap-southeast-2"),
        uploading("gen-far-lossy", g, replace(FAR, overload_loss=0.35, overload_slack=1.2, window_bytes=0.8 * MB), 512 * MiB, noise(0.12, 0.28, 0.08), region="sa-east-1"),
        uploading("gen-dsl-collapse", g, replace(FAR, rtt_seconds=0.05, nic_bytes_per_second=6 * MB, overload_loss=0.5, overload_slack=1.5, window_bytes=0.25 * MB), 100 * MiB, noise(0.10, 0.25, 0.06), thread_count_max=64),
        uploading("gen-throttled-prefix", g, replace(near, request_rate_max=60.0, retry_loss=0.5), 4 * GiB, noise(0.06, 0.14, 0.04)),
        uploading("gen-throttled-store", g, replace(near, request_rate_max=12.0, retry_loss=0.8, connection_bytes_per_second=35 * MB), GiB, noise(0.08, 0.18, 0.05)),
        uploading("gen-small-memory", g, replace(near, memory_bytes=512 * MiB), 2 * GiB, noise(0.05, 0.14, 0.04)),
        uploading("gen-tiny-memory-far", g, replace(FAR, memory_bytes=256 * MiB), GiB, noise(0.08, 0.18, 0.05), region="ap-southeast-2"),
        uploading("gen-seeking-disk", g, replace(near, disk_bytes_per_second=160 * MB, seek_fraction=0.02), 2 * GiB, noise(0.08, 0.20, 0.05)),
        uploading("gen-small-object", g, replace(near, nic_bytes_per_second=600 * MB, burstiness=0.7, gust_part_count=3), 64 * MiB, noise(0.08, 0.20, 0.06)),
        uploading("gen-slow-complete", g, replace(near, complete_seconds=0.3, complete_seconds_per_part=0.01, nic_bytes_per_second=500 * MB), 512 * MiB, noise(0.06, 0.16, 0.04)),
    ]  # fmt: skip


def _flat() -> list[Surface]:
    g = Group.FLAT
    near = replace(IN_REGION, overload_loss=0.0, burstiness=0.05, mixing=0.9, cpu_seconds_per_byte=2e-10)
    return [
        uploading("flat-early-knee", g, replace(near, nic_bytes_per_second=90 * MB), GiB, noise(0.05, 0.10, 0.03), instance_type="c6i.large"),
        uploading("flat-baseline-0.78gbps", g, replace(near, nic_bytes_per_second=97 * MB, burstiness=0.5, gust_part_count=2), 2 * GiB, noise(0.06, 0.12, 0.05), instance_type="m6i.large"),
        uploading("flat-5gbps", g, replace(near, nic_bytes_per_second=620 * MB), 4 * GiB, noise(0.05, 0.12, 0.07), nominal_nic_bytes_per_second=625e6),
        uploading("flat-threads-only", g, replace(near, nic_bytes_per_second=300 * MB), 2 * GiB, noise(0.05, 0.15, 0.05), part_size_bytes=8 * MiB),
        uploading("flat-far", g, replace(FAR, overload_loss=0.0, burstiness=0.1, nic_bytes_per_second=60 * MB, mixing=0.8), 2 * GiB, noise(0.08, 0.16, 0.06), region="ap-southeast-2"),
        uploading("flat-express", g, replace(near, service_seconds=0.006, connection_bytes_per_second=110 * MB), 8 * GiB, noise(0.05, 0.10, 0.03), nominal_nic_bytes_per_second=1.25e9),
        uploading("flat-noisy", g, replace(near, nic_bytes_per_second=400 * MB), 4 * GiB, noise(0.15, 0.28, 0.08)),
        uploading("flat-m5d-threads-only", g, calibration.M5D_24XLARGE, 8 * GiB, noise(0.05, 0.10, 0.07), part_size_bytes=32 * MiB, instance_type="m5d.24xlarge", nominal_nic_bytes_per_second=3.125e9),
    ]  # fmt: skip


def _off_model() -> list[Surface]:
    near = replace(IN_REGION, nic_bytes_per_second=900 * MB)
    upload_table = {1: 6.9, 2: 14.2, 4: 23.6, 6: 37.6, 8: 48.0, 12: 53.8, 32: 52.0, 128: 47.0}
    disk_table = {
        1: 0.6,
        4: 2.6,
        6: 3.6,
        8: 4.5,
        10: 5.20,
        12: 5.9,
        14: 6.21,
        16: 5.7,
        18: 5.0,
        20: 4.6,
        32: 3.4,
        64: 2.2,
    }
    return [
        off("off-two-humps", GiB, two_humps(GiB, 6.0, 90.0, (1.0, 0.86)), noise(0.05, 0.12, 0.04)),
        off("off-two-humps-far-apart", 2 * GiB, two_humps(GiB, 4.0, 160.0, (0.8, 1.0)), noise(0.06, 0.16, 0.05)),
        off("off-proxy-48", 2 * GiB, proxied(Upload(near, 2 * GiB), 48, 0.35), noise(0.05, 0.12, 0.04)),
        off("off-proxy-16-threads-only", GiB, proxied(Upload(near, GiB), 16, 0.5), noise(0.05, 0.15, 0.05), part_size_bytes=8 * MiB),
        off("off-table-ssl-upload", GiB, tabled(GiB, upload_table), noise(0.05, 0.10, 0.04), thread_count_max=128, part_size_bytes=16 * MiB),
        off("off-table-hdd", round(512 * MB), tabled(round(512 * MB), disk_table), noise(0.05, 0.14, 0.04), thread_count_max=64, part_size_bytes=5 * MiB),
        off("off-field-smooth", GiB, random_field(GiB, 1, roughness=0.35, height=0.8), noise(0.05, 0.12, 0.03)),
        off("off-field-rugged", GiB, random_field(GiB, 2, roughness=0.7, height=0.5), noise(0.05, 0.12, 0.03)),
        off("off-resonance", 4 * GiB, resonating(Upload(near, 4 * GiB), 0.30), noise(0.05, 0.12, 0.04)),
        off("off-resonance-narrow", 2 * GiB, resonating(Upload(near, 2 * GiB), 0.45), noise(0.06, 0.16, 0.05)),
    ]  # fmt: skip


def off(name: str, size: int, field: Field, chance: Noise, **rest: Any) -> Surface:
    """A surface of the off-model group."""
    field = of_the_busy(field, size)
    return Surface(
        name=name, group=Group.OFF_MODEL, object_size_bytes=size, field=field, noise=chance, **rest
    )


def of_the_busy(inner: Field, size: int) -> Field:
    """Threads without a part to send change nothing."""

    def field(n: Array, s: Array) -> Flow:
        return inner(np.minimum(n, np.ceil(size / s)), s)

    return field


def flow_of(object_size_bytes: int, n: Array, s: Array, throughput: Array) -> Flow:
    """Part times by Little's law if nothing else is known: connections are busy for nearly all the time."""
    parts = np.ceil(object_size_bytes / s)
    part_seconds = 0.95 * np.minimum(n, parts) * object_size_bytes / throughput / parts
    none, unknown = np.zeros_like(throughput), np.full_like(throughput, np.nan)
    return Flow(throughput, part_seconds, none, none, unknown, unknown, unknown, unknown, unknown)


def two_humps(
    size: int, low: float, high: float, heights: Sequence[float] | Array, best: float = 24 * MiB
) -> Field:
    """Two good thread counts with a valley between them; a mild best part size."""

    def field(n: Array, s: Array) -> Flow:
        humps = heights[0] * np.exp(-(np.log2(n / low) ** 2) / 1.6)
        humps += heights[1] * np.exp(-(np.log2(n / high) ** 2) / 1.2)
        return flow_of(size, n, s, 150 * MB * (0.08 + humps) * np.exp(-(np.log2(s / best) ** 2) / 40))

    return field


def proxied(inner: Field, connection_count: int, left: float) -> Field:
    """A middlebox that serves only so many connections well; past that every one suffers."""

    def field(n: Array, s: Array) -> Flow:
        return inner(n, s).times(np.where(n > connection_count, left, 1.0))

    return field


def tabled(object_size_bytes: int, table: dict[int, float]) -> Field:
    """A digitised table (MB/s by threads), joined by straight lines over the logarithm of the thread count."""
    at, values = np.log2(np.array(list(table), float)), np.array(list(table.values()))

    def field(n: Array, s: Array) -> Flow:
        return flow_of(object_size_bytes, n, s, MB * np.interp(np.log2(n), at, values))

    return field


def random_field(object_size_bytes: int, seed: int, *, roughness: float, height: float) -> Field:
    """A smooth random field over both logarithms: sixty random cosines; `roughness` in cycles per octave."""
    rng = np.random.default_rng([SPLIT_SEED, seed])
    frequency = rng.normal(0, roughness, (60, 2))
    phase = rng.uniform(0, 2 * pi, 60)

    def field(n: Array, s: Array) -> Flow:
        place = np.stack([np.log2(n), np.log2(s / MiB)])
        waves = (
            np.cos(2 * pi * 0.5 * frequency @ place.reshape(2, -1) + phase[:, None]).sum(axis=0)
            * (2 / 60) ** 0.5
        )
        return flow_of(object_size_bytes, n, s, 200 * MB * np.exp(height * waves.reshape(n.shape)))

    return field


def resonating(inner: Field, depth: float) -> Field:
    """Parts that do not end on the store's own 16 MiB block pay for the rest of it."""

    def field(n: Array, s: Array) -> Flow:
        blocks = s / (16 * MiB)
        return inner(n, s).times(1.0 - depth * np.sin(pi * blocks) ** 2 / np.maximum(blocks, 1.0) ** 0.5)

    return field


class Neighbour(StrEnum):
    """What a warm start shares with its source."""

    SIZE = "size"
    INSTANCE = "instance"
    REGION = "region"
    WRONG = "wrong"  # called a neighbour, but is none


@dataclass(frozen=True, slots=True)
class WarmPair:
    """The tuner is given observations of `source` before its first probe of `target`."""

    name: str
    kind: Neighbour
    source: Surface
    target: Surface


Make = Callable[..., Surface]
"""`uploading` or `downloading`."""


def _of(make: Make, name: str, row: tuple[Link, int, str, str], chance: Noise) -> Surface:
    link, size, region, instance_type = row
    return make(name, Group.GENERIC, link, size, chance, region=region, instance_type=instance_type)


@dataclass(frozen=True, slots=True)
class Drift:
    """The surface before, and after twenty probes; to the tuner it is the same place."""

    name: str
    before: Surface
    after: Surface


Change = Callable[[Link], Link]
CHANGES: dict[str, Change] = {
    "nic-10x-down": lambda link: replace(link, nic_bytes_per_second=link.nic_bytes_per_second / 10),
    "nic-2x-down": lambda link: replace(link, nic_bytes_per_second=link.nic_bytes_per_second / 2),
    "new-tenant": lambda link: replace(link, nic_bytes_per_second=link.nic_bytes_per_second * 0.6, burstiness=0.8, gust_part_count=10, contention=link.contention + 0.004),
    "latency-3x": lambda link: replace(link, rtt_seconds=link.rtt_seconds * 3, service_seconds=link.service_seconds * 3),
    "new-throttle": lambda link: replace(link, request_rate_max=15.0, retry_loss=0.7),
    "knee-doubled": lambda link: replace(link, nic_bytes_per_second=link.nic_bytes_per_second * 2),
}  # fmt: skip


@dataclass(frozen=True)
class Suite:
    """All places of one direction: near and far hosts, and the surfaces by group."""

    near: Link
    far: Link
    make: Make
    groups: Callable[[], tuple[list[Surface], ...]]  # calibrated, generic, flat, off-model

    @cached_property
    def surfaces(self) -> tuple[Surface, ...]:
        """Each marked for development or held out."""
        calibrated, generic, flat, off_model = self.groups()
        return halved([*calibrated, *map(varied, generic), *map(varied, flat), *off_model])

    @cached_property
    def warm_pairs(self) -> tuple[WarmPair, ...]:
        """Three neighbours in size, three in instance, two in region, three wrong ones."""
        near, far, make = self.near, self.far, self.make
        slow = replace(near, nic_bytes_per_second=97 * MB)
        store = replace(
            near, connection_bytes_per_second=60 * MB, service_seconds=0.01, nic_bytes_per_second=2.9e9
        )
        bad = replace(far, nic_bytes_per_second=25 * MB, overload_loss=0.4, overload_slack=1.3)
        rows: list[tuple[str, Neighbour, tuple[Link, int, str, str], tuple[Link, int, str, str]]] = [
            ("1-to-4-gib", Neighbour.SIZE, (near, GiB, "eu-west-1", "c5n.2xlarge"), (near, 4 * GiB, "eu-west-1", "c5n.2xlarge")),
            ("1-gib-to-128-mib", Neighbour.SIZE, (near, GiB, "eu-west-1", "c5n.2xlarge"), (near, 128 * MiB, "eu-west-1", "c5n.2xlarge")),
            ("far-512-mib-to-4-gib", Neighbour.SIZE, (far, 512 * MiB, "ap-southeast-2", "m5.large"), (far, 4 * GiB, "ap-southeast-2", "m5.large")),
            ("nic-half", Neighbour.INSTANCE, (near, GiB, "eu-west-1", "c5n.2xlarge"), (replace(near, nic_bytes_per_second=560 * MB), GiB, "eu-west-1", "c5n.xlarge")),
            ("nic-double", Neighbour.INSTANCE, (near, 2 * GiB, "eu-west-1", "c5n.2xlarge"), (replace(near, nic_bytes_per_second=2.4e9), 2 * GiB, "eu-west-1", "c5n.4xlarge")),
            ("nic-a-twelfth", Neighbour.INSTANCE, (near, GiB, "eu-west-1", "c5n.2xlarge"), (slow, GiB, "eu-west-1", "m6i.large")),
            ("far-to-farther", Neighbour.REGION, (far, GiB, "ap-southeast-2", "m5.large"), (replace(far, rtt_seconds=0.22), GiB, "sa-east-1", "m5.large")),
            ("near-to-100-ms", Neighbour.REGION, (near, GiB, "eu-west-1", "c5n.2xlarge"), (replace(near, rtt_seconds=0.1, window_bytes=1.5 * MB), GiB, "us-west-2", "c5n.2xlarge")),
            ("wrong-throttled", Neighbour.WRONG, (near, GiB, "eu-west-1", "c5n.2xlarge"), (replace(near, request_rate_max=8.0, retry_loss=0.8), GiB, "eu-west-1", "c5n.2xlarge")),
            ("wrong-collapse", Neighbour.WRONG, (store, 2 * GiB, "eu-west-1", "c5n.4xlarge"), (bad, GiB, "eu-west-1", "c5n.2xlarge")),
            ("wrong-fast", Neighbour.WRONG, (bad, GiB, "eu-west-1", "m5.large"), (store, 2 * GiB, "eu-west-1", "m5.xlarge")),
        ]  # fmt: skip
        chance = noise(0.06, 0.15, 0.04)
        return tuple(
            WarmPair(
                name,
                kind,
                _of(make, f"warm-{name}-source", source, chance),
                _of(make, f"warm-{name}", target, chance),
            )
            for name, kind, source, target in rows
        )

    @cached_property
    def drifts(self) -> tuple[Drift, ...]:
        """Six changes on each of three hosts."""
        near, far, make = self.near, self.far, self.make
        hosts = {
            "near": (near, GiB),
            "slow": (
                replace(near, nic_bytes_per_second=310 * MB, burstiness=0.7, gust_part_count=6),
                2 * GiB,
            ),
            "far": (far, GiB),
        }
        chance = noise(0.05, 0.12, 0.04)
        return tuple(
            Drift(
                f"{host}-{change}",
                make(f"drift-{host}", Group.GENERIC, link, size, chance),
                make(f"drift-{host}", Group.GENERIC, alter(link), size, chance),
            )
            for host, (link, size) in hosts.items()
            for change, alter in CHANGES.items()
        )

    @cached_property
    def steady(self) -> tuple[Surface, ...]:
        """Places where nothing changes for two hundred probes: every alarm is false."""
        near, far, make = self.near, self.far, self.make
        return (
            self.drifts[0].before,
            make("steady-slow-mode", Group.GENERIC, far, GiB, noise(0.08, 0.18, 0.06, slow_sigma=0.10)),
            make(
                "steady-noisy", Group.GENERIC, replace(near, burstiness=0.7), 2 * GiB, noise(0.10, 0.25, 0.08)
            ),
        )


UPLOADS = Suite(IN_REGION, FAR, uploading, lambda: (_calibrated(), _generic(), _flat(), _off_model()))
