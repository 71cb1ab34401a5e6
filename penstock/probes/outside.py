"""Knows the two outside things that probes touch, as narrow seams, and how their requests go wrong.

    RequestError
    ├── Throttled     the service asked for less (503 SlowDown, OverLimit, RequestThrottled)
    ├── Denied        the credentials do not allow it; trying again will not help
    ├── Missing       the bucket, key, upload or queue is not there
    ├── Unreachable   no answer: name, route, connection or time limit
    └── Refused       any other answer that is not success

Implementations make exactly one attempt for a call: a retry would be read as latency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

CONNECTION_IDLE_SECONDS_MAX = (
    15.0  # implementations close what was idle for longer; S3 itself does after about 20 s
)


class RequestError(Exception):
    """A request that did not succeed; the message is one sentence for the operator."""


class Throttled(RequestError):
    """The service asked for less."""


class Denied(RequestError):
    """The credentials do not allow it."""


class Missing(RequestError):
    """What was named is not there."""


class Unreachable(RequestError):
    """There was no answer."""


class Refused(RequestError):
    """Any other answer that is not success."""


class BodySender(Protocol):
    """The requests to S3 that carry something: what takes the time."""

    async def put_object(self, bucket: str, key: str, body: bytes) -> None: ...

    async def upload_part(self, bucket: str, key: str, upload_id: str, part_number: int, body: bytes) -> str:
        """The part's ETag."""
        ...


class ObjectStore(BodySender, Protocol):
    """S3 as probes use it."""

    async def create_multipart_upload(self, bucket: str, key: str) -> str:
        """The upload id."""
        ...

    async def complete_multipart_upload(
        self, bucket: str, key: str, upload_id: str, etags: Sequence[str]
    ) -> None:
        """`etags` in the order of part numbers, from 1."""
        ...

    async def abort_multipart_upload(self, bucket: str, key: str, upload_id: str) -> None: ...

    async def list_multipart_uploads(self, bucket: str, prefix: str) -> list[tuple[str, str]]:
        """(key, upload id) of the unfinished uploads."""
        ...

    async def list_objects(self, bucket: str, prefix: str) -> list[str]: ...

    async def delete_object(self, bucket: str, key: str) -> None:
        """Succeeds also when the key is not there, as S3 does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """One copy of a message. Each receive gives a new handle; an old one may no longer delete."""

    message_id: str
    receipt_handle: str
    body: str


class MessageQueues(Protocol):
    """SQS as probes use it. Batches hold at most ten entries."""

    async def create_queue(self, name: str, attributes: Mapping[str, str]) -> str:
        """The queue's URL."""
        ...

    async def find_queue(self, name: str) -> str:
        """The queue's URL; raises Missing."""
        ...

    async def list_queues(self, prefix: str) -> list[str]:
        """Names of the queues that begin with the prefix."""
        ...

    async def delete_queue(self, url: str) -> None: ...

    async def queue_attributes(self, url: str) -> dict[str, str]: ...

    async def send(self, url: str, bodies: Sequence[str], *, group_ids: Sequence[str] = ()) -> int:
        """One message goes by SendMessage, more by SendMessageBatch; how many the service accepted.

        A FIFO queue needs the group of each; the same body again is then the same message.
        """
        ...

    async def receive(
        self, url: str, *, message_count_max: int, wait_seconds: int
    ) -> list[ReceivedMessage]: ...

    async def delete(self, url: str, receipt_handles: Sequence[str]) -> int:
        """One by DeleteMessage, more by DeleteMessageBatch; how many the service accepted."""
        ...
