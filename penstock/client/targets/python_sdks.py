"""Knows what boto3, aiobotocore, awscrt and s3fs can be told about uploads.

From the sources of boto3 1.43, s3transfer 0.19, aiobotocore 3.10, awscrt 0.38 and s3fs 2026.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.targets.target import APPLICATION, Option, Target, python_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.targets.advised import Upload

CRT_GBPS_PER_CONNECTION = 0.4
"""awscrt opens ceil(throughput_target_gbps / 0.4) connections, at least 10; only its override goes below."""

_NO_HEDGE = "it has no hedged requests: it waits for a slow request until its read time-out"
_NO_LIMIT = "it has no limit on bandwidth: pace the calls in the application"


def _boto3(advised: Upload) -> Iterator[Option]:
    # Each upload_file has threads of its own, so what is for all objects is shared out; a whole object needs one.
    threads = advised.thread_count if advised.is_whole else advised.part_concurrency
    yield Option("TransferConfig", "max_concurrency", threads, ("thread_count",))
    yield Option("TransferConfig", "multipart_chunksize", advised.part_size_bytes, ("part_size_bytes",))
    yield Option(
        "TransferConfig",
        "multipart_threshold",
        advised.multipart_threshold_bytes,
        ("multipart_threshold_bytes",),
    )
    if advised.rate_limit_bytes_per_second is not None:
        share = max(1, advised.rate_limit_bytes_per_second // advised.object_concurrency)
        yield Option("TransferConfig", "max_bandwidth", share, ("rate_limit_bytes_per_second",))
    # The manager on the CRT, which "auto" may choose, ignores concurrency and bandwidth.
    yield Option("TransferConfig", "preferred_transfer_client", "classic", ("thread_count",))
    yield Option("Config", "max_pool_connections", advised.connection_pool_count, ("connection_pool_count",))
    yield Option(APPLICATION, "object_concurrency", advised.object_concurrency, ("thread_count",))


def _aiobotocore(advised: Upload) -> Iterator[Option]:
    yield Option(
        "AioConfig", "max_pool_connections", advised.connection_pool_count, ("connection_pool_count",)
    )
    yield Option(APPLICATION, "object_concurrency", advised.object_concurrency, ("thread_count",))
    yield Option(APPLICATION, "part_concurrency", advised.part_concurrency, ("thread_count",))
    yield Option(APPLICATION, "part_size_bytes", advised.part_size_bytes, ("part_size_bytes",))
    yield Option(
        APPLICATION,
        "multipart_threshold_bytes",
        advised.multipart_threshold_bytes,
        ("multipart_threshold_bytes",),
    )


def _awscrt(advised: Upload) -> Iterator[Option]:
    gbps = round(CRT_GBPS_PER_CONNECTION * advised.thread_count, 1)
    yield Option("S3Client", "throughput_target_gbps", gbps, ("thread_count",))
    # Exactly the connections that are wanted: the target alone never means fewer than ten.
    yield Option(
        "S3Client",
        "max_active_connections_override",
        advised.thread_count,
        ("thread_count", "connection_pool_count"),
    )
    yield Option("S3Client", "part_size", advised.part_size_bytes, ("part_size_bytes",))
    yield Option(
        "S3Client",
        "multipart_upload_threshold",
        advised.multipart_threshold_bytes,
        ("multipart_threshold_bytes",),
    )


def _s3fs(advised: Upload) -> Iterator[Option]:
    yield Option("S3FileSystem", "max_concurrency", advised.part_concurrency, ("thread_count",))
    yield Option("S3FileSystem", "default_block_size", advised.part_size_bytes, ("part_size_bytes",))
    yield Option(
        "S3FileSystem",
        "config_kwargs",
        {"max_pool_connections": advised.connection_pool_count},
        ("connection_pool_count",),
    )
    # What is put as a whole file takes 50 MiB and not the block size unless it is told with the call.
    yield Option("put_file", "chunksize", advised.part_size_bytes, ("part_size_bytes",))
    yield Option(APPLICATION, "object_concurrency", advised.object_concurrency, ("thread_count",))


BOTO3 = Target(
    name="boto3",
    operation="s3_upload",
    purpose="TransferConfig and Config of boto3; penstock.client.boto3 does it in process",
    say=_boto3,
    reasons={"hedge_timeout_seconds": _NO_HEDGE},
    writers={"config": python_calls},
)
AIOBOTOCORE = Target(
    name="aiobotocore",
    operation="s3_upload",
    purpose="AioConfig, and what your own semaphore and split into parts need",
    say=_aiobotocore,
    reasons={"hedge_timeout_seconds": _NO_HEDGE, "rate_limit_bytes_per_second": _NO_LIMIT},
    writers={"config": python_calls},
)
AWSCRT = Target(
    name="awscrt",
    operation="s3_upload",
    purpose="S3Client of awscrt, by its law of 0.4 Gbit/s a connection",
    say=_awscrt,
    reasons={
        "hedge_timeout_seconds": "it decides by itself, from the times that it sees",
        "rate_limit_bytes_per_second": "throughput_target_gbps is a target, which sets connections; not a limit",
    },
    writers={"config": python_calls},
)
S3FS = Target(
    name="s3fs",
    operation="s3_upload",
    purpose="S3FileSystem and put_file of s3fs, for fsspec, pandas and Dask",
    say=_s3fs,
    reasons={
        "multipart_threshold_bytes": "it splits from twice the chunk size on, always",
        "hedge_timeout_seconds": _NO_HEDGE,
        "rate_limit_bytes_per_second": _NO_LIMIT,
    },
    writers={"config": python_calls},
)

TARGETS = (BOTO3, AIOBOTOCORE, AWSCRT, S3FS)
