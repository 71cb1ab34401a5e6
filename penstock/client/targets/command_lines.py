"""Knows what s5cmd, rclone, the AWS CLI, Mountpoint and WAL-G can be told.

From the sources of s5cmd 2.3, rclone 1.76 and the AWS CLI 1.46, 2.9 and 2.36, and from Mountpoint for Amazon S3 1.24
and WAL-G 3.0.9, which were run.
"""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from penstock.client.targets.advised import MiB
from penstock.client.targets.python_sdks import CRT_CONNECTION_COUNT_MIN, CRT_GBPS_PER_CONNECTION
from penstock.client.targets.target import (
    WHOLE_OBJECTS,
    Option,
    assignments,
    both_ways,
    carried,
    environment,
    flags,
    lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.targets.advised import Transfer
    from penstock.client.targets.target import Translation


def _s5cmd(advised: Transfer) -> Iterator[Option]:
    advised = advised.in_multiples_of(MiB)
    yield Option("s5cmd", "--numworkers", advised.object_concurrency, ("thread_count",))
    yield Option("cp", "--concurrency", advised.request_concurrency, ("thread_count",))
    yield Option("cp", "--part-size", advised.request_size_bytes // MiB, (advised.size_knob,))


def _s5cmd_flags(translation: Translation) -> list[str]:
    """Workers go before the verb and the rest after it, so the verb is part of the line."""
    groups = translation.groups()
    words = [f"{name} {value}" for name, value in groups["s5cmd"].items()]
    return [" ".join([*words, "cp", *(f"{name} {value}" for name, value in groups["cp"].items())])]


def _rclone(advised: Transfer) -> Iterator[Option]:
    yield Option("", "--transfers", advised.object_concurrency, ("thread_count",))
    yield Option("", "--s3-upload-concurrency", advised.request_concurrency, ("thread_count",))
    yield from _rclone_sizes(advised, "--s3-chunk-size", "--s3-upload-cutoff")


def _rclone_download(advised: Transfer) -> Iterator[Option]:
    yield Option("", "--transfers", advised.object_concurrency, ("thread_count",))
    yield Option("", "--multi-thread-streams", advised.request_concurrency, ("thread_count",))
    yield from _rclone_sizes(advised, "--multi-thread-chunk-size", "--multi-thread-cutoff")


def _rclone_sizes(advised: Transfer, chunk: str, cutoff: str) -> Iterator[Option]:
    yield Option("", chunk, _rclone_size(advised.request_size_bytes), (advised.size_knob,))
    threshold = _rclone_size(advised.multipart_threshold_bytes)
    yield Option("", cutoff, threshold, ("multipart_threshold_bytes",))
    if advised.rate_limit_bytes_per_second is not None:
        limit = f"{advised.rate_limit_bytes_per_second}B"
        yield Option("", "--bwlimit", limit, ("rate_limit_bytes_per_second",))


def _rclone_size(size_bytes: int) -> str:
    return f"{size_bytes // MiB}Mi" if size_bytes % MiB == 0 else f"{size_bytes}B"


def rclone_variable(flag: str) -> str:
    """The environment variable that rclone reads in place of a flag."""
    return "RCLONE_" + flag.lstrip("-").upper().replace("-", "_")


def _rclone_remote(option: Option) -> str:
    """A line for a remote in rclone.conf; options that only a flag can set become comments."""
    if option.name.startswith("--s3-"):
        return f"{option.name.removeprefix('--s3-').replace('-', '_')} = {option.value}"
    return f"# only as a flag: {option.name} {option.value}"


def _aws_cli(advised: Transfer) -> Iterator[Option]:
    yield Option("s3", "max_concurrent_requests", advised.thread_count, ("thread_count",))
    yield from carried(advised, "s3", {"multipart_chunksize": "request_size_bytes"})
    yield from carried(advised, "s3", {"multipart_threshold": "multipart_threshold_bytes"})
    # Newer ones of version 2 read so much of the network at a time; version 1 and 2.9 ignore it.
    yield from carried(advised, "s3", {"io_chunksize": "io_chunk_bytes"})
    if advised.rate_limit_bytes_per_second is not None:
        limit = f"{max(1, advised.rate_limit_bytes_per_second // 1024)}KB/s"  # its KB has 1,024 bytes
        yield Option("s3", "max_bandwidth", limit, ("rate_limit_bytes_per_second",))
    # Version 2 may choose the CRT on its own, which ignores the number of requests; version 1 ignores this setting.
    # "default" is the older name of "classic"; with the newer name, 2.9, as in Debian 12, refuses every transfer.
    yield Option("s3", "preferred_transfer_client", "default", ("thread_count",))


def _aws_section(translation: Translation) -> list[str]:
    return ["s3 =", *assignments(" = ", prefix="  ")(translation)]


def _mountpoint(advised: Transfer, size_flag: str = "--write-part-size") -> Iterator[Option]:
    gbps = ceil(round(CRT_GBPS_PER_CONNECTION * advised.thread_count, 1))  # it takes only integers
    fields = ("thread_count",) if advised.thread_count >= CRT_CONNECTION_COUNT_MIN else ()
    yield Option("", "--maximum-throughput-gbps", gbps, fields)
    yield from carried(advised, "", {size_flag: "request_size_bytes"})


def _wal_g(advised: Transfer) -> Iterator[Option]:
    # One number is both the files that wal-push sends at a time and the parts of each: 3 meant 9 parts (seen in 3.0.9).
    parts = ceil(advised.object_size_bytes / advised.request_size_bytes)
    most = max(
        each
        for each in range(1, advised.thread_count + 1)
        if min(each, advised.object_count) * min(each, parts) <= advised.thread_count
    )
    yield Option("", "WALG_UPLOAD_CONCURRENCY", most, ("thread_count",))
    yield from carried(advised, "", {"WALG_S3_MAX_PART_SIZE": "request_size_bytes"})
    yield from carried(advised, "", _WAL_G_LIMIT)


def _wal_g_download(advised: Transfer) -> Iterator[Option]:
    yield Option("", "WALG_DOWNLOAD_CONCURRENCY", advised.thread_count, ("thread_count",))
    yield from carried(advised, "", _WAL_G_LIMIT)


_WAL_G_LIMIT = {"WALG_NETWORK_RATE_LIMIT": "rate_limit_bytes_per_second"}


TARGETS = (
    *both_ways(
        "aws-cli",
        upload=("`aws configure set` lines, or the s3 section of a profile (versions 1 and 2)", _aws_cli),
        download=("the same for downloads", _aws_cli),
        reasons={"connection_pool_count": "it has no key for it, and keeps 10 idle connections"},
        download_reasons=WHOLE_OBJECTS,
        # These commands change the active profile: AWS_PROFILE, else the default.
        writers={
            "commands": lines(lambda o: f"aws configure set {o.group}.{o.name} {o.value}"),
            "config": _aws_section,
        },
    ),
    *both_ways(
        "s5cmd",
        upload=("flags of s5cmd, with the verb cp among them", _s5cmd),
        download=("the same for downloads", _s5cmd),
        reasons={
            "multipart_threshold_bytes": "it splits what is larger than one part, always",
            "connection_pool_count": "it opens a connection for each request in flight, and has no flag for it",
            "rate_limit_bytes_per_second": "it has no limit on bandwidth",
        },
        download_reasons=WHOLE_OBJECTS,
        writers={"flags": _s5cmd_flags},
    ),
    *both_ways(
        "rclone",
        upload=("flags, environment, or a remote's lines in rclone.conf", _rclone),
        download=("flags or environment: streams and cut-off of multi-thread downloads", _rclone_download),
        reasons={
            "connection_pool_count": "it keeps 2 x (checkers + transfers + 1) connections, and has no flag for it"
        },
        download_reasons=WHOLE_OBJECTS,
        writers={"flags": flags(" "), "env": environment(rclone_variable), "config": lines(_rclone_remote)},
        download_writers={"flags": flags(" "), "env": environment(rclone_variable)},
    ),
    *both_ways(
        "mountpoint",
        upload=("flags of mount-s3", _mountpoint),
        download=("the same for reading", partial(_mountpoint, size_flag="--read-part-size")),
        reasons={
            "thread_count": "it opens 10 connections at the least",
            "connection_pool_count": "it has as many connections as its throughput asks for",
            "multipart_threshold_bytes": "it uploads everything in parts",
            "rate_limit_bytes_per_second": "--maximum-throughput-gbps sets connections, and limits nothing",
            "hedge_timeout_seconds": "it decides by itself, from the times that it sees",
        },
        download_reasons={
            "multipart_threshold_bytes": "it reads everything in parts",
            "read_ahead_bytes": "it doubles what it reads ahead as long as a file is read in order",
            "block_size_bytes": "it begins with 1.125 MiB, and doubles what it reads ahead",
            "coalesced_gap_bytes": "it reads through 16 MiB at the most, and has no flag for it",
        },
        writers={"flags": flags(" ")},
    ),
    *both_ways(
        "wal-g",
        upload=("environment of WAL-G, for backup-push and wal-push", _wal_g),
        download=(
            "environment of WAL-G, for backup-fetch and wal-fetch; each file is one request",
            _wal_g_download,
        ),
        reasons={
            "connection_pool_count": "it opens a connection for each request in flight, and has no setting for it",
            "multipart_threshold_bytes": "it splits what is larger than one part, always",
        },
        download_reasons={
            **WHOLE_OBJECTS,
            "range_size_bytes": "it reads each file in one request",
            "multipart_threshold_bytes": "it reads each file in one request",
        },
        writers={"env": environment(str)},
    ),
)
