"""Knows how to translate advice into a configuration of aiobotocore, which is imported only when it is used.

aiobotocore has no transfer manager, so the application itself splits objects and limits how many parts move at a time.
Inside a running event loop, ask first (`await penstock.client.asyncio_client.advise(...)`) and pass the answer as
`advice`: the functions here would block the loop.
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
    """The `aiobotocore.config.AioConfig` with a connection for each advised task; merge it with your own.

    `object_size_bytes` is in bytes, or text such as ``"1GiB"``. Without a daemon it keeps ten connections, botocore's
    default; it never raises because of penstock.
    """
    from aiobotocore.config import AioConfig

    advice = advice or advise(S3_UPLOAD, object_size_bytes, **demand)
    return AioConfig(max_pool_connections=connection_pool_count(advice), **checksum_arguments(advice))


def part_arguments(
    object_size_bytes: int | str, *, advice: Advice | None = None, **demand: Unpack[TransferDemand]
) -> PartArguments:
    """How to split objects of this size, and how many requests to have in flight.

    Objects from `multipart_threshold_bytes` on are split into parts of `part_size_bytes`; `object_concurrency` objects
    move at a time, and `part_concurrency` parts of each. Without a daemon these are boto3's: parts of 8 MiB, and ten
    requests in flight.
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
