"""Knows the best that a world allows: the reference for all results.

For S3, an ideal client (without CPU or memory limits) moves one object in virtual time, once for each setting, on the
same service code as real clients; random quantities are replaced by their means. For SQS, the best goodput follows from
the truth.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from penstock.lab.link import LinkTruth
from penstock.lab.s3 import PART_NUMBER_MAX, PART_SIZE_BYTES_MIN, S3Error, S3Service
from penstock.lab.sqs import BATCH_MESSAGE_COUNT_MAX, QueueTruth, usl_stretch
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.units import GiB, KiB, MiB

WorkT = TypeVar("WorkT")

_BUCKET, _KEY = "reference", "object"
_START_AT = datetime(2026, 1, 1, tzinfo=UTC)
_PAUSE_AFTER_THROTTLING_SECONDS = 0.5

_IN_SERVICE_MAX = 256  # concurrent requests to a queue
THREAD_COUNTS = (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256)
_WAVE_COUNTS = (1, 2, 3)
_RANGE_SIZE_BYTES_MIN = 64 * KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The setting with the highest throughput for one object size; among equals, the one with the fewest threads."""

    thread_count: int
    request_size_bytes: int  # of a part, or of a range
    throughput_bytes_per_second: float


def calm(truth: LinkTruth) -> LinkTruth:
    """The same path without randomness: mean latency, no stragglers, no dips, no tenant; burst credits spent."""
    return dataclasses.replace(
        truth,
        service_latency_seconds_median=truth.service_latency_seconds_mean,
        service_latency_sigma=0.0,
        straggler_fraction=0.0,
        dips=None,
        tenant=None,
        drift=None,
        burst_rate_bytes_per_second=None,
        credit_bytes=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealClient:
    """A client that moves a whole object in one direction. It cannot be used within a running event loop."""

    # Make requests of these sizes with this number of threads.
    move: Callable[[S3Service, Sequence[int], int], Awaitable[None]]
    is_legal: Callable[[int, int], bool]  # given the largest request's size and the number of requests
    request_sizes_bytes: Sequence[int]  # to try

    def throughput_bytes_per_second(
        self,
        truth: LinkTruth,
        object_size_bytes: int,
        *,
        thread_count: int,
        request_size_bytes: int,
        seed: int = 0,
    ) -> float:
        """The throughput with this setting, on exactly this truth (see `calm`); `seed` is for random quantities."""
        count = math.ceil(object_size_bytes / request_size_bytes)
        sizes = [*[request_size_bytes] * (count - 1), object_size_bytes - request_size_bytes * (count - 1)]

        async def moved(clock: VirtualClock) -> float:
            service = S3Service(truth, clock=clock, seed=seed)
            service.shelf.create_bucket(_BUCKET)
            await self.move(service, sizes, thread_count)
            return object_size_bytes / clock.monotonic_seconds()

        return run_virtually(moved, start_at=_START_AT)

    def optimum(
        self, truth: LinkTruth, object_size_bytes: int, *, request_sizes_bytes: Sequence[int] = ()
    ) -> Optimum:
        """The best setting on the calm path, by a grid search with these or the usual request sizes."""
        sizes, calm_truth = request_sizes_bytes or self.request_sizes_bytes, calm(truth)
        found = (
            Optimum(
                thread_count=n,
                request_size_bytes=s,
                throughput_bytes_per_second=self.throughput_bytes_per_second(
                    calm_truth, object_size_bytes, thread_count=n, request_size_bytes=s
                ),
            )
            for n, s in self._worth_trying(object_size_bytes, sizes)
        )
        return max(
            found,
            key=lambda one: (
                round(one.throughput_bytes_per_second, 3),
                -one.thread_count,
                -one.request_size_bytes,
            ),
        )

    def _worth_trying(self, object_size_bytes: int, sizes_bytes: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Distinct legal settings (threads, size): at most as many threads as requests, including whole waves."""
        tried = set()
        for thread_count in THREAD_COUNTS:
            for size_bytes in (*sizes_bytes, math.ceil(object_size_bytes / thread_count)):
                request_count = math.ceil(object_size_bytes / size_bytes)
                if not self.is_legal(min(size_bytes, object_size_bytes), request_count):
                    continue
                whole_waves = (math.ceil(request_count / wave_count) for wave_count in _WAVE_COUNTS)
                counts = {thread_count, *(n for n in whole_waves if n <= max(THREAD_COUNTS))}
                for count in sorted(n for n in counts if n <= request_count):
                    if (count, size_bytes) not in tried:
                        tried.add((count, size_bytes))
                        yield count, size_bytes


async def _upload(service: S3Service, sizes_bytes: Sequence[int], thread_count: int) -> None:
    if len(sizes_bytes) == 1:
        await service.put_object(_BUCKET, _KEY, sizes_bytes[0])
        return
    await service.small_request(_BUCKET)
    upload_id = service.shelf.create_upload(_BUCKET, _KEY)
    etags: dict[int, str] = {}

    async def upload(numbered: tuple[int, int]) -> None:
        number, size_bytes = numbered
        etags[number] = await service.upload_part(_BUCKET, _KEY, upload_id, number, size_bytes)

    await _share(list(enumerate(sizes_bytes, start=1)), thread_count, upload)
    await service.complete_upload(_BUCKET, _KEY, upload_id, sorted(etags.items()))


async def _download(service: S3Service, sizes_bytes: Sequence[int], thread_count: int) -> None:
    service.shelf.put(_BUCKET, _KEY, service.shelf.body(max(sizes_bytes), None))
    await _share(sizes_bytes, thread_count, lambda size: service.read(_BUCKET, _KEY, 0, size))


async def _share(
    work: Sequence[WorkT], thread_count: int, request: Callable[[WorkT], Awaitable[object]]
) -> None:
    """Make all requests, `thread_count` at a time, repeating each until it is admitted."""
    left = iter(work)

    async def carry_out() -> None:
        for one in left:
            while True:
                try:
                    await request(one)
                    break
                except S3Error as error:
                    if error.code != "SlowDown":
                        raise
                    await asyncio.sleep(_PAUSE_AFTER_THROTTLING_SECONDS)

    await asyncio.gather(*(carry_out() for _ in range(min(thread_count, len(work)))))


UPLOADS = IdealClient(
    move=_upload,
    is_legal=lambda largest_bytes, count: (
        largest_bytes <= 5 * GiB
        and (count == 1 or (largest_bytes >= PART_SIZE_BYTES_MIN and count <= PART_NUMBER_MAX))
    ),
    request_sizes_bytes=tuple(mebibytes * MiB for mebibytes in (5, 8, 12, 16, 32, 64)),
)
DOWNLOADS = IdealClient(
    move=_download,
    is_legal=lambda largest_bytes, count: count == 1 or largest_bytes >= _RANGE_SIZE_BYTES_MIN,
    request_sizes_bytes=tuple(mebibytes * MiB for mebibytes in (1, 2, 4, 8, 16, 32, 64, 128)),
)


def best_goodput_messages_per_second(truth: QueueTruth) -> float:
    """The most messages per second that can be sent, received and deleted in full batches.

    A message needs a tenth of a send, of a receive and of a delete. With n requests in service, each stretched by the
    universal scalability law, X = 10 n / ((l_send + l_receive + l_delete) * stretch(n)); and X is at most ten times the
    lowest request rate limit.
    """
    actions = (truth.send, truth.receive, truth.delete)
    batch = BATCH_MESSAGE_COUNT_MAX
    seconds = sum(action.request_seconds + batch * action.message_seconds for action in actions)
    by_concurrency = max(
        batch * count / (seconds * usl_stretch(truth, count)) for count in range(1, _IN_SERVICE_MAX + 1)
    )
    limits = [a.request_rate_per_second_max for a in actions if a.request_rate_per_second_max is not None]
    return min([by_concurrency, *(batch * limit for limit in limits)])
