"""Knows how to translate advice into configurations of boto3 and botocore; imports both only when they are used."""

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

    `advice` is used in place of asking. Without a daemon the configuration holds boto3's own defaults; this never
    raises because of penstock.

    Make the client with `client_config`, so that it keeps a connection for each thread. The configuration asks for the
    classic transfer manager, because the one on the CRT ignores the number of threads. Each `upload_file` starts
    threads of its own: when several run at a time, state `object_count`, and the advised threads are divided among
    them; or use `penstock.client.boto3.upload_files`.
    """
    advice = advice or advise(S3_UPLOAD, object_size_bytes, **demand)
    return config_of(**transfer_arguments(advice, object_size_bytes))


def download_config(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> TransferConfig:
    """The same for downloads: `s3.download_file(bucket, key, path, Config=download_config(size_bytes))`.

    It also serves destinations that cannot seek (a pipe, `/dev/null`, a socket). For these the transfer manager buffers
    ten ranges at a time, however many threads it has; the limit is raised here, because its constructor has no argument
    for it.
    """
    advice = advice or advise(S3_DOWNLOAD, object_size_bytes, **demand)
    config = config_of(**transfer_arguments(advice, object_size_bytes))
    config.max_in_memory_download_chunks = max(config.max_concurrency, config.max_in_memory_download_chunks)
    return config


def client_config(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> Config:
    """The `botocore.config.Config` with a connection for each advised thread; merge it with your own.

    Without a daemon it keeps ten connections, botocore's default. If the daemon knows that the store refuses AWS's
    checksums, they are switched off, unless the environment sets them.
    """
    from botocore.config import Config

    advice = advice or advise(S3_UPLOAD, object_size_bytes, **demand)
    return Config(max_pool_connections=connection_pool_count(advice), **checksum_arguments(advice))


def download_client_config(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> Config:
    """The same as `client_config`, for downloads."""
    advice = advice or advise(S3_DOWNLOAD, object_size_bytes, **demand)
    return client_config(object_size_bytes, advice=advice)


def transfer_arguments(advice: Advice, object_size_bytes: int | str | None = None) -> dict[str, Any]:
    """The advice as arguments of `TransferConfig`, for an object of a size nearby if one is stated.

    Empty, with a line in the log, when the advice cannot be translated.
    """
    target = "boto3-download" if advice.operation == S3_DOWNLOAD else "boto3"
    return arguments_of(target, "TransferConfig", advice, object_size_bytes)


def config_of(*, preferred_transfer_client: str = "auto", **arguments: Any) -> TransferConfig:
    """A `TransferConfig` of these arguments, also for older versions of boto3 that know only the classic manager."""
    from boto3.s3.transfer import TransferConfig

    config = TransferConfig(**arguments)
    config.preferred_transfer_client = preferred_transfer_client  # an older boto3 has no argument for it
    return config


def connection_pool_count(advice: Advice) -> int:
    """Connections to keep: at least one for each thread, since botocore discards connections beyond its pool."""
    setting = advice.setting
    threads = int(sum(count for name, count in setting.items() if name.endswith("thread_count")))
    return max(threads, int(advice.derived.get("connection_pool_count", 0)), 1)
