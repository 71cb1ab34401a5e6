"""Everything that an application may call in `penstock.client`, called once: nothing of it may raise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.client import aiobotocore, asyncio_client, awscrt, boto3, boto3_lease, s3fs
from penstock.client.advice import Advice, advise, default_advice
from penstock.client.lease import Lease
from penstock.client.queues.aiobotocore_producer import AsyncQueueProducer
from penstock.client.queues.boto3_producer import QueueProducer
from penstock.client.queues.boto3_queue import QueueConsumer
from penstock.client.reporting import default_reporter, report
from penstock.client.transfers.writer import open_writer
from tests.sdk import a_meta

SIZE = 1 << 30


def use() -> None:
    """Ask, tell, and hold a share."""
    for operation in ("s3_upload", "s3_download", "sqs_delivery"):
        usable(advise(operation, SIZE, memory_bytes_max="1GiB"))
    advice = advise("s3_upload", "1GiB")
    usable(advice)
    adapt(advice)
    with Lease("s3_upload", SIZE, client="all") as lease:
        usable(lease.advice)
        boto3_lease.follow(a_client(), lease)
    told: Any = report(
        "s3_upload", SIZE, advice.setting, duration_seconds=1.0, transferred_bytes=SIZE, request_count=9
    )
    assert told in {True, False}
    file = open_writer(a_client(), "bucket", "key")
    file.write(b"some")
    file.abort()
    QueueProducer(a_client(), "https://queue").close()
    consumer = QueueConsumer(a_client(), "https://queue", print)
    consumer.stop()
    assert consumer.undeleted_count == 0


async def use_in_a_loop() -> None:
    """The same inside of an event loop."""
    usable(await asyncio_client.advise("s3_upload", SIZE))
    async with asyncio_client.AsyncLease("s3_upload", SIZE) as lease:
        usable(lease.advice)
    async with AsyncQueueProducer(a_client(), "https://queue") as producer:
        usable(producer.advice)


def adapt(advice: Advice) -> None:
    """What each library is told can be taken by it."""
    assert boto3.transfer_config(SIZE, advice=advice).max_request_concurrency >= 1
    assert boto3.client_config(SIZE, advice=advice).max_pool_connections >= 1
    assert aiobotocore.client_config(SIZE, advice=advice).max_pool_connections >= 1
    parts = aiobotocore.part_arguments(SIZE, advice=advice)
    assert parts["part_concurrency"] * parts["object_concurrency"] * parts["part_size_bytes"] >= 1
    for arguments in (
        awscrt.client_arguments(SIZE, advice=advice),
        s3fs.filesystem_arguments(SIZE, advice=advice),
        s3fs.put_arguments(SIZE, advice=advice),
    ):
        assert isinstance(arguments, dict)


def usable(advice: Advice) -> None:
    """Whatever it rests on, all that an application reads is there."""
    known = default_advice(advice.operation, 1, "")
    assert advice.setting.keys() >= known.setting.keys()
    assert isinstance(advice.basis, str)
    assert isinstance(advice.explanation, str)
    assert advice.seconds_left() > 0


def flush() -> None:
    """Let the thread of the reports end what it does."""
    default_reporter().flush(timeout_seconds=0.1)


def a_client() -> Any:
    """As much of a client of boto3 as is looked at."""
    return SimpleNamespace(meta=a_meta())
