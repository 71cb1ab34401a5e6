"""The baselines must be what their authors published, legal, and repeatable."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest

from bench.catalogue import UPLOADS, by_name
from bench.downloads import DOWNLOADS
from bench.surfaces import BenchSetting, Limits, Session, SurfaceDescription
from bench.tuners import (
    BASELINES,
    READERS,
    AwsRequestRule,
    AzCopyClimb,
    Boto3Default,
    CrtRule,
    MinioAutotune,
    Tuner,
)
from penstock.models.s3.upload import S3UploadSetting
from penstock.units import GiB, MiB
from penstock.vocabulary import Context, Observation, Place

pytestmark = pytest.mark.filterwarnings("ignore:The objective has been evaluated")
PLACE = Place(operation="s3_upload", region="eu-west-1", instance_type="unknown")


def a_description(*, nic: float | None = None, thread_count_max: int = 256) -> SurfaceDescription:
    """A place of which little is known."""
    limits = Limits(
        object_size_bytes=GiB,
        thread_count_max=thread_count_max,
        part_size_bytes_min=5 * MiB,
        part_size_bytes_max=512 * MiB,
    )
    return SurfaceDescription(
        context=Context(place=PLACE, payload_size_bytes=GiB), limits=limits, nominal_nic_bytes_per_second=nic
    )


def an_observation(setting: BenchSetting, megabytes_per_second: float) -> Observation[Any]:
    """A probe that went as fast as it says."""
    return Observation(
        context=Context(place=PLACE, payload_size_bytes=GiB),
        setting=setting,
        started_at=datetime(2026, 1, 5, tzinfo=UTC),
        duration_seconds=GiB / (megabytes_per_second * 1e6),
        transferred_bytes=GiB,
        request_count=100,
        latency_seconds_mean=0.5,
    )


def threads_asked(tuner: Tuner, speeds: dict[int, float], count: int) -> list[int]:
    """The thread counts of the first probes on a curve that is linear up to each listed point and flat after."""
    asked = []
    for _ in range(count):
        setting = tuner.ask(0)
        asked.append(setting.thread_count)
        best = max((v for n, v in speeds.items() if n <= setting.thread_count), default=1.0)
        tuner.tell(an_observation(setting, best))
    return asked


AVAILABLE = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            name == "optuna-tpe" and importlib.util.find_spec("optuna") is None,
            reason="Optuna is installed with the benchmarks only",
        ),
    )
    for name in BASELINES | READERS
]


@pytest.mark.parametrize("name", AVAILABLE)
@pytest.mark.parametrize("place", ["gen-tiny-memory-far", "cal-000-hdd", "in-tiny-memory-far"])
def test_probes_and_advice_stay_legal(name: str, place: str) -> None:
    """Every probe and every recommendation is within the limits that were told, of uploads and of downloads."""
    surface = next(s for s in (*UPLOADS.surfaces, *DOWNLOADS.surfaces) if s.name == place)
    tuner, session, limits = (
        (BASELINES | READERS)[name](surface.description),
        Session(surface, 1),
        surface.limits,
    )
    for _ in range(9):
        setting = tuner.ask(1)
        tuner.tell(session.measure(setting))
        for one in (setting, tuner.recommend()):
            assert 1 <= one.thread_count <= limits.thread_count_max
            assert limits.part_size_bytes_min <= one.request_size_bytes <= limits.part_size_bytes_max
            assert one.thread_count * one.request_size_bytes <= (limits.memory_bytes_max or inf)


@pytest.mark.parametrize("name", AVAILABLE)
def test_same_seed_same_probes(name: str) -> None:
    """A run can be repeated exactly."""
    surface = by_name("flat-5gbps")

    def asked() -> list[BenchSetting]:
        tuner, session, settings = (BASELINES | READERS)[name](surface.description), Session(surface, 2), []
        for _ in range(8):
            settings.append(tuner.ask(2))
            tuner.tell(session.measure(settings[-1]))
        return [*settings, tuner.recommend()]

    assert asked() == asked()


def test_rules_give_their_published_numbers() -> None:
    """boto3: 10 x 8 MiB; CRT: 25 connections for an unknown host, 63 for 25 Gbit/s; AWS: 15 requests for 10."""
    unknown, fast = a_description(), a_description(nic=25e9 / 8)
    assert Boto3Default(unknown).recommend() == S3UploadSetting(thread_count=10, part_size_bytes=8 * MiB)
    assert CrtRule(unknown).recommend().thread_count == 25
    assert CrtRule(fast).recommend().thread_count == 63
    assert AwsRequestRule(unknown).recommend().thread_count == 15


def test_azcopy_climbs_backs_off_and_locks() -> None:
    """Times four while it pays, back to the last good, times two, times 1.2, then never again."""
    curve = {1: 10.0, 4: 40.0, 16: 160.0}  # nothing gained past 16
    asked = threads_asked(AzCopyClimb(a_description()), curve, 9)
    assert asked == [4, 16, 64, 16, 32, 16, 19, 16, 16]


def test_azcopy_locks_at_the_ceiling() -> None:
    """Where every rung pays it stops at the most threads there may be."""
    tuner = AzCopyClimb(a_description(thread_count_max=64))
    curve = {n: 10.0 * n for n in (4, 16, 64)}
    assert threads_asked(tuner, curve, 5) == [4, 16, 64, 64, 64]
    assert tuner.is_locked


def test_minio_stops_where_the_gain_is_small() -> None:
    """Half as many again until less than 2.5 % is gained; it advises the best rung."""
    tuner = MinioAutotune(a_description())
    assert threads_asked(tuner, {32: 100.0, 48: 140.0, 72: 141.0}, 5) == [32, 48, 72, 72, 72]
    assert tuner.recommend().thread_count == 72
