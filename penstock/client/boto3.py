"""Knows how advice is put into boto3 and botocore; both are imported only when they are used.

from penstock.client import boto3 as advised

config = advised.transfer_config(size_bytes)
s3 = boto3.client("s3", config=advised.client_config(size_bytes))
s3.upload_file(path, bucket, key, Config=config)
"""

from __future__ import annotations

from penstock.client.advice import Advice, advise

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import Any


def transfer_config(object_size_bytes: int | str, *, advice: Advice | None = None, **demand: object) -> Any:
    """The `boto3.s3.transfer.TransferConfig` for uploads of this size, in bytes or text such as ``"1GiB"``.

    The client needs a connection for each thread: see `client_config`. The classic transfer manager is asked
    for, because the one on the CRT ignores the number of threads. Each `upload_file` has threads of its own: state
    `object_count` when several run at a time, and they share what is advised for all of them.
    """
    from boto3.s3.transfer import TransferConfig

    advice = advice or advise("s3_upload", object_size_bytes, **demand)
    return TransferConfig(**transfer_arguments(advice, object_size_bytes))


def client_config(object_size_bytes: int | str, *, advice: Advice | None = None, **demand: object) -> Any:
    """The `botocore.config.Config` with a connection for each advised thread; merge it with your own."""
    from botocore.config import Config

    advice = advice or advise("s3_upload", object_size_bytes, **demand)
    return Config(max_pool_connections=connection_pool_count(advice))


def transfer_arguments(advice: Advice, object_size_bytes: int | str | None = None) -> dict[str, Any]:
    """The advice in the words of `TransferConfig`; for an object of another size nearby when one is stated."""
    from penstock.client.targets.python_sdks import BOTO3
    from penstock.client.targets.target import translate

    return translate(BOTO3, advice.document, object_size_bytes=object_size_bytes).groups()["TransferConfig"]


def connection_pool_count(advice: Advice) -> int:
    """Connections to keep: at least one for each thread, since botocore throws away what exceeds its pool."""
    setting = advice.setting
    threads = int(sum(count for name, count in setting.items() if name.endswith("thread_count")))
    return max(threads, int(advice.derived.get("connection_pool_count", 0)), 1)
