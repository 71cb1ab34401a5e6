"""Knows how advice is put into s3fs, which is imported by the application alone.

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
    """What to pass to `S3FileSystem`, or as `storage_options`; nothing when there is no advice.

    Where the daemon knows of a store that refuses the checksums of AWS, none are sent, unless the environment says so.
    """
    advice = advice or advise(S3_UPLOAD, object_size_bytes, **demand)
    told: FilesystemArguments = _arguments("S3FileSystem", object_size_bytes, advice)
    if checksums := checksum_arguments(advice):
        told["config_kwargs"] = {**told.get("config_kwargs", {}), **checksums}
    return told


def put_arguments(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> PutArguments:
    """What to pass to `put_file` and `pipe_file`, which take their part size with the call."""
    advice = advice or advise(S3_UPLOAD, object_size_bytes, **demand)
    told: PutArguments = _arguments("put_file", object_size_bytes, advice)
    return told


def _arguments(group: str, object_size_bytes: int | str, advice: Advice) -> Any:
    return {} if advice.basis == "default" else arguments_of("s3fs", group, advice, object_size_bytes)
