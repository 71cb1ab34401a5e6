"""Unmodified clients against the lab's S3 over HTTP."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import boto3
import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError
from yarl import URL

from penstock.clock import SystemClock
from penstock.lab.http_s3 import s3_application
from penstock.lab.link import LinkTruth
from penstock.lab.s3 import S3Service
from penstock.lab.server import serving
from penstock.units import MiB
from tests.waiting import comes

ResultT = TypeVar("ResultT")

FAST = LinkTruth(
    round_trip_seconds=0.0,
    connection_rate_bytes_per_second=1e9,
    host_rate_bytes_per_second=1e9,
    service_latency_seconds_median=0.0,
)

FELT = LinkTruth(
    round_trip_seconds=0.01, connection_rate_bytes_per_second=10e6, host_rate_bytes_per_second=20e6
)


def codes_of(requests: Iterable[Callable[[], object]]) -> list[object]:
    """The errors that they are answered with."""
    codes: list[object] = []
    for request in requests:
        with pytest.raises(ClientError) as caught:
            request()
        codes.append(caught.value.response["Error"]["Code"])
    return codes


ACCOUNT = {
    "aws_access_key_id": "lab",
    "aws_secret_access_key": "lab",  # the lab checks no signature
    "region_name": "us-east-1",
}


@contextlib.asynccontextmanager
async def an_s3(
    truth: LinkTruth = FAST, inbound: LinkTruth | None = None
) -> AsyncIterator[tuple[S3Service, str]]:
    """Serve an S3 that has the bucket `b`."""
    service = S3Service(truth, clock=SystemClock(), seed=0, inbound=inbound)
    service.shelf.create_bucket("b")
    async with serving(s3_application(service)) as endpoint_url:
        yield service, endpoint_url


# The clients' types are made at run time by botocore.
def an_aiobotocore(endpoint_url: str) -> AbstractAsyncContextManager[Any]:
    """The client that penstock's probes use."""
    config = AioConfig(retries={"total_max_attempts": 1})
    client: AbstractAsyncContextManager[Any] = get_session().create_client(
        "s3", endpoint_url=endpoint_url, config=config, **ACCOUNT
    )
    return client


async def with_boto3(endpoint_url: str, story: Callable[[Any], ResultT], **options: Any) -> ResultT:
    """Tell the story with a boto3 client, in a thread of its own."""

    def tell() -> ResultT:
        config = Config(retries={"total_max_attempts": 1}, **options)
        client = boto3.client("s3", endpoint_url=endpoint_url, config=config, **ACCOUNT)
        with contextlib.closing(client):
            return story(client)

    return await asyncio.to_thread(tell)


async def test_boto3_finds_again_what_it_put() -> None:
    """Put, head, get, ranges and listings agree, with names that need escaping and default checksums."""

    def story(s3: Any) -> list[object]:
        s3.create_bucket(Bucket="c")
        put = s3.put_object(Bucket="c", Key="a b/ü+1&<", Body=b"hello")
        s3.put_object(Bucket="c", Key="z", Body=b"")
        got = s3.get_object(Bucket="c", Key="a b/ü+1&<")
        part = s3.get_object(Bucket="c", Key="a b/ü+1&<", Range="bytes=1-2")
        listing = s3.list_objects_v2(Bucket="c")
        folders = s3.list_objects_v2(Bucket="c", Delimiter="/")
        return [
            got["Body"].read() + part["Body"].read(),
            put["ChecksumCRC32"] == got["ChecksumCRC32"],
            part["ContentRange"],
            s3.head_object(Bucket="c", Key="z")["ContentLength"],
            [entry["Key"] for entry in listing["Contents"]],
            [entry["Prefix"] for entry in folders["CommonPrefixes"]],
            [entry["Key"] for entry in folders["Contents"]],
        ]

    async with an_s3() as (_, endpoint_url):
        seen = await with_boto3(endpoint_url, story)
    assert seen == [b"helloel", True, "bytes 1-2/5", 0, ["a b/ü+1&<", "z"], ["a b/"], ["z"]]


async def test_boto3_transfers_in_parts_and_downloads(tmp_path: Path) -> None:
    """Its transfer manager uploads a file in parts, with its own checksums, and gets as many bytes back."""

    def story(s3: Any) -> int:
        config = TransferConfig(multipart_threshold=5 * MiB, multipart_chunksize=5 * MiB, max_concurrency=4)
        s3.upload_fileobj(io.BytesIO(bytes(11 * MiB)), "b", "big", Config=config)
        target = tmp_path / "big"
        s3.download_file("b", "big", str(target))
        assert s3.head_object(Bucket="b", Key="big")["ETag"].endswith('-3"')
        return target.stat().st_size

    async with an_s3() as (service, endpoint_url):
        assert await with_boto3(endpoint_url, story) == 11 * MiB
        assert not service.shelf.uploads("b")


async def test_errors_reach_boto3_by_their_codes() -> None:
    """A missing bucket or key, a small part, and a refused delete of a full bucket are what S3 says."""

    def story(s3: Any) -> list[object]:
        upload_id = s3.create_multipart_upload(Bucket="b", Key="k")["UploadId"]
        upload = {"Bucket": "b", "Key": "k", "UploadId": upload_id}
        etags = {n: s3.upload_part(**upload, PartNumber=n, Body=b"x")["ETag"] for n in (1, 2)}
        parts = [{"PartNumber": n, "ETag": etag} for n, etag in etags.items()]
        s3.put_object(Bucket="b", Key="held", Body=b"x")
        requests = (
            lambda: s3.get_object(Bucket="nobody", Key="k"),
            lambda: s3.get_object(Bucket="b", Key="nothing"),
            lambda: s3.head_object(Bucket="b", Key="nothing"),
            lambda: s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}),
            lambda: s3.delete_bucket(Bucket="b"),
            lambda: s3.get_object(Bucket="b", Key="held", Range="bytes=7-9"),
        )
        codes = codes_of(requests)
        s3.abort_multipart_upload(Bucket="b", Key="k", UploadId=upload_id)
        return codes

    async with an_s3() as (_, endpoint_url):
        codes = await with_boto3(endpoint_url, story)
    assert codes == ["NoSuchBucket", "NoSuchKey", "404", "EntityTooSmall", "BucketNotEmpty", "InvalidRange"]


async def test_conditions_are_kept() -> None:
    """Who writes or reads under a condition loses where it does not hold, and what is there stays."""

    def story(s3: Any) -> list[object]:
        first = s3.put_object(Bucket="b", Key="k", Body=b"first", IfNoneMatch="*")["ETag"]
        upload = {
            "Bucket": "b",
            "Key": "k",
            "UploadId": s3.create_multipart_upload(Bucket="b", Key="k")["UploadId"],
        }
        part = {"PartNumber": 1, "ETag": s3.upload_part(**upload, PartNumber=1, Body=b"x")["ETag"]}
        requests = (
            lambda: s3.put_object(Bucket="b", Key="k", Body=b"second", IfNoneMatch="*"),
            lambda: s3.put_object(Bucket="b", Key="k", Body=b"second", IfMatch='"other"'),
            lambda: s3.put_object(Bucket="b", Key="nothing", Body=b"second", IfMatch=first),
            lambda: s3.complete_multipart_upload(
                **upload, MultipartUpload={"Parts": [part]}, IfNoneMatch="*"
            ),
            lambda: s3.get_object(Bucket="b", Key="k", IfMatch='"other"'),
            lambda: s3.get_object(Bucket="b", Key="k", IfNoneMatch=first),
            lambda: s3.head_object(Bucket="b", Key="k", IfNoneMatch=first),
        )
        codes = codes_of(requests)
        s3.abort_multipart_upload(**upload)
        read = s3.get_object(Bucket="b", Key="k", IfMatch=first)["Body"].read()
        s3.put_object(Bucket="b", Key="k", Body=b"second", IfMatch=first)
        return [*codes, read, s3.get_object(Bucket="b", Key="k", IfNoneMatch=first)["Body"].read()]

    async with an_s3() as (_, endpoint_url):
        found = await with_boto3(endpoint_url, story)
    failed = "PreconditionFailed"
    assert found == [failed, failed, "NoSuchKey", failed, failed, "304", "304", b"first", b"second"]


async def test_what_is_not_kept_is_refused() -> None:
    """Tags and rules were taken for objects and listings: setting one overwrote the object."""

    def story(s3: Any) -> list[object]:
        s3.put_object(Bucket="b", Key="k", Body=b"content")
        requests = (
            lambda: s3.put_object_tagging(Bucket="b", Key="k", Tagging={"TagSet": []}),
            lambda: s3.get_object_acl(Bucket="b", Key="k"),
            lambda: s3.get_bucket_lifecycle_configuration(Bucket="b"),
            lambda: s3.list_object_versions(Bucket="b"),
            lambda: s3.delete_bucket_policy(Bucket="b"),
        )
        return [
            set(codes_of(requests)),
            s3.get_object(Bucket="b", Key="k")["Body"].read(),
            s3.get_bucket_versioning(Bucket="b").get("Status"),
        ]

    async with an_s3() as (_, endpoint_url):
        assert await with_boto3(endpoint_url, story) == [{"NotImplemented"}, b"content", None]


@pytest.mark.parametrize(
    ("asked", "status", "content"),
    [
        ("bytes=1-0", 200, b"abc"),
        ("bytes=x-1", 200, b"abc"),
        ("bytes=-2", 206, b"bc"),
        ("bytes=0-9", 206, b"abc"),
    ],
)
async def test_a_range_that_means_nothing_is_none(asked: str, status: int, content: bytes) -> None:
    """S3 then answers with the whole object, which a client has to notice."""
    async with an_s3() as (service, endpoint_url), aiohttp.ClientSession() as session:
        service.shelf.put("b", "k", service.shelf.body(3, b"abc"))
        async with session.get(f"{endpoint_url}/b/k", headers={"Range": asked}) as answer:
            assert (answer.status, await answer.read()) == (status, content)


@pytest.mark.parametrize(
    ("method", "address", "body"),
    [
        ("GET", "b?max-keys=-1", b""),
        ("GET", "b?max-keys=many", b""),
        ("PUT", "b/k?uploadId=u&partNumber=x", b"abc"),
        ("POST", "b/k?uploadId=u", b"<C><Part><PartNumber>x</PartNumber></Part></C>"),
    ],
)
async def test_what_is_no_number_is_said(method: str, address: str, body: bytes) -> None:
    """It is the client's mistake, and no failure of the service."""
    async with (
        an_s3() as (_, endpoint_url),
        aiohttp.request(method, f"{endpoint_url}/{address}", data=body) as answer,
    ):
        assert answer.status == 400
        assert "InvalidArgument" in await answer.text()


async def test_listings_come_in_pages() -> None:
    """Old and new listings hand out every key once, whatever the page's size."""
    keys = [*(f"k{number}" for number in range(6)), "k%20"]

    def story(s3: Any) -> list[list[str]]:
        for key in keys:
            s3.put_object(Bucket="b", Key=key, Body=b"")
        names = []
        for operation in ("list_objects_v2", "list_objects"):
            pages = s3.get_paginator(operation).paginate(Bucket="b", PaginationConfig={"PageSize": 1})
            names.append([entry["Key"] for page in pages for entry in page["Contents"]])
        deleted = s3.delete_objects(Bucket="b", Delete={"Objects": [{"Key": key} for key in names[0]]})
        assert [entry["Key"] for entry in deleted["Deleted"]] == names[0]
        return names

    async with an_s3() as (service, endpoint_url):
        assert await with_boto3(endpoint_url, story) == [sorted(keys)] * 2
        assert list(service.shelf.objects("b")) == []


async def test_a_throttled_prefix_answers_503() -> None:
    """SlowDown reaches the client as such, also while it sends a large body."""
    truth = replace(FAST, prefix_request_rate_per_second=0.001)

    def story(s3: Any) -> tuple[str, int]:
        s3.put_object(Bucket="b", Key="k", Body=b"x")
        with pytest.raises(ClientError) as caught:
            s3.put_object(Bucket="b", Key="k", Body=bytes(4 * MiB))
        answer = caught.value.response
        return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]

    async with an_s3(truth) as (_, endpoint_url):
        assert await with_boto3(endpoint_url, story) == ("SlowDown", 503)


async def test_aiobotocore_uploads_in_parts() -> None:
    """The client that penstock's probes use creates, uploads, lists and completes."""
    async with an_s3() as (service, endpoint_url):
        async with an_aiobotocore(endpoint_url) as s3:
            upload_id = (await s3.create_multipart_upload(Bucket="b", Key="k"))["UploadId"]

            async def put(number: int) -> dict[str, object]:
                body = bytes(5 * MiB)
                part = await s3.upload_part(
                    Bucket="b", Key="k", UploadId=upload_id, PartNumber=number, Body=body
                )
                return {"PartNumber": number, "ETag": part["ETag"]}

            parts = await asyncio.gather(*(put(number) for number in (1, 2, 3)))
            open_uploads = await s3.list_multipart_uploads(Bucket="b")
            assert [upload["Key"] for upload in open_uploads["Uploads"]] == ["k"]
            await s3.complete_multipart_upload(
                Bucket="b", Key="k", UploadId=upload_id, MultipartUpload={"Parts": parts}
            )
        assert service.shelf.get("b", "k").body.size_bytes == 15 * MiB


def aws_chunked(content: bytes, chunk_bytes: int, crc32: int) -> bytes:
    """Frame content as SDKs do over TLS: chunks with signatures, and the checksum as a trailer."""
    pieces = [content[at : at + chunk_bytes] for at in range(0, len(content), chunk_bytes)] + [b""]
    framed = b"".join(
        b"%x;chunk-signature=%064d\r\n%s" % (len(piece), 0, piece + b"\r\n" if piece else b"")
        for piece in pieces
    )
    digest = base64.b64encode(crc32.to_bytes(4, "big"))
    return framed + b"x-amz-checksum-crc32:" + digest + b"\r\n\r\n"


@pytest.mark.parametrize(("damage", "status"), [(0, 200), (1, 400)])
async def test_chunked_bodies_with_trailers_are_checked(damage: int, status: int) -> None:
    """An aws-chunked body is unframed, its trailing CRC-32 verified and given back."""
    content = bytes(range(256)) * 700
    crc32 = zlib.crc32(content) ^ damage
    headers = {
        "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "x-amz-decoded-content-length": str(len(content)),
        "Content-Encoding": "aws-chunked",
    }
    async with an_s3() as (service, endpoint_url), aiohttp.ClientSession() as session:
        framed = aws_chunked(content, 65_536, crc32)
        async with session.put(f"{endpoint_url}/b/k", data=framed, headers=headers) as response:
            text = await response.text()
            assert response.status == status, text
        if damage:
            assert "BadDigest" in text
        else:
            assert (
                response.headers["x-amz-checksum-crc32"]
                == base64.b64encode(crc32.to_bytes(4, "big")).decode()
            )
            assert service.shelf.get("b", "k").body.content == content


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"x-amz-checksum-crc32": "abc"}, b"body"),
        ({"Content-Encoding": "aws-chunked"}, b"-5\r\nbody\r\n0\r\n\r\n"),
        (
            {"Content-Encoding": "aws-chunked", "x-amz-decoded-content-length": "four"},
            b"4\r\nbody\r\n0\r\n\r\n",
        ),
        (
            {"Content-Encoding": "aws-chunked", "x-amz-decoded-content-length": 5000 * "4"},
            b"4\r\nbody\r\n0\r\n\r\n",
        ),
    ],
    ids=["checksum", "chunk", "length", "digits"],
)
async def test_what_no_client_of_s3_would_send_is_refused(headers: dict[str, str], body: bytes) -> None:
    """With an error of S3: the server neither fails nor turns in a circle, and serves whoever comes next."""
    async with an_s3() as (_, endpoint_url), aiohttp.ClientSession() as session:
        async with session.put(f"{endpoint_url}/b/k", data=body, headers=headers) as response:
            assert response.status == 400
            assert "<Code>" in await response.text()
        async with session.put(f"{endpoint_url}/b/k", data=b"body") as response:
            assert response.status == 200


async def test_a_checksum_that_is_no_text_is_refused() -> None:
    """What is sent in a header need not be UTF-8, and a library would not send it."""
    async with an_s3() as (_, endpoint_url):
        url = URL(endpoint_url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        head = b"PUT /b/k HTTP/1.1\r\nHost: s3\r\nContent-Length: 4\r\nx-amz-checksum-crc32: \xff\r\n\r\n"
        writer.write(head + b"body")
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
        await writer.wait_closed()


async def test_the_link_is_felt_over_http() -> None:
    """An upload never beats the link, and the link carries all of its bytes and no more."""
    truth = replace(FELT, service_latency_seconds_median=0.01)
    loop = asyncio.get_running_loop()
    async with an_s3(truth) as (service, endpoint_url), aiohttp.ClientSession() as session:

        async def put(key: str) -> float:
            began = loop.time()
            async with session.put(f"{endpoint_url}/b/{key}", data=bytes(1_000_000)) as response:
                assert response.status == 200
            return loop.time() - began

        alone = await put("alone")
        together = await asyncio.gather(*(put(f"k{number}") for number in range(4)))
        assert service.uplink.carried_bytes == pytest.approx(5e6, rel=1e-3)
    assert alone >= 0.1 + 0.02 - 2e-3
    assert max(together) >= 0.2 + 0.02 - 2e-3


async def test_ranges_feel_the_way_in() -> None:
    """The client that penstock's probes use reads ranges: never faster than the way in, which carries no byte more."""
    inbound = replace(FELT, service_latency_seconds_median=0.04)
    loop = asyncio.get_running_loop()
    async with an_s3(inbound=inbound) as (service, endpoint_url):
        async with an_aiobotocore(endpoint_url) as s3:
            await s3.put_object(Bucket="b", Key="k", Body=bytes(4 * MiB))

            async def read(number: int) -> tuple[float, float, str, int]:
                began, first = loop.time(), number * 1_000_000
                answer = await s3.get_object(Bucket="b", Key="k", Range=f"bytes={first}-{first + 999_999}")
                begins = loop.time() - began
                body = await answer["Body"].read()
                return begins, loop.time() - began, answer["ContentRange"], len(body)

            found = await asyncio.gather(*(read(number) for number in range(4)))
        assert service.downlink.carried_bytes == pytest.approx(4e6, rel=1e-3)
        assert service.read_count == 4
    assert [(content_range, size) for _, _, content_range, size in found] == [
        (f"bytes {n * 10**6}-{n * 10**6 + 999_999}/{4 * MiB}", 1_000_000) for n in range(4)
    ]
    assert min(begins for begins, *_ in found) >= 0.05 - 2e-3
    assert max(seconds for _, seconds, *_ in found) >= 0.05 + 0.2 - 2e-3


async def test_a_client_that_breaks_off_frees_the_link() -> None:
    """Nothing of a broken upload is kept, neither on the shelf nor on the link."""
    truth = replace(FAST, connection_rate_bytes_per_second=1e6, host_rate_bytes_per_second=1e6)
    async with an_s3(truth) as (service, endpoint_url):
        _, _, port = endpoint_url.rpartition(":")
        _, writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(b"PUT /b/k HTTP/1.1\r\nHost: lab\r\nContent-Length: 9000000\r\n\r\n" + bytes(200_000))
        await comes(lambda: service.uplink.stream_count)
        writer.close()
        await comes(lambda: not service.uplink.stream_count)
        assert list(service.shelf.objects("b")) == []
