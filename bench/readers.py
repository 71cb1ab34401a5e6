"""Knows how s3fs, PyArrow, DuckDB and Polars read three shapes: one large object, many small ones, random ranges.

    python bench/readers.py READER SHAPE < request.json

reads once and prints seconds and bytes as a line of JSON. Each reading is a process of its own, because these libraries
accept their options only once. It runs with their own packages and imports nothing of ours. Each reader prepares
itself, and returns a function that is then timed. The data is Parquet without compression; s3fs reads the same objects
as bytes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Locations, and `told`: empty, or `thread_count`, `request_size_bytes` and `coalesced_gap_bytes`.
Request = dict[str, Any]


def s3fs_reader(shape: str, request: Request) -> Callable[[], int]:
    """Whole objects by `cat`, ranges by `cat_ranges`."""
    import s3fs

    told, options, at_a_time = request["told"], {}, {}
    if told:
        options = {
            "max_concurrency": told["thread_count"],
            "default_block_size": told["request_size_bytes"],
            "config_kwargs": {"max_pool_connections": told["thread_count"] + 1},
        }
        at_a_time = {"batch_size": told["thread_count"]}
    files = s3fs.S3FileSystem(
        key=request["key"],
        secret=request["secret"],
        client_kwargs={"endpoint_url": request["url"], "region_name": request["region"]},
        **options,
    )
    files.connect()
    objects = request["objects"]
    if shape == "large":
        return lambda: len(files.cat_file(objects[0]))
    if shape == "small":
        return lambda: sum(map(len, files.cat(objects, **at_a_time).values()))
    starts = [start for start, _ in request["ranges"]]
    stops = [stop for _, stop in request["ranges"]]
    same = objects * len(starts)
    return lambda: sum(map(len, files.cat_ranges(same, starts, stops, on_error="raise", **at_a_time)))


def pyarrow_reader(shape: str, request: Request) -> Callable[[], int]:
    """A dataset, which buffers ahead; from a large file, only some of its row groups."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyarrow.fs import S3FileSystem

    told, options, ahead = request["told"], {}, {}
    if told:
        ahead = {"fragment_readahead": told["thread_count"]}
        pa.set_io_thread_count(told["thread_count"])
        options = {
            "cache_options": pa.CacheOptions(
                hole_size_limit=told["coalesced_gap_bytes"],
                range_size_limit=max(told["request_size_bytes"], told["coalesced_gap_bytes"]),
                prefetch_limit=told["thread_count"],
            )
        }
    files = S3FileSystem(
        access_key=request["key"],
        secret_key=request["secret"],
        endpoint_override=request["url"],
        region=request["region"],
    )

    def some_groups() -> int:
        (fragment,) = ds.dataset(request["objects"], filesystem=files, format=format_).get_fragments()
        wanted = fragment.subset(row_group_ids=request["groups"])
        return int(wanted.to_table(columns=["payload"]).nbytes)

    def everything() -> int:
        found = ds.dataset(request["objects"], filesystem=files, format=format_)
        return int(found.to_table(columns=["payload"], **ahead).nbytes)

    format_ = ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True, **options)
    )
    return some_groups if shape == "random" else everything


def duckdb_reader(shape: str, request: Request) -> Callable[[], int]:
    """SQL over Parquet. Its extension comes from a package, because its download server may be unreachable."""
    import duckdb

    packages = Path(duckdb.__file__).parents[1]
    extension = next(packages.glob("duckdb_extension_httpfs/extensions/*/httpfs.duckdb_extension"))
    base = duckdb.connect(config={"allow_unsigned_extensions": True})
    base.execute(f"LOAD '{extension}'")
    secure, _, host = request["url"].partition("://")
    base.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{request['key']}', SECRET '{request['secret']}', URL_STYLE 'path',"
        f" REGION '{request['region']}', ENDPOINT '{host}', USE_SSL {str(secure == 'https').lower()})"
    )
    if request["told"]:
        base.execute(f"SET threads = {request['told']['thread_count']}")
    names = ", ".join(f"'s3://{name}'" for name in request["objects"])
    query = f"SELECT count(payload), bit_xor(payload) FROM read_parquet([{names}])"  # noqa: S608  # our own names
    if shape == "random":
        query += f" WHERE in_group IN ({', '.join(map(str, request['groups']))})"
    return lambda: int(base.execute(query).fetchall()[0][0]) * 8


def polars_reader(shape: str, request: Request) -> Callable[[], int]:
    """A lazy scan; it reads its options from the environment when it is imported."""
    if told := request["told"]:
        budgets = ("INFLIGHT_REQUEST_BUDGET", "INFLIGHT_FLOOR_REQUEST_BUDGET", "CONCURRENCY_BUDGET")
        for name in (*budgets, "MAX_CONCURRENT_SCANS"):
            os.environ[f"POLARS_{name}"] = str(told["thread_count"])
        for access in ("", "_STREAMING"):
            os.environ[f"POLARS_DOWNLOAD_CHUNK_SIZE{access}"] = str(told["request_size_bytes"])
    import polars as pl

    found = pl.scan_parquet(
        [f"s3://{name}" for name in request["objects"]],
        storage_options={
            "aws_access_key_id": request["key"],
            "aws_secret_access_key": request["secret"],
            "aws_endpoint_url": request["url"],
            "aws_region": request["region"],
            "aws_allow_http": "true",
        },
    )
    if shape == "random":
        found = found.filter(pl.col("in_group").is_in(request["groups"]))
    return lambda: int(found.select(pl.col("payload")).collect().height) * 8


def make(folder: str, objects: dict[str, list[int]]) -> None:
    """Write Parquet files; `objects` has by name the number of row groups, and of rows in each."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("in_group", pa.int32()), ("payload", pa.int64())])
    chance = np.random.default_rng(1)
    for name, (group_count, row_count) in objects.items():
        payload = pa.array(chance.integers(-(2**62), 2**62, row_count))
        with pq.ParquetWriter(
            Path(folder, name), schema, compression="none", use_dictionary=["in_group"]
        ) as file:
            for group in range(group_count):
                numbers = pa.array(np.full(row_count, group, dtype=np.int32))
                file.write_table(pa.table([numbers, payload], schema=schema), row_group_size=row_count)


READERS = {"s3fs": s3fs_reader, "pyarrow": pyarrow_reader, "duckdb": duckdb_reader, "polars": polars_reader}


def main() -> None:
    """Read once, or make the data."""
    request = json.load(sys.stdin)
    if sys.argv[1] == "make":
        make(request["folder"], request["objects"])
        return
    read = READERS[sys.argv[1]](sys.argv[2], request)
    began = time.perf_counter()
    size = read()
    print(json.dumps({"seconds": time.perf_counter() - began, "bytes": size}))


if __name__ == "__main__":
    main()
