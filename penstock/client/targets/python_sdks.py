"""Knows what boto3, aiobotocore, awscrt, s3fs, fsspec and the S3 connector of PyTorch can be told.

From the sources of boto3 1.43, s3transfer 0.19, aiobotocore 3.10, awscrt 0.38, s3fs and fsspec 2026.9, and from
s3torchconnector 1.5, which was run.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.client.operations import S3_DOWNLOAD
from penstock.client.targets.advised import PART_SIZE_BYTES_MAX, PART_SIZE_BYTES_MIN
from penstock.client.targets.target import (
    APPLICATION,
    OWN_CHUNKS,
    WHOLE_OBJECTS,
    Option,
    Target,
    both_ways,
    carried,
    python_calls,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.targets.advised import Transfer

CRT_GBPS_PER_CONNECTION = 0.4
"""awscrt opens ceil(throughput_target_gbps / 0.4) connections, at least 10; only its override goes below."""

CRT_CONNECTION_COUNT_MIN = 10

_CRT_NO_LIMIT = "throughput_target_gbps is a target, which sets connections; not a limit"
_NO_HEDGE = "it has no hedged requests: it waits for a slow request until its read time-out"
_NO_LIMIT = "it has no limit on bandwidth: pace the calls in the application"

_OWN_READS = {
    "range_size_bytes": "request_size_bytes",
    "multipart_threshold_bytes": "multipart_threshold_bytes",
    "read_ahead_bytes": "read_ahead_bytes",
    "block_size_bytes": "block_size_bytes",
    "coalesced_gap_bytes": "coalesced_gap_bytes",
    "io_chunk_bytes": "io_chunk_bytes",
    "hedge_timeout_seconds": "hedge_timeout_seconds",
}
"""Fields for applications that read ranges themselves."""


def _boto3(advised: Transfer) -> Iterator[Option]:
    sizes = {"multipart_chunksize": "request_size_bytes", "io_chunksize": "io_chunk_bytes"}
    yield from carried(advised, "TransferConfig", sizes)
    # Each transfer has threads of its own, so the advised threads are divided among objects, unless these move whole.
    threads = advised.thread_count if advised.is_whole else advised.request_concurrency
    yield Option("TransferConfig", "max_concurrency", threads, ("thread_count",))
    yield from carried(advised, "TransferConfig", {"multipart_threshold": "multipart_threshold_bytes"})
    if advised.rate_limit_bytes_per_second is not None:
        share = max(1, advised.rate_limit_bytes_per_second // advised.object_concurrency)
        yield Option("TransferConfig", "max_bandwidth", share, ("rate_limit_bytes_per_second",))
    # "auto" may choose the manager on the CRT, which ignores concurrency and bandwidth.
    yield Option("TransferConfig", "preferred_transfer_client", "classic", ("thread_count",))
    yield Option("Config", "max_pool_connections", advised.connection_pool_count, ("connection_pool_count",))
    yield Option(APPLICATION, "object_concurrency", advised.object_concurrency, ("thread_count",))


def _aiobotocore(advised: Transfer) -> Iterator[Option]:
    yield from carried(advised, "AioConfig", {"max_pool_connections": "connection_pool_count"})
    yield Option(APPLICATION, "object_concurrency", advised.object_concurrency, ("thread_count",))
    yield Option(APPLICATION, "part_concurrency", advised.request_concurrency, ("thread_count",))
    yield from carried(advised, APPLICATION, {"part_size_bytes": "request_size_bytes"})
    yield from carried(advised, APPLICATION, {"multipart_threshold_bytes": "multipart_threshold_bytes"})


def _aiobotocore_download(advised: Transfer) -> Iterator[Option]:
    yield from carried(advised, "AioConfig", {"max_pool_connections": "connection_pool_count"})
    yield Option(APPLICATION, "object_concurrency", advised.object_concurrency, ("thread_count",))
    yield Option(APPLICATION, "range_concurrency", advised.request_concurrency, ("thread_count",))
    yield from carried(advised, APPLICATION, _OWN_READS)


def _awscrt(advised: Transfer) -> Iterator[Option]:
    yield from _awscrt_download(advised)
    yield from carried(advised, "S3Client", {"multipart_upload_threshold": "multipart_threshold_bytes"})


def _awscrt_download(advised: Transfer) -> Iterator[Option]:
    gbps = round(CRT_GBPS_PER_CONNECTION * advised.thread_count, 1)
    yield Option("S3Client", "throughput_target_gbps", gbps, ("thread_count",))
    # The exact number of connections; the target alone never gives fewer than ten.
    yield Option(
        "S3Client",
        "max_active_connections_override",
        advised.thread_count,
        ("thread_count", "connection_pool_count"),
    )
    yield from carried(advised, "S3Client", {"part_size": "request_size_bytes"})


def _s3fs(advised: Transfer) -> Iterator[Option]:
    yield Option("S3FileSystem", "max_concurrency", advised.request_concurrency, ("thread_count",))
    yield from carried(advised, "S3FileSystem", {"default_block_size": "request_size_bytes"})
    yield _s3fs_pool(advised)
    # A file that is put as a whole uses parts of 50 MiB, not the block size, unless the call states a size.
    yield from carried(advised, "put_file", {"chunksize": "request_size_bytes"})
    yield Option(APPLICATION, "object_concurrency", advised.object_concurrency, ("thread_count",))


def _s3fs_download(advised: Transfer) -> Iterator[Option]:
    yield Option("S3FileSystem", "max_concurrency", advised.request_concurrency, ("thread_count",))
    # A random reader wants no block around each of its ranges.
    yield Option("S3FileSystem", "default_cache_type", "none" if advised.is_random else "readahead", ())
    yield from carried(advised, "S3FileSystem", {"default_block_size": "block_size_bytes"})
    yield _s3fs_pool(advised)
    # A file that is got as a whole would be cut into blocks.
    yield from carried(advised, "get_file", {"chunksize": "request_size_bytes"})
    yield from _fsspec_ranges(advised)
    yield Option(APPLICATION, "object_concurrency", advised.object_concurrency, ("thread_count",))


def _s3fs_pool(advised: Transfer) -> Option:
    pool = {"max_pool_connections": advised.connection_pool_count}
    return Option("S3FileSystem", "config_kwargs", pool, ("connection_pool_count",))


def _fsspec(advised: Transfer) -> Iterator[Option]:
    yield from carried(advised, "open", {"block_size": "block_size_bytes"})
    yield Option("open", "cache_type", "none" if advised.is_random else "readahead", ())
    yield Option("get", "batch_size", advised.object_concurrency, ("thread_count",))
    yield from _fsspec_ranges(advised)


def _fsspec_ranges(advised: Transfer) -> Iterator[Option]:
    # Call fsspec.utils.merge_offset_ranges before cat_ranges, which refuses its own argument max_gap.
    yield from carried(advised, "merge_offset_ranges", {"max_gap": "coalesced_gap_bytes"})
    yield Option("cat_ranges", "batch_size", advised.thread_count, ("thread_count",))


def _pytorch(advised: Transfer) -> Iterator[Option]:
    threads, config = advised.thread_count, "S3ClientConfig"
    fields = ("thread_count", "connection_pool_count") if threads >= CRT_CONNECTION_COUNT_MIN else ()
    yield Option(config, "throughput_target_gbps", round(CRT_GBPS_PER_CONNECTION * threads, 1), fields)
    part = min(max(advised.request_size_bytes, PART_SIZE_BYTES_MIN), PART_SIZE_BYTES_MAX)
    yield Option(config, "part_size", part, (advised.size_knob,))
    if advised.is_random and advised.block_size_bytes is not None:
        block = min(advised.block_size_bytes, advised.request_size_bytes)
        yield Option("S3ReaderConstructor.range_based", "buffer_size", block, ("block_size_bytes",))
    yield from carried(advised, "S3ReaderConstructor.dcp_optimized", {"max_gap_size": "coalesced_gap_bytes"})


_NEITHER = {"hedge_timeout_seconds": _NO_HEDGE, "rate_limit_bytes_per_second": _NO_LIMIT}
_in_python = partial(both_ways, writers={"config": python_calls})

TARGETS = (
    *_in_python(
        "boto3",
        upload=("TransferConfig and Config of boto3; penstock.client.boto3 does it in process", _boto3),
        download=(
            "TransferConfig and Config of boto3 for download_file; penstock.client.boto3 does it in process",
            _boto3,
        ),
        reasons={"hedge_timeout_seconds": _NO_HEDGE},
        download_reasons=WHOLE_OBJECTS,
    ),
    *_in_python(
        "aiobotocore",
        upload=("AioConfig, and what your own semaphore and split into parts need", _aiobotocore),
        download=("AioConfig, and what your own ranged get_object calls need", _aiobotocore_download),
        reasons=_NEITHER,
    ),
    *_in_python(
        "awscrt",
        upload=("S3Client of awscrt, by its law of 0.4 Gbit/s a connection", _awscrt),
        download=("S3Client of awscrt for GET_OBJECT", _awscrt_download),
        reasons={
            "hedge_timeout_seconds": "it decides by itself, from the times that it sees",
            "rate_limit_bytes_per_second": _CRT_NO_LIMIT,
        },
        download_reasons={
            **WHOLE_OBJECTS,
            "multipart_threshold_bytes": "it reads in parts whatever is larger than one",
        },
    ),
    *_in_python(
        "s3fs",
        upload=("S3FileSystem and put_file of s3fs, for fsspec, pandas and Dask", _s3fs),
        download=(
            "S3FileSystem, get_file and cat_ranges of s3fs, for fsspec, pandas and Dask",
            _s3fs_download,
        ),
        reasons={"multipart_threshold_bytes": "it splits from twice the chunk size on, always", **_NEITHER},
        download_reasons={
            "multipart_threshold_bytes": "it splits what is larger than a chunk, always",
            "read_ahead_bytes": "an open file reads one block at a time, and none before it is asked for",
        },
    ),
    Target(
        name="fsspec-download",
        operation=S3_DOWNLOAD,
        purpose="arguments of open, get and cat_ranges of any filesystem of fsspec",
        say=_fsspec,
        reasons={
            **OWN_CHUNKS,
            "range_size_bytes": "how an object is cut is each filesystem's own: see s3fs-download",
            "multipart_threshold_bytes": "how an object is cut is each filesystem's own: see s3fs-download",
            "connection_pool_count": "connections are each filesystem's own: see s3fs-download",
            "read_ahead_bytes": "an open file reads one block at a time, and none before it is asked for",
            **_NEITHER,
        },
        writers={"config": python_calls},
    ),
    *_in_python(
        "pytorch",
        upload=("S3ClientConfig of the S3 connector for PyTorch, for checkpoints", _pytorch),
        download=("S3ClientConfig and S3ReaderConstructor of the S3 connector for PyTorch", _pytorch),
        reasons={
            "thread_count": "it opens 10 connections at the least",
            "connection_pool_count": "it opens 10 connections at the least",
            "multipart_threshold_bytes": "it moves in parts whatever is larger than one",
            "hedge_timeout_seconds": "the CRT decides by itself, from the times that it sees",
            "rate_limit_bytes_per_second": _CRT_NO_LIMIT,
        },
        download_reasons={
            "read_ahead_bytes": "a sequential reader reads the whole object ahead, as the CRT sees fit",
            "block_size_bytes": "a sequential reader has none; range_based has, with --access random",
        },
    ),
)
