"""Knows what Hadoop's s3a, Spark, Flink and the AWS SDK for Java 2 can be told.

From Hadoop 3.5, flink-s3-fs-hadoop 2.3, which contains Hadoop 3.3, and the AWS SDK for Java 2.59; all were run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.targets.target import Option, assignments, both_ways, carried, flags, lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.client.targets.advised import Transfer
    from penstock.client.targets.target import Translation

INT_MAX = (1 << 31) - 1
"""s3a holds part size and threshold in a Java int."""


def _s3a(advised: Transfer) -> Iterator[Option]:
    yield from _s3a_streams(advised)
    if not advised.is_whole:
        # Otherwise FileSystem.copyFromLocalFile sends a file of any size in one request (observed with Hadoop 3.5).
        yield Option("", "fs.s3a.optimized.copy.from.local.enabled", "false", ("part_size_bytes",))


def _s3a_streams(advised: Transfer, s3a: str = "fs.s3a") -> Iterator[Option]:
    part = min(advised.request_size_bytes, INT_MAX)
    threshold = min(advised.multipart_threshold_bytes, INT_MAX)
    yield from _s3a_connections(advised, s3a)
    yield Option("", f"{s3a}.fast.upload.active.blocks", advised.request_concurrency, ("thread_count",))
    yield Option("", f"{s3a}.multipart.size", part, ("part_size_bytes",))
    yield Option("", f"{s3a}.multipart.threshold", threshold, ("multipart_threshold_bytes",))


def _s3a_connections(advised: Transfer, s3a: str = "fs.s3a") -> Iterator[Option]:
    yield Option("", f"{s3a}.threads.max", advised.thread_count, ("thread_count",))
    yield Option("", f"{s3a}.connection.maximum", advised.connection_pool_count, ("connection_pool_count",))


def _s3a_download(advised: Transfer) -> Iterator[Option]:
    yield from _s3a_connections(advised)
    yield from _s3a_ranges(advised) if advised.is_random else _s3a_blocks(advised)


def _s3a_ranges(advised: Transfer) -> Iterator[Option]:
    """For columns of a file: vectored reads of ranges.

    Since Hadoop 3.4.3 the default stream is the Analytics Accelerator's (HADOOP-19559), which merges no ranges and
    ignores all of these options.
    """
    active, vectored = advised.request_concurrency, "fs.s3a.vectored"
    yield Option("", "fs.s3a.input.stream.type", "classic", ())
    yield Option("", "fs.s3a.experimental.input.fadvise", "random", ())
    yield Option("", f"{vectored}.active.ranged.reads", active, ("thread_count",))
    largest = min(max(advised.request_size_bytes, advised.block_size_bytes or 0), INT_MAX)
    fields = ("range_size_bytes", "block_size_bytes")
    yield Option("", f"{vectored}.read.max.merged.size", largest, fields)
    if advised.coalesced_gap_bytes is not None:
        gap = min(advised.coalesced_gap_bytes, INT_MAX)
        yield Option("", f"{vectored}.read.min.seek.size", gap, ("coalesced_gap_bytes",))
        # The gap up to which a forward seek reads on over its open connection.
        yield Option("", "fs.s3a.readahead.range", gap, ("coalesced_gap_bytes",))


def _s3a_blocks(advised: Transfer) -> Iterator[Option]:
    """For whole files in sequence: blocks that are prefetched."""
    block, count = min(advised.request_size_bytes, INT_MAX), advised.request_concurrency
    yield Option("", "fs.s3a.input.stream.type", "prefetch", ())
    yield Option("", "fs.s3a.prefetch.block.size", block, ("range_size_bytes", "block_size_bytes"))
    yield Option("", "fs.s3a.prefetch.block.count", count, ("thread_count", "read_ahead_bytes"))


def _flink(advised: Transfer) -> Iterator[Option]:
    yield Option("", "s3.upload.max.concurrent.uploads", advised.request_concurrency, ("thread_count",))
    yield from carried(advised, "", {"s3.upload.min.part.size": "request_size_bytes"})
    # Flink passes all other s3.* options to s3a as fs.s3a.*; s3a also writes the streams of checkpoints.
    yield from _s3a_streams(advised, "s3")


def _flink_download(advised: Transfer) -> Iterator[Option]:
    yield from _s3a_connections(advised, "s3")
    yield from carried(advised, "", {"s3.readahead.range": "coalesced_gap_bytes"})


def _in_spark(say: Callable[[Transfer], Iterator[Option]]) -> Callable[[Transfer], Iterator[Option]]:
    """The same s3a properties, under their names in Spark."""
    return lambda advised: (o._replace(name=f"spark.hadoop.{o.name}") for o in say(advised))


def _site_xml(option: Option) -> str:
    return f"<property><name>{option.name}</name><value>{option.value}</value></property>"


def _java_sdk(advised: Transfer) -> Iterator[Option]:
    crt, split, http = "S3CrtAsyncClientBuilder", "MultipartConfiguration", "NettyNioAsyncHttpClient"
    yield Option(crt, "maxConcurrency", advised.thread_count, ("thread_count", "connection_pool_count"))
    yield from carried(advised, crt, {"minimumPartSizeInBytes": "request_size_bytes"})
    yield Option(crt, "thresholdInBytes", advised.multipart_threshold_bytes, ("multipart_threshold_bytes",))
    # Without the CRT, the buffer limits the read-ahead of a stream but not the parts: all parts of a file went at once.
    active = advised.request_concurrency
    buffer_bytes = active * advised.request_size_bytes
    yield Option("ParallelConfiguration", "maxInFlightParts", active, ("thread_count",))
    yield Option(split, "apiCallBufferSizeInBytes", buffer_bytes, ("thread_count",))
    yield from carried(advised, split, {"minimumPartSizeInBytes": "request_size_bytes"})
    yield Option(split, "thresholdInBytes", advised.multipart_threshold_bytes, ("multipart_threshold_bytes",))
    yield Option(http, "maxConcurrency", advised.connection_pool_count, ("connection_pool_count",))


def _java_sdk_download(advised: Transfer) -> Iterator[Option]:
    crt, http = "S3CrtAsyncClientBuilder", "NettyNioAsyncHttpClient"
    yield Option(crt, "maxConcurrency", advised.thread_count, ("thread_count", "connection_pool_count"))
    yield from carried(advised, crt, {"minimumPartSizeInBytes": "request_size_bytes"})
    yield from carried(advised, crt, {"initialReadBufferSizeInBytes": "read_ahead_bytes"})
    # Without the CRT, an object is read in the same parts in which it was uploaded.
    active = advised.request_concurrency
    yield Option("ParallelConfiguration", "maxInFlightParts", active, ("thread_count",))
    yield Option(http, "maxConcurrency", advised.connection_pool_count, ("connection_pool_count",))


def _java(translation: Translation) -> list[str]:
    """Calls of each builder; long literals end in L."""
    written = []
    for group, options in translation.groups().items():
        calls = "".join(
            f".{name}({value}{'L' if name.endswith('InBytes') else ''})" for name, value in options.items()
        )
        is_crt = group == "S3CrtAsyncClientBuilder"
        written.append(f"{'S3AsyncClient.crtBuilder' if is_crt else f'{group}.builder'}(){calls}")
    return written


_S3A_REASONS = {"rate_limit_bytes_per_second": "it limits operations per second, not bytes"}
_S3A_DOWNLOAD_REASONS = {
    "multipart_threshold_bytes": "how a stream is read does not follow from the size of its file",
    "read_ahead_bytes": "vectored reads fetch what they are asked for, and nothing ahead",
    "coalesced_gap_bytes": "blocks are read whole, with the gaps in them",
}
TARGETS = (
    *both_ways(
        "hadoop-s3a",
        upload=("properties of fs.s3a, for core-site.xml or as -D flags", _s3a),
        download=(
            "properties of fs.s3a for reading: prefetched blocks, or with --access random vectored reads",
            _s3a_download,
        ),
        reasons=_S3A_REASONS,
        download_reasons=_S3A_DOWNLOAD_REASONS,
        writers={"config": lines(_site_xml), "flags": flags("=", prefix="-D")},
        comment="<!--",
    ),
    *both_ways(
        "spark",
        upload=("the same properties for spark-defaults.conf, or as --conf flags", _in_spark(_s3a)),
        download=(
            "the same properties for spark-defaults.conf; Parquet and ORC want --access random",
            _in_spark(_s3a_download),
        ),
        reasons=_S3A_REASONS,
        download_reasons=_S3A_DOWNLOAD_REASONS,
        writers={"config": assignments(" "), "flags": flags("=", prefix="--conf ")},
    ),
    *both_ways(
        "flink",
        upload=("lines of Flink's config.yaml, for the plugin flink-s3-fs-hadoop", _flink),
        download=("the same for reading; each stream is one request after another", _flink_download),
        reasons=_S3A_REASONS,
        download_reasons={
            **_S3A_DOWNLOAD_REASONS,
            **dict.fromkeys(
                ("range_size_bytes", "block_size_bytes", "read_ahead_bytes"),
                "a stream is read in one request, from where it was opened",
            ),
        },
        writers={"config": assignments(": ")},
    ),
    *both_ways(
        "java-sdk-v2",
        upload=("builders of the AWS SDK for Java 2, with the CRT and without", _java_sdk),
        download=(
            "builders of the AWS SDK for Java 2 for downloads, with the CRT and without",
            _java_sdk_download,
        ),
        reasons={
            "rate_limit_bytes_per_second": "targetThroughputInGbps is a target, which sets connections; not a limit",
            "hedge_timeout_seconds": "the CRT decides by itself; without it there are no hedged requests",
        },
        download_reasons={
            "multipart_threshold_bytes": "thresholdInBytes is of uploads; it reads in parts what is larger than one",
            "block_size_bytes": "it hands on what arrives, and has no blocks",
            "coalesced_gap_bytes": "each getObject has one range",
        },
        writers={"config": _java},
        comment="//",
    ),
)
