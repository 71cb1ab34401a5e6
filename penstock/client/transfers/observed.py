"""Knows what botocore's events tell of transfers: requests tried, refused and lost, and how long parts took.

Of a GET they tell only when its answer began: the body is read later, without events.
"""

from __future__ import annotations

import os
import threading
import time
import weakref

from penstock.client.operations import S3_DOWNLOAD, S3_UPLOAD
from penstock.client.reporting import Reporter, default_reporter
from penstock.client.sdk_client import place_of

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from penstock.client.operations import Operation

    _Watch = dict[tuple[str, "str | None", str], "Observed"]

_UPLOADING = ("PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload")
_OPERATIONS = (*_UPLOADING, "GetObject")
_PART_OPERATIONS = frozenset({"PutObject", "UploadPart", "GetObject"})
_THROTTLED_STATUSES = frozenset({429, 503})
_PART_COUNT_MAX = 100_000  # how many parts' durations are kept


class Observed:
    """One transfer, or all of a bucket if `key` is None: each attempt at a request, and how long parts took."""

    def __init__(
        self, s3_client: Any, bucket: str, key: str | None = None, operation: Operation = S3_UPLOAD
    ) -> None:
        self._name = (bucket, key, operation)
        self._operation = operation
        self._place = place_of(bucket, s3_client)
        self._watch = _watch_of(s3_client)
        self._lock = threading.Lock()
        self.request_count = self.throttled_count = self.failed_count = 0
        self.part_seconds: list[float] = []
        self.duration_seconds = 0.0
        self._is_mixed = False  # with another transfer of the same name: requests cannot be told apart

    def __enter__(self) -> Observed:
        other = self._watch.get(self._name)
        if other is not None:
            self._is_mixed = other._is_mixed = True  # noqa: SLF001 - of this class
        self._watch[self._name] = self
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_trouble: object) -> None:
        self.duration_seconds = time.perf_counter() - self._began
        if self._watch.get(self._name) is self:
            del self._watch[self._name]

    def note_attempt(self, status: int | None) -> None:
        """Count an attempt by the HTTP status of its answer; None is no answer."""
        with self._lock:
            self.request_count += 1
            self.throttled_count += status in _THROTTLED_STATUSES
            self.failed_count += status is None or (status >= 400 and status not in _THROTTLED_STATUSES)

    def note_part(self, seconds: float) -> None:
        """Keep how long a part, or the whole object, took with all its attempts."""
        with self._lock:
            if len(self.part_seconds) < _PART_COUNT_MAX:
                self.part_seconds.append(seconds)

    def report(
        self,
        reporter: Reporter | None,
        size_bytes: int,
        setting: Mapping[str, float],
        *,
        transferred_bytes: int,
        client: str,
        sink_bytes_per_second: float | None = None,
    ) -> None:
        """Report what objects of this size did and, if it was seen, how fast the file took the data.

        Transfers that were mixed with another of the same name are not reported: they are evidence of neither.
        """
        if self._is_mixed:
            return
        measures = {} if sink_bytes_per_second is None else {"sink_bytes_per_second": sink_bytes_per_second}
        if self._operation == S3_DOWNLOAD and self.part_seconds:
            measures["first_byte_seconds_mean"] = sum(self.part_seconds) / len(self.part_seconds)
        (reporter or default_reporter()).report(
            self._operation,
            size_bytes,
            setting,
            transferred_bytes=transferred_bytes,
            client=client,
            **self._place,
            measures=measures or None,
            **self.figures(),
        )

    def figures(self) -> dict[str, Any]:
        """The figures under the names of a report."""
        parts = sorted(self.part_seconds) or [0.0]
        counts = {
            "duration_seconds": self.duration_seconds,
            "request_count": max(1, self.request_count),
            "throttled_count": self.throttled_count,
            "failed_count": self.failed_count,
        }
        if self._operation == S3_DOWNLOAD:  # only the start of each answer was timed
            return counts
        return {
            **counts,
            "latency_seconds_mean": sum(parts) / len(parts),
            "latency_seconds_p50": parts[len(parts) // 2],
            "latency_seconds_p99": parts[min(len(parts) - 1, int(0.99 * len(parts)))],
        }


_watches: weakref.WeakKeyDictionary[Any, _Watch] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _watch_of(s3_client: Any) -> _Watch:
    """The transfers of this client in progress, by bucket, key and direction; listens to its events from the first on.

    An object that only imitates a botocore client is not listened to.
    """
    with _lock:
        try:
            watch = _watches.get(s3_client)
            if watch is None:
                events = s3_client.meta.events
                watch = _watches[s3_client] = {}
                for operation in _OPERATIONS:
                    _listen(events, operation, watch)
        except (AttributeError, TypeError):
            return {}
        return watch


def _forget_lock() -> None:
    """In a forked child: replace the lock, which a thread of the parent may have held."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)


def _listen(events: Any, operation: str, watch: _Watch) -> None:
    """A handler of botocore gets a context for each call, which carries the transfer along."""

    def on_parameters(params: Mapping[str, Any], context: dict[str, Any], **_: object) -> None:
        bucket, way = params.get("Bucket", ""), S3_UPLOAD if operation in _UPLOADING else S3_DOWNLOAD
        observed = watch.get((bucket, params.get("Key", ""), way)) or watch.get((bucket, None, way))
        if observed is not None:
            context["penstock"] = (observed, time.perf_counter())

    def on_attempt(response: Any, request_dict: Mapping[str, Any], **_: object) -> None:
        observed, _began = request_dict["context"].get("penstock", (None, 0.0))
        if observed is not None:
            observed.note_attempt(None if response is None else response[0].status_code)

    def on_end(context: Mapping[str, Any], **_: object) -> None:
        observed, began = context.get("penstock", (None, 0.0))
        if observed is not None and operation in _PART_OPERATIONS:
            observed.note_part(time.perf_counter() - began)

    events.register(f"provide-client-params.s3.{operation}", on_parameters)
    events.register_first(f"needs-retry.s3.{operation}", on_attempt)
    events.register(f"after-call.s3.{operation}", on_end)
