"""Knows what is to be moved by which client, and reports how it went: the same for threads and for tasks."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from time import perf_counter

from penstock.client.operations import S3_DOWNLOAD
from penstock.client.sdk_client import advise_in, checksum_arguments, is_session, place_of
from penstock.client.transfers.many_files import Summary

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from typing_extensions import Unpack

    from penstock.client.advice import Advice
    from penstock.client.demand import CommonDemand
    from penstock.client.operations import Operation
    from penstock.client.reporting import Reporter
    from penstock.client.transfers.many_files import Batch, File
    from penstock.client.transfers.observed import Observed

LOOKING_COUNT = 32  # HEAD requests in flight


class Errand:
    """Many files to move between this host and a bucket, with a given client or one made from a given session."""

    def __init__(
        self,
        given: Any,
        bucket: str,
        operation: Operation,
        *,
        client_arguments: Mapping[str, Any] | None = None,
        advice: Advice | None = None,
        extra_args: Mapping[str, Any] | None = None,
        callback: Callable[[int], None] | None = None,
        on_file: Callable[[File], object] | None = None,
        reporter: Reporter | None = None,
        **demand: Unpack[CommonDemand],
    ) -> None:
        if client_arguments and not is_session(given):
            raise TypeError(
                "client_arguments are what a session makes its client of; here a client was given"
            )
        self.given, self.bucket, self.operation = given, bucket, operation
        self.extra_args, self.callback = dict(extra_args or {}), callback
        self.summary = Summary(on_file)
        self._client_arguments = dict(client_arguments or {})
        self._advice, self._reporter = advice, reporter
        self._demand = {"sink": "file", **demand} if operation == S3_DOWNLOAD else {**demand}
        self._place = place_of(bucket, given, self._client_arguments.get("region_name"))

    def ask(self, size_bytes: int, count: int) -> Advice:
        """The advice for this many objects of this size, for the client's region."""
        demand = {**self._demand, "object_count": count}
        return self._advice or advise_in(self._place, self.operation, size_bytes, demand)

    def options(self, config: type[Any], batches: Sequence[Batch]) -> dict[str, Any] | None:
        """Arguments by which a session makes a client with a connection for each thread; None if a client was given.

        Without batches it is a client for HEAD requests. Of the caller's own configuration only the number of
        connections is replaced.
        """
        if not is_session(self.given):
            return None
        connection_count = max((batch.thread_count for batch in batches), default=LOOKING_COUNT)
        checksums = checksum_arguments(batches[0].advice) if batches else {}
        made = config(**checksums)
        if "config" in self._client_arguments:
            made = made.merge(self._client_arguments["config"])
        made = made.merge(config(max_pool_connections=connection_count))
        return {**self._client_arguments, "config": made}

    def report(self, observed: Observed, batch: Batch, thread_count: int, **seen: Any) -> None:
        """Report a batch to the daemon, if it is evidence, with what else was `seen`."""
        if batch.is_evidence():
            mean_bytes, setting = batch.mean_bytes, batch.setting(thread_count)
            observed.report(self._reporter, mean_bytes, setting, transferred_bytes=batch.size_bytes, **seen)


class Sink:
    """How fast files took what was written, over the time in which any thread was writing."""

    def __init__(self) -> None:
        self._written_bytes, self._seconds = 0, 0.0
        self._lock, self._writing_count, self._began = Lock(), 0, 0.0

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes per second; None if nothing was written."""
        return self._written_bytes / self._seconds if self._seconds > 0 else None

    @contextmanager
    def writing(self, size_bytes: int) -> Iterator[None]:
        """Count the time inside the block as time that one thread writes this many bytes."""
        with self._lock:
            self._began = self._began if self._writing_count else perf_counter()
            self._writing_count += 1
        try:
            yield
        finally:
            with self._lock:
                self._written_bytes += size_bytes
                self._writing_count -= 1
                self._seconds += 0.0 if self._writing_count else perf_counter() - self._began
