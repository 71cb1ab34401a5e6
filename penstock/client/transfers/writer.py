"""Knows how to write an object of S3 as a file of unknown length, in parts as advised.

    from penstock.client.transfers.writer import open_writer

    with open_writer(s3, bucket, key) as file, gzip.open(file, "wb") as packed:
        for line in lines:
            packed.write(line)

The object exists once the block has ended. If the block ends by an exception, there is no object, and nothing is left
behind. `aiobotocore_writer.py` is the same for an event loop.
"""

from __future__ import annotations

import io
import os
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from threading import RLock
from time import sleep

from penstock.client.attention import ATTENTION_SECONDS
from penstock.client.complaint import complain
from penstock.client.sdk_client import pool_count_of
from penstock.client.transfers.multipart import ABORT_SECONDS_MAX
from penstock.client.transfers.threads import Threads
from penstock.client.transfers.writing import Writing

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from typing_extensions import Buffer, Unpack

    from penstock.client.transfers.options import StreamOptions

_PIECE_BYTES = 1 << 20


def open_writer(s3_client: Any, bucket: str, key: str, **options: Unpack[StreamOptions]) -> ObjectWriter:
    """A binary file that becomes the object when it is closed.

    Opening raises nothing because of penstock; writing and closing raise what boto3 raises, and ValueError on a closed
    file. `size_bytes` is roughly the final size, if known. All other options are as in
    `penstock.client.boto3.upload_file`; state `object_count` if several are open at a time, and they share what is
    advised for all of them. The writer uses no more threads than the client keeps connections: see
    `penstock.client.boto3.client_config`.
    """
    return ObjectWriter(s3_client, bucket, key, **options)


def upload_fileobj(
    s3_client: Any, fileobj: Any, bucket: str, key: str, **options: Unpack[StreamOptions]
) -> None:
    """Upload a pipe, a socket or any other stream that has `read`, up to its end. See `open_writer`."""
    with open_writer(s3_client, bucket, key, **options) as file:
        while piece := fileobj.read(_PIECE_BYTES):
            file.write(piece)


class ObjectWriter(Writing, io.BufferedIOBase):
    """One object, opened by `open_writer`. Threads may share it, as they may a file.

    After it was closed, `answer` is S3's answer to the last request, with the object's ETag.
    """

    _library = "boto3"
    _is_removed = False

    def __init__(self, s3_client: Any, bucket: str, key: str, **options: Any) -> None:
        super().__init__(s3_client, bucket, key, **options)
        self.name = key
        self._lock, self._pool = RLock(), Threads(pool_count_of(s3_client), "penstock-writer")

    def writable(self) -> bool:
        self._check()
        return True

    def write(self, content: Buffer, /) -> int:
        """Write all of it, and return its length; waits while as much is in flight as is advised."""
        self._check()
        view = memoryview(content).cast("B")
        with self._lock, self._all_or_nothing():
            for part in self._filled(view):
                self._hand_over(part)
        return len(view)

    def __enter__(self) -> ObjectWriter:
        self._check()
        self._is_within = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._is_within = False
        if kind is None:
            self.close()
        else:
            self.abort()

    def close(self) -> None:
        """Complete the object from what was written. Within a `with` block of this file, the block's end does so."""
        if self._trouble is not None or not self.closed:
            self._check()
        super().close()
        if self._is_within or self._is_over:
            return
        with self._lock, self._all_or_nothing():
            self._finish()

    def abort(self) -> None:
        """Discard everything: no object appears, and no parts remain that would be billed."""
        super().close()
        if self._is_over:
            return
        self._end()
        if self._process_id == os.getpid():
            parts = list(self._under_way)
            for part in parts:
                part.cancel()
            try:
                wait([*filter(None, [self._begun]), *parts], ABORT_SECONDS_MAX)
            finally:
                self._remove()

    def __del__(self) -> None:
        if not self._is_over and self._process_id == os.getpid():
            complain("an object was neither closed nor aborted, so it is not there")
            self.abort()

    def _hand_over(self, content: bytes) -> None:
        self._note_filled()
        self._wait_for_room(len(content))
        sleep(self._pause_seconds(content))
        if self._begun is None:
            self._begun = self._pool.submit_or_call(self._begin, None)
        self._note_handed_over(self._pool.submit_or_call(self._send, (self._part_count, content)), content)
        if self._has_grown():
            self._expect()

    def _wait_for_room(self, size_bytes: float) -> None:
        while not self._has_room(size_bytes):
            wait(list(self._under_way), ATTENTION_SECONDS, return_when=FIRST_COMPLETED)

    def _begin(self, _: None) -> None:
        self._upload.note_begun(self._client.create_multipart_upload(**self._upload.first()))
        self._remove_again()

    def _send(self, part: tuple[int, bytes]) -> None:
        number, content = part
        self._begun.result()
        if not self._is_over:
            answer = self._client.upload_part(**self._upload.part(number, content))
            self._upload.note_part(number, answer)
            self._note_arrived(content)
        self._remove_again()

    def _finish(self) -> None:
        last = self._taken()
        if self._part_count == 1:
            self._note_filled()
            self.answer = self._client.put_object(**self._upload.whole(last))
            self._note_arrived(last)
        else:
            self._hand_over(last)
            self._wait_for_room(float("inf"))
            self.answer = self._client.complete_multipart_upload(**self._upload.last())
        self._end()
        self._report()

    def _end(self) -> None:
        super()._end()
        self._pool.end()

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A failure halfway aborts the object, and later calls report it again."""
        try:
            yield
        except BaseException as trouble:
            self._trouble = trouble
            self.abort()
            raise

    def _remove_again(self) -> None:
        """Abort again: S3 may have taken a late part after the first abort."""
        if self._is_removed:
            self._remove()

    def _remove(self) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        self._is_removed = True
        if self._upload.is_begun:
            try:
                self._client.abort_multipart_upload(**self._upload.removal())
            except (BotoCoreError, ClientError, OSError) as trouble:
                self._upload.say_left_behind(trouble)
