"""Knows what a consumer of a queue reports: requests, messages and durations since the last report."""

from __future__ import annotations

import time

from penstock.client.sdk_client import refusal_of

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

THROTTLED = frozenset(
    {
        *("RequestThrottled", "ThrottlingException", "Throttling", "OverLimit"),
        *("KmsThrottled", "KMS.ThrottlingException"),  # by the key that encrypts the queue
    }
)


class Figures:
    """What happened since the last report."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.received_count = self.received_bytes = self.duplicate_count = self.deleted_count = 0
        self.receive_request_count = self.empty_receive_count = self.delete_request_count = 0
        self.throttled_count = self.failed_count = self.retried_count = 0
        self.receive_seconds = self.delete_seconds = self.oldest_seconds_max = 0.0
        self.worked_count, self.work_seconds, self.unhandled_count = 0, 0.0, 0

    @property
    def duration_seconds(self) -> float:
        return max(1e-6, time.perf_counter() - self._began)  # some clocks move in steps

    def note_receive(self, messages: Sequence[Mapping[str, Any]], seconds: float, *, new_count: int) -> None:
        if not messages:
            self.empty_receive_count += 1
            return
        self.receive_request_count += 1
        self.receive_seconds += seconds
        self.received_count += len(messages)
        self.received_bytes += sum(len(message.get("Body") or "") for message in messages)
        self.duplicate_count += len(messages) - new_count

    def note_delete(self, deleted_count: int, seconds: float) -> None:
        self.delete_request_count += 1
        self.delete_seconds += seconds
        self.deleted_count += deleted_count

    def note_work(self, seconds: float) -> None:
        self.worked_count += 1
        self.work_seconds += seconds

    def note_trouble(self, trouble: Exception) -> None:
        is_throttled = refusal_of(trouble)[0] in THROTTLED
        self.throttled_count += is_throttled
        self.failed_count += not is_throttled

    def report(self, setting: Mapping[str, float], *, client: str) -> dict[str, Any]:
        """The figures under the protocol's names. Senders are not seen here: the send rate is that of arrivals."""
        duration_seconds = self.duration_seconds
        mean_bytes = self.received_bytes / self.received_count
        failed_count = self.failed_count + self.retried_count
        requests = self.receive_request_count + self.empty_receive_count + self.delete_request_count
        return {
            "payload_size_bytes": max(1, round(mean_bytes)),
            "setting": {
                **setting,
                "send_rate_limit_messages_per_second": self.received_count / duration_seconds,
            },
            "duration_seconds": duration_seconds,
            "transferred_bytes": max(1, round(self.deleted_count * mean_bytes)),
            "request_count": requests + failed_count + self.throttled_count,
            "throttled_count": self.throttled_count,
            "failed_count": failed_count,
            "client": client,
            "measures": {
                "goodput_messages_per_second": self.deleted_count / duration_seconds,
                "receive_seconds_mean": self.receive_seconds / max(1, self.receive_request_count),
                "receive_request_count": self.receive_request_count,
                "received_count": self.received_count,
                "empty_receive_count": self.empty_receive_count,
                "delete_seconds_mean": self.delete_seconds / max(1, self.delete_request_count),
                "delete_request_count": self.delete_request_count,
                "deleted_count": self.deleted_count,
                "duplicate_count": self.duplicate_count,
                "oldest_undeleted_seconds_max": self.oldest_seconds_max,
            },
        }
