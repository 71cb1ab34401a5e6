"""Knows what known clients do by default: thread count and request size without advice.

From the documentation of each, as of November 2026: boto3 1.43 (TransferConfig), AWS CLI 2 (max_concurrent_requests,
multipart_chunksize), s5cmd 2.3 (--concurrency, --part-size, --numworkers), rclone 1.71 (s3-upload-concurrency,
s3-chunk-size, s3-upload-cutoff, multi-thread-streams, multi-thread-cutoff, transfers), feature/s3/manager of the AWS
SDK for Go 2, and lib-storage of the AWS SDK for JavaScript 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.client.operations import S3_DOWNLOAD, S3_UPLOAD, SDK_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Mapping

MiB = 1 << 20


class Unadvised(NamedTuple):
    """Requests of one object at a time, their size, from which object size on, and objects at a time that go whole."""

    thread_count: int
    request_size_bytes: int
    splits_from_bytes: int
    whole_thread_count: int


_BOTO3 = Unadvised(10, 8 * MiB, 8 * MiB, 10)
_S5CMD = Unadvised(5, 50 * MiB, 50 * MiB, 256)
_GO = Unadvised(5, 5 * MiB, 5 * MiB, 5)

_CLIENTS: Mapping[str, Mapping[str, Unadvised]] = {
    S3_UPLOAD: {
        "boto3": _BOTO3,
        "AWS CLI": _BOTO3,
        "s5cmd": _S5CMD,
        "rclone": Unadvised(4, 5 * MiB, 200 * MiB, 4),
        "AWS SDK for Go": _GO,
        "AWS SDK for JavaScript": Unadvised(4, 5 * MiB, 5 * MiB, 4),
    },
    S3_DOWNLOAD: {
        "boto3": _BOTO3,
        "AWS CLI": _BOTO3,
        "s5cmd": _S5CMD,
        "rclone": Unadvised(4, 64 * MiB, 256 * MiB, 4),
        "AWS SDK for Go": _GO,
    },
}
_SIZE_KNOBS = {S3_UPLOAD: "part_size_bytes", S3_DOWNLOAD: "range_size_bytes"}


def unadvised_settings(operation: str, payload_size_bytes: int) -> dict[str, dict[str, float]]:
    """By client, boto3 first: the values of the operation's knobs for a payload of this size."""
    if operation not in _CLIENTS:
        known = SDK_DEFAULTS.get(operation)
        return {"boto3": dict(known["setting"])} if known else {}
    return {
        client: _values(operation, one, payload_size_bytes) for client, one in _CLIENTS[operation].items()
    }


def _values(operation: str, client: Unadvised, payload_size_bytes: int) -> dict[str, float]:
    is_whole = payload_size_bytes < client.splits_from_bytes
    return {
        "thread_count": client.whole_thread_count if is_whole else client.thread_count,
        _SIZE_KNOBS[operation]: max(payload_size_bytes, 1) if is_whole else client.request_size_bytes,
    }
