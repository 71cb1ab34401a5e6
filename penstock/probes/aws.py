"""Knows aiobotocore: the one file that speaks to S3 and SQS, or to whatever answers like them.

Every option that could hide what is measured is explicit: one attempt for a call, a pool that never queues,
no checksums and no payload hashes (both would stall the event loop: 83 ms for 8 MiB, measured), no silent
redirect to another region. What an error means is in `aws_answers.py`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import io
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from os.path import commonprefix
from typing import Any

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from aiohttp.abc import AbstractStreamWriter
from botocore import exceptions as botocore_errors
from botocore.parsers import ResponseParserError

from penstock.client.sdk_client import is_directory_bucket
from penstock.clock import SystemClock
from penstock.probes.aws_answers import (
    NOT_OFFERED,
    Unchanged,
    identified,
    is_unidentified,
    key_requests,
    raise_first,
    translated,
)
from penstock.probes.aws_files import LeanFiles
from penstock.probes.outside import (
    ANSWERED_BY,
    CONNECTION_IDLE_SECONDS_MAX,
    DELETED_COUNT_MAX,
    KEY_REQUESTS,
    LISTED_COUNT_MAX,
    Denied,
    Failed,
    Listed,
    NotOffered,
    Reading,
    ReceivedMessage,
    Refused,
    StoredObject,
    Tagged,
    VersionRequests,
)
from penstock.units import KiB

# aiohttp opens connections as they are needed and closes them when idle, so that a large pool costs nothing;
# a small one would make requests wait inside the client, and the wait would be read as S3's latency.
CONNECTION_COUNT_MAX = 4096
CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 60.0  # above the longest poll of SQS, 20 s
CONTINUE_SECONDS_MAX = 1.0  # botocore's: then the body goes unasked, for some servers and proxies never ask
LOOK_AGAIN_SECONDS = 5.0  # between looks for other credentials, where those there are do not serve
DNS_CACHE_SECONDS = 10  # short: S3 spreads its load by answering with other addresses
BODY_CHUNK_BYTES = 64 * KiB
BODY_RATE_BYTES_PER_SECOND_MIN = 64 * KiB  # a connection slower than this is called dead

_CLOCK = SystemClock()
_GONE = frozenset({"NoSuchKey", "NoSuchVersion"})
_VERSIONS_STAY = (
    "the bucket keeps versions, so that all that is deleted stays and is paid for: name one that keeps none, or allow "
    "s3:ListBucketVersions and s3:DeleteObjectVersion"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Explicit credentials; without them the usual chain is asked (environment, profile, instance role)."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where a service is, whose credentials are used, and how long it is waited for."""

    region: str | None  # None: as the environment says
    endpoint_url: str | None = None  # None: AWS's own
    profile: str | None = None
    credentials: Credentials | None = None
    follows_bucket: bool = False  # into another region, which would be measured in place of this one
    connection_count_max: int = CONNECTION_COUNT_MAX
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS


@contextlib.asynccontextmanager
async def open_object_store(access: Access) -> AsyncIterator[AwsObjectStore]:
    """S3. Raises Denied when there are no usable credentials."""
    options = {
        "addressing_style": "path" if access.endpoint_url else "auto",
        "payload_signing_enabled": False,
        "us_east_1_regional_endpoint": "regional",
    }
    async with _open_client("s3", access, s3=options) as client:
        if not access.follows_bucket:
            client.meta.events.register_last("before-parameter-build.s3", _stay_in_region)
        client.meta.events.register("before-call.s3.DeleteObjects", _add_digest)
        yield AwsObjectStore(client, access)


@contextlib.asynccontextmanager
async def open_message_queues(access: Access) -> AsyncIterator[AwsMessageQueues]:
    """SQS. Raises Denied when there are no usable credentials."""
    async with _open_client("sqs", access) as client:
        yield AwsMessageQueues(client)


class AwsObjectStore:
    """S3 as probes use it, over one aiobotocore client; `access` is what another process needs to open its like."""

    def __init__(self, client: Any, access: Access) -> None:  # Any: aiobotocore makes its clients at run time
        self._client = client
        self.access = access
        self._deletes_only_singly = False  # found out by asking
        self._kept: dict[str, str] = {}  # by bucket: why versions of what was deleted there stay

    async def put_object(self, bucket: str, key: str, body: bytes) -> str:
        self._refuse_what_would_stay(bucket)
        with translated(f"putting {key} into {bucket}"):
            answer = await self._client.put_object(Bucket=bucket, Key=key, Body=body)
            return str(answer["ETag"])

    async def create_multipart_upload(self, bucket: str, key: str) -> str:
        self._refuse_what_would_stay(bucket)
        with translated(f"starting an upload into {bucket}"):
            answer = await self._client.create_multipart_upload(Bucket=bucket, Key=key)
            return str(answer["UploadId"])

    async def upload_part(self, bucket: str, key: str, upload_id: str, part_number: int, body: bytes) -> str:
        with translated(f"uploading part {part_number} into {bucket}"):
            answer = await self._client.upload_part(
                Bucket=bucket, Key=key, UploadId=upload_id, PartNumber=part_number, Body=body
            )
            return str(answer["ETag"])

    async def complete_multipart_upload(
        self, bucket: str, key: str, upload_id: str, etags: Sequence[str]
    ) -> None:
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, start=1)]
        with translated(f"completing an upload into {bucket}"):
            answer = await self._client.complete_multipart_upload(
                Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts}
            )
            _must_have("ETag", answer)

    async def read_range(
        self, bucket: str, key: str, start: int, stop: int, *, object_size_bytes: int
    ) -> Reading:
        """GetObject; the bytes are dropped as they come."""
        doing, size_bytes = f"reading {key} from {bucket}", stop - start
        is_whole = size_bytes == object_size_bytes
        wanted = {} if is_whole else {"Range": f"bytes={start}-{stop - 1}"}
        began_seconds = _CLOCK.monotonic_seconds()
        with translated(doing):
            answer = await self._client.get_object(Bucket=bucket, Key=key, **wanted)
            first_byte_seconds = _CLOCK.monotonic_seconds() - began_seconds
            async with answer["Body"] as body:  # what is not read to its end is closed, not kept for the next
                _check_range(answer, start, stop, None if is_whole else object_size_bytes, doing)
                seconds_max = self.access.read_timeout_seconds + size_bytes / BODY_RATE_BYTES_PER_SECOND_MIN
                async with asyncio.timeout(seconds_max):
                    read_bytes = await _dropped(body.raw_stream.content, size_bytes)
        if read_bytes != size_bytes:
            raise Refused(f"{size_bytes} bytes were asked for, {read_bytes} came", doing=doing)
        return Reading(first_byte_seconds=first_byte_seconds)

    async def look_at(self, bucket: str, key: str, size_bytes: int) -> StoredObject:
        """GetObject, of a range that an object may be smaller than: what HeadObject refuses, it refuses without a word.

        The class is not said where it is the standard one.
        """
        with translated(f"looking at {key} in {bucket}"):
            answer = await self._client.get_object(Bucket=bucket, Key=key, Range=f"bytes=0-{size_bytes - 1}")
            async with answer["Body"] as body:
                head = await _first_bytes(body, size_bytes)  # also where the range is ignored
            # Whoever sends a range in chunks does not say how long it is.
            told = answer.get("ContentRange") or f"/{answer['ContentLength']}"
            return StoredObject(
                head,
                size_bytes=int(told.rpartition("/")[2]),
                storage_class=answer.get("StorageClass", "STANDARD").lower().replace("_", "-"),
            )

    async def get_unless(
        self, bucket: str, key: str, etag: str | None, *, size_bytes_max: int
    ) -> Tagged | None:
        condition = {} if etag is None else {"IfNoneMatch": etag}
        try:
            with translated(f"reading {key} from {bucket}"):
                answer = await self._client.get_object(Bucket=bucket, Key=key, **condition)
                async with answer["Body"] as body:
                    found = await _first_bytes(body, size_bytes_max + 1)
                return Tagged(found, str(answer["ETag"]))
        except Unchanged:
            return None

    async def put_if(self, bucket: str, key: str, body: bytes, etag: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        with translated(f"putting {key} into {bucket}"):
            answer = await self._client.put_object(Bucket=bucket, Key=key, Body=body, **condition)
            return str(answer["ETag"])

    async def list_shared(self, bucket: str, prefix: str) -> list[Listed]:
        """ListObjectsV2; ages are by the date of the answer itself, on the clock that dated the objects."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=prefix, PaginationConfig={"MaxItems": LISTED_COUNT_MAX}
        )
        with translated(f"listing {prefix} in {bucket}"):
            return [listed async for page in pages for listed in _shared_in(page)]

    async def abort_multipart_upload(self, bucket: str, key: str, upload_id: str) -> None:
        """AbortMultipartUpload; raises Missing when it is already gone."""
        with translated(f"aborting an upload into {bucket}"):
            await self._client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)

    async def list_multipart_uploads(self, bucket: str, prefix: str) -> list[tuple[str, str]]:
        with translated(f"listing the unfinished uploads of {bucket}"):
            found = await self._below(bucket, prefix, "list_multipart_uploads", "Uploads")
            return [(upload["Key"], upload["UploadId"]) for upload in found]

    async def list_objects(self, bucket: str, prefix: str) -> list[str]:
        with translated(f"listing the objects of {bucket}"):
            found = await self._below(bucket, prefix, "list_objects_v2", "Contents")
            return [entry["Key"] for entry in found]

    async def _below(self, bucket: str, prefix: str, request: str, entries: str) -> list[dict[str, Any]]:
        """What of a listing begins so. A directory bucket is asked for the folder, for it lists no less."""
        asked = prefix[: prefix.rfind("/") + 1] if is_directory_bucket(bucket) else prefix
        pages = self._client.get_paginator(request).paginate(Bucket=bucket, Prefix=asked)
        found = [entry async for page in _listed(pages) for entry in page.get(entries, [])]
        return [entry for entry in found if entry["Key"].startswith(prefix)]

    async def delete_object(self, bucket: str, key: str) -> VersionRequests:
        with translated(f"deleting {key} from {bucket}"):
            answer = await self._client.delete_object(Bucket=bucket, Key=key)
        return await self._delete_versions(bucket, [key] if answer.get("DeleteMarker") else [])

    async def delete_objects(self, bucket: str, keys: Sequence[str]) -> VersionRequests:
        """DeleteObjects; asked only once where the store does not know it."""
        deleted = await self._delete_batch(bucket, [{"Key": key} for key in keys])
        return await self._delete_versions(
            bucket, [each["Key"] for each in deleted if each.get("DeleteMarker")]
        )

    async def _delete_batch(
        self, bucket: str, named: Sequence[Mapping[str, str]]
    ) -> Sequence[Mapping[str, Any]]:
        """What of these is deleted, as the store says it."""
        doing = f"deleting {len(named)} objects from {bucket}"
        if self._deletes_only_singly:
            raise NotOffered(NOT_OFFERED, doing=doing)
        try:
            with translated(doing):
                answer = await self._client.delete_objects(Bucket=bucket, Delete={"Objects": named})
        except NotOffered:
            self._deletes_only_singly = True
            raise
        raise_first([e for e in answer.get("Errors", []) if e.get("Code") not in _GONE], 400, doing)
        return answer.get("Deleted", [])  # type: ignore[no-any-return]

    async def _delete_versions(self, bucket: str, keys: Collection[str]) -> VersionRequests:
        """In a bucket that keeps versions a deletion only marks: all that was put would stay, and be paid for."""
        if not keys:
            return VersionRequests()
        try:
            found, listing_count = await self._versions(bucket, frozenset(keys))
            return VersionRequests(listing_count, await self._delete_found(bucket, found))
        except Failed:
            raise
        except (Denied, Refused) as trouble:
            self._kept[bucket] = f"{trouble}; {_VERSIONS_STAY}"
            raise Denied(self._kept[bucket]) from trouble

    async def _delete_found(self, bucket: str, versions: Sequence[Mapping[str, str]]) -> int:
        """In batches where the store knows them; how many requests it took."""
        starts = range(0, len(versions), DELETED_COUNT_MAX)
        try:
            for start in starts:
                await self._delete_batch(bucket, versions[start : start + DELETED_COUNT_MAX])
        except NotOffered:
            with translated(f"deleting versions from {bucket}"):
                for each in versions:
                    await self._client.delete_object(Bucket=bucket, **each)
            return len(versions)
        return len(starts)

    async def _versions(self, bucket: str, keys: Collection[str]) -> tuple[list[dict[str, str]], int]:
        """All versions of these keys, by what names them, and in how many pages they were listed."""
        found, page_count = list[dict[str, str]](), 0
        paginator = self._client.get_paginator("list_object_versions")
        with translated(f"listing the versions of {bucket}"):
            prefix = commonprefix(list(keys))  # noqa: RUF071 - keys are no paths
            async for page in _listed(paginator.paginate(Bucket=bucket, Prefix=prefix)):
                page_count += 1
                found += [
                    {"Key": entry["Key"], "VersionId": entry["VersionId"]}
                    for entry in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
                    if entry["Key"] in keys
                ]
        return found, page_count

    def _refuse_what_would_stay(self, bucket: str) -> None:
        if bucket in self._kept:
            raise Denied(self._kept[bucket])


class AwsMessageQueues:
    """SQS as probes use it, over one aiobotocore client."""

    def __init__(self, client: Any) -> None:  # Any: aiobotocore makes its clients at run time
        self._client = client

    async def create_queue(self, name: str, attributes: Mapping[str, str]) -> str:
        with translated(f"creating the queue {name}"):
            answer = await self._client.create_queue(QueueName=name, Attributes=dict(attributes))
            return str(answer["QueueUrl"])

    async def find_queue(self, name: str) -> str:
        with translated(f"looking for the queue {name}"):
            answer = await self._client.get_queue_url(QueueName=name)
            return str(answer["QueueUrl"])

    async def list_queues(self, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_queues").paginate(QueueNamePrefix=prefix, MaxResults=1000)
        with translated("listing the queues"):
            return [url.rsplit("/", 1)[-1] async for page in pages for url in page.get("QueueUrls", [])]

    async def delete_queue(self, url: str) -> None:
        """DeleteQueue; the name cannot be used again for 60 s."""
        with translated("deleting the queue"):
            await self._client.delete_queue(QueueUrl=url)

    async def queue_attributes(self, url: str) -> dict[str, str]:
        with translated("reading the queue's attributes"):
            answer = await self._client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
            return {str(name): str(value) for name, value in answer.get("Attributes", {}).items()}

    async def send(self, url: str, bodies: Sequence[str], *, group_ids: Sequence[str] = ()) -> int:
        messages = [{"MessageBody": body} for body in bodies]
        if group_ids:
            messages = [
                message
                | {"MessageGroupId": group_id, "MessageDeduplicationId": _digest(message["MessageBody"])}
                for message, group_id in zip(messages, group_ids, strict=True)
            ]
        with translated("sending to the queue"):
            if len(messages) == 1:
                _must_have("MessageId", await self._client.send_message(QueueUrl=url, **messages[0]))
                return 1
            entries = [{"Id": str(index), **message} for index, message in enumerate(messages)]
            answer = await self._client.send_message_batch(QueueUrl=url, Entries=entries)
            return _accepted_count(answer, "sending to the queue")

    async def receive(self, url: str, *, message_count_max: int, wait_seconds: int) -> list[ReceivedMessage]:
        """At most `message_count_max` messages; none after `wait_seconds` without any."""
        with translated("receiving from the queue"):
            answer = await self._client.receive_message(
                QueueUrl=url, MaxNumberOfMessages=message_count_max, WaitTimeSeconds=wait_seconds
            )
            return [
                ReceivedMessage(
                    message_id=str(m["MessageId"]),
                    receipt_handle=str(m["ReceiptHandle"]),
                    body=str(m["Body"]),
                )
                for m in answer.get("Messages", [])
            ]

    async def delete(self, url: str, receipt_handles: Sequence[str]) -> int:
        with translated("deleting messages"):
            if len(receipt_handles) == 1:
                await self._client.delete_message(QueueUrl=url, ReceiptHandle=receipt_handles[0])
                return 1
            entries = [
                {"Id": str(index), "ReceiptHandle": handle} for index, handle in enumerate(receipt_handles)
            ]
            answer = await self._client.delete_message_batch(QueueUrl=url, Entries=entries)
            return _accepted_count(answer, "deleting messages")


@contextlib.asynccontextmanager
async def _open_client(
    service: str, access: Access, *, s3: Mapping[str, object] | None = None
) -> AsyncIterator[Any]:  # Any: aiobotocore makes its clients at run time
    config = AioConfig(
        connect_timeout=access.connect_timeout_seconds,
        read_timeout=access.read_timeout_seconds,
        max_pool_connections=access.connection_count_max,
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        tcp_keepalive=True,
        s3=s3,
        http_session_cls=_PacedBodySession,
        connector_args={
            "keepalive_timeout": CONNECTION_IDLE_SECONDS_MAX,
            "use_dns_cache": True,
            "ttl_dns_cache": DNS_CACHE_SECONDS,
        },
        warm_up_loader_caches=True,  # reads botocore's large JSON outside the event loop
    )
    explicit = access.credentials and {
        "aws_access_key_id": access.credentials.access_key,
        "aws_secret_access_key": access.credentials.secret_key,
        "aws_session_token": access.credentials.session_token,
    }
    async with contextlib.AsyncExitStack() as stack:
        with identified():
            session = _session(access)
            found = None if explicit else await session.get_credentials()
        with translated(f"setting up the client for {service}"):
            opening = session.create_client(
                service,
                region_name=access.region,
                endpoint_url=access.endpoint_url,
                config=config,
                **(explicit or {}),
            )
            client = await stack.enter_async_context(opening)
        client.meta.events.register(f"after-call.{service}", _refuse_a_page)
        if not explicit:
            identity = _Identity(found, access)
            client.meta.events.register(f"after-call.{service}", identity.note_answer)
            client.meta.events.register(f"before-sign.{service}", identity.sign)
        yield client


def _session(access: Access) -> AioSession:
    """Where credentials are found; roles are assumed in the region, which create_client alone would tell it."""
    session = AioSession(profile=access.profile)
    session.get_component("data_loader").file_loader = LeanFiles()
    session.set_config_variable("region", access.region)
    return session


class _Identity:
    """Who signs: who was found at first, until a service does not know him any more; then who is found anew.

    What the SDK renews by itself is renewed. What somebody renewed for it, in a file, it would not read again.
    """

    def __init__(self, found: Any, access: Access) -> None:  # Any: botocore has no types
        self._found = found  # credentials, or None
        self._access = access
        self._is_wanted = found is None
        self._look_seconds = 0.0  # not before that: a probe makes many requests, and all of them fail

    def note_answer(self, parsed: Mapping[str, Any], **_: Any) -> None:
        """Look anew, where this request was of nobody."""
        self._is_wanted = self._is_wanted or is_unidentified(parsed)

    async def sign(self, request: Any, **_: Any) -> None:
        """Before each request."""
        seconds = _CLOCK.monotonic_seconds()
        if self._is_wanted and seconds >= self._look_seconds:
            self._look_seconds = seconds + LOOK_AGAIN_SECONDS
            with identified():
                self._found = await _session(self._access).get_credentials() or self._found
            self._is_wanted = self._found is None
        if self._found is not None:
            with identified():
                await self._found.get_frozen_credentials()
            request.context.setdefault("signing", {})["request_credentials"] = self._found


def _stay_in_region(context: dict[str, Any], **_: Any) -> None:
    """Call the request redirected already: botocore would follow silently, and measure another region."""
    context.setdefault("s3_redirect", {})["redirected"] = True


def _refuse_a_page(http_response: Any, model: Any, **_: Any) -> None:  # Any: botocore has no types
    """What a portal shows for everything: most answers that say nothing would be read as success, as of a deletion."""
    is_page = http_response.headers.get("content-type", "").startswith("text/html")
    if is_page and http_response.status_code < 300 and model.name != "GetObject":
        raise ResponseParserError("a page in HTML")


async def _listed(pages: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[Mapping[str, Any]]:
    """The pages of a listing, each of which says whether there is another."""
    async for page in pages:
        _must_have("IsTruncated", page)
        yield page


def _must_have(name: str, answer: Mapping[str, Any]) -> None:
    """Raises KeyError where an answer of success does not say what S3 and SQS always say."""
    answer[name]


def _add_digest(params: dict[str, Any], **_: Any) -> None:
    """Beside the CRC that botocore sends: stores older than that refuse the request without an MD5."""
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()


class _PacedBodySession(AIOHTTPSession):  # type: ignore[misc]  # aiobotocore has no types
    """Sends large bodies in slices that all share the caller's bytes.

    aiohttp would copy the whole body first: the memory of one part for each connection. What botocore decided
    stays, also `Expect: 100-continue`: applications on the SDKs pay that round trip as well, and it lets a
    throttle be answered before the body is sent, not by a connection that breaks under it. aiohttp waits for the
    name's address without end, so every request has a bound of its own.
    """

    async def _get_session(self, proxy_url: str | None) -> Any:  # Any: aiohttp's, as aiobotocore calls it
        session = await super()._get_session(proxy_url)
        session._request_class = _Request  # noqa: SLF001 - aiobotocore makes the session, and leaves no choice
        return _Unredirected(session)

    async def send(self, request: Any) -> Any:  # Any: botocore has no types
        if isinstance(request.body, io.BytesIO):
            request.body = _SharedBytes(request.body.getvalue())  # the caller's own bytes, not a copy
        elif isinstance(request.body, (bytes, bytearray)) and len(request.body) > BODY_CHUNK_BYTES:
            # A batch of large messages: aiohttp warns of those.
            request.body = _SharedBytes(bytes(request.body))
        try:
            async with asyncio.timeout(self._seconds_max(request.body)):
                answer = await super().send(request)
        except TimeoutError as error:
            raise botocore_errors.ReadTimeoutError(endpoint_url=request.url, error=error) from error
        if (answered_by := ANSWERED_BY.get()) is not None:
            answered_by[_address_of(answer)] += 1
        if (heard := KEY_REQUESTS.get()) is not None:
            heard.note(key_requests(answer.headers))
        return answer

    def _seconds_max(self, body: object) -> float:
        size_bytes = body.size if isinstance(body, _SharedBytes) else 0
        waiting_seconds: float = self._timeout.sock_connect + self._timeout.sock_read
        return waiting_seconds + (size_bytes or 0) / BODY_RATE_BYTES_PER_SECOND_MIN


class _Request(aiohttp.ClientRequest):
    """A request whose body waits for "100 Continue" as long as botocore's does; aiohttp's waits without end."""

    async def write_bytes(self, *arguments: Any) -> None:  # Any: aiohttp's own
        """Send the body. What keeps even its head from going is told to whoever waits for the answer, and not twice."""
        if (asked := self._continue) is not None:
            self.loop.call_later(CONTINUE_SECONDS_MAX, _settle, asked)
        with contextlib.suppress(aiohttp.ClientConnectionResetError):
            await super().write_bytes(*arguments)


def _settle(asked: asyncio.Future[bool]) -> None:
    if not asked.done():
        asked.set_result(True)


class _Unredirected:
    """aiohttp's session, which would follow a redirect: to whoever is named there, with what was signed for another."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    def request(self, method: str, **options: Any) -> Any:
        return self._session.request(method, allow_redirects=False, **options)


def _address_of(answer: Any) -> str:  # Any: botocore has no types
    """Who is at the other end of the connection; an answer without a body has given its connection back already."""
    transport = getattr(getattr(answer.raw, "_protocol", None), "transport", None)
    peer = transport.get_extra_info("peername") if transport is not None else None
    return str(peer[0]) if peer else "unknown"


class _SharedBytes(aiohttp.Payload):
    """A body that is written in slices, without a copy."""

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self._size = len(value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The body as text, which aiohttp asks for in no case that happens here."""
        return str(self._value, encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Slice by slice; each waits until the transport has room."""
        view = memoryview(self._value)
        for start in range(0, len(view), BODY_CHUNK_BYTES):
            await writer.write(view[start : start + BODY_CHUNK_BYTES])


def _check_range(
    answer: Mapping[str, Any], start: int, stop: int, object_size_bytes: int | None, doing: str
) -> None:
    """That exactly these bytes come; without a size, the whole object."""
    status, wanted = 200, None
    if object_size_bytes is not None:
        status, wanted = 206, f"bytes {start}-{stop - 1}/{object_size_bytes}"
    told = (
        int(answer["ResponseMetadata"]["HTTPStatusCode"]),
        answer.get("ContentRange"),
        # Whoever sends in chunks does not say: what comes is counted.
        answer.get("ContentLength", stop - start),
    )
    if told != (status, wanted, stop - start):
        raise Refused(
            f"asked for bytes {start} to {stop - 1}, got {told[0]} {told[1]} of {told[2]}", doing=doing
        )


async def _first_bytes(body: Any, size_bytes: int) -> bytes:
    """So many at the most of an answer's body, piece by piece, as it comes."""
    found = bytearray()
    while piece := await body.raw_stream.content.read(size_bytes - len(found)):
        found += piece
    return bytes(found)


async def _dropped(content: Any, size_bytes: int) -> int:
    """Read to the end, or past what was asked for; how many bytes there were (Any: aiohttp's stream)."""
    count = 0
    while count <= size_bytes and (piece := await content.readany()):
        count += len(piece)
    return count


def _digest(body: str) -> str:
    """What tells a message from another, within the 128 characters that SQS takes."""
    return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()


def _accepted_count(answer: Mapping[str, Any], doing: str) -> int:
    """How many entries of a batch were accepted; a batch of which none was raises what the first one says."""
    accepted_count, failures = len(answer.get("Successful", [])), answer.get("Failed", [])
    if accepted_count == 0:
        raise_first(failures, 400 if failures and failures[0].get("SenderFault") else 500, doing)
    return accepted_count


def _shared_in(page: Mapping[str, Any]) -> list[Listed]:  # Any: of the SDK
    found = page.get("Contents", [])
    date = page["ResponseMetadata"]["HTTPHeaders"].get("date")
    newest = max((entry["LastModified"] for entry in found), default=None)
    now = parsedate_to_datetime(date) if date else newest
    return [
        Listed(entry["Key"], str(entry["ETag"]), max(0.0, (now - entry["LastModified"]).total_seconds()))
        for entry in found
    ]
