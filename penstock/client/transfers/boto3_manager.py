"""Knows how boto3's transfer manager moves files, with each answer checked and each write timed."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from weakref import WeakSet

from penstock.client.attention import ATTENTION_SECONDS
from penstock.client.operations import S3_DOWNLOAD
from penstock.client.sdk_client import refusal_of
from penstock.client.transfers.answers import must_fit, stop
from penstock.client.transfers.errand import Sink
from penstock.client.transfers.many_files import beside

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from queue import SimpleQueue
    from typing import Any

    from boto3.s3.transfer import TransferConfig

    from penstock.client.operations import Operation
    from penstock.client.transfers.many_files import File

    _Ended = SimpleQueue[tuple[File, Callable[[], object]]]


class Transfers:
    """Files on their way from or to one bucket; `callback` is boto3's."""

    def __init__(self, bucket: str, operation: Operation, callback: Callable[[int], None] | None) -> None:
        from queue import SimpleQueue

        from boto3.s3.transfer import ProgressCallbackInvoker

        self._bucket, self._operation = bucket, operation
        self._progress = [] if callback is None else [ProgressCallbackInvoker(callback)]
        self._ended: _Ended = SimpleQueue()
        self.sink = Sink()

    @contextmanager
    def managed(self, s3_client: Any, config: TransferConfig, files: Sequence[File]) -> Iterator[None]:
        """Run a transfer manager for these files; an exception in the block ends their transfers."""
        from boto3.s3.transfer import create_transfer_manager

        client = _Checking(s3_client, files)
        opening = _timed(self.sink) if self._operation == S3_DOWNLOAD else None
        with create_transfer_manager(client, config, opening) as self._manager, client:
            yield

    def begin(self, file: File, arguments: dict[str, Any]) -> None:
        """Start a file, within `managed`; `next` tells its outcome."""
        subscribers = [_Ending(file, self._ended), *self._progress]
        if self._operation == S3_DOWNLOAD:
            self._manager.download(self._bucket, file.key, file.path, arguments, subscribers)
        else:
            self._manager.upload(file.path, self._bucket, file.key, arguments, subscribers)

    def next(self) -> tuple[File, Callable[[], object]]:
        """The next file that has ended, and a function that returns or raises its outcome."""
        from queue import Empty

        while True:
            try:
                return self._ended.get(timeout=ATTENTION_SECONDS)
            except Empty:
                pass


class _Checking:
    """A client for boto3's transfer manager that refuses answers to a GET other than what was asked for.

    If the block ends by an exception, such as Ctrl-C, reads in progress end too: the manager joins its threads, and
    these wait for bodies that may never come.
    """

    def __init__(self, s3_client: Any, files: Iterable[File]) -> None:
        self._client = s3_client
        self._files = {file.key: file for file in files}
        self._bodies: WeakSet[Any] = WeakSet()
        self._lock, self._is_over = Lock(), False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __enter__(self) -> _Checking:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._lock:
            self._is_over, bodies = kind is not None, list(self._bodies)
        if self._is_over:
            for body in bodies:
                stop(body)

    def get_object(self, **request: Any) -> Any:
        """As boto3's; also raises OSError."""
        file = self._files[request["Key"]]
        answer = self._answer(request, file.size_bytes)
        try:
            self._note(answer["Body"])
            must_fit(answer, request, file.size_bytes, file.etag)
        except OSError:
            answer["Body"].close()
            raise
        return answer

    def _note(self, body: Any) -> None:
        with self._lock:
            if self._is_over:
                raise OSError("the download was given up")
            self._bodies.add(body)

    def _answer(self, request: Mapping[str, Any], size_bytes: int) -> Any:
        """An invalid range of a non-empty object is an error; boto3 would skip its bytes, as for an empty object."""
        from botocore.exceptions import ClientError

        try:
            return self._client.get_object(**request)
        except ClientError as trouble:
            if size_bytes > 0 and refusal_of(trouble)[0] == "InvalidRange":
                raise OSError(f"{request['Key']} has no {request.get('Range')} any more") from trouble
            raise


def _timed(sink: Sink) -> Any:
    """boto3's file utilities, with timed writes."""
    from s3transfer.utils import OSUtils

    utilities = OSUtils()
    utilities.get_temp_filename = beside  # boto3's own may exceed the limit on file names
    plain = utilities.open
    utilities.open = lambda name, mode: _TimedFile(plain(name, mode), sink)
    return utilities


class _TimedFile:
    """A file whose writes are timed."""

    def __init__(self, file: Any, sink: Sink) -> None:
        self._file, self._sink = file, sink

    def write(self, content: bytes) -> None:
        with self._sink.writing(len(content)):
            self._file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Ending:
    """A subscriber of boto3's transfer manager: notes when its transfer has ended, and pins the object's version."""

    def __init__(self, file: File, ended: _Ended) -> None:
        self._file, self._ended = file, ended

    def on_queued(self, future: Any, **_: object) -> None:
        """Pass on size and ETag, which saves a HEAD request for each of many small objects.

        An object that is read whole is read again from its beginning when a connection breaks, and written over what
        came before: without the ETag a shorter new version would keep the end of the old one.
        """
        if self._file.etag:
            future.meta.call_args.extra_args["IfMatch"] = self._file.etag
            if hasattr(future.meta, "provide_object_etag"):
                future.meta.provide_transfer_size(self._file.size_bytes)
                future.meta.provide_object_etag(self._file.etag)

    def on_done(self, future: Any, **_: object) -> None:
        self._ended.put((self._file, future.result))
