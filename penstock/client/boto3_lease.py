"""Knows how a boto3 client follows its lease while a transfer is under way.

    from penstock.client import boto3_lease

    with Lease("s3_upload", size_bytes) as lease:
        boto3_lease.follow(s3, lease)
        s3.upload_file(path, bucket, key, Config=TransferConfig(max_concurrency=32))

boto3's transfer manager fixes its number of threads when a transfer begins. Its requests can still follow the share:
each thread waits for its turn before it sends its next part, so this client never has more parts in flight than the
lease allows. Give the transfer the threads that it would use alone; a waiting thread costs only its stack. Nothing of
boto3 is imported, and only its public events are used.
"""

from __future__ import annotations

import os
import threading

from penstock.client.forks import OfOneProcess
from penstock.client.lease import Share

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import Any

OPERATIONS = ("UploadPart", "PutObject")
_LOOK_SECONDS = 0.5  # a larger share is noticed at the next answer, and after this time at the latest


class Turns(OfOneProcess):
    """Lets as many requests at a time pass as the lease has threads; each thread may have one."""

    def __init__(self, lease: Share) -> None:
        self._lease, self._process_id = lease, os.getpid()
        self._begin_anew()

    @property
    def held_count(self) -> int:
        """How many requests are in flight."""
        return len(self._holders)

    def take(self, **_: object) -> None:
        """Wait for this thread's turn."""
        self._notice_fork()
        with self._changed:
            while threading.get_ident() not in self._holders and not self._is_free():
                self._changed.wait(_LOOK_SECONDS)
            self._holders.add(threading.get_ident())

    def give_back(self, **_: object) -> None:
        """End this thread's turn, and let the next thread pass; harmless for a thread without a turn."""
        with self._changed:
            self._holders.discard(threading.get_ident())
            self._changed.notify()

    def _begin_anew(self) -> None:
        """In a forked child no thread holds a turn."""
        self._changed = threading.Condition()
        self._holders: set[int] = set()

    def _is_free(self) -> bool:
        most = max(1, int(self._lease.setting["thread_count"]))
        if len(self._holders) >= most:  # a request that fails before it is sent ends without an event
            self._holders &= {thread.ident for thread in threading.enumerate() if thread.ident is not None}
        return len(self._holders) < most


def follow(client: Any, lease: Share) -> Turns:
    """Have every upload of this boto3 S3 client respect the lease, from now on and for as long as the client lives."""
    turns = Turns(lease)
    for operation in OPERATIONS:
        client.meta.events.register(f"before-call.s3.{operation}", turns.take)
        client.meta.events.register(f"after-call.s3.{operation}", turns.give_back)
        client.meta.events.register(f"after-call-error.s3.{operation}", turns.give_back)
    return turns
