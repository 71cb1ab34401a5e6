"""Knows what DuckDB and PyArrow can be told about uploads.

From the sources of DuckDB's httpfs and of Arrow 26.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from penstock.client.targets.advised import PART_COUNT_MAX
from penstock.client.targets.target import Option, Target, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.targets.advised import Upload
    from penstock.client.targets.target import Translation

DUCKDB_BLOCK_BYTES = 1 << 18
"""httpfs rounds a part up to whole blocks of DuckDB's storage."""
DUCKDB_FILE_BYTES_MAX = 5 * 10**12
"""The largest s3_uploader_max_filesize; the smallest, 50 GB, is below 10,000 of the smallest parts."""


def _duckdb(advised: Upload) -> Iterator[Option]:
    # A part is the largest file over the number of parts: so the part is said by both together.
    part = ceil(advised.part_size_bytes / DUCKDB_BLOCK_BYTES) * DUCKDB_BLOCK_BYTES
    count = min(PART_COUNT_MAX, DUCKDB_FILE_BYTES_MAX // part)
    yield Option("", "s3_uploader_thread_limit", advised.part_concurrency, ("thread_count",))
    yield Option("", "s3_uploader_max_filesize", f"{part * count}B", ("part_size_bytes",))
    yield Option("", "s3_uploader_max_parts_per_file", count, ("part_size_bytes",))


def _sql(translation: Translation) -> list[str]:
    return [
        "LOAD httpfs;",
        *(f"SET {option.name} = {_literal(option.value)};" for option in translation.options),
    ]


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def _pyarrow(advised: Upload) -> Iterator[Option]:
    yield Option("", "io_thread_count", advised.thread_count, ("thread_count", "connection_pool_count"))


def _pyarrow_source(translation: Translation) -> list[str]:
    return [f"pyarrow.set_io_thread_count({option.value})" for option in translation.options]


TARGETS = (
    Target(
        name="duckdb",
        operation="s3_upload",
        purpose="SET statements for COPY ... TO 's3://...'",
        say=_duckdb,
        reasons={
            "multipart_threshold_bytes": "it splits what is larger than one part, always",
            "connection_pool_count": "it has a connection for each upload thread, and no setting for it",
            "rate_limit_bytes_per_second": "it has no limit on bandwidth",
            "hedge_timeout_seconds": "it has no hedged requests",
        },
        writers={"config": _sql},
        comment="--",
    ),
    Target(
        name="pyarrow",
        operation="s3_upload",
        purpose="the number of I/O threads of PyArrow, which also sets its connections",
        say=_pyarrow,
        reasons={
            "part_size_bytes": "its parts are 10 MiB; there is no option for them",
            "multipart_threshold_bytes": "it splits by its own part size, always",
            "rate_limit_bytes_per_second": "it has no limit on bandwidth",
            "hedge_timeout_seconds": "it has no hedged requests",
        },
        writers={"config": _pyarrow_source, "env": environment(lambda _: "ARROW_IO_THREADS")},
    ),
)
