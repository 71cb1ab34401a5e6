"""Knows S3 as a service: what it answers, and how long that takes on a given path.

`Shelf` has the semantics (buckets, objects, multipart uploads), without time. `S3Service` adds the path, which has a
truth for each direction: a request is admitted or throttled, its bytes cross the link, and the answer comes after a
round trip and the service's own latency. For a read, the latency comes first, and then the bytes. The HTTP face uses
the same three steps on real sockets.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from penstock.clock import Clock
from penstock.lab.allowance import RequestAllowance
from penstock.lab.link import Link, LinkTruth
from penstock.units import KiB, MiB

PART_SIZE_BYTES_MIN = 5 * MiB
PART_NUMBER_MAX = 10_000
DELETED_COUNT_MAX = 1000  # keys in one DeleteObjects
_KEPT_BYTES_MAX = 256 * MiB  # of all bodies together; beyond this, only sizes are kept
_KEPT_BODY_BYTES_MAX = 1 * MiB
_HEAD_BYTES = 64 * KiB  # kept of larger bodies, enough to recognise them
_CACHED_BLOCK_BYTES = 1 * MiB

_STATUS = {
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
    "BucketAlreadyOwnedByYou": 409,
    "BucketNotEmpty": 409,
    "InvalidRange": 416,
    "NotModified": 304,
    "PreconditionFailed": 412,
    "NotImplemented": 501,
    "SlowDown": 503,
}


class S3Error(Exception):
    """An error response of S3, with its code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return _STATUS.get(self.code, 400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """An uploaded body: its size, and either all of its bytes or only the first ones, if they were kept."""

    size_bytes: int
    etag: str
    content: bytes | None = None
    head: bytes = b""
    checksums: tuple[tuple[str, str], ...] = ()  # header name and value, as the client sent them

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` up to `stop`, with zeros for those that were not kept."""
        kept = (self.head if self.content is None else self.content)[start:stop]
        return kept + bytes(stop - start - len(kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """The present object of a key."""

    key: str
    body: Body
    modified_at: datetime


@dataclass(slots=True)
class _Upload:
    key: str
    started_at: datetime
    parts: dict[int, Body] = field(default_factory=dict)


@dataclass(slots=True)
class _Bucket:
    created_at: datetime
    objects: dict[str, StoredObject] = field(default_factory=dict)
    uploads: dict[str, _Upload] = field(default_factory=dict)


class Shelf:
    """Buckets, objects and unfinished uploads; every method returns at once or raises S3Error."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._serial = 0
        self.kept_bytes = 0  # of bodies that can be read back

    def body(self, size_bytes: int, content: bytes | None, checksums: Sequence[tuple[str, str]] = ()) -> Body:
        """A body, with its bytes if it is small. Only then is its ETag an MD5, which would take too much CPU.

        For a larger one, `content` may be just its first bytes.
        """
        is_small = content is not None and len(content) == size_bytes <= _KEPT_BODY_BYTES_MAX
        if content is not None and is_small and self.kept_bytes + size_bytes <= _KEPT_BYTES_MAX:
            self.kept_bytes += size_bytes
            etag = hashlib.md5(content, usedforsecurity=False).hexdigest()
            return Body(size_bytes=size_bytes, etag=etag, content=content, checksums=tuple(checksums))
        head = (content or b"")[:_HEAD_BYTES]
        head = head if self.kept_bytes + len(head) <= _KEPT_BYTES_MAX else b""
        self.kept_bytes += len(head)
        etag = f"{self._next_serial():032x}"
        return Body(size_bytes=size_bytes, etag=etag, head=head, checksums=tuple(checksums))

    def age_seconds(self, stored: StoredObject) -> float:
        return (self._clock.now() - stored.modified_at).total_seconds()

    def create_bucket(self, name: str) -> None:
        if name in self._buckets:
            raise S3Error("BucketAlreadyOwnedByYou", f"the bucket {name} exists and is yours")
        self._buckets[name] = _Bucket(self._clock.now())

    def delete_bucket(self, name: str) -> None:
        """DeleteBucket; the bucket must be empty."""
        if self._bucket(name).objects:
            raise S3Error("BucketNotEmpty", f"the bucket {name} still holds objects")
        del self._buckets[name]

    def buckets(self) -> list[tuple[str, datetime]]:
        """ListBuckets: names and dates."""
        return [(name, bucket.created_at) for name, bucket in sorted(self._buckets.items())]

    def check_bucket(self, name: str) -> None:
        self._bucket(name)

    def put(self, bucket: str, key: str, body: Body) -> StoredObject:
        holder = self._bucket(bucket)
        self._forget_object(holder.objects.get(key))
        stored = StoredObject(key=key, body=body, modified_at=self._clock.now())
        holder.objects[key] = stored
        return stored

    def get(self, bucket: str, key: str) -> StoredObject:
        stored = self._bucket(bucket).objects.get(key)
        if stored is None:
            raise S3Error("NoSuchKey", f"there is no object {key}")
        return stored

    def holds(self, bucket: str, key: str) -> bool:
        return key in self._bucket(bucket).objects

    def delete(self, bucket: str, key: str) -> None:
        """DeleteObject; a missing key is no error."""
        self._forget_object(self._bucket(bucket).objects.pop(key, None))

    def delete_all(self, bucket: str, keys: Sequence[str]) -> None:
        if not 1 <= len(keys) <= DELETED_COUNT_MAX:
            raise S3Error("MalformedXML", f"from 1 to {DELETED_COUNT_MAX} keys are deleted at once")
        for key in keys:
            self.delete(bucket, key)

    def objects(self, bucket: str, prefix: str = "") -> Iterator[StoredObject]:
        """ListObjects, in key order."""
        objects = self._bucket(bucket).objects
        return (objects[key] for key in sorted(objects) if key.startswith(prefix))

    def create_upload(self, bucket: str, key: str) -> str:
        """CreateMultipartUpload: the upload id."""
        upload_id = f"upload{self._next_serial():016x}"
        self._bucket(bucket).uploads[upload_id] = _Upload(key, self._clock.now())
        return upload_id

    def put_part(self, bucket: str, key: str, upload_id: str, part_number: int, body: Body) -> None:
        """UploadPart; a part with the same number is overwritten."""
        if not 1 <= part_number <= PART_NUMBER_MAX:
            raise S3Error("InvalidArgument", f"part numbers go from 1 to {PART_NUMBER_MAX}")
        parts = self._upload(bucket, key, upload_id).parts
        self._forget(parts.get(part_number))
        parts[part_number] = body

    def parts(self, bucket: str, key: str, upload_id: str) -> dict[int, Body]:
        """ListParts, in the order of part numbers."""
        return dict(sorted(self._upload(bucket, key, upload_id).parts.items()))

    def complete_upload(
        self, bucket: str, key: str, upload_id: str, named: Sequence[tuple[int, str]]
    ) -> StoredObject:
        """CompleteMultipartUpload: `named` are part numbers and ETags, in ascending order."""
        bodies = _named_parts(self._upload(bucket, key, upload_id).parts, named)
        self.abort_upload(bucket, key, upload_id)
        contents = [body.content for body in bodies]
        whole = b"".join(c for c in contents if c is not None) if None not in contents else None
        head = b"" if whole is not None else bodies[0].read(0, min(_HEAD_BYTES, bodies[0].size_bytes))
        size_bytes = sum(body.size_bytes for body in bodies)
        self.kept_bytes += len(whole or head)
        etag = f"{self._next_serial():032x}-{len(bodies)}"
        joined = Body(size_bytes=size_bytes, etag=etag, content=whole, head=head)
        return self.put(bucket, key, joined)

    def abort_upload(self, bucket: str, key: str, upload_id: str) -> None:
        for body in self._upload(bucket, key, upload_id).parts.values():
            self._forget(body)
        del self._bucket(bucket).uploads[upload_id]

    def uploads(self, bucket: str, prefix: str = "") -> list[tuple[str, str, datetime]]:
        """ListMultipartUploads: key, upload id and start of each unfinished upload, in key order."""
        found = self._bucket(bucket).uploads.items()
        return sorted((u.key, upload_id, u.started_at) for upload_id, u in found if u.key.startswith(prefix))

    def _bucket(self, name: str) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            raise S3Error("NoSuchBucket", f"there is no bucket {name}")
        return bucket

    def _upload(self, bucket: str, key: str, upload_id: str) -> _Upload:
        upload = self._bucket(bucket).uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise S3Error("NoSuchUpload", f"there is no unfinished upload {upload_id} of {key}")
        return upload

    def _forget_object(self, stored: StoredObject | None) -> None:
        self._forget(stored.body if stored is not None else None)

    def _forget(self, body: Body | None) -> None:
        if body is not None:
            self.kept_bytes -= len(body.content or body.head)

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial


def _named_parts(parts: dict[int, Body], named: Sequence[tuple[int, str]]) -> list[Body]:
    numbers = [number for number, _ in named]
    if not numbers:
        raise S3Error("MalformedXML", "at least one part must be named")
    if numbers != sorted(set(numbers)):
        raise S3Error("InvalidPartOrder", "parts must be named in rising order, each once")
    for number, etag in named:
        if number not in parts or parts[number].etag != etag.strip('"'):
            raise S3Error("InvalidPart", f"part {number} was not uploaded or has another ETag")
    if any(parts[number].size_bytes < PART_SIZE_BYTES_MIN for number in numbers[:-1]):
        raise S3Error("EntityTooSmall", f"every part but the last needs at least {PART_SIZE_BYTES_MIN} bytes")
    return [parts[number] for number in numbers]


class S3Service:
    """S3 at the end of a path: a shelf, and the time that everything takes."""

    def __init__(
        self, truth: LinkTruth, *, clock: Clock, seed: int, inbound: LinkTruth | None = None
    ) -> None:
        """`inbound` is the truth for reads, if it differs from that for writes."""
        self.truth = truth
        self._inbound = inbound
        self.shelf = Shelf(clock)
        self.uplink = Link(truth, seed=seed)
        self.downlink = Link(self.inbound, seed=seed + 1_000)
        self.throttled_count = 0
        self.request_count = 0
        self.read_count = 0  # requests that are reads
        self._in_flight_count = 0  # uploads
        self._borne_bytes = 0  # uploaded without a pause
        self._borne_at = self._refuses_until = -math.inf
        self._chance = random.Random(f"s3 {seed}")
        self._allowances: dict[tuple[str, bool], RequestAllowance] = {}
        self._cached: dict[tuple[str, int], None] = {}  # blocks by ETag and index, the newest last

    @property
    def inbound(self) -> LinkTruth:
        """The truth for reads."""
        return self._inbound or self.truth

    def become(self, truth: LinkTruth | None = None, *, inbound: LinkTruth | None = None) -> None:
        """Change the path from now on; a direction that is not given stays as it is."""
        self.truth = truth or self.truth
        self._inbound = inbound or self._inbound
        self.uplink.become(self.truth)
        self.downlink.become(self.inbound)
        self._allowances.clear()

    async def admit(self, bucket: str, *, is_read: bool = False) -> None:
        """Admit a request, or refuse it with SlowDown after a round trip."""
        truth = self.inbound if is_read else self.truth
        self.request_count += 1
        self.read_count += is_read
        fresh = RequestAllowance(truth.prefix_request_rate_per_second)
        if not self._allowances.setdefault((bucket, is_read), fresh).take():
            self.throttled_count += 1
            await asyncio.sleep(truth.round_trip_seconds)
            raise S3Error("SlowDown", "please reduce your request rate")

    async def answer_delay(self, *, is_read: bool = False) -> None:
        """Wait for the round trip and the service's latency of one request; the answer to a read begins after it."""
        truth, link = (self.inbound, self.downlink) if is_read else (self.truth, self.uplink)
        await asyncio.sleep(self._latency_seconds(truth, link))

    async def first_byte(self, stored: StoredObject, start: int, stop: int) -> None:
        """Wait until the answer to a read begins, which is later if some of the range is not in the cache."""
        cold_seconds = self.inbound.cold_read_seconds
        if cold_seconds > 0 and self._is_fetched(stored.body.etag, start, stop):
            await asyncio.sleep(cold_seconds)
        await self.answer_delay(is_read=True)

    async def put_object(
        self, bucket: str, key: str, size_bytes: int, content: bytes | None = None
    ) -> StoredObject:
        await self._upload(bucket, size_bytes)
        return self.shelf.put(bucket, key, self.shelf.body(size_bytes, content))

    async def upload_part(
        self, bucket: str, key: str, upload_id: str, part_number: int, size_bytes: int, *, head: bytes = b""
    ) -> str:
        """UploadPart; returns the ETag. The bytes are not kept, except for the object's first ones (`head`)."""
        await self._upload(bucket, size_bytes)
        body = self.shelf.body(size_bytes, head[:_HEAD_BYTES] if part_number == 1 else None)
        self.shelf.put_part(bucket, key, upload_id, part_number, body)
        return body.etag

    async def find(self, bucket: str, key: str) -> StoredObject:
        """Admit a read, and find its object."""
        await self.admit(bucket, is_read=True)
        return self.shelf.get(bucket, key)

    async def get_object(self, bucket: str, key: str) -> bytes:
        stored = await self.read(bucket, key)
        return stored.body.read(0, stored.body.size_bytes)

    async def read(self, bucket: str, key: str, start: int = 0, stop: int | None = None) -> StoredObject:
        """GetObject of the whole object or a range: takes its time, and returns the object with its bytes."""
        stored = await self.find(bucket, key)
        stop = stored.body.size_bytes if stop is None else stop
        await self.first_byte(stored, start, stop)
        await self.carry_out(stop - start)
        return stored

    async def carry_out(self, size_bytes: int) -> None:
        """Move the body of an answer to the host."""
        await self.downlink.carry(size_bytes + self.inbound.request_overhead_bytes)

    async def complete_upload(
        self, bucket: str, key: str, upload_id: str, named: Sequence[tuple[int, str]]
    ) -> StoredObject:
        """CompleteMultipartUpload; it takes longer the more parts are merged."""
        await self.small_request(bucket)
        await asyncio.sleep(self.truth.merge_seconds + self.truth.merge_seconds_per_part * len(named))
        return self.shelf.complete_upload(bucket, key, upload_id, named)

    async def small_request(self, bucket: str) -> None:
        """Take the time of a request that moves next to no bytes; its effect is up to the shelf."""
        await self.admit(bucket)
        await self.answer_delay()

    async def _bear(self, size_bytes: int) -> None:
        """Admit the bytes; if too many came without a pause, refuse them and all others for some time."""
        if self.truth.patience_bytes is None:
            return
        now = asyncio.get_running_loop().time()
        if now >= self._refuses_until:
            is_rested = now - self._borne_at > self.truth.refusal_seconds
            self._borne_bytes = size_bytes + (0 if is_rested else self._borne_bytes)
            self._borne_at = now
            if self._borne_bytes <= self.truth.patience_bytes:
                return
            self._refuses_until, self._borne_bytes = now + self.truth.refusal_seconds, 0
        self.throttled_count += 1
        await asyncio.sleep(self.truth.round_trip_seconds)
        raise S3Error("SlowDown", "please come back later")

    async def _upload(self, bucket: str, size_bytes: int) -> None:
        await self.admit(bucket)
        await self._bear(size_bytes)
        self.shelf.check_bucket(bucket)
        self._in_flight_count += 1
        try:
            await self.uplink.carry(size_bytes + self.truth.request_overhead_bytes)
            await self.answer_delay()
        finally:
            self._in_flight_count -= 1

    def _latency_seconds(self, truth: LinkTruth, link: Link) -> float:
        seconds, chance = truth.service_latency_seconds_median, self._chance
        if truth.drift is not None:
            seconds *= link.latency_factor
        if truth.service_latency_sigma > 0:
            seconds *= math.exp(chance.gauss(0.0, truth.service_latency_sigma))
        if truth.straggler_fraction > 0 and chance.random() < truth.straggler_fraction:
            seconds += truth.straggler_seconds
        seconds += truth.round_trips_per_request * truth.round_trip_seconds
        count = self._in_flight_count
        return seconds * (1.0 + truth.latency_coherency * count * (count - 1))

    def _is_fetched(self, etag: str, start: int, stop: int) -> bool:
        """Whether some of the range is not in the cache; afterwards all of it is."""
        blocks = range(start // _CACHED_BLOCK_BYTES, -(-stop // _CACHED_BLOCK_BYTES))
        is_fetched = any((etag, block) not in self._cached for block in blocks)
        for block in blocks:
            self._cached.pop((etag, block), None)
            self._cached[etag, block] = None
        while len(self._cached) * _CACHED_BLOCK_BYTES > self.inbound.cache_bytes:
            del self._cached[next(iter(self._cached))]
        return is_fetched
