"""Knows how to make worlds that nobody has tuned against: surfaces drawn from a seed, each with its true limits.

There are two families of truth, neither of which is the product's law: the judge's queue of stations (`bench.physics`),
with ends and waves; and streams, whose connections are busy from the first byte to the last and whose knee is a power
mean, hard or soft. Off-model worlds are humps, middleboxes, tables, random fields and resonances of random size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import cache
from math import inf, log

import numpy as np

from bench.catalogue import (
    FAR,
    IN_REGION,
    MB,
    UPLOADS,
    Upload,
    flow_of,
    of_the_busy,
    proxied,
    random_field,
    resonating,
    tabled,
    two_humps,
)
from bench.physics import Array, Flow, Link
from bench.spread import log_uniform
from bench.surfaces import PROBE_EVERY, Field, Group, Noise, Split, Surface
from penstock.models.s3.upload import S3UploadSetting
from penstock.units import MiB

MOVED = 1.25  # factor by which each limit is raised and lowered, to see which of them binds a setting
TUNING_EVERY = timedelta(seconds=30)
TUNING_RHO = 0.992  # of the slow mode between probes thirty seconds apart: it lasts for an hour


class Weather(StrEnum):
    """How much measurements vary while nothing changes."""

    QUIET = "quiet"
    ORDINARY = "ordinary"
    STORMY = "stormy"


class Kind(StrEnum):
    """The sort of place."""

    FLAT = "flat"  # a hard ceiling that few connections reach
    STREAM = "stream"  # the same without ends and waves: always busy
    NEAR = "near"  # in the region: a ceiling softened by queues, and the cost of overload
    FAR = "far"
    REFUSING = "refusing"  # the store limits its requests
    PROCESSOR = "processor"
    OFF_MODEL = "off-model"


Scaled = Callable[[float], Field]  # a field with one limit multiplied by a factor


@dataclass(frozen=True)
class World:
    """A surface, its kind, and its field with each limit moved (none off the model)."""

    surface: Surface
    kind: Kind
    weather: Weather
    limits: Mapping[str, Scaled]

    def holds_back(self, setting: S3UploadSetting) -> dict[str, float]:
        """How much each limit matters at a setting: the log ratio of throughput with the limit raised and lowered."""
        n, s = np.array([float(setting.thread_count)]), np.array([float(setting.part_size_bytes)])
        return {
            name: log(float((scaled(MOVED)(n, s).throughput / scaled(1 / MOVED)(n, s).throughput)[0]))
            for name, scaled in self.limits.items()
        }


@cache
def fresh_worlds(seed: int, rounds: int = 1) -> tuple[World, ...]:
    """Each kind in each weather, `rounds` times; flat ones twice as often."""
    kinds = [*Kind, Kind.FLAT]
    return tuple(
        _world(seed, number, kind, weather)
        for number, (_, kind, weather) in enumerate(
            (turn, kind, weather) for turn in range(rounds) for kind in kinds for weather in Weather
        )
    )


def _world(seed: int, number: int, kind: Kind, weather: Weather) -> World:
    rng = np.random.default_rng([seed, number])
    group = {Kind.FLAT: Group.FLAT, Kind.STREAM: Group.FLAT, Kind.OFF_MODEL: Group.OFF_MODEL}
    size = round(log_uniform(rng, 256, 8192)) * MiB
    is_tuned = bool(rng.random() < 0.25)
    field, limits = _limited(_LINKS[kind](rng), size) if kind in _LINKS else _FIELDS[kind](rng, size)
    surface = Surface(
        name=f"{kind}-{weather}-{seed}-{number}",
        group=group.get(kind, Group.GENERIC),
        object_size_bytes=size,
        field=field,
        noise=_noise(rng, weather, is_tuned=is_tuned),
        tells_totals_alone=kind is Kind.STREAM or is_tuned,
        probe_every=TUNING_EVERY if is_tuned else PROBE_EVERY,
        region="ap-southeast-2" if kind is Kind.FAR else "eu-west-1",
        split=Split.HELD_OUT,
    )
    return World(surface, kind, weather, limits)


def _noise(rng: np.random.Generator, weather: Weather, *, is_tuned: bool) -> Noise:
    low, high, dips, slow = {
        Weather.QUIET: (0.02, 0.035, 0.0, 0.0),
        Weather.ORDINARY: (0.05, 0.10, 0.04, 0.0),
        Weather.STORMY: (0.10, 0.16, 0.08, 0.15),
    }[weather]
    few = rng.uniform(low, high)
    return Noise(
        cv_few_threads=few,
        cv_many_threads=few * rng.uniform(1.0, 2.0),
        dip_probability=dips * rng.uniform(0.5, 1.5),
        slow_sigma=slow * rng.uniform(0.5, 1.5),
        slow_rho=TUNING_RHO if is_tuned else 0.85,
    )


Made = tuple[Field, Mapping[str, Scaled]]


def _limited(link: Link, size: int) -> Made:
    """The field of a link, and how each of its limits is moved."""

    def connections(by: float) -> Field:
        paced = by * link.connection_bytes_per_second
        latency, service = link.rtt_seconds / by, link.service_seconds / by
        return Upload(
            replace(link, connection_bytes_per_second=paced, rtt_seconds=latency, service_seconds=service),
            size,
        )

    def host(by: float) -> Field:
        return Upload(replace(link, nic_bytes_per_second=by * link.nic_bytes_per_second), size)

    def processor(by: float) -> Field:
        request, byte = link.cpu_seconds_per_request / by, link.cpu_seconds_per_byte / by
        return Upload(replace(link, cpu_seconds_per_request=request, cpu_seconds_per_byte=byte), size)

    def requests(by: float) -> Field:
        return Upload(replace(link, request_rate_max=by * link.request_rate_max), size)

    return Upload(link, size), {
        "connections": connections,
        "host-ceiling": host,
        "client-cpu": processor,
        "request-rate": requests,
    }


def _flat(rng: np.random.Generator) -> Link:
    rate = log_uniform(rng, 1.5, 90) * MB
    return replace(
        IN_REGION,
        connection_bytes_per_second=rate,
        service_seconds=log_uniform(rng, 0.005, 0.06),
        nic_bytes_per_second=rate * log_uniform(rng, 2.2, 40),
        burstiness=rng.uniform(0.0, 0.3),
        overload_loss=0.0,
        mixing=rng.uniform(0.5, 0.95),
        cpu_seconds_per_byte=2e-10,
    )


def _stream(rng: np.random.Generator, size: int) -> Made:
    rate = log_uniform(rng, 1.5, 90) * MB
    ceiling, latency = rate * log_uniform(rng, 2.2, 40), log_uniform(rng, 0.003, 0.08)
    sharpness = float(rng.choice([3.0, 6.0, 12.0, inf]))
    return streaming(size, rate, ceiling, latency, sharpness), {
        "connections": lambda by: streaming(size, by * rate, ceiling, latency / by, sharpness),
        "host-ceiling": lambda by: streaming(size, rate, by * ceiling, latency, sharpness),
    }


def streaming(size: int, rate: float, ceiling: float, latency: float, sharpness: float) -> Field:
    """Connections that are never idle, without waves or ends: a power mean of their rates and the path's."""

    def field(n: Array, s: Array) -> Flow:
        busy = np.minimum(n, np.ceil(size / s))
        each = s / (latency + s / rate)
        carried = busy * each
        both = np.minimum(carried, ceiling)
        if sharpness < inf:
            ratio = np.minimum(carried / ceiling, ceiling / carried)
            both = both * (1.0 + ratio**sharpness) ** (-1.0 / sharpness)
        return flow_of(size, n, s, both)

    return field


def _near(rng: np.random.Generator) -> Link:
    rate = log_uniform(rng, 12, 60) * MB
    return replace(
        IN_REGION,
        connection_bytes_per_second=rate,
        service_seconds=log_uniform(rng, 0.008, 0.06),
        nic_bytes_per_second=rate * log_uniform(rng, 6, 80),
        burstiness=rng.uniform(0.2, 0.85),
        gust_part_count=log_uniform(rng, 1, 20),
        overload_loss=log_uniform(rng, 0.005, 0.2),
        mixing=rng.uniform(0.2, 0.9),
        straggle=rng.uniform(0.05, 0.25),
    )


def _far(rng: np.random.Generator) -> Link:
    return replace(
        FAR,
        rtt_seconds=log_uniform(rng, 0.06, 0.28),
        window_bytes=log_uniform(rng, 0.3, 4) * MB,
        nic_bytes_per_second=log_uniform(rng, 20, 600) * MB,
        burstiness=rng.uniform(0.1, 0.6),
        overload_loss=log_uniform(rng, 0.01, 0.4),
        overload_slack=rng.uniform(1.2, 2.5),
    )


def _refusing(rng: np.random.Generator) -> Link:
    rate = log_uniform(rng, 15, 60) * MB
    return replace(
        IN_REGION,
        connection_bytes_per_second=rate,
        nic_bytes_per_second=rate * log_uniform(rng, 20, 80),
        request_rate_max=log_uniform(rng, 8, 120),
        retry_loss=rng.uniform(0.4, 0.9),
    )


def _processor(rng: np.random.Generator) -> Link:
    return replace(
        IN_REGION,
        connection_bytes_per_second=log_uniform(rng, 15, 60) * MB,
        core_count=float(rng.choice([1.0, 2.0, 4.0])),
        cpu_seconds_per_request=log_uniform(rng, 0.0005, 0.03),
        cpu_seconds_per_byte=log_uniform(rng, 1.5e-9, 8e-9),
        switch_fraction=rng.uniform(0.0, 0.05),
        burstiness=rng.uniform(0.2, 0.7),
    )


def _off_model(rng: np.random.Generator, size: int) -> Made:
    near = replace(IN_REGION, nic_bytes_per_second=log_uniform(rng, 300, 2000) * MB)
    makers: list[Callable[[], Field]] = [
        lambda: _humps(rng, size),
        lambda: proxied(Upload(near, size), round(log_uniform(rng, 8, 90)), rng.uniform(0.25, 0.6)),
        lambda: random_field(size, int(rng.integers(2**31)), roughness=0.4, height=rng.uniform(0.4, 0.8)),
        lambda: resonating(Upload(near, size), rng.uniform(0.2, 0.5)),
        lambda: _table(rng, size),
    ]
    return of_the_busy(makers[int(rng.integers(len(makers)))](), size), {}


def _humps(rng: np.random.Generator, size: int) -> Field:
    low, high = log_uniform(rng, 3, 12), log_uniform(rng, 40, 200)
    return two_humps(size, low, high, rng.uniform(0.6, 1.0, 2), log_uniform(rng, 8, 128) * MiB)


def _table(rng: np.random.Generator, size: int) -> Field:
    """A rise that flattens, a peak, and a fall, as in measured tables."""
    peak = log_uniform(rng, 4, 100)
    slope, fall = rng.uniform(0.6, 1.0), rng.uniform(0.05, 0.6)
    counts = np.unique(np.round(2.0 ** np.arange(0.0, 8.01, 0.5)).astype(int))
    values = np.minimum(counts / peak, 1.0) ** slope * np.maximum(counts / peak, 1.0) ** -fall
    values *= np.exp(rng.normal(0.0, 0.05, len(counts)))
    return tabled(size, {int(n): float(60 * v) for n, v in zip(counts, values, strict=True)})


_LINKS: dict[Kind, Callable[[np.random.Generator], Link]] = {
    Kind.FLAT: _flat,
    Kind.NEAR: _near,
    Kind.FAR: _far,
    Kind.REFUSING: _refusing,
    Kind.PROCESSOR: _processor,
}
_FIELDS: dict[Kind, Callable[[np.random.Generator, int], Made]] = {
    Kind.STREAM: _stream,
    Kind.OFF_MODEL: _off_model,
}


@cache
def suite_worlds() -> tuple[World, ...]:
    """The catalogue's surfaces in the same form."""
    kinds = {Group.FLAT: Kind.FLAT, Group.OFF_MODEL: Kind.OFF_MODEL}
    return tuple(
        World(
            surface,
            kinds.get(surface.group, Kind.NEAR),
            Weather.ORDINARY,
            _limited(surface.field.link, surface.object_size_bytes)[1]
            if isinstance(surface.field, Upload)
            else {},
        )
        for surface in UPLOADS.surfaces
    )
