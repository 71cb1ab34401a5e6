"""Knows the arguments of each request of an upload, whole or in parts, as boto3's transfer manager passes them on."""

from __future__ import annotations

from penstock.client.complaint import complain
from penstock.client.sdk_client import refusal_of
from penstock.client.targets.advised import PART_COUNT_MAX, PART_SIZE_BYTES_MAX

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, BinaryIO

ABORT_SECONDS_MAX = 10.0  # for requests in flight to end, and for the abort itself
_PART_ARGUMENTS = frozenset(
    {
        "ChecksumAlgorithm",
        "ExpectedBucketOwner",
        "RequestPayer",
        "SSECustomerAlgorithm",
        "SSECustomerKey",
        "SSECustomerKeyMD5",
    }
)
"""Those of an upload's arguments that each part takes."""
_WHOLE_CHECKSUMS = frozenset(
    f"Checksum{name}"
    for name in (
        *("CRC32", "CRC32C", "CRC64NVME", "MD5", "SHA1", "SHA256", "SHA512"),
        *("XXHASH3", "XXHASH64", "XXHASH128"),
    )
)
"""Checksums of the whole object, stated by the caller; in a multipart upload only its completion takes them."""
_CONDITIONS = frozenset({"IfMatch", "IfNoneMatch"})
"""Conditions on an existing object, which boto3's manager does not know; the last request takes them."""
_LAST_ARGUMENTS = (
    _PART_ARGUMENTS - {"ChecksumAlgorithm"}
    | _WHOLE_CHECKSUMS
    | _CONDITIONS
    | {"ChecksumType", "MpuObjectSize"}
)
_NOT_WHOLE_ARGUMENTS = frozenset({"ChecksumType", "MpuObjectSize"})
"""Arguments that an upload in one request does not take."""
_NOT_FIRST_ARGUMENTS = _WHOLE_CHECKSUMS | _CONDITIONS | {"MpuObjectSize"}
_ABORT_ARGUMENTS = frozenset({"ExpectedBucketOwner", "RequestPayer"})
_STREAM_BYTES_MAX = 5 << 40  # that the parts of a stream of unknown size must suffice for


class Upload:
    """One object being uploaded: the arguments of each of its requests, and what was answered."""

    def __init__(self, client: Any, bucket: str, key: str, extra_args: Mapping[str, Any]) -> None:
        self._where = {"Bucket": bucket, "Key": key}
        self._given, self._stated = extra_args, _with_checksum(client, extra_args)
        self._parts: dict[int, dict[str, Any]] = {}

    @property
    def is_begun(self) -> bool:
        """Whether a multipart upload was begun whose id is known, so that it can be removed."""
        return "UploadId" in self._where

    def whole(self, body: bytes | BinaryIO) -> dict[str, Any]:
        """Arguments of PutObject."""
        return {**self._where, "Body": body, **_without(self._given, _NOT_WHOLE_ARGUMENTS)}

    def first(self) -> dict[str, Any]:
        """Arguments of CreateMultipartUpload."""
        return {**self._where, **_without(self._stated, _NOT_FIRST_ARGUMENTS)}

    def note_begun(self, answer: Mapping[str, Any]) -> None:
        """Keep the upload id for the parts."""
        self._where["UploadId"] = answer["UploadId"]

    def part(self, number: int, body: bytes | BinaryIO) -> dict[str, Any]:
        """Arguments of UploadPart; the first number is 1."""
        return {
            **self._where,
            "PartNumber": number,
            "Body": body,
            **_only(self._stated, _PART_ARGUMENTS),
        }

    def note_part(self, number: int, answer: Mapping[str, Any]) -> None:
        """Keep a part's ETag and checksum."""
        self._parts[number] = part = {"PartNumber": number, "ETag": answer["ETag"]}
        checksum = f"Checksum{self._stated.get('ChecksumAlgorithm')}"
        if checksum in answer:
            part[checksum] = answer[checksum]

    def last(self) -> dict[str, Any]:
        """Arguments of CompleteMultipartUpload, when all parts have arrived."""
        parts = [self._parts[number] for number in sorted(self._parts)]
        return {
            **self._where,
            "MultipartUpload": {"Parts": parts},
            **_only(self._stated, _LAST_ARGUMENTS),
        }

    def removal(self) -> dict[str, Any]:
        """Arguments of AbortMultipartUpload."""
        return {**self._where, **_only(self._stated, _ABORT_ARGUMENTS)}

    def say_left_behind(self, trouble: BaseException) -> None:
        """Log that its removal failed, unless the upload does not exist any more."""
        if refusal_of(trouble)[0] != "NoSuchUpload":
            complain("an unfinished upload of %s is left behind: %s", self._where["Key"], trouble)


def stream_part_bytes(advised_bytes: int, part_count: int, sent_bytes: int) -> int:
    """The size in bytes of the next part of a stream, after this many parts and bytes.

    It is the advised size as long as the remaining parts suffice for 5 TiB. From then on n parts hold 5 TiB (n /
    10,000)^3: at 8 MiB that begins at 10 GiB, and parts are 110 MiB at 100 GiB, 540 MiB at 1 TiB and 1.5 GiB at last,
    where a tenth of that would do if the size were known.
    """
    least = _STREAM_BYTES_MAX * (part_count + 1) ** 3 // PART_COUNT_MAX**3 + 1 - sent_bytes
    return min(max(advised_bytes, least), PART_SIZE_BYTES_MAX)


def _with_checksum(client: Any, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with those that a multipart upload needs for its checksums; as in boto3.

    botocore adds checksums to the parts by itself, and S3 combines the parts' checksums into one stated for the whole.
    """
    for name in _WHOLE_CHECKSUMS.intersection(stated):
        return {**stated, "ChecksumType": "FULL_OBJECT", "ChecksumAlgorithm": name[len("Checksum") :]}
    when = getattr(getattr(client.meta, "config", None), "request_checksum_calculation", None)
    return {**({"ChecksumAlgorithm": "CRC32"} if when == "when_supported" else {}), **stated}


def _only(arguments: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name in names}


def _without(arguments: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in names}
