"""Knows what Hadoop's s3a, Spark and the AWS SDK for Java 2 can be told about uploads.

From Hadoop 3.5 and the sources of the AWS SDK for Java 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.targets.target import Option, Target, assignments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.targets.advised import Upload
    from penstock.client.targets.target import Translation

INT_MAX = (1 << 31) - 1
"""s3a holds part size and threshold in a Java int."""


def _s3a(advised: Upload) -> Iterator[Option]:
    part = min(advised.part_size_bytes, INT_MAX)
    threshold = min(advised.multipart_threshold_bytes, INT_MAX)
    yield Option("", "fs.s3a.threads.max", advised.thread_count, ("thread_count",))
    yield Option("", "fs.s3a.fast.upload.active.blocks", advised.part_concurrency, ("thread_count",))
    yield Option("", "fs.s3a.connection.maximum", advised.connection_pool_count, ("connection_pool_count",))
    yield Option("", "fs.s3a.multipart.size", part, ("part_size_bytes",))
    yield Option("", "fs.s3a.multipart.threshold", threshold, ("multipart_threshold_bytes",))


def _spark(advised: Upload) -> Iterator[Option]:
    for option in _s3a(advised):
        yield option._replace(name=f"spark.hadoop.{option.name}")


def _hadoop_flags(translation: Translation) -> list[str]:
    return [" ".join(f"-D{option.name}={option.value}" for option in translation.options)]


def _spark_flags(translation: Translation) -> list[str]:
    return [" ".join(f"--conf {option.name}={option.value}" for option in translation.options)]


def _site_xml(translation: Translation) -> list[str]:
    return [
        f"<property><name>{option.name}</name><value>{option.value}</value></property>"
        for option in translation.options
    ]


def _java_sdk(advised: Upload) -> Iterator[Option]:
    crt, split, http = "S3CrtAsyncClientBuilder", "MultipartConfiguration", "NettyNioAsyncHttpClient"
    yield Option(crt, "maxConcurrency", advised.thread_count, ("thread_count", "connection_pool_count"))
    yield Option(crt, "minimumPartSizeInBytes", advised.part_size_bytes, ("part_size_bytes",))
    yield Option(crt, "thresholdInBytes", advised.multipart_threshold_bytes, ("multipart_threshold_bytes",))
    # Without the CRT, parts in flight are those for which there is room in its buffer.
    buffer_bytes = advised.part_concurrency * advised.part_size_bytes
    yield Option(split, "apiCallBufferSizeInBytes", buffer_bytes, ("thread_count",))
    yield Option(split, "minimumPartSizeInBytes", advised.part_size_bytes, ("part_size_bytes",))
    yield Option(split, "thresholdInBytes", advised.multipart_threshold_bytes, ("multipart_threshold_bytes",))
    yield Option(http, "maxConcurrency", advised.connection_pool_count, ("connection_pool_count",))


def _java(translation: Translation) -> list[str]:
    """Calls of each builder; a long literal has an L."""
    lines = []
    for group, options in translation.groups().items():
        calls = "".join(
            f".{name}({value}{'L' if name.endswith('InBytes') else ''})" for name, value in options.items()
        )
        lines.append(f"{group}.builder(){calls}" if group != "S3CrtAsyncClientBuilder" else _crt(calls))
    return lines


def _crt(calls: str) -> str:
    return f"S3AsyncClient.crtBuilder(){calls}"


_S3A_REASONS = {
    "rate_limit_bytes_per_second": "it limits operations per second, not bytes",
    "hedge_timeout_seconds": "it has no hedged requests",
}

TARGETS = (
    Target(
        name="hadoop-s3a",
        operation="s3_upload",
        purpose="properties of fs.s3a, for core-site.xml or as -D flags",
        say=_s3a,
        reasons=_S3A_REASONS,
        writers={"config": _site_xml, "flags": _hadoop_flags},
        comment="<!--",
    ),
    Target(
        name="spark",
        operation="s3_upload",
        purpose="the same properties for spark-defaults.conf, or as --conf flags",
        say=_spark,
        reasons=_S3A_REASONS,
        writers={"config": assignments(" "), "flags": _spark_flags},
    ),
    Target(
        name="java-sdk-v2",
        operation="s3_upload",
        purpose="builders of the AWS SDK for Java 2, with the CRT and without",
        say=_java_sdk,
        reasons={
            "rate_limit_bytes_per_second": "targetThroughputInGbps is a target, which sets connections; not a limit",
            "hedge_timeout_seconds": "the CRT decides by itself; without it there are no hedged requests",
        },
        writers={"config": _java},
        comment="//",
    ),
)
