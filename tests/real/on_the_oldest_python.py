"""An application on the oldest Python: all that the client does, once, and what came of it as JSON.

It finds the daemon, the servers and the credentials by its environment; its arguments are a bucket and a folder.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiobotocore.session
import boto3
import s3fs

import penstock.client
from penstock.client import AsyncLease, Lease, advise, awscrt, boto3_lease, report
from penstock.client import aiobotocore as advised_aio
from penstock.client import boto3 as advised
from penstock.client import s3fs as advised_s3fs
from penstock.client.aiobotocore import AsyncQueueConsumer, AsyncQueueProducer
from penstock.client.asyncio_client import advise as advise_in_loop
from penstock.client.boto3 import (
    QueueConsumer,
    QueueProducer,
    download_file,
    download_files,
    files_below,
    open_object,
    open_writer,
    upload_file,
    upload_fileobj,
    upload_files,
)
from penstock.client.reporting import default_reporter

CONTENT = bytes(range(256)) * 4096 * 12  # 12 MiB
MESSAGE_COUNT = 30


def modules() -> int:
    """How many there are: each can be imported."""
    names = [found.name for found in pkgutil.walk_packages(penstock.client.__path__, "penstock.client.")]
    for name in names:
        importlib.import_module(name)
    return len(names)


def with_boto3(bucket: str, folder: Path) -> None:
    """One file, many, and a part of one, with a share of the host."""
    (folder / "up").mkdir()
    for name in ("a", "b"):
        (folder / "up" / name).write_bytes(CONTENT)
    size = len(CONTENT)
    client = boto3.client("s3", config=advised.client_config(size))
    with Lease("s3_upload", size) as lease:
        boto3_lease.follow(client, lease)
        arguments = advised.transfer_config(size, advice=lease.advice)
        client.upload_file(str(folder / "up/a"), bucket, "plain", Config=arguments)
    upload_file(client, folder / "up/a", bucket, "one")
    download_file(client, bucket, "one", folder / "one")
    upload_files(boto3.Session(), files_below(folder / "up", "many/"), bucket).raise_for_failed()
    wanted = {f"many/{name}": folder / f"down/{name}" for name in ("a", "b")}
    download_files(boto3.Session(), wanted, bucket).raise_for_failed()
    for path in (folder / "one", *wanted.values()):
        assert path.read_bytes() == CONTENT, path
    with open_object(client, bucket, "plain") as file:
        assert file.read(1000) == CONTENT[:1000]
        assert file.read_ranges([(5, 10), (5_000_000, 20)]) == [CONTENT[5:15], CONTENT[5_000_000:5_000_020]]
        assert file.read() == CONTENT[1000:]
    with open_writer(client, bucket, "written") as file, (folder / "up/a").open("rb") as stream:
        file.write(CONTENT)
        upload_fileobj(client, stream, bucket, "streamed")
    for key in ("written", "streamed"):
        assert client.get_object(Bucket=bucket, Key=key)["Body"].read() == CONTENT, key


def with_a_queue() -> int:
    """How many messages of a queue were handled."""
    client = boto3.client("sqs")
    url = client.create_queue(QueueName="oldest")["QueueUrl"]
    with QueueProducer(client, url) as producer:
        sent = [producer.send("x") for _ in range(MESSAGE_COUNT)]
    assert len({future.result()["MessageId"] for future in sent}) == MESSAGE_COUNT
    handled = set()

    def handle(message: Mapping[str, Any]) -> None:
        handled.add(message["MessageId"])
        if len(handled) == MESSAGE_COUNT:
            consumer.stop()

    consumer = QueueConsumer(client, url, handle, long_poll_seconds=1)
    limit = threading.Timer(200.0, consumer.stop)
    limit.start()
    consumer.run()
    limit.cancel()
    client.delete_queue(QueueUrl=url)  # others count what is left on this server
    return len(handled)


async def with_a_queue_in_a_loop() -> int:
    """The same in an event loop."""
    async with aiobotocore.session.get_session().create_client("sqs") as client:
        url = (await client.create_queue(QueueName="oldest-aio"))["QueueUrl"]
        async with AsyncQueueProducer(client, url) as producer:
            sent = [await producer.send("x") for _ in range(MESSAGE_COUNT)]
        handled = {future.result()["MessageId"] for future in sent}

        async def handle(message: Mapping[str, Any]) -> None:
            handled.discard(message["MessageId"])
            if not handled:
                consumer.stop()

        consumer = AsyncQueueConsumer(client, url, handle, long_poll_seconds=1)
        await asyncio.wait_for(consumer.run(), 200.0)
        await client.delete_queue(QueueUrl=url)
    return MESSAGE_COUNT - len(handled)


async def with_aiobotocore(lease: AsyncLease, bucket: str, folder: Path) -> int:
    """The same in an event loop; how many threads its share is."""
    size = len(CONTENT)
    session = aiobotocore.session.get_session()
    files = {folder / "up" / name: f"aio/{name}" for name in ("a", "b")}
    (await advised_aio.upload_files(session, files, bucket)).raise_for_failed()
    async with session.create_client("s3", config=advised_aio.client_config(size)) as client:
        await advised_aio.download_file(client, bucket, "aio/a", folder / "aio")
        assert (folder / "aio").read_bytes() == CONTENT
        async with await advised_aio.open_object(client, bucket, "aio/b") as file:
            assert await file.read(1000) == CONTENT[:1000]
            assert await file.read_ranges([(5, 10), (20, 3)]) == [CONTENT[5:15], CONTENT[20:23]]
        async with await advised_aio.open_writer(client, bucket, "aio/written") as written:
            await written.write(CONTENT)
        assert (await client.head_object(Bucket=bucket, Key="aio/written"))["ContentLength"] == size
    async with lease:
        shares = lease.changes()
        await shares.__anext__()
        changing = asyncio.ensure_future(shares.__anext__())
        await asyncio.sleep(0)
        async with AsyncLease("s3_upload", size):
            share = (await changing).setting["thread_count"]
        await shares.aclose()
    assert (await advise_in_loop("s3_upload", size)).basis == "measured"
    return int(share)


def with_s3fs(bucket: str, folder: Path) -> None:
    """A file put and read; s3fs is told by arguments alone."""
    size = len(CONTENT)
    files = s3fs.S3FileSystem(**advised_s3fs.filesystem_arguments(size))
    files.put_file(str(folder / "up/a"), f"{bucket}/fs", **advised_s3fs.put_arguments(size))
    assert files.cat_file(f"{bucket}/fs") == CONTENT
    assert awscrt.client_arguments(size)


def main(bucket: str, folder: Path) -> None:
    """All of it."""
    lease = AsyncLease("s3_upload", len(CONTENT))  # before there is an event loop
    counted = {"modules": modules(), "python": sys.version_info[:2]}
    assert advise("s3_upload", "1GiB").basis == "measured"
    with_boto3(bucket, folder)
    counted["handled"] = with_a_queue()
    assert asyncio.run(with_a_queue_in_a_loop()) == MESSAGE_COUNT
    counted["share"] = asyncio.run(with_aiobotocore(lease, bucket, folder))
    with_s3fs(bucket, folder)
    setting = {"thread_count": 3, "part_size_bytes": 8 << 20}
    assert report("s3_upload", 77, setting, duration_seconds=1.0, transferred_bytes=77, request_count=1)
    counted["is_told"] = default_reporter().flush(timeout_seconds=60.0)
    counted["refused"] = default_reporter().refused_count
    print(json.dumps(counted))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
