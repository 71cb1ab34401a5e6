"""A store that takes gigabytes and then refuses for minutes: probes miss it, and those who are refused tell."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from penstock.lab.s3 import S3Error, S3Service
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.lab.worlds import IMPATIENT
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.optimizer.deliberation import Case, deliberate
from penstock.units import GiB, MiB
from penstock.vocabulary import Context, Observation, Origin, Place, Recommendation
from tests.factories import recommended

MODEL = S3UploadModel()
PLACE = Place(operation="s3_upload", region="lab-1", instance_type="unknown")
BEGUN_AT = datetime(2026, 1, 5, tzinfo=UTC)
ASKED_AGAIN_AFTER_SECONDS = 5.0
RESTED_SECONDS = 1800.0
PROBED = ((4, 8), (16, 8), (32, 8), (64, 16), (20, 16), (24, 32), (48, 8), (12, 16))  # threads, MiB


async def moved(
    service: S3Service,
    clock: VirtualClock,
    setting: S3UploadSetting,
    transferred_bytes: int,
    origin: Origin = Origin.PROBE,
) -> Observation[S3UploadSetting]:
    """What an upload of so many bytes comes to: a part that is refused is sent again after some seconds."""
    left, sent, refused = transferred_bytes // setting.part_size_bytes, 0, 0

    async def work() -> None:
        nonlocal left, sent, refused
        while left:
            left -= 1
            while True:
                try:
                    sent += 1
                    await service.put_object("b", "k", setting.part_size_bytes)
                    break
                except S3Error:
                    refused += 1
                    await asyncio.sleep(ASKED_AGAIN_AFTER_SECONDS)

    began, begun_at = clock.monotonic_seconds(), clock.now()
    await asyncio.gather(*(work() for _ in range(setting.thread_count)))
    lasted = clock.monotonic_seconds() - began
    await asyncio.sleep(RESTED_SECONDS)
    return Observation(
        context=Context(place=PLACE, payload_size_bytes=transferred_bytes),
        setting=setting,
        started_at=begun_at,
        duration_seconds=lasted,
        transferred_bytes=transferred_bytes,
        request_count=sent,
        throttled_count=refused,
        origin=origin,
        reporter_uid=1000 if origin is Origin.APPLICATION else None,
    )


def test_those_who_are_refused_late_teach_what_no_probe_sees() -> None:
    """Long uploads are promised what they reach, pauses and all; short ones are advised as before."""

    async def campaign(clock: VirtualClock) -> list[Observation[S3UploadSetting]]:
        service = S3Service(IMPATIENT.link, clock=clock, seed=3)
        service.shelf.create_bucket("b")
        probes = [
            await moved(service, clock, S3UploadSetting(thread_count=n, part_size_bytes=mib * MiB), 2 * GiB)
            for n, mib in PROBED
        ]
        long = S3UploadSetting(thread_count=24, part_size_bytes=64 * MiB)
        told = [await moved(service, clock, long, 30 * GiB, Origin.APPLICATION) for _ in range(2)]
        return [*probes, *told]

    seen = run_virtually(campaign, start_at=BEGUN_AT)
    probes, told = seen[: len(PROBED)], seen[len(PROBED) :]
    assert all(probe.went_well for probe in probes)
    reached = [report.throughput_bytes_per_second for report in told]
    assert max(reached) < 0.7 * max(probe.throughput_bytes_per_second for probe in probes)
    (short, short_before), (long, long_before) = (
        (advised(seen, size), advised(probes, size)) for size in (2 * GiB, 100 * GiB)
    )
    assert short.setting == short_before.setting
    assert long_before.prediction["throughput_bytes_per_second"].low > max(reached)
    assert long.prediction["throughput_bytes_per_second"].expected == pytest.approx(min(reached), rel=0.15)
    assert long.bottleneck == "request-rate"


def advised(
    observations: list[Observation[S3UploadSetting]], size_bytes: int
) -> Recommendation[S3UploadSetting]:
    """What is advised for an object of this size."""
    case = Case(place=PLACE, observations=tuple(observations), seed=1)
    context = Context(place=PLACE, payload_size_bytes=size_bytes)
    return recommended(MODEL, deliberate(MODEL, case).fit, context)
