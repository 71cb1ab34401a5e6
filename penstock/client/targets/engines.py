"""Knows what DuckDB, PyArrow, Polars and the Model Streamer of Run:ai can be told.

From DuckDB 1.5 and Polars 2.1, which were run, DuckDB 2.0 (duckdb_settings(), and for its uploads
github.com/duckdb/duckdb-httpfs/pull/389), Arrow 26, and runai-model-streamer 0.17, which was run, with its
docs/src/env-vars.md.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from penstock.client.operations import S3_DOWNLOAD
from penstock.client.targets.advised import PART_COUNT_MAX, PART_SIZE_BYTES_MIN
from penstock.client.targets.target import (
    NO_HEDGE,
    OWN_CHUNKS,
    Option,
    Target,
    both_ways,
    carried,
    environment,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.targets.advised import Transfer
    from penstock.client.targets.target import Translation

DUCKDB_BLOCK_BYTES = (1 << 18) - 8
"""httpfs rounds a part up to whole blocks of DuckDB's storage, without their checksums (observed with 1.5)."""
_DUCKDB_2 = "DuckDB 2"
"""The group of settings that version 1 refuses, in place of `s3_uploader_thread_limit`, which version 2 refuses."""
DUCKDB_FILE_BYTES_MAX = 5 * 10**12
"""The largest s3_uploader_max_filesize; the smallest, 50 GB, is less than 10,000 of the smallest parts."""

DUCKDB_READ_BLOCK_BYTES_MIN = 1 << 12
"""The smallest external_file_cache_remote_max_block_size, which is a power of two."""
_CRT_GBPS_PER_CONNECTION = 0.4
POLARS_BUDGET_MIN = 10
"""What one request of Polars's older readers takes of POLARS_CONCURRENCY_BUDGET; with a smaller budget it panics."""
POLARS_RANDOM_CHUNK_BYTES = 8 << 20
"""Its chunk for random access, which is left at its default; with a byte budget below any of its chunks it panics."""


def _duckdb(advised: Transfer) -> Iterator[Option]:
    # DuckDB's part is the largest file size divided by the number of parts, so both together set the part size.
    part = ceil(advised.request_size_bytes / DUCKDB_BLOCK_BYTES) * DUCKDB_BLOCK_BYTES
    count = min(PART_COUNT_MAX, DUCKDB_FILE_BYTES_MAX // part)
    yield Option("", "s3_uploader_max_filesize", f"{part * count}B", ("part_size_bytes",))
    yield Option("", "s3_uploader_max_parts_per_file", count, ("part_size_bytes",))
    # By default each request opens a connection of its own: 17 for 15 parts, and two with this (observed with 1.5).
    yield Option("", "httpfs_connection_caching", value=True, fields=("connection_pool_count",))
    yield Option("", "s3_uploader_thread_limit", advised.request_concurrency, ("thread_count",))
    # Its files share these threads.
    yield Option(_DUCKDB_2, "async_threads", advised.thread_count, ("thread_count",))


def _duckdb_download(advised: Transfer) -> Iterator[Option]:
    yield Option("", "async_threads", advised.thread_count, ("thread_count",))
    yield Option("", "http_client_pool_capacity", advised.connection_pool_count, ("connection_pool_count",))
    block = max(DUCKDB_READ_BLOCK_BYTES_MIN, 1 << (advised.request_size_bytes.bit_length() - 1))
    yield Option("", "external_file_cache_remote_max_block_size", block, ("range_size_bytes",))
    yield from carried(advised, "", {"parquet_prefetch_column_gap": "coalesced_gap_bytes"})


def _sql(translation: Translation) -> list[str]:
    """Statements; for an upload those of version 1, and in a comment what version 2 takes in place of the last."""
    lines = ["LOAD httpfs;"]
    for option in translation.options:
        before = f"-- {_DUCKDB_2} refuses the line above, and takes: " if option.group == _DUCKDB_2 else ""
        lines.append(f"{before}SET {option.name} = {option.value!r};")
    return lines


def _pyarrow(advised: Transfer) -> Iterator[Option]:
    yield Option("", "io_thread_count", advised.thread_count, ("thread_count", "connection_pool_count"))


def _pyarrow_download(advised: Transfer) -> Iterator[Option]:
    yield Option("", "io_thread_count", advised.thread_count, ("thread_count", "connection_pool_count"))
    cache = "CacheOptions"  # of ParquetFragmentScanOptions(cache_options=...)
    yield from carried(advised, cache, {"hole_size_limit": "coalesced_gap_bytes"})
    yield Option(cache, "range_size_limit", advised.merged_size_bytes, ("range_size_bytes",))
    if advised.read_ahead_bytes is not None:
        yield Option(cache, "prefetch_limit", advised.request_concurrency, ("read_ahead_bytes",))
    yield from carried(advised, "open_input_stream", {"buffer_size": "block_size_bytes"})
    if advised.object_concurrency > 1:
        # A dataset reads four files at a time, whatever the number of threads; with the advice it was twice as fast.
        yield Option("to_table", "fragment_readahead", advised.object_concurrency, ("thread_count",))


def _pyarrow_source(translation: Translation) -> list[str]:
    groups = translation.groups()
    lines = [f"pyarrow.set_io_thread_count({groups.pop('')['io_thread_count']})"]
    calls = {
        "CacheOptions": "pyarrow.CacheOptions({})",
        "open_input_stream": "filesystem.open_input_stream(path, {})",
        "to_table": "dataset.to_table({})",
    }
    for group, options in groups.items():
        lines.append(calls[group].format(", ".join(f"{name}={value}" for name, value in options.items())))
    return lines


def _polars(advised: Transfer) -> Iterator[Option]:
    # Sinks of several files (PartitionBy) have options of their own, for each file (observed with 2.1): told only the
    # first two, four files of 30 MiB went in 24 parts at once.
    for sink in ("", "PARTITIONED_"):
        yield Option("", f"POLARS_{sink}UPLOAD_CONCURRENCY", advised.request_concurrency, ("thread_count",))
        yield from carried(advised, "", {f"POLARS_{sink}UPLOAD_CHUNK_SIZE": "request_size_bytes"})


def _polars_download(advised: Transfer) -> Iterator[Option]:
    threads, size = advised.thread_count, advised.request_size_bytes
    yield Option("", "POLARS_INFLIGHT_REQUEST_BUDGET", threads, ("thread_count",))
    yield Option("", "POLARS_INFLIGHT_FLOOR_REQUEST_BUDGET", threads, ("thread_count",))
    yield Option("", "POLARS_CONCURRENCY_BUDGET", max(POLARS_BUDGET_MIN, threads), ("thread_count",))
    if advised.read_ahead_bytes is not None:
        # The initial number of bytes in flight. Columns may be read in the largest kind of chunk, so allow one for each
        # thread: with less, 24 x 1 MiB read 256 MB of Parquet in 3.6 s; with this 2.6 to 2.9 s, without advice 2.9 s.
        ahead = max(threads * max(POLARS_RANDOM_CHUNK_BYTES, size), advised.read_ahead_bytes)
        yield Option("", "POLARS_INFLIGHT_INIT_BYTE_BUDGET", ahead, ("read_ahead_bytes",))
    # Not ..._RANDOM_ACCESS, up to which it merges random reads: set to a range's size, Polars 2.1 read columns of 1 MiB
    # at 2.7 MB/s, and at 7.1 MB/s without (`bench reading-shapes`).
    for access in ("", "_STREAMING"):
        yield Option("", f"POLARS_DOWNLOAD_CHUNK_SIZE{access}", size, ("range_size_bytes",))
    if advised.object_concurrency > 1:
        # By default it opens only a few files at a time: 50 of 1 MiB came at 1.8 MB/s, and with this option at 5 to 8.
        yield Option("", "POLARS_MAX_CONCURRENT_SCANS", advised.object_concurrency, ("thread_count",))


def _runai_download(advised: Transfer) -> Iterator[Option]:
    # Several loads at a time are several processes, such as the ranks of one model; each is told its share.
    threads = advised.thread_count if advised.is_whole else advised.request_concurrency
    size, prefix = max(PART_SIZE_BYTES_MIN, advised.request_size_bytes), "RUNAI_STREAMER"
    # One client, because each would open this many connections.
    yield Option("", f"{prefix}_OBJ_CONCURRENCY", 1, ())
    connections = ("thread_count", "connection_pool_count")
    yield Option("", f"{prefix}_S3_MAX_CONNECTIONS", threads, connections)
    yield Option("", f"{prefix}_S3_TARGET_GBPS", ceil(_CRT_GBPS_PER_CONNECTION * threads), ())
    # Without this limit, twice as many requests are in flight as there may be connections.
    yield Option("", f"{prefix}_S3_MAX_INFLIGHT_MIB", ceil(threads * size / (1 << 20)), ())
    # The CRT below it cuts its chunks into parts of 8 MiB unless its part size is set as well.
    for name in ("CHUNK_BYTESIZE", "S3_CLIENT_PART_SIZE"):
        yield Option("", f"{prefix}_{name}", size, ("range_size_bytes",))


TARGETS = (
    *both_ways(
        "duckdb",
        upload=("SET statements of DuckDB 1.5 for COPY ... TO 's3://...', and how 2 differs", _duckdb),
        download=("SET statements of DuckDB 2 for reading from 's3://...'", _duckdb_download),
        reasons={
            "multipart_threshold_bytes": "it splits what is larger than one part, always",
            "rate_limit_bytes_per_second": "it has no limit on bandwidth",
        },
        download_reasons={
            "multipart_threshold_bytes": "it reads the blocks that a query needs, of files of any size",
            "read_ahead_bytes": "how far it reads ahead follows from the query",
            "block_size_bytes": "it reads several blocks at a time, so that their size is the range size",
        },
        writers={"config": _sql},
        comment="--",
    ),
    *both_ways(
        "pyarrow",
        upload=("the number of I/O threads of PyArrow, which also sets its connections", _pyarrow),
        download=(
            "I/O threads of PyArrow, CacheOptions for Parquet, and the buffer of a stream",
            _pyarrow_download,
        ),
        reasons={
            "part_size_bytes": "its parts are 10 MiB; there is no option for them",
            "multipart_threshold_bytes": "it splits by its own part size, always",
            "rate_limit_bytes_per_second": "it has no limit on bandwidth",
        },
        download_reasons={
            "multipart_threshold_bytes": "it reads the ranges that it is asked for, of files of any size"
        },
        writers={"config": _pyarrow_source, "env": environment(lambda _: "ARROW_IO_THREADS")},
        download_writers={"config": _pyarrow_source},
    ),
    *both_ways(
        "polars",
        upload=("environment of Polars for sink_parquet and its like", _polars),
        download=("environment of Polars for scan_parquet and its like", _polars_download),
        reasons={
            "multipart_threshold_bytes": "it splits what is larger than one chunk, always",
            "connection_pool_count": "it opens a connection for each request in flight",
            "rate_limit_bytes_per_second": "it has no limit on bandwidth",
        },
        download_reasons={
            "block_size_bytes": "it reads several chunks at a time, so that their size is the range size",
            "coalesced_gap_bytes": "how ranges are merged follows from its chunk size",
        },
        writers={"env": environment(str)},
    ),
    Target(
        name="runai-streamer-download",
        operation=S3_DOWNLOAD,
        purpose="environment of the Model Streamer of Run:ai, by which vLLM loads weights",
        say=_runai_download,
        reasons={
            **OWN_CHUNKS,
            "multipart_threshold_bytes": "it reads in chunks whatever is larger than one",
            "read_ahead_bytes": "it reads all of a file ahead, within RUNAI_STREAMER_MEMORY_LIMIT",
            "block_size_bytes": "it reads several chunks at a time, so that their size is the range size",
            "coalesced_gap_bytes": "it reads whole tensors, which lie side by side",
            "hedge_timeout_seconds": NO_HEDGE,
            "rate_limit_bytes_per_second": "its target in Gbit/s sets connections, and is no limit",
        },
        writers={"env": environment(str)},
    ),
)
