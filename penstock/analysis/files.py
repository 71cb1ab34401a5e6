"""Knows how a fleet's files are written and found, in a folder or a bucket, through Arrow.

A bucket's endpoint and credentials come from the environment (`AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `AWS_REGION`),
as for any client.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.analysis.schema import BUCKET, OBSERVATION_COLUMNS, OBSERVATIONS, SPEND, SPEND_COLUMNS

_BATCH_ROW_COUNT = 8192
_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
SCHEMAS: Mapping[str, Any] = {  # Any: Arrow has no types
    table: pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])
    for table, columns in ((OBSERVATIONS, OBSERVATION_COLUMNS), (SPEND, SPEND_COLUMNS))
}


class FilesError(Exception):
    """The files cannot be written or read; the message says why."""


def file_system(destination: str) -> tuple[Any, str]:
    """Arrow's file system for a destination, and the path in it (Any: Arrow has no types). Raises FilesError."""
    if re.match("[a-z0-9]+:/", destination) and not BUCKET.match(destination):
        raise FilesError(f"{destination} is neither a folder nor s3://bucket/prefix")
    if not BUCKET.match(destination):
        return fs.LocalFileSystem(), str(Path(destination).absolute())
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    options: dict[str, Any] = {
        "region": os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        "allow_delayed_open": True,  # a small file is one request, which cannot leave an unfinished upload
    }
    if endpoint:
        parts = urlsplit(endpoint)
        options |= {"endpoint_override": parts.netloc, "scheme": parts.scheme}
    try:
        return fs.S3FileSystem(**options), destination.removeprefix("s3://").rstrip("/")
    except (OSError, ValueError) as trouble:
        raise FilesError(f"{destination} cannot be reached: {trouble}") from trouble


def write(destination: str, path: str, table: str, rows: Iterable[Mapping[str, Any]]) -> int:
    """Replace one file as a whole; returns the number of rows. Without rows no file is written. Raises FilesError."""
    system, root = file_system(destination)
    name, count, rows = f"{root}/{path}", 0, iter(rows)
    batches = _batches(rows, SCHEMAS[table])
    first = next(batches, None)
    if first is None:
        return 0
    folder, _, file_name = name.rpartition("/")
    is_local = isinstance(system, fs.LocalFileSystem)
    written = f"{folder}/.{file_name}" if is_local else name  # readers skip names that begin with a dot
    try:
        if is_local:
            system.create_dir(folder, recursive=True)
        with pq.ParquetWriter(written, SCHEMAS[table], filesystem=system, compression="zstd") as writer:
            for batch in (first, *batches):
                writer.write_batch(batch)
                count += batch.num_rows
        if is_local:
            system.move(written, name)
    except OSError as trouble:
        raise FilesError(f"{destination}/{path} cannot be written: {trouble}") from trouble
    return count


def _batches(rows: Iterator[Mapping[str, Any]], schema: Any) -> Iterator[Any]:
    while some := list(islice(rows, _BATCH_ROW_COUNT)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def dataset(source: str, table: str) -> Any:
    """All files of a table, with `day` and `host` from their paths. Raises FilesError."""
    system, root = file_system(source)
    partitioning = ds.partitioning(pa.schema([("day", pa.string()), ("host", pa.string())]), flavor="hive")
    schema = pa.schema([*SCHEMAS[table], ("day", pa.string()), ("host", pa.string())])
    try:
        is_there = system.get_file_info(f"{root}/{table}").type is fs.FileType.Directory
        if not is_there and table == OBSERVATIONS:
            raise FilesError(
                f"there are no observations in {source}: `penstock observations --to` writes them"
            )
        if not is_there:
            return pa.table({field.name: pa.array([], field.type) for field in schema})
        return ds.dataset(
            f"{root}/{table}", format="parquet", filesystem=system, partitioning=partitioning, schema=schema
        )
    except OSError as trouble:
        raise FilesError(f"{source} cannot be read: {trouble}") from trouble
