"""Knows what s5cmd, rclone, the AWS CLI and Mountpoint can be told about uploads.

From the sources of s5cmd 2.3, rclone 1.76 and the AWS CLI 1.46 and 2.36, and of Mountpoint for Amazon S3 1.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from penstock.client.targets.advised import MiB
from penstock.client.targets.python_sdks import CRT_GBPS_PER_CONNECTION
from penstock.client.targets.target import Option, Target, assignments, environment, flags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.targets.advised import Upload
    from penstock.client.targets.target import Translation

CRT_CONNECTION_COUNT_MIN = 10
"""What the CRT opens at the least, whatever its target."""


def _s5cmd(advised: Upload) -> Iterator[Option]:
    yield Option("s5cmd", "--numworkers", advised.object_concurrency, ("thread_count",))
    yield Option("cp", "--concurrency", advised.part_concurrency, ("thread_count",))
    yield Option("cp", "--part-size", ceil(advised.part_size_bytes / MiB), ("part_size_bytes",))


def _s5cmd_flags(translation: Translation) -> list[str]:
    """Workers belong before the verb, the rest behind it; so the verb is among them."""
    groups = translation.groups()
    words = [f"{name} {value}" for name, value in groups["s5cmd"].items()]
    return [" ".join([*words, "cp", *(f"{name} {value}" for name, value in groups["cp"].items())])]


def _rclone(advised: Upload) -> Iterator[Option]:
    yield Option("", "--transfers", advised.object_concurrency, ("thread_count",))
    yield Option("", "--s3-upload-concurrency", advised.part_concurrency, ("thread_count",))
    yield Option("", "--s3-chunk-size", _rclone_size(advised.part_size_bytes), ("part_size_bytes",))
    yield Option(
        "",
        "--s3-upload-cutoff",
        _rclone_size(advised.multipart_threshold_bytes),
        ("multipart_threshold_bytes",),
    )
    if advised.rate_limit_bytes_per_second is not None:
        limit = f"{advised.rate_limit_bytes_per_second}B"
        yield Option("", "--bwlimit", limit, ("rate_limit_bytes_per_second",))


def _rclone_size(size_bytes: int) -> str:
    return f"{size_bytes // MiB}Mi" if size_bytes % MiB == 0 else f"{size_bytes}B"


def rclone_variable(flag: str) -> str:
    """The environment variable that rclone reads in place of a flag."""
    return "RCLONE_" + flag.lstrip("-").upper().replace("-", "_")


def _rclone_remote(translation: Translation) -> list[str]:
    """What a remote in rclone.conf can hold; the rest is left to flags, and said so."""
    lines = []
    for option in translation.options:
        name = option.name.removeprefix("--s3-").replace("-", "_")
        is_of_remote = option.name.startswith("--s3-")
        lines.append(
            f"{name} = {option.value}" if is_of_remote else f"# only as a flag: {option.name} {option.value}"
        )
    return lines


def _aws_cli(advised: Upload) -> Iterator[Option]:
    yield Option("s3", "max_concurrent_requests", advised.thread_count, ("thread_count",))
    yield Option("s3", "multipart_chunksize", advised.part_size_bytes, ("part_size_bytes",))
    yield Option(
        "s3", "multipart_threshold", advised.multipart_threshold_bytes, ("multipart_threshold_bytes",)
    )
    if advised.rate_limit_bytes_per_second is not None:
        limit = f"{max(1, advised.rate_limit_bytes_per_second // 1024)}KB/s"  # its KB has 1,024 bytes
        yield Option("s3", "max_bandwidth", limit, ("rate_limit_bytes_per_second",))
    # Version 2 may choose the CRT by itself, which ignores the number of requests; version 1 passes over this.
    yield Option("s3", "preferred_transfer_client", "classic", ("thread_count",))


def _aws_commands(translation: Translation) -> list[str]:
    """Commands that change the profile in force: AWS_PROFILE, else the default."""
    return [
        f"aws configure set {option.group}.{option.name} {option.value}" for option in translation.options
    ]


def _aws_section(translation: Translation) -> list[str]:
    return ["s3 =", *assignments(" = ", prefix="  ")(translation)]


def _mountpoint(advised: Upload) -> Iterator[Option]:
    gbps = round(CRT_GBPS_PER_CONNECTION * advised.thread_count, 1)
    fields = ("thread_count",) if advised.thread_count >= CRT_CONNECTION_COUNT_MIN else ()
    yield Option("", "--maximum-throughput-gbps", gbps, fields)
    yield Option("", "--write-part-size", advised.part_size_bytes, ("part_size_bytes",))


TARGETS = (
    Target(
        name="aws-cli",
        operation="s3_upload",
        purpose="`aws configure set` lines, or the s3 section of a profile (versions 1 and 2)",
        say=_aws_cli,
        reasons={
            "connection_pool_count": "it has no key for it; version 1 keeps 10 connections",
            "hedge_timeout_seconds": "it has no hedged requests",
        },
        writers={"commands": _aws_commands, "config": _aws_section},
    ),
    Target(
        name="s5cmd",
        operation="s3_upload",
        purpose="flags of s5cmd, with the verb cp among them",
        say=_s5cmd,
        reasons={
            "multipart_threshold_bytes": "it splits what is larger than one part, always",
            "connection_pool_count": "it opens a connection for each request in flight, and has no flag for it",
            "rate_limit_bytes_per_second": "it has no limit on bandwidth",
            "hedge_timeout_seconds": "it has no hedged requests",
        },
        writers={"flags": _s5cmd_flags},
    ),
    Target(
        name="rclone",
        operation="s3_upload",
        purpose="flags, environment, or a remote's lines in rclone.conf",
        say=_rclone,
        reasons={
            "connection_pool_count": "it keeps 2 x (checkers + transfers + 1) connections, and has no flag for it",
            "hedge_timeout_seconds": "it has no hedged requests",
        },
        writers={"flags": flags(" "), "env": environment(rclone_variable), "config": _rclone_remote},
    ),
    Target(
        name="mountpoint",
        operation="s3_upload",
        purpose="flags of mount-s3",
        say=_mountpoint,
        reasons={
            "thread_count": "it opens 10 connections at the least",
            "multipart_threshold_bytes": "it uploads everything in parts",
            "connection_pool_count": "it has as many connections as its throughput asks for",
            "rate_limit_bytes_per_second": "--maximum-throughput-gbps sets connections, and limits nothing",
            "hedge_timeout_seconds": "it decides by itself, from the times that it sees",
        },
        writers={"flags": flags(" ")},
    ),
)
