"""What the lab's S3 answers, and when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from functools import partial

import pytest

from penstock.lab.link import LinkTruth
from penstock.lab.s3 import PART_SIZE_BYTES_MIN, S3Error, S3Service
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.units import MiB
from tests.factories import NOON, a_link

# A round trip of 10 ms, a latency of 20 ms and 1 MB/s for one connection.
a_path = partial(
    a_link,
    round_trip_seconds=0.01,
    connection_rate_bytes_per_second=1e6,
    host_rate_bytes_per_second=4e6,
    service_latency_seconds_median=0.02,
)


def an_s3(
    clock: VirtualClock, truth: LinkTruth | None = None, *, seed: int = 0, inbound: LinkTruth | None = None
) -> S3Service:
    """Make a new one that has the bucket `b`."""
    service = S3Service(truth or a_path(), clock=clock, seed=seed, inbound=inbound)
    service.shelf.create_bucket("b")
    return service


async def code_of(request: Awaitable[object]) -> str:
    """Return the error code that the request ends with."""
    with pytest.raises(S3Error) as caught:
        await request
    return caught.value.code


async def test_a_request_takes_its_latency_and_its_bytes(clock: VirtualClock) -> None:
    """One request of size s takes L + s/B."""
    service = an_s3(clock)
    await service.put_object("b", "k", 500_000)
    assert clock.monotonic_seconds() == pytest.approx(0.01 + 0.02 + 0.5)


async def test_a_request_costs_more_than_its_body(clock: VirtualClock) -> None:
    """What it costs besides goes over the link as bytes do, and connections that are made anew take round trips."""
    truth = a_path(request_overhead_bytes=500_000.0, round_trips_per_request=3.0)

    service = an_s3(clock, truth=truth)
    await service.put_object("b", "k", 500_000)
    assert clock.monotonic_seconds() == pytest.approx(3 * 0.01 + 0.02 + 1.0)


async def test_parts_are_merged_one_by_one(clock: VirtualClock) -> None:
    """A completion takes a request, a fixed time and so much for each part."""
    truth = a_path(merge_seconds=0.5, merge_seconds_per_part=0.25)

    service = an_s3(clock, truth=truth)
    upload_id = service.shelf.create_upload("b", "k")
    etags = [await service.upload_part("b", "k", upload_id, n, 5 * MiB) for n in (1, 2)]
    began = clock.monotonic_seconds()
    await service.complete_upload("b", "k", upload_id, list(enumerate(etags, start=1)))
    assert clock.monotonic_seconds() - began == pytest.approx(0.01 + 0.02 + 0.5 + 0.5)


async def test_small_objects_come_back_whole(clock: VirtualClock) -> None:
    """A small body is kept with its MD5, a large one only by its size."""
    service = an_s3(clock)
    await service.put_object("b", "small", 5, b"hello")
    await service.put_object("b", "large", 2 * MiB, bytes(2 * MiB))
    etag = service.shelf.get("b", "small").body.etag
    assert service.shelf.get("b", "large").body.content is None
    assert await service.get_object("b", "small") == b"hello"
    assert etag == "5d41402abc4b2a76b9719d911017c592"
    assert len(await service.get_object("b", "large")) == 2 * MiB


async def test_parts_become_an_object_only_by_completion(clock: VirtualClock) -> None:
    """An upload is listed until it is completed, the object only after."""
    service = an_s3(clock)
    shelf = service.shelf
    upload_id = shelf.create_upload("b", "k")
    sizes = [PART_SIZE_BYTES_MIN, 1]
    etags = [await service.upload_part("b", "k", upload_id, n, s) for n, s in enumerate(sizes, start=1)]
    assert [u[:2] for u in shelf.uploads("b")] == [("k", upload_id)]
    assert not list(shelf.objects("b"))
    shelf.complete_upload("b", "k", upload_id, list(enumerate(etags, start=1)))
    assert not shelf.uploads("b")
    assert shelf.get("b", "k").body.size_bytes == PART_SIZE_BYTES_MIN + 1


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
async def test_a_wrong_completion_is_refused_as_by_s3(
    clock: VirtualClock, named: list[tuple[int, str]], code: str
) -> None:
    """Each mistake has its own code, and the upload is still there after it."""
    service = an_s3(clock)
    upload_id = service.shelf.create_upload("b", "k")
    real = {"ab"[n - 1]: await service.upload_part("b", "k", upload_id, n, 100) for n in (1, 2)}
    resolved = [(number, real.get(letter, letter)) for number, letter in named]
    with pytest.raises(S3Error) as caught:
        service.shelf.complete_upload("b", "k", upload_id, resolved)
    assert service.shelf.uploads("b")
    assert caught.value.code == code


async def test_what_is_not_there_is_named(clock: VirtualClock) -> None:
    """Buckets, keys and uploads that do not exist are told apart."""
    service = an_s3(clock)
    assert [
        await code_of(service.put_object("nobody", "k", 1)),
        await code_of(service.get_object("b", "nothing")),
        await code_of(service.upload_part("b", "k", "no-upload", 1, 1)),
    ] == ["NoSuchBucket", "NoSuchKey", "NoSuchUpload"]


async def test_too_many_requests_are_told_to_slow_down(clock: VirtualClock) -> None:
    """Above the prefix's rate the excess gets SlowDown; what is accepted stays at the rate."""
    service = an_s3(clock, a_path(prefix_request_rate_per_second=40.0))

    async def put_for_ever() -> None:
        while clock.monotonic_seconds() < 20:
            with contextlib.suppress(S3Error):
                await service.put_object("b", "k", 10)

    await asyncio.gather(*(put_for_ever() for _ in range(16)))
    assert service.throttled_count > service.request_count / 2
    assert (service.request_count - service.throttled_count) / 20 == pytest.approx(40, abs=1)


async def test_a_store_may_lose_patience_with_long_uploads(clock: VirtualClock) -> None:
    """What comes without a pause is borne for ten megabytes, then refused for a minute, and then borne again."""
    service = an_s3(clock, a_path(patience_bytes=10e6, refusal_seconds=60.0))
    borne = []
    for _ in range(2):
        borne.append(0)
        with contextlib.suppress(S3Error):
            while True:
                await service.put_object("b", "k", 10**6)
                borne[-1] += 1
        assert await code_of(service.put_object("b", "k", 1)) == "SlowDown"
        await asyncio.sleep(60)
    assert borne == [10, 10]


async def test_latency_is_log_normal_with_stragglers(clock: VirtualClock) -> None:
    """The median is the one that was set, the mean the one that the truth computes."""
    truth = a_path(service_latency_sigma=0.5, straggler_fraction=0.01, straggler_seconds=1.0)

    service = an_s3(clock, truth)
    found = []
    for _ in range(20_000):
        began = clock.monotonic_seconds()
        await service.answer_delay()
        found.append(clock.monotonic_seconds() - began - truth.round_trip_seconds)
    seconds = sorted(found)
    assert seconds[10_000] == pytest.approx(0.02, rel=0.05)
    assert sum(seconds) / len(seconds) == pytest.approx(truth.service_latency_seconds_mean, rel=0.1)


def test_the_same_seed_is_the_same_day() -> None:
    """Two worlds of one seed take the same time to the last bit; another seed does not."""
    truth = a_path(service_latency_sigma=0.5)

    async def day(seed: int, clock: VirtualClock) -> float:
        service = an_s3(clock, truth, seed=seed)
        await asyncio.gather(*(service.put_object("b", str(n), 1000 * n) for n in range(50)))
        return clock.monotonic_seconds()

    first, again, other = (run_virtually(partial(day, seed), start_at=NOON) for seed in (7, 7, 8))
    assert first == again != other


async def test_what_is_kept_is_accounted_for(clock: VirtualClock) -> None:
    """Bodies that were overwritten, joined, aborted or deleted take no room."""
    service = an_s3(clock)
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
    assert [*kept, shelf.kept_bytes] == [10, 10, 10, 7, 0]


async def test_reads_go_by_a_truth_of_their_own(clock: VirtualClock) -> None:
    """A read waits for its first byte and then for its bytes, at the rate of the way in; a write knows not of it."""
    inbound = a_path(
        connection_rate_bytes_per_second=10e6,
        host_rate_bytes_per_second=15e6,
        service_latency_seconds_median=0.04,
    )

    service = an_s3(clock, inbound=inbound)
    await service.put_object("b", "k", 1_000_000)
    written = clock.monotonic_seconds()
    await service.read("b", "k", 100_000, 600_000)
    one = clock.monotonic_seconds()
    await asyncio.gather(*(service.read("b", "k", 0, 500_000) for _ in range(3)))
    one, three = one - written, clock.monotonic_seconds() - one
    assert written == pytest.approx(0.01 + 0.02 + 1.0)
    assert one == pytest.approx(0.01 + 0.04 + 0.05)
    assert three == pytest.approx(0.01 + 0.04 + 0.1)  # the host's ceiling: 15 MB/s for 1.5 MB


async def test_reads_have_a_request_limit_of_their_own(clock: VirtualClock) -> None:
    """S3 takes more reads a second than writes: refused reads leave the writes alone, and the other way round."""
    service = an_s3(clock, inbound=a_path(prefix_request_rate_per_second=4.0))
    await service.put_object("b", "k", 10)
    reads = [service.read("b", "k") for _ in range(3)]
    found = await asyncio.gather(*reads, return_exceptions=True)
    codes = [one.code for one in found if isinstance(one, S3Error)]
    written = len([await service.put_object("b", "k", 10) for _ in range(3)])
    assert codes == ["SlowDown", "SlowDown"]
    assert written == 3


async def test_what_was_read_of_late_comes_sooner(clock: VirtualClock) -> None:
    """The first read of a block waits for the service to fetch it, until others have pushed it out of the cache."""
    inbound = a_path(cold_read_seconds=0.5, cache_bytes=2.0 * MiB, connection_rate_bytes_per_second=1e12)

    cold, warm = 0.53, 0.03
    service = an_s3(clock, inbound=inbound)
    await service.put_object("b", "k", 8 * MiB)
    found = []
    for block in (0, 0, 1, 2, 0):
        began = clock.monotonic_seconds()
        await service.read("b", "k", block * MiB, block * MiB + 4096)
        found.append(clock.monotonic_seconds() - began)
    assert found == pytest.approx([cold, warm, cold, cold, cold], abs=0.01)


async def test_a_large_object_is_recognised_by_how_it_begins(clock: VirtualClock) -> None:
    """Of what is too large to keep the first bytes come back, also of an object of parts; then zeros."""
    service = an_s3(clock)
    content = b"penstock" + bytes(2 * MiB)
    await service.put_object("b", "put", len(content), content)
    upload_id = service.shelf.create_upload("b", "parts")
    etags = [
        await service.upload_part("b", "parts", upload_id, number, PART_SIZE_BYTES_MIN, head=b"penstock")
        for number in (1, 2)
    ]
    service.shelf.complete_upload("b", "parts", upload_id, list(enumerate(etags, start=1)))
    kept = [service.shelf.get("b", key).body for key in ("put", "parts")]
    for key in ("put", "parts"):
        service.shelf.delete("b", key)
    assert service.shelf.kept_bytes == 0
    assert [body.read(4, 12) for body in kept] == [b"tock" + bytes(4)] * 2
