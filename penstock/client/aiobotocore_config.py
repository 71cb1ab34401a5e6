"""Knows how advice is put into a client of aiobotocore, which is imported only when it is used.

It has no transfer manager, so parts and how many of them move at a time are the application's own. Inside a running
event loop, ask first (`await penstock.client.asyncio_client.advise(...)`) and pass the answer as `advice`.
"""

from __future__ import annotations

from penstock.client.advice import Advice, advise
from penstock.client.arguments import arguments_of
from penstock.client.boto3_config import connection_pool_count
from penstock.client.operations import S3_UPLOAD
from penstock.client.sdk_client import checksum_arguments

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import TypedDict

    from aiobotocore.config import AioConfig
    from typing_extensions import Unpack

    from penstock.client.demand import TransferDemand

    class PartArguments(TypedDict):
        """How to split an object, and how much to do at a time."""

        part_size_bytes: int
        multipart_threshold_bytes: int
        part_concurrency: int
        object_concurrency: int


MiB = 1 << 20


def client_config(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> AioConfig:
    """The `aiobotocore.config.AioConfig` with a connection for each advised task; merge it with your own."""
    from aiobotocore.config import AioConfig

    advice = advice or advise(S3_UPLOAD, object_size_bytes, **demand)
    return AioConfig(max_pool_connections=connection_pool_count(advice), **checksum_arguments(advice))


def part_arguments(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> PartArguments:
    """How to split: `part_size_bytes`, from `multipart_threshold_bytes` on; and how much to do at a time.

    `part_concurrency` is of each object, `object_concurrency` how many objects.
    """
    advice = advice or advise(S3_UPLOAD, object_size_bytes, **demand)
    default: PartArguments = {
        "part_size_bytes": 8 * MiB,
        "multipart_threshold_bytes": 8 * MiB,
        "part_concurrency": 10,
        "object_concurrency": 1,
    }
    told = arguments_of("aiobotocore", "application", advice, object_size_bytes)
    return {**default, **told}  # type: ignore[typeddict-item]  # the same names
