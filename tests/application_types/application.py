"""What an application may write, and what its type checker refuses: an ignore that is not needed is an error, too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import assert_type

from aiobotocore.config import AioConfig
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

import penstock.client
from penstock.client import Advice, Lease, advise, aiobotocore, asyncio_client, awscrt, boto3, s3fs
from penstock.client.advice import Adviser
from penstock.client.aiobotocore import AsyncQueueConsumer, AsyncQueueProducer
from penstock.client.boto3 import (
    QueueConsumer,
    Summary,
    download_file,
    download_files,
    open_object,
    upload_file,
    upload_files,
)
from penstock.client.transfers.reader import ObjectReader


def real_types(size: int) -> None:
    """What comes back is what the library calls it."""
    assert_type(boto3.transfer_config(size, memory_bytes_max="1GiB", object_count=3), TransferConfig)
    assert_type(boto3.client_config("1GiB", objective="frugal"), Config)
    assert_type(aiobotocore.client_config(size, bandwidth_bytes_per_second_max=1e6), AioConfig)
    assert_type(aiobotocore.part_arguments(size)["part_concurrency"], int)
    assert_type(awscrt.client_arguments(size).get("throughput_target_gbps", 1.0), float)
    assert_type(s3fs.put_arguments(size, service_class="express").get("chunksize", 1), int)
    assert_type(upload_files(None, {"path": "key"}, "bucket", memory_bytes_max="1GiB"), Summary)
    assert_type(upload_files(None, [(Path("path"), "key")], "bucket"), Summary)
    assert_type(boto3.download_config(size, sink="null"), TransferConfig)
    assert_type(boto3.download_client_config(size, access="random"), Config)
    assert_type(download_files(None, {"key": Path("path")}, "bucket", objective="frugal"), Summary)
    assert_type(download_files(None, [("key", "path")], "bucket"), Summary)
    assert_type(open_object(None, "bucket", "key", access="random", range_size_bytes="1MiB"), ObjectReader)
    assert_type(advise("sqs_delivery", 1024, work_seconds="20ms", message_rate_per_second=200), Advice)


async def handle(message: Mapping[str, object]) -> None:
    """One message."""


async def in_a_loop() -> None:
    """The same questions, awaited."""
    assert_type(await asyncio_client.advise("s3_upload", 1, region="eu-west-1"), Advice)
    assert_type(await aiobotocore.download_files(None, {"key": "path"}, "bucket"), Summary)
    async with asyncio_client.AsyncLease("s3_upload", 1, weight=2.0, object_count=2) as lease:
        assert_type(lease.advice, Advice)
    async with AsyncQueueConsumer(None, "url", handle, work_seconds="20ms", report_seconds=9.0) as consumer:
        assert_type(consumer.advice, Advice)
    async with AsyncQueueProducer(None, "url", message_rate_per_second=200) as producer:
        await (await producer.send("body", MessageGroupId="a"))


def misspelled(size: int, client: object) -> None:
    """A keyword or a name that does not exist."""
    penstock.client.Laese("s3_upload", size)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    boto3.upload_fils(client, {}, "b")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    boto3.transfer_config(size, memry_max=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    boto3.client_config(size, threads=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    aiobotocore.client_config(size, objects=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    aiobotocore.part_arguments(size, objects=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    awscrt.client_arguments(size, memory=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    s3fs.put_arguments(size, memory=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    advise("s3_upload", size, memry_max=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Adviser().advise("s3_upload", size, memry_max=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Lease("s3_upload", size, wieght=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    upload_files(client, {}, "b", object_count=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    upload_file(client, "f", "b", "k", memory=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    download_file(client, "b", "k", "f", memory=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    download_files(client, {}, "b", sinks="null")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    open_object(client, "b", "k", acess="random")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    QueueConsumer(client, "url", print, rate=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    AsyncQueueProducer(client, "url", rate=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def mistaken(size: int) -> None:
    """A word, or a type, that does not fit."""
    advise("s3_uplaod", size)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    boto3.transfer_config(size, objective="cheap")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    boto3.transfer_config(size, object_count="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    AsyncQueueConsumer(size, "url", print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    boto3.transfer_config(size, work_seconds=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    _ = boto3.transfer_config(size).max_concurency  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
