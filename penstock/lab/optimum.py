"""Knows the best that can be had from a world: the answer that everything else is judged by.

For S3 an ideal client (no CPU, no memory limit) uploads one object in virtual time, once for each setting, on
the same service code as everybody else's; chance is replaced by its mean. For SQS the best goodput follows
from the truth.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.lab.link import LinkTruth
from penstock.lab.s3 import PART_NUMBER_MAX, PART_SIZE_BYTES_MIN, S3Error, S3Service
from penstock.lab.sqs import BATCH_MESSAGE_COUNT_MAX, QueueTruth, usl_stretch
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.units import GiB, MiB

_BUCKET, _KEY = "reference", "object"
_START_AT = datetime(2026, 1, 1, tzinfo=UTC)
_PAUSE_AFTER_THROTTLING_SECONDS = 0.5

THREAD_COUNTS = (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256)
_WAVE_COUNTS = (1, 2, 3)
PART_SIZES_BYTES = tuple(mebibytes * MiB for mebibytes in (5, 8, 12, 16, 32, 64))


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadOptimum:
    """The setting with the highest throughput for one object size; of equals, the fewest threads."""

    thread_count: int
    part_size_bytes: int
    throughput_bytes_per_second: float


def calm(truth: LinkTruth) -> LinkTruth:
    """Return the same path without chance: mean latency, no stragglers, no dips, no tenant; credits spent."""
    return dataclasses.replace(
        truth,
        service_latency_seconds_median=truth.service_latency_seconds_mean,
        service_latency_sigma=0.0,
        straggler_fraction=0.0,
        dips=None,
        tenant=None,
        burst_rate_bytes_per_second=None,
        credit_bytes=0.0,
    )


def bursting(truth: LinkTruth) -> LinkTruth:
    """Return the calm path while credits last."""
    return dataclasses.replace(
        calm(truth),
        host_rate_bytes_per_second=truth.burst_rate_bytes_per_second or truth.host_rate_bytes_per_second,
    )


def upload_throughput_bytes_per_second(
    truth: LinkTruth, object_size_bytes: int, *, thread_count: int, part_size_bytes: int
) -> float:
    """Measure what an ideal client gets with this setting, on exactly this truth (see `calm`).

    Not from within a running event loop.
    """

    async def upload(clock: VirtualClock) -> float:
        service = S3Service(truth, clock=clock, seed=0)
        service.shelf.create_bucket(_BUCKET)
        await _upload(service, object_size_bytes, thread_count, part_size_bytes)
        return object_size_bytes / clock.monotonic_seconds()

    return run_virtually(upload, start_at=_START_AT)


def upload_optimum(
    truth: LinkTruth,
    object_size_bytes: int,
    *,
    thread_counts: Sequence[int] = THREAD_COUNTS,
    part_sizes_bytes: Sequence[int] = PART_SIZES_BYTES,
) -> UploadOptimum:
    """Search a grid on the calm path."""
    truth = calm(truth)
    return max(
        (
            UploadOptimum(
                thread_count=thread_count,
                part_size_bytes=part_size_bytes,
                throughput_bytes_per_second=upload_throughput_bytes_per_second(
                    truth, object_size_bytes, thread_count=thread_count, part_size_bytes=part_size_bytes
                ),
            )
            for thread_count, part_size_bytes in _worth_trying(
                object_size_bytes, thread_counts, part_sizes_bytes
            )
        ),
        key=lambda one: (round(one.throughput_bytes_per_second, 3), -one.thread_count, -one.part_size_bytes),
    )


def _worth_trying(
    object_size_bytes: int, thread_counts: Sequence[int], part_sizes_bytes: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield settings that differ: legal ones, no more threads than parts, whole waves besides the round numbers."""
    tried = set()
    for thread_count in thread_counts:
        for part_size_bytes in (*part_sizes_bytes, math.ceil(object_size_bytes / thread_count)):
            part_count = math.ceil(object_size_bytes / part_size_bytes)
            is_single = part_count == 1 and object_size_bytes <= 5 * GiB
            is_legal = PART_SIZE_BYTES_MIN <= part_size_bytes <= 5 * GiB and part_count <= PART_NUMBER_MAX
            whole_waves = (math.ceil(part_count / wave_count) for wave_count in _WAVE_COUNTS)
            counts = {thread_count, *(n for n in whole_waves if n <= max(thread_counts))}
            for count in sorted(n for n in counts if n <= part_count and (is_legal or is_single)):
                if (count, part_size_bytes) not in tried:
                    tried.add((count, part_size_bytes))
                    yield count, part_size_bytes


async def _upload(
    service: S3Service, object_size_bytes: int, thread_count: int, part_size_bytes: int
) -> None:
    part_count = math.ceil(object_size_bytes / part_size_bytes)
    if part_count <= 1:
        await service.put_object(_BUCKET, _KEY, object_size_bytes)
        return
    await service.small_request(_BUCKET)
    upload_id = service.shelf.create_upload(_BUCKET, _KEY)
    sizes = [part_size_bytes] * (part_count - 1) + [object_size_bytes - part_size_bytes * (part_count - 1)]
    numbered = iter(enumerate(sizes, start=1))
    etags: dict[int, str] = {}

    async def work() -> None:
        for number, size_bytes in numbered:
            etags[number] = await _upload_part_until_accepted(service, upload_id, number, size_bytes)

    await asyncio.gather(*(work() for _ in range(min(thread_count, part_count))))
    await service.small_request(_BUCKET)
    service.shelf.complete_upload(_BUCKET, _KEY, upload_id, sorted(etags.items()))


async def _upload_part_until_accepted(
    service: S3Service, upload_id: str, number: int, size_bytes: int
) -> str:
    while True:
        try:
            return await service.upload_part(_BUCKET, _KEY, upload_id, number, size_bytes)
        except S3Error as error:
            if error.code != "SlowDown":
                raise
            await asyncio.sleep(_PAUSE_AFTER_THROTTLING_SECONDS)


def best_goodput_messages_per_second(truth: QueueTruth, *, in_service_max: int = 256) -> float:
    """Return the most messages a second that can be carried (sent, received, deleted) in full batches.

    A message needs a tenth of a send, of a receive and of a delete. With n requests in service, each taking
    its time stretched by the universal scalability law, X = 10 n / ((l_send + l_receive + l_delete) *
    stretch(n)); and X is at most ten times the lowest request limit.
    """
    actions = (truth.send, truth.receive, truth.delete)
    batch = BATCH_MESSAGE_COUNT_MAX
    seconds = sum(action.request_seconds + batch * action.message_seconds for action in actions)
    by_concurrency = max(
        batch * count / (seconds * usl_stretch(truth, count)) for count in range(1, in_service_max + 1)
    )
    limits = [a.request_rate_per_second_max for a in actions if a.request_rate_per_second_max is not None]
    return min([by_concurrency, *(batch * limit for limit in limits)])
