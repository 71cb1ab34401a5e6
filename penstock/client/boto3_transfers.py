"""Knows how to upload with boto3 as advised, and to tell the daemon how that went.

    from penstock.client.boto3_transfers import upload_file

    upload_file(s3, path, bucket, key)

It is `s3.upload_file` with the advised configuration; what it raises is what boto3 raises. The client should have a
connection for each thread (`penstock.client.boto3.client_config`): what it has is what is used, and reported.
"""

from __future__ import annotations

import os
import threading
import time
import weakref

from penstock.client.advice import Advice, advise, default_advice
from penstock.client.boto3 import transfer_config
from penstock.client.reporting import Reporter, default_reporter

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_OPERATIONS = ("PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload")
_PART_OPERATIONS = frozenset({"PutObject", "UploadPart"})
_THROTTLED_STATUSES = frozenset({429, 503})
_PART_SIZE_BYTES_MIN = 5 << 20  # below, S3 takes no part: the whole object is one request


def upload_file(
    s3_client: Any,
    path: str | os.PathLike[str],
    bucket: str,
    key: str,
    *,
    advice: Advice | None = None,
    extra_args: Mapping[str, Any] | None = None,
    callback: Callable[[int], None] | None = None,
    reporter: Reporter | None = None,
    **demand: object,
) -> None:
    """Upload one file as advised for its size, and report what happened. Raises what boto3 raises.

    `demand` is that of `penstock.client.advice.advise`; `advice` replaces asking.
    """
    size_bytes = os.path.getsize(path)  # noqa: PTH202 - pathlib costs the application an import
    advice = advice or _advise(s3_client, size_bytes, demand)
    config = transfer_config(size_bytes, advice=advice)
    with _Observed(s3_client, bucket, key) as observed:
        s3_client.upload_file(
            os.fspath(path), bucket, key, ExtraArgs=dict(extra_args or {}), Callback=callback, Config=config
        )
    if size_bytes:
        (reporter or default_reporter()).report(
            "s3_upload",
            size_bytes,
            _setting(s3_client, config, size_bytes),
            transferred_bytes=size_bytes,
            client="boto3",
            region=s3_client.meta.region_name,
            service_class="express" if bucket.endswith("--x-s3") else "standard",
            **observed.figures(),
        )


def _advise(s3_client: Any, size_bytes: int, demand: Mapping[str, object]) -> Advice:
    """From the snapshot where the client works in the daemon's own region, else by asking for the other one."""
    if not size_bytes:
        return default_advice("s3_upload", 0, "nothing is to be uploaded")
    advice = advise("s3_upload", size_bytes, **demand)
    region = s3_client.meta.region_name
    if "region" in demand or not region or advice.document.get("region", region) == region:
        return advice
    return advise("s3_upload", size_bytes, **{**demand, "region": region})


def _setting(s3_client: Any, config: Any, size_bytes: int) -> dict[str, float]:
    """What was in force: no more threads than connections; one part on one connection where the object went whole."""
    if size_bytes < config.multipart_threshold:
        return {"thread_count": 1, "part_size_bytes": max(size_bytes, _PART_SIZE_BYTES_MIN)}
    return {
        "thread_count": min(config.max_request_concurrency, s3_client.meta.config.max_pool_connections),
        "part_size_bytes": config.multipart_chunksize,
    }


class _Observed:
    """One upload as botocore's events tell it: every attempt at every request, and how long the parts took."""

    def __init__(self, s3_client: Any, bucket: str, key: str) -> None:
        self._name = (bucket, key)
        self._watch = _watch_of(s3_client)
        self._lock = threading.Lock()
        self.request_count = self.throttled_count = self.failed_count = 0
        self.part_seconds: list[float] = []
        self.duration_seconds = 0.0

    def __enter__(self) -> _Observed:
        self._watch[self._name] = self
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_trouble: object) -> None:
        self.duration_seconds = time.perf_counter() - self._began
        if self._watch.get(self._name) is self:
            del self._watch[self._name]

    def note_attempt(self, status: int | None) -> None:
        """An answer came with this status, or none came."""
        with self._lock:
            self.request_count += 1
            self.throttled_count += status in _THROTTLED_STATUSES
            self.failed_count += status is None or (status >= 400 and status not in _THROTTLED_STATUSES)

    def note_part(self, seconds: float) -> None:
        """A part, or the whole object, took so long with all its attempts."""
        with self._lock:
            self.part_seconds.append(seconds)

    def figures(self) -> dict[str, Any]:
        """In the words of a report."""
        parts = sorted(self.part_seconds) or [0.0]
        return {
            "duration_seconds": self.duration_seconds,
            "request_count": max(1, self.request_count),
            "throttled_count": self.throttled_count,
            "failed_count": self.failed_count,
            "latency_seconds_mean": sum(parts) / len(parts),
            "latency_seconds_p50": parts[len(parts) // 2],
            "latency_seconds_p99": parts[min(len(parts) - 1, int(0.99 * len(parts)))],
        }


_watches: weakref.WeakKeyDictionary[Any, dict[tuple[str, str], _Observed]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _watch_of(s3_client: Any) -> dict[tuple[str, str], _Observed]:
    """The uploads of this client that are under way; its events are listened to from the first one on.

    By bucket and key; two threads that upload to the same key at once are told apart by S3 no better.
    """
    with _lock:
        watch = _watches.get(s3_client)
        if watch is None:
            watch = _watches[s3_client] = {}
            for operation in _OPERATIONS:
                _listen(s3_client.meta.events, operation, watch)
        return watch


def _listen(events: Any, operation: str, watch: dict[tuple[str, str], _Observed]) -> None:
    """Botocore hands its handlers a context of one call, in which the upload is carried along."""

    def on_parameters(params: Mapping[str, Any], context: dict[str, Any], **_: object) -> None:
        observed = watch.get((params.get("Bucket", ""), params.get("Key", "")))
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
