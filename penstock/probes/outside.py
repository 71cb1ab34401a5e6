"""Knows the two services that probes use, S3 and SQS, as narrow interfaces, and how their requests fail.

    RequestError
    ├── Throttled     the service asked for less (503 SlowDown, OverLimit, RequestThrottled)
    ├── Denied        the credentials do not allow it; trying again will not help
    │   ├── Unidentified  there are no credentials, or they are unknown or no longer valid
    │   ├── Forbidden     a policy denies it explicitly
    │   └── Barred        the clock, a key or the account is in the way
    ├── Missing       the bucket, key, upload or queue does not exist
    │   └── NoBucket      the bucket itself
    ├── Changed       the condition of a write does not hold: another writer was faster
    ├── Unreachable   no answer: connection or time limit; it may be carried out all the same
    │   └── Unsent        no connection was made (name, route, handshake): it will not be carried out
    └── Refused       any other answer that is not success
        ├── Failed        the service failed; it may be carried out all the same
        └── NotOffered    this store does not support the request

Implementations make exactly one attempt for each call: a retry would be measured as latency.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple, Protocol

# Implementations close connections that were idle for longer; S3 itself does so after about 20 s.
CONNECTION_IDLE_SECONDS_MAX = 15.0
LISTED_COUNT_IN_PAGE, LISTED_COUNT_MAX = 1000, 10_000  # entries in one page of a listing, and in all pages
DELETED_COUNT_MAX = 1000  # by one DeleteObjects
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 2.0  # after the first failure in a row, and after many
_DOUBLED_COUNT_MAX = 5


class RequestError(Exception):
    """A request that did not succeed; the message is one sentence for the operator.

    `reason` is that sentence without the beginning that says what was being done.
    """

    def __init__(self, reason: str, *, doing: str = "") -> None:
        # It may quote the answer, and is shown on terminals, which interpret control characters.
        reason = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in reason)
        super().__init__(f"{doing}: {reason}" if doing else reason)
        self.reason = reason


def page_count(listed_count: int) -> int:
    """The count of requests that a listing of this many entries took."""
    return max(1, -(-listed_count // LISTED_COUNT_IN_PAGE))


def pause_seconds(trouble_count: int) -> float:
    """The pause after this many failures in a row: doubled each time, up to a bound."""
    return min(PAUSE_SECONDS * 2.0 ** min(trouble_count - 1, _DOUBLED_COUNT_MAX), PAUSE_SECONDS_MAX)


class Throttled(RequestError):
    """The service asked for less."""


class Denied(RequestError):
    """The credentials do not allow it."""


class Unidentified(Denied):
    """There are no valid credentials."""


class Forbidden(Denied):
    """A policy denies it explicitly, whatever others allow."""


class Barred(Denied):
    """The clock, a key or the account is in the way, as the message says, whatever the credentials allow."""


class Missing(RequestError):
    """The bucket, key, upload or queue does not exist."""


class NoBucket(Missing):
    """The bucket does not exist."""


class Changed(RequestError):
    """The condition of a write does not hold."""


class Unreachable(RequestError):
    """There was no answer."""


class Unsent(Unreachable):
    """There was no connection."""


class Refused(RequestError):
    """Any other answer that is not success."""


class Failed(Refused):
    """The service failed while it worked on the request."""


class NotOffered(Refused):
    """This store does not support the request."""


def may_be_done(trouble: RequestError) -> bool:
    """Whether the request may have been carried out, or may yet be; after any other error it certainly was not."""
    return isinstance(trouble, (Failed, Unreachable)) and not isinstance(trouble, Unsent)


ANSWERED_BY: ContextVar[Counter[str] | None] = ContextVar("answered_by", default=None)
"""A counter set here counts, by address, who answered the requests made in this context."""


@dataclass(slots=True)
class KeyRequests:
    """S3's requests to AWS KMS, as its answers tell them; KMS charges for each."""

    count: int = 0
    count_each: int = 0  # for each request that wrote or read, by the last answer that told of any

    def note(self, other: KeyRequests) -> None:
        self.count += other.count
        self.count_each = other.count_each or self.count_each


KEY_REQUESTS: ContextVar[KeyRequests | None] = ContextVar("key_requests", default=None)
"""An object set here counts the KMS requests caused in this context."""


class BodySender(Protocol):
    """The requests to S3 that send a body, which take most of the time."""

    async def put_object(self, bucket: str, key: str, body: bytes) -> str:
        """The object's ETag."""
        ...

    async def upload_part(self, bucket: str, key: str, upload_id: str, part_number: int, body: bytes) -> str:
        """The part's ETag."""
        ...


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The beginning of an object, and its attributes."""

    head: bytes
    size_bytes: int
    storage_class: str = "standard"  # "standard-ia", "glacier-ir", ...
    md5: str | None = None  # of the whole object, as in S3's ETag; None if the ETag may be something else


@dataclass(frozen=True, slots=True)
class Reading:
    """How a range was read."""

    first_byte_seconds: float  # from the request until its answer began


class RangeReader(Protocol):
    """The requests to S3 that receive a body, which take most of the time."""

    async def read_range(
        self, bucket: str, key: str, start: int, stop: int, *, object_size_bytes: int
    ) -> Reading:
        """Read the bytes from `start` up to `stop` (exclusive), count and drop them.

        Asks for the whole object where the range is all of it. Raises Refused where the answer is not exactly these
        bytes of an object of this size.
        """
        ...


@dataclass(frozen=True, slots=True)
class Tagged:
    """A small object, and its ETag, which changes when it is written again."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A small object in a listing, with its age by the store's own clock."""

    key: str
    etag: str
    age_seconds: float


class SharedObjects(Protocol):
    """The requests to S3 with which several hosts read and write the same object."""

    async def get_unless(
        self, bucket: str, key: str, etag: str | None, *, size_bytes_max: int
    ) -> Tagged | None:
        """The object, cut off at `size_bytes_max` + 1 bytes; None while it still has this tag.

        Raises Missing, or NoBucket.
        """
        ...

    async def put_if(self, bucket: str, key: str, body: bytes, etag: str | None) -> str:
        """Replace the object with this tag (None: no object); returns the new tag. Raises Changed.

        Where the store does not support conditions, it raises NotOffered, or writes unconditionally.
        """
        ...

    async def list_shared(self, bucket: str, prefix: str) -> list[Listed]:
        """The objects below the prefix, up to `LISTED_COUNT_MAX`."""
        ...


class VersionRequests(NamedTuple):
    """The further requests of a deletion in a bucket that keeps versions, to list and delete these, too."""

    listing_count: int = 0
    deletion_count: int = 0


class ObjectStore(BodySender, RangeReader, SharedObjects, Protocol):
    """S3 as probes use it."""

    async def look_at(self, bucket: str, key: str, size_bytes: int) -> StoredObject:
        """The object's attributes and its first `size_bytes` bytes, or fewer if it is smaller. Raises Missing."""
        ...

    async def create_multipart_upload(self, bucket: str, key: str) -> str:
        """Begin an upload; returns its id."""
        ...

    async def complete_multipart_upload(
        self, bucket: str, key: str, upload_id: str, etags: Sequence[str]
    ) -> None:
        """Complete an upload; `etags` are those of parts 1, 2, ... in order."""
        ...

    async def abort_multipart_upload(self, bucket: str, key: str, upload_id: str) -> None: ...

    async def list_multipart_uploads(self, bucket: str, prefix: str) -> list[tuple[str, str]]:
        """(key, upload id) of unfinished uploads. Some stores list only those whose key equals the prefix."""
        ...

    async def list_objects(self, bucket: str, prefix: str) -> list[str]:
        """The first keys below the prefix, up to `LISTED_COUNT_MAX`, which is far more than a run creates."""
        ...

    async def delete_object(self, bucket: str, key: str) -> VersionRequests:
        """Delete a key; succeeds also if it does not exist, as in S3. For a folder, delete old versions below it."""
        ...

    async def delete_objects(self, bucket: str, keys: Sequence[str]) -> VersionRequests:
        """Delete up to a thousand keys by one request; raises the error of the first one that failed.

        Raises NotOffered where the store does not support this; it is then asked only once.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """One copy of a message. Each receive gives a new handle; an older handle may no longer delete it."""

    message_id: str
    receipt_handle: str
    body: str


class Messages(Protocol):
    """The requests that move messages through a queue. Batches have at most ten entries."""

    async def send(self, url: str, bodies: Sequence[str], *, group_ids: Sequence[str] = ()) -> int:
        """Send one message by SendMessage, more by SendMessageBatch; returns how many the service accepted.

        A FIFO queue needs a group id for each; there, the same body again counts as the same message.
        """
        ...

    async def receive(
        self, url: str, *, message_count_max: int, wait_seconds: int
    ) -> list[ReceivedMessage]: ...

    async def delete(self, url: str, receipt_handles: Sequence[str]) -> int:
        """Delete one message by DeleteMessage, more by DeleteMessageBatch; returns how many the service accepted."""
        ...


class MessageQueues(Messages, Protocol):
    """SQS as probes use it."""

    async def create_queue(self, name: str, attributes: Mapping[str, str]) -> str:
        """Create a queue; returns its URL."""
        ...

    async def find_queue(self, name: str) -> str:
        """The URL of the queue with this name. Raises Missing."""
        ...

    async def list_queues(self, prefix: str) -> list[str]:
        """The names of all queues that begin with the prefix."""
        ...

    async def delete_queue(self, url: str) -> None: ...

    async def queue_attributes(self, url: str) -> dict[str, str]: ...
