"""Knows how to make requests to S3 with aiobotocore."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from os.path import commonprefix
from typing import Any

from penstock.client.sdk_client import is_directory_bucket
from penstock.clock import SystemClock
from penstock.probes.aws.access import BODY_RATE_BYTES_PER_SECOND_MIN, Access
from penstock.probes.aws.answers import NOT_OFFERED, Unchanged, must_have, raise_first, translated
from penstock.probes.aws.client import open_client
from penstock.probes.outside import (
    DELETED_COUNT_MAX,
    LISTED_COUNT_MAX,
    Denied,
    Failed,
    Listed,
    NotOffered,
    Reading,
    Refused,
    StoredObject,
    Tagged,
    VersionRequests,
)

_CLOCK = SystemClock()
_GONE = frozenset({"NoSuchKey", "NoSuchVersion"})
_ANY_NAME = "object"  # of a key in a folder
_VERSIONS_STAY = (
    "the bucket keeps versions, so deleted objects stay and cost money: name one without versioning, or "
    "allow s3:ListBucketVersions and s3:DeleteObjectVersion"
)


@contextlib.asynccontextmanager
async def open_object_store(access: Access) -> AsyncIterator[AwsObjectStore]:
    """S3, over a client of its own. Raises Denied when there are no usable credentials."""
    options = {
        "addressing_style": "path" if access.endpoint_url else "auto",
        "payload_signing_enabled": False,
        "us_east_1_regional_endpoint": "regional",
        "use_accelerate_endpoint": False,  # whatever a profile says, because its bytes have another price
    }
    async with open_client("s3", access, s3=options) as client:
        if not access.follows_bucket:
            client.meta.events.register_last("before-parameter-build.s3", _stay_in_region)
        client.meta.events.register("before-call.s3.DeleteObjects", _add_digest)
        if access.requester_pays_buckets:
            confirm = partial(_confirm_payer, access.requester_pays_buckets)
            client.meta.events.register("before-parameter-build.s3", confirm)
        yield AwsObjectStore(client, access)


class AwsObjectStore:
    """S3 as probes use it, over one aiobotocore client; with `access`, another process can open the same."""

    def __init__(self, client: Any, access: Access) -> None:  # Any: aiobotocore makes its clients at run time
        self._client = client
        self.access = access
        self._deletes_only_singly = False  # set when the store refuses DeleteObjects
        self._kept: dict[str, str] = {}  # by bucket: why old versions of deleted keys cannot be removed

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
            must_have("ETag", answer)

    async def read_range(
        self, bucket: str, key: str, start: int, stop: int, *, object_size_bytes: int
    ) -> Reading:
        """GetObject; the bytes are dropped as they arrive."""
        doing, size_bytes = f"reading {key} from {bucket}", stop - start
        is_whole = size_bytes == object_size_bytes
        wanted = {} if is_whole else {"Range": f"bytes={start}-{stop - 1}"}
        began_seconds = _CLOCK.monotonic_seconds()
        with translated(doing):
            answer = await self._client.get_object(Bucket=bucket, Key=key, **wanted)
            first_byte_seconds = _CLOCK.monotonic_seconds() - began_seconds
            async with answer["Body"] as body:  # closes the connection unless the body was read to its end
                _check_range(answer, start, stop, None if is_whole else object_size_bytes, doing)
                seconds_max = self.access.read_timeout_seconds + size_bytes / BODY_RATE_BYTES_PER_SECOND_MIN
                async with asyncio.timeout(seconds_max):
                    read_bytes = await _dropped(body.raw_stream.content, size_bytes)
        if read_bytes != size_bytes:
            raise Refused(f"{size_bytes} bytes were requested, but {read_bytes} arrived", doing=doing)
        return Reading(first_byte_seconds=first_byte_seconds)

    async def look_at(self, bucket: str, key: str, size_bytes: int) -> StoredObject:
        """GetObject with a range, which may be larger than the object; errors of HeadObject would have no message.

        S3 does not state the standard storage class. An ETag is a digest where S3 encrypts with keys of its own:
        docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html. In directory buckets it is
        not, and in other stores it may be anything.
        """
        with translated(f"looking at {key} in {bucket}"):
            answer = await self._client.get_object(Bucket=bucket, Key=key, Range=f"bytes=0-{size_bytes - 1}")
            async with answer["Body"] as body:
                head = await _first_bytes(body, size_bytes)  # bounded even if the store ignores the range
            # Chunked answers have no ContentLength.
            told = answer.get("ContentRange") or f"/{answer['ContentLength']}"
            is_s3 = answer["ResponseMetadata"]["HTTPHeaders"].get("server") == "AmazonS3"
            has_digest = is_s3 and answer.get("ServerSideEncryption") == "AES256"
            return StoredObject(
                head,
                size_bytes=int(told.rpartition("/")[2]),
                storage_class=answer.get("StorageClass", "STANDARD").lower().replace("_", "-"),
                md5=answer["ETag"].strip('"') if has_digest and not is_directory_bucket(bucket) else None,
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
        """ListObjectsV2; ages are relative to the date of the answer, by the clock that also dates the objects."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=prefix, PaginationConfig={"MaxItems": LISTED_COUNT_MAX}
        )
        with translated(f"listing {prefix} in {bucket}"):
            return [listed async for page in pages for listed in _shared_in(page)]

    async def abort_multipart_upload(self, bucket: str, key: str, upload_id: str) -> None:
        """AbortMultipartUpload. Raises Missing if the upload is gone already."""
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
        """The entries of a listing below the prefix. A directory bucket is asked for the folder, as it requires."""
        asked = prefix[: prefix.rfind("/") + 1] if is_directory_bucket(bucket) else prefix
        bound = {"MaxItems": LISTED_COUNT_MAX}
        pages = self._client.get_paginator(request).paginate(
            Bucket=bucket, Prefix=asked, PaginationConfig=bound
        )
        found = [entry async for page in _listed(pages) for entry in page.get(entries, [])]
        return [entry for entry in found if entry["Key"].startswith(prefix)]

    async def delete_object(self, bucket: str, key: str) -> VersionRequests:
        asked = f"{key}{_ANY_NAME}" if key.endswith("/") else key
        with translated(f"deleting {asked} from {bucket}"):
            answer = await self._client.delete_object(Bucket=bucket, Key=asked)
        return await self._delete_versions(bucket, [key] if answer.get("DeleteMarker") else [])

    async def delete_objects(self, bucket: str, keys: Sequence[str]) -> VersionRequests:
        """DeleteObjects; requested only once if the store does not support it."""
        deleted = await self._delete_batch(bucket, [{"Key": key} for key in keys])
        return await self._delete_versions(
            bucket, [each["Key"] for each in deleted if each.get("DeleteMarker")]
        )

    async def _delete_batch(
        self, bucket: str, named: Sequence[Mapping[str, str]]
    ) -> Sequence[Mapping[str, Any]]:
        """Delete up to a thousand keys or versions; returns those deleted, as the store lists them."""
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
        """Delete all versions of these keys: a deletion only adds a marker to them, and they would be paid for."""
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
        """Delete versions, in batches if the store supports them; returns the count of requests."""
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
        """All versions of these keys, and of those below these folders, and the count of pages they took."""
        folders = tuple(key for key in keys if key.endswith("/"))
        found, page_count = list[dict[str, str]](), 0
        paginator = self._client.get_paginator("list_object_versions")
        with translated(f"listing the versions of {bucket}"):
            prefix = commonprefix(list(keys))  # noqa: RUF071 - keys are no paths
            async for page in _listed(paginator.paginate(Bucket=bucket, Prefix=prefix)):
                page_count += 1
                found += [
                    {"Key": entry["Key"], "VersionId": entry["VersionId"]}
                    for entry in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
                    if entry["Key"] in keys or entry["Key"].startswith(folders)
                ]
        return found, page_count

    def _refuse_what_would_stay(self, bucket: str) -> None:
        if bucket in self._kept:
            raise Denied(self._kept[bucket])


def _stay_in_region(context: dict[str, Any], **_: Any) -> None:
    """Mark the request as redirected already: otherwise botocore would follow a redirect silently."""
    context.setdefault("s3_redirect", {})["redirected"] = True


def _confirm_payer(buckets: Collection[str], params: dict[str, Any], model: Any, **_: Any) -> None:
    """State that the requester pays for requests to these buckets."""
    if params.get("Bucket") in buckets and "RequestPayer" in model.input_shape.members:
        params["RequestPayer"] = "requester"


async def _listed(pages: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[Mapping[str, Any]]:
    """The pages of a listing; each must say whether there is another one, or it is not a listing."""
    async for page in pages:
        must_have("IsTruncated", page)
        yield page


def _add_digest(params: dict[str, Any], **_: Any) -> None:
    """Add an MD5 beside botocore's CRC: older stores refuse the request without it."""
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()


def _check_range(
    answer: Mapping[str, Any], start: int, stop: int, object_size_bytes: int | None, doing: str
) -> None:
    """Raise Refused unless the answer has exactly these bytes; the whole object if `object_size_bytes` is None."""
    status, wanted = 200, None
    if object_size_bytes is not None:
        status, wanted = 206, f"bytes {start}-{stop - 1}/{object_size_bytes}"
    told = (
        int(answer["ResponseMetadata"]["HTTPStatusCode"]),
        answer.get("ContentRange"),
        # Chunked answers do not state it: their bytes are counted instead.
        answer.get("ContentLength", stop - start),
    )
    if told != (status, wanted, stop - start):
        raise Refused(
            f"asked for bytes {start} to {stop - 1}, got {told[0]} {told[1]} of {told[2]}", doing=doing
        )


async def _first_bytes(body: Any, size_bytes: int) -> bytes:
    """At most `size_bytes` of an answer's body, read as they arrive."""
    found = bytearray()
    while piece := await body.raw_stream.content.read(size_bytes - len(found)):
        found += piece
    return bytes(found)


async def _dropped(content: Any, size_bytes: int) -> int:
    """Read and drop a body to its end, or until it is too long; returns the count of bytes (Any: aiohttp's stream)."""
    count = 0
    while count <= size_bytes and (piece := await content.readany()):
        count += len(piece)
    return count


def _shared_in(page: Mapping[str, Any]) -> list[Listed]:  # Any: of the SDK
    found = page.get("Contents", [])
    date = page["ResponseMetadata"]["HTTPHeaders"].get("date")
    newest = max((entry["LastModified"] for entry in found), default=None)
    now = parsedate_to_datetime(date) if date else newest
    return [
        Listed(entry["Key"], str(entry["ETag"]), max(0.0, (now - entry["LastModified"]).total_seconds()))
        for entry in found
    ]
