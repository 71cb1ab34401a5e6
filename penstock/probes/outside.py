"""Knows the two outside things that probes touch, as narrow seams, and how their requests go wrong.

    RequestError
    ├── Throttled     the service asked for less (503 SlowDown, OverLimit, RequestThrottled)
    ├── Denied        the credentials do not allow it; trying again will not help
    │   ├── Unidentified  there are none, or none that are known or valid any more
    │   ├── Forbidden     a policy denies it, whatever others allow
    │   └── Barred        the clock, a key or the account is in the way
    ├── Missing       the bucket, key, upload or queue is not there
    │   └── NoBucket      the bucket itself
    ├── Changed       the object is not what the condition of a write says: another one wrote it
    ├── Unreachable   no answer: connection or time limit; it may be carried out all the same
    │   └── Unsent        no connection was made (name, route, handshake): it will not be
    └── Refused       any other answer that is not success
        ├── Failed        the service broke off; it may be carried out all the same
        └── NotOffered    this store does not know such a request

Implementations make exactly one attempt for a call: a retry would be read as latency.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple, Protocol

# Implementations close what was idle for longer; S3 itself does after about 20 s.
CONNECTION_IDLE_SECONDS_MAX = 15.0
LISTED_COUNT_IN_PAGE, LISTED_COUNT_MAX = 1000, 10_000  # in one answer of a listing, and in all of them
DELETED_COUNT_MAX = 1000  # by one DeleteObjects
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 2.0  # after the first trouble in a row, and after many
_DOUBLED_COUNT_MAX = 5


class RequestError(Exception):
    """A request that did not succeed; the message is one sentence for the operator.

    `reason` is that sentence without what was being done.
    """

    def __init__(self, reason: str, *, doing: str = "") -> None:
        # It may quote whoever answered, and is shown on terminals, which obey control characters.
        reason = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in reason)
        super().__init__(f"{doing}: {reason}" if doing else reason)
        self.reason = reason


def page_count(listed_count: int) -> int:
    """How many requests a listing of so many took."""
    return max(1, -(-listed_count // LISTED_COUNT_IN_PAGE))


def pause_seconds(trouble_count: int) -> float:
    """How long to leave the service alone after so many troubles in a row: each time twice as long, up to a bound."""
    return min(PAUSE_SECONDS * 2.0 ** min(trouble_count - 1, _DOUBLED_COUNT_MAX), PAUSE_SECONDS_MAX)


class Throttled(RequestError):
    """The service asked for less."""


class Denied(RequestError):
    """The credentials do not allow it."""


class Unidentified(Denied):
    """There are no credentials that tell who asks."""


class Forbidden(Denied):
    """A policy denies it, whatever others allow."""


class Barred(Denied):
    """Whatever they allow: the clock, a key or the account is in the way, as the message says."""


class Missing(RequestError):
    """What was named is not there."""


class NoBucket(Missing):
    """The bucket is not there."""


class Changed(RequestError):
    """The condition of a write does not hold."""


class Unreachable(RequestError):
    """There was no answer."""


class Unsent(Unreachable):
    """There was no connection."""


class Refused(RequestError):
    """Any other answer that is not success."""


class Failed(Refused):
    """The service did not get to the end of it."""


class NotOffered(Refused):
    """This store does not know such a request."""


def may_be_done(trouble: RequestError) -> bool:
    """Whether what was asked for may have been carried out, or may yet be; any other trouble says that it was not."""
    return isinstance(trouble, (Failed, Unreachable)) and not isinstance(trouble, Unsent)


ANSWERED_BY: ContextVar[Counter[str] | None] = ContextVar("answered_by", default=None)
"""Whoever sets it finds in it how many of the requests below him each address has answered."""


@dataclass(slots=True)
class KeyRequests:
    """Of S3 to AWS KMS, as S3's answers tell them; KMS charges for each."""

    count: int = 0
    count_each: int = 0  # for each request that wrote or read, by the last answer that told of any

    def note(self, other: KeyRequests) -> None:
        self.count += other.count
        self.count_each = other.count_each or self.count_each


KEY_REQUESTS: ContextVar[KeyRequests | None] = ContextVar("key_requests", default=None)
"""Whoever sets it finds in it those of the requests below him."""


class BodySender(Protocol):
    """The requests to S3 that carry something: what takes the time."""

    async def put_object(self, bucket: str, key: str, body: bytes) -> str:
        """The object's ETag."""
        ...

    async def upload_part(self, bucket: str, key: str, upload_id: str, part_number: int, body: bytes) -> str:
        """The part's ETag."""
        ...


@dataclass(frozen=True, slots=True)
class StoredObject:
    """How an object begins, and what is said of it."""

    head: bytes
    size_bytes: int
    storage_class: str = "standard"  # "standard-ia", "glacier-ir", ...
    md5: str | None = None  # of all of it, where the store is sure to say it: as S3 writes its ETag


@dataclass(frozen=True, slots=True)
class Reading:
    """How a range was read."""

    first_byte_seconds: float  # from the request until its answer began


class RangeReader(Protocol):
    """The requests to S3 that bring something: what takes the time."""

    async def read_range(
        self, bucket: str, key: str, start: int, stop: int, *, object_size_bytes: int
    ) -> Reading:
        """Have the bytes from `start` up to `stop` counted and dropped; the whole object where that is all of it.

        Raises Refused where the answer is not exactly these bytes of an object of this size.
        """
        ...


@dataclass(frozen=True, slots=True)
class Tagged:
    """A small object, and the tag that tells whether it was written again."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Listed:
    """What a listing says of a small object, by the store's own clock."""

    key: str
    etag: str
    age_seconds: float


class SharedObjects(Protocol):
    """The requests to S3 with which hosts write one object together."""

    async def get_unless(
        self, bucket: str, key: str, etag: str | None, *, size_bytes_max: int
    ) -> Tagged | None:
        """The object, one that is larger cut a byte beyond that; None while it still has this tag.

        Raises Missing, or NoBucket.
        """
        ...

    async def put_if(self, bucket: str, key: str, body: bytes, etag: str | None) -> str:
        """Write it in place of what has this tag, or where nothing is (None); its new tag. Raises Changed.

        A store that does not know conditions raises NotOffered, or does as if there were none.
        """
        ...

    async def list_shared(self, bucket: str, prefix: str) -> list[Listed]:
        """The first thousand below the prefix, by one request."""
        ...


class VersionRequests(NamedTuple):
    """What a deletion took besides its own request, in a bucket that keeps versions: these are removed, too."""

    listing_count: int = 0
    deletion_count: int = 0


class ObjectStore(BodySender, RangeReader, SharedObjects, Protocol):
    """S3 as probes use it."""

    async def look_at(self, bucket: str, key: str, size_bytes: int) -> StoredObject:
        """With its first bytes, so few that they can be kept; no more than there are. Raises Missing."""
        ...

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
        """(key, upload id) of the unfinished uploads. Some stores know only those whose key is the whole prefix."""
        ...

    async def list_objects(self, bucket: str, prefix: str) -> list[str]:
        """The first keys, up to `LISTED_COUNT_MAX`; far more than a run has. Others may have put what they like."""
        ...

    async def delete_object(self, bucket: str, key: str) -> VersionRequests:
        """Succeeds also when the key is not there, as S3 does. Of a folder: what deletions below it hid and left."""
        ...

    async def delete_objects(self, bucket: str, keys: Sequence[str]) -> VersionRequests:
        """At most a thousand keys by one request; raises the trouble of the first that may be left.

        Raises NotOffered where the store has no such request; it is then asked only once.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """One copy of a message. Each receive gives a new handle; an old one may no longer delete."""

    message_id: str
    receipt_handle: str
    body: str


class Messages(Protocol):
    """What goes through a queue. Batches hold at most ten entries."""

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


class MessageQueues(Messages, Protocol):
    """SQS as probes use it."""

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
