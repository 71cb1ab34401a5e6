"""Knows how to translate advice into arguments of s3fs, which only the application imports.

from penstock.client import s3fs as advised

fs = s3fs.S3FileSystem(**advised.filesystem_arguments(size_bytes))
fs.put_file(path, "bucket/key", **advised.put_arguments(size_bytes))
"""

from __future__ import annotations

from penstock.client.advice import Advice, advise
from penstock.client.arguments import arguments_of
from penstock.client.operations import S3_UPLOAD
from penstock.client.sdk_client import checksum_arguments

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import Any, TypedDict

    from typing_extensions import Unpack

    from penstock.client.demand import TransferDemand

    class FilesystemArguments(TypedDict, total=False):
        """Arguments of `s3fs.S3FileSystem`."""

        max_concurrency: int
        default_block_size: int
        config_kwargs: dict[str, Any]

    class PutArguments(TypedDict, total=False):
        """Arguments of `put_file` and `pipe_file`."""

        chunksize: int


def filesystem_arguments(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> FilesystemArguments:
    """Arguments for `S3FileSystem`, or for `storage_options` of libraries that use it; empty when there is no advice.

    `object_size_bytes` is in bytes, or text such as ``"1GiB"``; `advice` is used in place of asking. Never raises
    because of penstock. If the daemon knows that the store refuses AWS's checksums, they are switched off, unless the
    environment sets them.
    """
    advice = advice or advise(S3_UPLOAD, object_size_bytes, **demand)
    told: FilesystemArguments = _arguments("S3FileSystem", object_size_bytes, advice)
    if checksums := checksum_arguments(advice):
        told["config_kwargs"] = {**told.get("config_kwargs", {}), **checksums}
    return told


def put_arguments(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> PutArguments:
    """Arguments for `put_file` and `pipe_file`, which take their part size per call; empty when there is no advice."""
    advice = advice or advise(S3_UPLOAD, object_size_bytes, **demand)
    told: PutArguments = _arguments("put_file", object_size_bytes, advice)
    return told


def _arguments(group: str, object_size_bytes: int | str, advice: Advice) -> Any:
    return {} if advice.basis == "default" else arguments_of("s3fs", group, advice, object_size_bytes)
