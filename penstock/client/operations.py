"""Knows the operations as applications see them: names, the SDK's defaults, and which fields a setting must have.

Applications import nothing of the daemon, so its table is not available here; a contract test keeps the two equal.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping, Set
    from typing import Final, Literal

    Operation = Literal["s3_upload", "s3_download", "sqs_delivery"]

MiB = 1 << 20
S3_UPLOAD: Final = "s3_upload"
S3_DOWNLOAD: Final = "s3_download"
SQS_DELIVERY: Final = "sqs_delivery"
BATCH_MESSAGE_COUNT_MAX = 10  # messages in one request to SQS

SDK_DEFAULTS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    S3_UPLOAD: {
        "setting": {"thread_count": 10, "part_size_bytes": 8 * MiB},
        "derived": {"multipart_threshold_bytes": 8 * MiB, "connection_pool_count": 10},
    },
    S3_DOWNLOAD: {
        "setting": {"thread_count": 10, "range_size_bytes": 8 * MiB},
        "derived": {"multipart_threshold_bytes": 8 * MiB, "connection_pool_count": 10},
    },
    SQS_DELIVERY: {
        "setting": {
            "sender_thread_count": 1,
            "receiver_thread_count": 1,
            "deleter_thread_count": 1,
            "batch_message_count": 1,
            "send_rate_limit_messages_per_second": 0.0,
            "send_window_message_count": 0,
            "receive_window_message_count": 0,
        },
        "derived": {"connection_pool_count": 10},
    },
}
"""What boto3 does without advice."""

ADVISED_FIELDS: Mapping[str, Set[str]] = {
    operation: default["setting"].keys() for operation, default in SDK_DEFAULTS.items()
}
"""The fields that every setting of an operation has; unknown operations promise none."""
