"""Knows how a boto3 client keeps to a lease while a transfer is under way.

    from penstock.client import boto3_lease

    with Lease("s3_upload", size_bytes) as lease:
        boto3_lease.follow(s3, lease)
        s3.upload_file(path, bucket, key, Config=TransferConfig(max_concurrency=32))

boto3's transfer manager fixes its number of threads when a transfer begins. What can follow the share are the
requests: each thread waits for its turn before it sends its next part, so that there are never more parts under way
on this client than the lease allows. Give the transfer the threads that it would use alone; those that wait cost
their stacks. Nothing of boto3 is imported, and only its public events are used.
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
_LOOK_SECONDS = 0.5  # a share that has grown is noticed at the next answer, and after this at the latest


class Turns(OfOneProcess):
    """Lets as many requests at a time through as a lease has threads; a thread may have one."""

    def __init__(self, lease: Share) -> None:
        self._lease, self._process_id = lease, os.getpid()
        self._begin_anew()

    @property
    def held_count(self) -> int:
        """How many requests are under way."""
        return len(self._holders)

    def take(self, **_: object) -> None:
        """Wait for this thread's turn."""
        self._notice_fork()
        with self._changed:
            while threading.get_ident() not in self._holders and not self._is_free():
                self._changed.wait(_LOOK_SECONDS)
            self._holders.add(threading.get_ident())

    def give_back(self, **_: object) -> None:
        """Let the next one through; who holds nothing gives nothing."""
        with self._changed:
            self._holders.discard(threading.get_ident())
            self._changed.notify()

    def _begin_anew(self) -> None:
        """Nobody holds in a child what threads of its parent held."""
        self._changed = threading.Condition()
        self._holders: set[int] = set()

    def _is_free(self) -> bool:
        most = max(1, int(self._lease.setting["thread_count"]))
        if len(self._holders) >= most:  # a request that fails before it is sent ends without an event
            self._holders &= {thread.ident for thread in threading.enumerate() if thread.ident is not None}
        return len(self._holders) < most


def follow(client: Any, lease: Share) -> Turns:
    """Let every upload of this boto3 S3 client keep to the lease, from now on and for as long as the client lives."""
    turns = Turns(lease)
    for operation in OPERATIONS:
        client.meta.events.register(f"before-call.s3.{operation}", turns.take)
        client.meta.events.register(f"after-call.s3.{operation}", turns.give_back)
        client.meta.events.register(f"after-call-error.s3.{operation}", turns.give_back)
    return turns
