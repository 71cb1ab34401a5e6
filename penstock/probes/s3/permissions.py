"""Knows how to try the permissions that probes need in a bucket, with the least effect on it.

Keys and uploads that do not exist are listed, read, deleted and aborted. An upload is begun and aborted at once, so
that nothing is ever stored, and only where aborting is permitted. In a bucket with versions the deletion makes a
marker, which has to be removed, too. In a directory bucket one permission covers everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from penstock.client.sdk_client import is_directory_bucket
from penstock.probes.finding import Finding, Health, asked, tried
from penstock.probes.outside import ObjectStore

_NAME = "doctor"  # a key below the prefix that no probe uses
_NO_UPLOAD_ID = "doctor"  # no store issues such an id
_READ_BYTES = 1
_NO_BUCKET = "create the bucket in this region, or name another"
_HAS_VERSIONS = (
    "the bucket keeps versions: probes remove what they put with all its versions, but where the bucket "
    "locks objects they stay until the lock ends, and where it replicates them the copies stay for good"
)
_WITHOUT_VERSIONS = "give the probes a bucket of their own without versioning"
_NO_OBJECT = "put the object there, or name another in object_key"
_WHO_PAYS = "; if the requester pays for this bucket, also set requester_pays, or access stays denied"


async def try_uploads(
    store: ObjectStore, *, subject: str, bucket: str, key_prefix: str
) -> AsyncIterator[Finding]:
    """Try everything that a probe of uploads does."""
    key = f"{key_prefix}{_NAME}"
    listing = store.list_objects(bucket, f"{key}/")
    listed = await tried(subject, _action(bucket, "s3:ListBucket"), listing, if_missing=_NO_BUCKET)
    yield listed
    if listed.remedy == _NO_BUCKET:
        return
    yield await tried(
        subject,
        _action(bucket, "s3:ListBucketMultipartUploads"),
        store.list_multipart_uploads(bucket, f"{key}/"),
    )
    deleting = store.delete_object(bucket, key)
    deleted, of_versions = await asked(subject, _action(bucket, "s3:DeleteObject"), deleting)
    yield deleted
    if of_versions is not None and any(of_versions):
        yield Finding(subject, Health.POOR, _HAS_VERSIONS, _WITHOUT_VERSIONS)
    abort = store.abort_multipart_upload(bucket, key, _NO_UPLOAD_ID)
    aborted = await tried(subject, _action(bucket, "s3:AbortMultipartUpload"), abort)
    yield aborted
    if aborted.health is Health.WELL:  # otherwise the upload would stay
        yield await tried(subject, _action(bucket, "s3:PutObject"), _begin_and_abort(store, bucket, key))


async def try_downloads(
    store: ObjectStore, *, subject: str, bucket: str, key_prefix: str, object_key: str
) -> AsyncIterator[Finding]:
    """Try all that a probe of downloads does: read a byte and, without a named object, what uploads need, too."""
    if not object_key:
        async for finding in try_uploads(store, subject=subject, bucket=bucket, key_prefix=key_prefix):
            yield finding
            if finding.remedy == _NO_BUCKET:
                return
    key = object_key or f"{key_prefix}{_NAME}"
    reading = store.look_at(bucket, key, _READ_BYTES)
    named = {"if_missing": _NO_OBJECT, "if_denied": _WHO_PAYS} if object_key else {}
    yield await tried(subject, _action(bucket, "s3:GetObject"), reading, **named)


def _action(bucket: str, name: str) -> str:
    """The permission that the action needs in this kind of bucket."""
    return "s3express:CreateSession" if is_directory_bucket(bucket) else name


async def _begin_and_abort(store: ObjectStore, bucket: str, key: str) -> None:
    await store.abort_multipart_upload(bucket, key, await store.create_multipart_upload(bucket, key))
