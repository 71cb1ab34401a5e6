"""Advice as an application gets it: each call names only what its test is about."""

from typing import Any

from penstock.client.advice import Advice
from penstock.units import GiB, MiB

UNEXPIRED = "2999-01-01T00:00:00Z"


def an_answer(**changes: Any) -> dict[str, Any]:
    """Of a daemon, and sound but for the changes."""
    return {
        "operation": "s3_upload",
        "payload_size_bytes": GiB,
        "setting": {"thread_count": 8, "part_size_bytes": 8 * MiB},
        "derived": {},
        "basis": "measured",
        "explanation": "for a test",
        "expires_at": UNEXPIRED,
    } | changes


def an_advice(**changes: Any) -> Advice:
    """The same, as applications have it."""
    return Advice(an_answer(**changes))


def a_download_advice(size_bytes: int, threads: int, range_size_bytes: int, **changes: Any) -> Advice:
    """Of an object that is read."""
    setting = {"thread_count": threads, "range_size_bytes": range_size_bytes}
    return an_advice(operation="s3_download", payload_size_bytes=size_bytes, setting=setting, **changes)


def a_queue_advice(
    *, receivers: int = 3, deleters: int = 1, batch: int = 10, window: int = 0, **changes: Any
) -> Advice:
    """Of messages of a KiB through a queue; a window of 0 is none."""
    setting = {
        "sender_thread_count": 4,
        "receiver_thread_count": receivers,
        "deleter_thread_count": deleters,
        "batch_message_count": batch,
        "send_rate_limit_messages_per_second": 0.0,
        "send_window_message_count": 0,
        "receive_window_message_count": window,
    }
    return an_advice(operation="sqs_delivery", payload_size_bytes=1024, setting=setting, **changes)
