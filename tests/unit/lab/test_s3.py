"""What the lab's S3 answers, and when."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from penstock.lab.link import LinkTruth
from penstock.lab.s3 import PART_SIZE_BYTES_MIN, S3Error, S3Service
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.units import MiB

ResultT = TypeVar("ResultT")


def a_path(**changes: float) -> LinkTruth:
    """Make a path with a round trip of 10 ms, a latency of 20 ms and 1 MB/s for one connection."""
    plain = LinkTruth(
        round_trip_seconds=0.01,
        connection_rate_bytes_per_second=1e6,
        host_rate_bytes_per_second=4e6,
        service_latency_seconds_median=0.02,
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]  # only numbers are changed


def with_bucket(
    story: Callable[[S3Service, VirtualClock], Awaitable[ResultT]],
    truth: LinkTruth | None = None,
    *,
    seed: int = 0,
) -> ResultT:
    """Tell the story with a new S3 that has the bucket `b`."""

    async def tell(clock: VirtualClock) -> ResultT:
        service = S3Service(truth or a_path(), clock=clock, seed=seed)
        service.shelf.create_bucket("b")
        return await story(service, clock)

    return run_virtually(tell, start_at=datetime(2026, 1, 1, tzinfo=UTC))


async def code_of(request: Awaitable[object]) -> str:
    """Return the error code that the request ends with."""
    with pytest.raises(S3Error) as caught:
        await request
    return caught.value.code


def test_a_request_takes_its_latency_and_its_bytes() -> None:
    """One request of size s takes L + s/B."""

    async def put(service: S3Service, clock: VirtualClock) -> float:
        await service.put_object("b", "k", 500_000)
        return clock.monotonic_seconds()

    assert with_bucket(put) == pytest.approx(0.01 + 0.02 + 0.5)


def test_small_objects_come_back_whole() -> None:
    """A small body is kept with its MD5, a large one only by its size."""

    async def round_trip(service: S3Service, _clock: VirtualClock) -> tuple[bytes, str, int]:
        await service.put_object("b", "small", 5, b"hello")
        await service.put_object("b", "large", 2 * MiB, bytes(2 * MiB))
        etag = service.shelf.get("b", "small").body.etag
        assert service.shelf.get("b", "large").body.content is None
        return await service.get_object("b", "small"), etag, len(await service.get_object("b", "large"))

    assert with_bucket(round_trip) == (b"hello", "5d41402abc4b2a76b9719d911017c592", 2 * MiB)


def test_parts_become_an_object_only_by_completion() -> None:
    """An upload is listed until it is completed, the object only after."""

    async def upload(service: S3Service, _clock: VirtualClock) -> int:
        shelf = service.shelf
        upload_id = shelf.create_upload("b", "k")
        sizes = [PART_SIZE_BYTES_MIN, 1]
        etags = [await service.upload_part("b", "k", upload_id, n, s) for n, s in enumerate(sizes, start=1)]
        assert [u[:2] for u in shelf.uploads("b")] == [("k", upload_id)]
        assert not list(shelf.objects("b"))
        shelf.complete_upload("b", "k", upload_id, list(enumerate(etags, start=1)))
        assert not shelf.uploads("b")
        return shelf.get("b", "k").body.size_bytes

    assert with_bucket(upload) == PART_SIZE_BYTES_MIN + 1


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ([(1, "a"), (2, "b")], "EntityTooSmall"),
        ([(2, "b"), (1, "a")], "InvalidPartOrder"),
        ([(1, "wrong")], "InvalidPart"),
        ([(1, "a"), (3, "b")], "InvalidPart"),
        ([], "MalformedXML"),
    ],
)
def test_a_wrong_completion_is_refused_as_by_s3(named: list[tuple[int, str]], code: str) -> None:
    """Each mistake has its own code, and the upload is still there after it."""

    async def complete(service: S3Service, _clock: VirtualClock) -> str:
        upload_id = service.shelf.create_upload("b", "k")
        real = {"ab"[n - 1]: await service.upload_part("b", "k", upload_id, n, 100) for n in (1, 2)}
        resolved = [(number, real.get(letter, letter)) for number, letter in named]
        with pytest.raises(S3Error) as caught:
            service.shelf.complete_upload("b", "k", upload_id, resolved)
        assert service.shelf.uploads("b")
        return caught.value.code

    assert with_bucket(complete) == code


def test_what_is_not_there_is_named() -> None:
    """Buckets, keys and uploads that do not exist are told apart."""

    async def ask(service: S3Service, _clock: VirtualClock) -> list[str]:
        return [
            await code_of(service.put_object("nobody", "k", 1)),
            await code_of(service.get_object("b", "nothing")),
            await code_of(service.upload_part("b", "k", "no-upload", 1, 1)),
        ]

    assert with_bucket(ask) == ["NoSuchBucket", "NoSuchKey", "NoSuchUpload"]


def test_too_many_requests_are_told_to_slow_down() -> None:
    """Above the prefix's rate the excess gets SlowDown; what is accepted stays at the rate."""

    async def hammer(service: S3Service, clock: VirtualClock) -> float:
        async def put_for_ever() -> None:
            while clock.monotonic_seconds() < 20:
                with contextlib.suppress(S3Error):
                    await service.put_object("b", "k", 10)

        await asyncio.gather(*(put_for_ever() for _ in range(16)))
        assert service.throttled_count > service.request_count / 2
        return (service.request_count - service.throttled_count) / 20

    assert with_bucket(hammer, a_path(prefix_request_rate_per_second=40.0)) == pytest.approx(40, abs=1)


def test_latency_is_log_normal_with_stragglers() -> None:
    """The median is the one that was set, the mean the one that the truth computes."""
    truth = a_path(service_latency_sigma=0.5, straggler_fraction=0.01, straggler_seconds=1.0)

    async def sample(service: S3Service, clock: VirtualClock) -> list[float]:
        found = []
        for _ in range(20_000):
            began = clock.monotonic_seconds()
            await service.answer_delay()
            found.append(clock.monotonic_seconds() - began - truth.round_trip_seconds)
        return sorted(found)

    seconds = with_bucket(sample, truth)
    assert seconds[10_000] == pytest.approx(0.02, rel=0.05)
    assert sum(seconds) / len(seconds) == pytest.approx(truth.service_latency_seconds_mean, rel=0.1)


def test_the_same_seed_is_the_same_day() -> None:
    """Two worlds of one seed take the same time to the last bit; another seed does not."""
    truth = a_path(service_latency_sigma=0.5)

    async def day(service: S3Service, clock: VirtualClock) -> float:
        await asyncio.gather(*(service.put_object("b", str(n), 1000 * n) for n in range(50)))
        return clock.monotonic_seconds()

    assert with_bucket(day, truth, seed=7) == with_bucket(day, truth, seed=7)
    assert with_bucket(day, truth, seed=7) != with_bucket(day, truth, seed=8)


def test_what_is_kept_is_accounted_for() -> None:
    """Bodies that were overwritten, joined, aborted or deleted take no room."""

    async def churn(service: S3Service, _clock: VirtualClock) -> list[int]:
        shelf, kept = service.shelf, []
        upload_id = shelf.create_upload("b", "k")
        for _ in range(2):
            body = shelf.body(10, bytes(10))
            shelf.put_part("b", "k", upload_id, 1, body)
            kept.append(shelf.kept_bytes)
        shelf.complete_upload("b", "k", upload_id, [(1, body.etag)])
        kept.append(shelf.kept_bytes)
        shelf.put("b", "k", shelf.body(7, bytes(7)))
        kept.append(shelf.kept_bytes)
        shelf.delete("b", "k")
        aborted = shelf.create_upload("b", "k")
        shelf.put_part("b", "k", aborted, 1, shelf.body(10, bytes(10)))
        shelf.abort_upload("b", "k", aborted)
        return [*kept, shelf.kept_bytes]

    assert with_bucket(churn) == [10, 10, 10, 7, 0]
