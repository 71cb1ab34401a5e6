"""Knows how advice is put into boto3 and botocore; both are imported only when they are used."""

from __future__ import annotations

from penstock.client.advice import Advice, advise
from penstock.client.arguments import arguments_of
from penstock.client.operations import S3_DOWNLOAD, S3_UPLOAD
from penstock.client.sdk_client import checksum_arguments

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import Any

    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config
    from typing_extensions import Unpack

    from penstock.client.demand import TransferDemand


def transfer_config(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> TransferConfig:
    """The `boto3.s3.transfer.TransferConfig` for uploads of this size, in bytes or text such as ``"1GiB"``.

    The client needs a connection for each thread: see `client_config`. The classic transfer manager is asked
    for, because the one on the CRT ignores the number of threads. Each `upload_file` has threads of its own: state
    `object_count` when several run at a time, and they share what is advised for all of them; or let
    `penstock.client.boto3.upload_files` do it.
    """
    advice = advice or advise(S3_UPLOAD, object_size_bytes, **demand)
    return config_of(**transfer_arguments(advice, object_size_bytes))


def download_config(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> TransferConfig:
    """The same for downloads: `s3.download_file(bucket, key, path, Config=download_config(size_bytes))`.

    Also into what cannot seek (a pipe, `/dev/null`, a socket), for which the transfer manager otherwise holds ten
    ranges at a time, however many threads it has; its constructor has no word for it.
    """
    advice = advice or advise(S3_DOWNLOAD, object_size_bytes, **demand)
    config = config_of(**transfer_arguments(advice, object_size_bytes))
    config.max_in_memory_download_chunks = max(config.max_concurrency, config.max_in_memory_download_chunks)
    return config


def client_config(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> Config:
    """The `botocore.config.Config` with a connection for each advised thread; merge it with your own.

    Where the daemon knows of a store that refuses the checksums of AWS, none are sent, unless the environment says so.
    """
    from botocore.config import Config

    advice = advice or advise(S3_UPLOAD, object_size_bytes, **demand)
    return Config(max_pool_connections=connection_pool_count(advice), **checksum_arguments(advice))


def download_client_config(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> Config:
    """The same for downloads."""
    advice = advice or advise(S3_DOWNLOAD, object_size_bytes, **demand)
    return client_config(object_size_bytes, advice=advice)


def transfer_arguments(advice: Advice, object_size_bytes: int | str | None = None) -> dict[str, Any]:
    """The advice in the words of `TransferConfig`; for an object of another size nearby when one is stated."""
    target = "boto3-download" if advice.operation == S3_DOWNLOAD else "boto3"
    return arguments_of(target, "TransferConfig", advice, object_size_bytes)


def config_of(*, preferred_transfer_client: str = "auto", **arguments: Any) -> TransferConfig:
    """A `TransferConfig` of these arguments, also of a boto3 that knows of no other manager than the classic one."""
    from boto3.s3.transfer import TransferConfig

    config = TransferConfig(**arguments)
    config.preferred_transfer_client = preferred_transfer_client  # an older one has no argument for it
    return config


def connection_pool_count(advice: Advice) -> int:
    """Connections to keep: at least one for each thread, since botocore throws away what exceeds its pool."""
    setting = advice.setting
    threads = int(sum(count for name, count in setting.items() if name.endswith("thread_count")))
    return max(threads, int(advice.derived.get("connection_pool_count", 0)), 1)
