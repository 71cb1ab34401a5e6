"""The S3 client and probe against versitygw: signatures, multipart uploads and their ends, checked by strangers."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.lab.link import LinkTruth
from penstock.models.s3.upload import S3UploadSetting
from penstock.probes.aws.access import Access, Credentials
from penstock.probes.aws.objects import AwsObjectStore, open_object_store
from penstock.probes.outside import Denied, Missing, Refused
from penstock.probes.s3.download import S3DownloadProbe
from penstock.probes.s3.payload import incompressible_payload
from penstock.probes.s3.read_objects import read_object_md5
from penstock.units import KiB, MiB
from penstock.vocabulary import Observation, ProbePlan
from tests.real.servers import KEY, REGION, at_the_end_of, plain_client
from tests.seams import (
    MODEST,
    downloads_are_measured,
    objects_come_and_go,
    uploads_are_measured,
    workspace_in,
)
from tests.unit.probes.fakes import a_download_plan, an_upload_plan

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the build

SLOW = LinkTruth(
    round_trip_seconds=0.010,
    connection_rate_bytes_per_second=6e6,
    host_rate_bytes_per_second=24e6,
    service_latency_seconds_median=0.020,
)


@contextlib.asynccontextmanager
async def store_at(url: str, credentials: Credentials = KEY) -> AsyncIterator[AwsObjectStore]:
    async with open_object_store(Access(region=REGION, endpoint_url=url, credentials=credentials)) as store:
        yield store


def leftovers(url: str, bucket: str) -> list[str]:
    """Keys of objects and of unfinished uploads, as another client sees them."""
    client = plain_client("s3", url)
    objects = client.list_objects_v2(Bucket=bucket).get("Contents", [])
    uploads = client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    return [entry["Key"] for entry in (*objects, *uploads)]


async def test_a_multipart_upload_is_read_back_whole(s3_url: str, bucket: str) -> None:
    """Parts arrive in their order with every byte, and the ETag has the form of a multipart upload."""
    parts = [incompressible_payload(size, seed) for seed, size in enumerate((5 * MiB, 5 * MiB, 100 * KiB))]
    async with store_at(s3_url) as store:
        upload_id = await store.create_multipart_upload(bucket, "whole")
        etags = [
            await store.upload_part(bucket, "whole", upload_id, n, body)
            for n, body in enumerate(parts, start=1)
        ]
        await store.complete_multipart_upload(bucket, "whole", upload_id, etags)

        answer = plain_client("s3", s3_url).get_object(Bucket=bucket, Key="whole")
        assert hashlib.sha256(answer["Body"].read()).digest() == hashlib.sha256(b"".join(parts)).digest()
        assert answer["ETag"].strip('"').endswith("-3")
        await store.delete_object(bucket, "whole")
        await store.delete_object(bucket, "whole")  # deleting nothing is no error in S3

    assert leftovers(s3_url, bucket) == []


async def test_objects_come_and_go(s3_url: str, bucket: str) -> None:
    """What belongs to an upload that was aborted is missing, and nothing is left that another client sees."""
    async with store_at(s3_url) as store:
        await objects_come_and_go(store, bucket)
    assert leftovers(s3_url, bucket) == []


async def test_parts_that_are_too_small_or_wrong_are_refused_in_words(s3_url: str, bucket: str) -> None:
    """What S3 refuses at completion is a sentence with its code, not a crash."""
    async with store_at(s3_url) as store:
        upload_id = await store.create_multipart_upload(bucket, "odd")
        etags = [await store.upload_part(bucket, "odd", upload_id, n, b"small") for n in (1, 2)]
        with pytest.raises(Refused, match="EntityTooSmall"):
            await store.complete_multipart_upload(bucket, "odd", upload_id, etags)
        with pytest.raises(Refused, match="InvalidPart"):
            await store.complete_multipart_upload(bucket, "odd", upload_id, ['"not-an-etag"'])
        await store.abort_multipart_upload(bucket, "odd", upload_id)


async def test_a_wrong_secret_is_denied_with_what_to_do(s3_url: str, bucket: str) -> None:
    """The server computes the signature itself, over what was really sent."""
    wrong = Credentials(access_key=KEY.access_key, secret_key="wrong")  # noqa: S106
    async with store_at(s3_url, wrong) as store:
        with pytest.raises(Denied, match="does not match the access key"):
            await store.put_object(bucket, "denied", b"body")
        with pytest.raises(Denied, match="does not match the access key"):
            await store.create_multipart_upload(bucket, "denied")

    assert leftovers(s3_url, bucket) == []


async def run_probe(url: str, bucket: str, plan: ProbePlan[S3UploadSetting]) -> Observation[S3UploadSetting]:
    async with store_at(url) as store:
        return await uploads_are_measured(workspace_in(store, bucket), plan)


@pytest.mark.parametrize(
    ("size", "threads", "part_count"), [(22 * MiB, 3, 5), (5 * MiB, 4, 12), (100 * KiB, 8, 64)]
)
async def test_the_probe_measures_and_removes(
    s3_url: str, bucket: str, size: int, threads: int, part_count: int
) -> None:
    """Multipart uploads, single PUTs and small objects: all bytes arrive, and nothing stays."""
    plan = an_upload_plan(size=size, threads=threads, part=5 * MiB, cost_max=MODEST)
    outcome = await run_probe(s3_url, bucket, plan)
    assert outcome.measures["part_count"] == part_count
    assert leftovers(s3_url, bucket) == []


async def test_a_cancelled_probe_leaves_nothing(s3_url: str, bucket: str) -> None:
    """Whoever stops in the middle of an upload still aborts it."""
    plan = an_upload_plan(size=64 * MiB, threads=2, part=5 * MiB, cost_max=MODEST)
    running = asyncio.create_task(run_probe(s3_url, bucket, plan))
    while leftovers(s3_url, bucket) == [] and not running.done():  # noqa: ASYNC110  # it happens in the server
        await asyncio.sleep(0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running

    assert leftovers(s3_url, bucket) == []


@pytest.mark.parametrize(
    ("size", "threads", "range_count"), [(22 * MiB, 3, 5), (5 * MiB, 4, 64), (100 * KiB, 8, 64)]
)
async def test_the_download_probe_reads_and_removes(
    s3_url: str, bucket: str, size: int, threads: int, range_count: int
) -> None:
    """In ranges, or whole."""
    plan = a_download_plan(size=size, threads=threads, range_size=5 * MiB)
    async with store_at(s3_url) as store:
        outcome = await downloads_are_measured(workspace_in(store, bucket), plan)
    assert outcome.measures["range_count"] == range_count
    assert leftovers(s3_url, bucket) == []


async def test_a_named_object_is_only_read(s3_url: str, bucket: str) -> None:
    """Of an object of the operator's everything stays as it was, to the byte and to its date."""
    body = incompressible_payload(12 * MiB, 3)
    client = plain_client("s3", s3_url)
    client.put_object(Bucket=bucket, Key="theirs", Body=body)
    before = client.head_object(Bucket=bucket, Key="theirs")
    async with store_at(s3_url) as store:
        probe = S3DownloadProbe(workspace_in(store, bucket), object_key="theirs")
        outcome = await probe.run(a_download_plan(size=40 * MiB, threads=4, range_size=3 * MiB))
        await probe.close()

    assert isinstance(outcome, Observation)
    assert outcome.transferred_bytes == 40 * MiB
    assert outcome.measures["read_before_fraction"] == pytest.approx(28 / 40)
    after = client.head_object(Bucket=bucket, Key="theirs")
    assert (after["ETag"], after["LastModified"]) == (before["ETag"], before["LastModified"])
    assert leftovers(s3_url, bucket) == ["theirs"]


@pytest.mark.parametrize("size", [3 * MiB, 20 * MiB])
async def test_what_is_put_to_be_read_has_the_checksum_it_is_known_by(
    s3_url: str, bucket: str, size: int
) -> None:
    """Whole or in parts, by the count of a server that others wrote."""
    async with store_at(s3_url) as store:
        probe = S3DownloadProbe(workspace_in(store, bucket))
        assert isinstance(await probe.run(a_download_plan(size=size, threads=2, range_size=MiB)), Observation)
        listed = plain_client("s3", s3_url).list_objects_v2(Bucket=bucket)["Contents"]
        (etag,) = {one["ETag"].strip('"') for one in listed if one["Size"] == size}
        assert etag == read_object_md5(size)
        await probe.close()


async def test_a_range_beyond_the_object_is_refused(s3_url: str, bucket: str) -> None:
    """Another object than the one that was meant is noticed, not measured."""
    plain_client("s3", s3_url).put_object(Bucket=bucket, Key="short", Body=bytes(1000))
    async with store_at(s3_url) as store:
        with pytest.raises(Refused):
            await store.read_range(bucket, "short", 0, 1000, object_size_bytes=2000)
        with pytest.raises(Refused):
            await store.read_range(bucket, "short", 2000, 3000, object_size_bytes=4000)
        assert (await store.look_at(bucket, "short", 1)).size_bytes == 1000
        with pytest.raises(Missing):
            await store.look_at(bucket, "nothing", 1)


@pytest.mark.parametrize("after_seconds", [0.2, 0.3, 0.4, 0.5])
async def test_a_cancelled_put_leaves_nothing(
    s3_url: str, bucket: str, tmp_path: Path, after_seconds: float
) -> None:
    """The server stores what lies in the buffers of the path, also after we stopped to wait for it."""
    plan = an_upload_plan(size=3 * MiB, threads=4, part=5 * MiB, cost_max=MODEST)
    with at_the_end_of(SLOW, s3_url, tmp_path) as far_url:
        running = asyncio.create_task(run_probe(far_url, bucket, plan))
        await asyncio.sleep(after_seconds)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await asyncio.sleep(1.0)  # for whatever would still arrive: a put takes half a second here

    assert leftovers(s3_url, bucket) == []
