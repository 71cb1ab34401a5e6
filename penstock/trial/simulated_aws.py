"""Knows how the probes' interfaces to AWS are implemented on the lab's services, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from penstock.lab.s3 import S3Error, S3Service
from penstock.lab.sqs import Sending, SqsError, SqsService
from penstock.probes.outside import (
    Changed,
    Listed,
    Missing,
    NoBucket,
    Reading,
    ReceivedMessage,
    Refused,
    RequestError,
    StoredObject,
    Tagged,
    Throttled,
    VersionRequests,
)

_URL = "https://sqs.lab.invalid/000000000000/"
_THROTTLED = frozenset({"SlowDown", "RequestThrottled", "OverLimit"})
_MISSING = frozenset({"NoSuchKey", "NoSuchUpload", "QueueDoesNotExist"})


class _AsRequestErrors:
    """Translates errors of the lab into those of the interfaces; a single object, because requests are millions."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (S3Error, SqsError)):
            raise _request_error(error.code, str(error)) from error


_AS_REQUEST_ERRORS = _AsRequestErrors()


class SimulatedObjectStore:
    """`penstock.probes.outside.ObjectStore` on a lab S3."""

    def __init__(self, service: S3Service) -> None:
        self._service = service
        self._shelf = service.shelf

    async def put_object(self, bucket: str, key: str, body: bytes) -> str:
        with _AS_REQUEST_ERRORS:
            stored = await self._service.put_object(bucket, key, len(body), body)
        return stored.body.etag

    async def create_multipart_upload(self, bucket: str, key: str) -> str:
        with _AS_REQUEST_ERRORS:
            await self._service.small_request(bucket)
            return self._shelf.create_upload(bucket, key)

    async def upload_part(self, bucket: str, key: str, upload_id: str, part_number: int, body: bytes) -> str:
        with _AS_REQUEST_ERRORS:
            return await self._service.upload_part(bucket, key, upload_id, part_number, len(body), head=body)

    async def complete_multipart_upload(
        self, bucket: str, key: str, upload_id: str, etags: Sequence[str]
    ) -> None:
        with _AS_REQUEST_ERRORS:
            await self._service.complete_upload(bucket, key, upload_id, list(enumerate(etags, start=1)))

    async def read_range(
        self, bucket: str, key: str, start: int, stop: int, *, object_size_bytes: int
    ) -> Reading:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with _AS_REQUEST_ERRORS:
            stored = await self._service.find(bucket, key)
            await self._service.first_byte(stored, start, stop)
            first_byte_seconds = loop.time() - began
            await self._service.carry_out(stop - start)
        if stored.body.size_bytes != object_size_bytes:
            raise Refused(f"{key} has {stored.body.size_bytes} bytes")
        return Reading(first_byte_seconds=first_byte_seconds)

    async def look_at(self, bucket: str, key: str, size_bytes: int) -> StoredObject:
        with _AS_REQUEST_ERRORS:
            stored = await self._service.read(bucket, key, 0, size_bytes)
        body = stored.body
        return StoredObject(body.read(0, min(size_bytes, body.size_bytes)), body.size_bytes)

    async def get_unless(
        self, bucket: str, key: str, etag: str | None, *, size_bytes_max: int
    ) -> Tagged | None:
        with _AS_REQUEST_ERRORS:
            stored = await self._service.find(bucket, key)
            await self._service.first_byte(stored, 0, 0)
            if stored.body.etag == etag:
                return None
            size_bytes = min(stored.body.size_bytes, size_bytes_max + 1)
            await self._service.carry_out(size_bytes)
        return Tagged(stored.body.read(0, size_bytes), stored.body.etag)

    async def put_if(self, bucket: str, key: str, body: bytes, etag: str | None) -> str:
        """See `ObjectStore`. The condition is checked when the body has arrived."""
        with _AS_REQUEST_ERRORS:
            await self._service.small_request(bucket)
            await self._service.uplink.carry(len(body))
            there = next((s for s in self._shelf.objects(bucket, key) if s.key == key), None)
            if (there.body.etag if there else None) != etag:
                raise Changed(f"{key} was written meanwhile")
            return self._shelf.put(bucket, key, self._shelf.body(len(body), body)).body.etag

    async def list_shared(self, bucket: str, prefix: str) -> list[Listed]:
        with _AS_REQUEST_ERRORS:
            await self._service.small_request(bucket)
            return [
                Listed(stored.key, stored.body.etag, self._shelf.age_seconds(stored))
                for stored in self._shelf.objects(bucket, prefix)
            ]

    async def abort_multipart_upload(self, bucket: str, key: str, upload_id: str) -> None:
        with _AS_REQUEST_ERRORS:
            await self._service.small_request(bucket)
            self._shelf.abort_upload(bucket, key, upload_id)

    async def list_multipart_uploads(self, bucket: str, prefix: str) -> list[tuple[str, str]]:
        with _AS_REQUEST_ERRORS:
            await self._service.small_request(bucket)
            return [(key, upload_id) for key, upload_id, _ in self._shelf.uploads(bucket, prefix)]

    async def list_objects(self, bucket: str, prefix: str) -> list[str]:
        with _AS_REQUEST_ERRORS:
            await self._service.small_request(bucket)
            return [stored.key for stored in self._shelf.objects(bucket, prefix)]

    async def delete_object(self, bucket: str, key: str) -> VersionRequests:
        with _AS_REQUEST_ERRORS:
            await self._service.small_request(bucket)
            self._shelf.delete(bucket, key)
        return VersionRequests()

    async def delete_objects(self, bucket: str, keys: Sequence[str]) -> VersionRequests:
        with _AS_REQUEST_ERRORS:
            await self._service.small_request(bucket)
            self._shelf.delete_all(bucket, keys)
        return VersionRequests()


class SimulatedMessageQueues:
    """`penstock.probes.outside.MessageQueues` on a lab SQS."""

    def __init__(self, service: SqsService) -> None:
        self._service = service

    async def create_queue(self, name: str, attributes: Mapping[str, str]) -> str:
        with _AS_REQUEST_ERRORS:
            await self._service.create_queue(name, attributes)
            return _URL + name

    async def find_queue(self, name: str) -> str:
        with _AS_REQUEST_ERRORS:
            await self._service.small_request(name, "get_queue_url")
            self._service.queue(name)
            return _URL + name

    async def list_queues(self, prefix: str) -> list[str]:
        await self._service.small_request("", "list_queues")
        return self._service.queue_names(prefix)

    async def delete_queue(self, url: str) -> None:
        with _AS_REQUEST_ERRORS:
            await self._service.delete_queue(_name(url))

    async def queue_attributes(self, url: str) -> dict[str, str]:
        with _AS_REQUEST_ERRORS:
            return await self._service.attributes(_name(url))

    async def send(self, url: str, bodies: Sequence[str], *, group_ids: Sequence[str] = ()) -> int:
        sendings = [Sending(body=body) for body in bodies]
        if group_ids:
            pairs = zip(bodies, group_ids, strict=True)
            sendings = [Sending(body=body, group=group, deduplication_id=body) for body, group in pairs]
        with _AS_REQUEST_ERRORS:
            return len(await self._service.send(_name(url), sendings))

    async def receive(self, url: str, *, message_count_max: int, wait_seconds: int) -> list[ReceivedMessage]:
        with _AS_REQUEST_ERRORS:
            copies = await self._service.receive(
                _name(url), message_count_max=message_count_max, wait_seconds=wait_seconds
            )
        return [
            ReceivedMessage(message_id=copy.message_id, receipt_handle=copy.receipt_handle, body=copy.body)
            for copy in copies
        ]

    async def delete(self, url: str, receipt_handles: Sequence[str]) -> int:
        with _AS_REQUEST_ERRORS:
            results = await self._service.delete(_name(url), receipt_handles)
        return sum(result is None for result in results)


def _request_error(code: str, message: str) -> RequestError:
    if code in _THROTTLED:
        return Throttled(message)
    if code == "NoSuchBucket":
        return NoBucket(message)
    return Missing(message) if code in _MISSING else Refused(message)


def _name(url: str) -> str:
    return url.rsplit("/", 1)[-1]
