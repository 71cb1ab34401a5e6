"""Knows what each request of an upload says, whole or in parts: as boto3's transfer manager hands arguments on."""

from __future__ import annotations

from penstock.client.complaint import complain
from penstock.client.sdk_client import refusal_of
from penstock.client.targets.advised import PART_COUNT_MAX, PART_SIZE_BYTES_MAX

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ABORT_SECONDS_MAX = 10.0  # for what is under way to end, and for its removal
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
"""What each part takes of what an upload was begun with."""
_WHOLE_CHECKSUMS = frozenset(
    f"Checksum{name}"
    for name in (
        *("CRC32", "CRC32C", "CRC64NVME", "MD5", "SHA1", "SHA256", "SHA512"),
        *("XXHASH3", "XXHASH64", "XXHASH128"),
    )
)
"""Of the whole object, stated by the caller: of an upload in parts its completion alone takes them."""
_CONDITIONS = frozenset({"IfMatch", "IfNoneMatch"})
"""Of there being an object already, which boto3's manager does not know: the last request takes them."""
_LAST_ARGUMENTS = (
    _PART_ARGUMENTS - {"ChecksumAlgorithm"}
    | _WHOLE_CHECKSUMS
    | _CONDITIONS
    | {"ChecksumType", "MpuObjectSize"}
)
_NOT_WHOLE_ARGUMENTS = frozenset({"ChecksumType", "MpuObjectSize"})
"""What an upload in one request does not take."""
_NOT_FIRST_ARGUMENTS = _WHOLE_CHECKSUMS | _CONDITIONS | {"MpuObjectSize"}
_ABORT_ARGUMENTS = frozenset({"ExpectedBucketOwner", "RequestPayer"})
_STREAM_BYTES_MAX = 5 << 40  # for which the parts of one whose size nobody knows suffice


class Upload:
    """One object on its way into a bucket: the arguments of each request for it, and what was answered."""

    def __init__(self, client: Any, bucket: str, key: str, extra_args: Mapping[str, Any]) -> None:
        self._where = {"Bucket": bucket, "Key": key}
        self._given, self._stated = extra_args, _with_checksum(client, extra_args)
        self._parts: dict[int, dict[str, Any]] = {}

    @property
    def is_begun(self) -> bool:
        """Whether there is something to be removed, and the number by which it can be."""
        return "UploadId" in self._where

    def whole(self, body: bytes) -> dict[str, Any]:
        """Of PutObject."""
        return {**self._where, "Body": body, **_without(self._given, _NOT_WHOLE_ARGUMENTS)}

    def first(self) -> dict[str, Any]:
        """Of CreateMultipartUpload."""
        return {**self._where, **_without(self._stated, _NOT_FIRST_ARGUMENTS)}

    def note_begun(self, answer: Mapping[str, Any]) -> None:
        """The parts may follow."""
        self._where["UploadId"] = answer["UploadId"]

    def part(self, number: int, body: bytes) -> dict[str, Any]:
        """Of UploadPart; the first is 1."""
        return {
            **self._where,
            "PartNumber": number,
            "Body": body,
            **_only(self._stated, _PART_ARGUMENTS),
        }

    def note_part(self, number: int, answer: Mapping[str, Any]) -> None:
        """It has arrived."""
        self._parts[number] = part = {"PartNumber": number, "ETag": answer["ETag"]}
        checksum = f"Checksum{self._stated.get('ChecksumAlgorithm')}"
        if checksum in answer:
            part[checksum] = answer[checksum]

    def last(self) -> dict[str, Any]:
        """Of CompleteMultipartUpload, when all parts have arrived."""
        parts = [self._parts[number] for number in sorted(self._parts)]
        return {
            **self._where,
            "MultipartUpload": {"Parts": parts},
            **_only(self._stated, _LAST_ARGUMENTS),
        }

    def removal(self) -> dict[str, Any]:
        """Of AbortMultipartUpload."""
        return {**self._where, **_only(self._stated, _ABORT_ARGUMENTS)}

    def say_left_behind(self, trouble: BaseException) -> None:
        """Its removal failed with this; what is not there any more is not left behind."""
        if refusal_of(trouble)[0] != "NoSuchUpload":
            complain("an unfinished upload of %s is left behind: %s", self._where["Key"], trouble)


def stream_part_bytes(advised_bytes: int, part_count: int, sent_bytes: int) -> int:
    """How large the next part is of a stream of which so much was sent, in so many parts.

    As advised for as long as the parts that are left suffice for 5 TiB. From then on n parts hold 5 TiB (n / 10,000)^3:
    at 8 MiB that begins at 10 GiB, and parts are 110 MiB at 100 GiB, 540 MiB at 1 TiB and 1.5 GiB at last, where a
    tenth of that would do if the size were known.
    """
    least = _STREAM_BYTES_MAX * (part_count + 1) ** 3 // PART_COUNT_MAX**3 + 1 - sent_bytes
    return min(max(advised_bytes, least), PART_SIZE_BYTES_MAX)


def _with_checksum(client: Any, stated: Mapping[str, Any]) -> dict[str, Any]:
    """With what an upload in parts has to state for its checksums; as boto3 does.

    botocore adds some to the parts by itself, and from those of the parts S3 makes one that is stated of the whole.
    """
    for name in _WHOLE_CHECKSUMS.intersection(stated):
        return {**stated, "ChecksumType": "FULL_OBJECT", "ChecksumAlgorithm": name[len("Checksum") :]}
    when = getattr(getattr(client.meta, "config", None), "request_checksum_calculation", None)
    return {**({"ChecksumAlgorithm": "CRC32"} if when == "when_supported" else {}), **stated}


def _only(arguments: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name in names}


def _without(arguments: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in names}
