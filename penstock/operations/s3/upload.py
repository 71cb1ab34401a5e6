"""The row of `s3_upload`: one object to S3, in parts of a size by a number of threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.models.s3.parts import OBJECT_SIZE_BYTES_MAX, PART_SIZE_BYTES_MIN
from penstock.operations.operation import Driven, Equipment, Operation, Service, Ward
from penstock.operations.s3.objects import (
    OBJECT_CLASSES,
    OBJECT_DEMAND,
    OBJECT_LADDER_BYTES,
    UNTOLD_PART_BYTES,
    UNTOLD_SIZE_BYTES,
    object_section,
    object_words,
    workspace,
)

if TYPE_CHECKING:
    from penstock.listening.tally import Series
    from penstock.models.model import PerformanceModel
    from penstock.models.s3.upload import S3UploadSetting
    from penstock.operations.sections.objects import ObjectSection
    from penstock.probes.finding import Finding
    from penstock.probes.probe import Probe


def _model() -> PerformanceModel[S3UploadSetting]:
    from penstock.models.s3.upload import S3UploadModel

    return S3UploadModel()


async def _probe(section: ObjectSection, equipment: Equipment) -> Probe[S3UploadSetting]:
    from penstock.probes.s3.upload import S3UploadProbe

    return S3UploadProbe(await workspace(section, equipment))


async def _permissions(section: ObjectSection, ward: Ward) -> AsyncIterator[Finding]:
    from penstock.probes.s3.permissions import try_uploads

    store, bucket = await ward.outside.object_store(ward.region), section.bucket_in(ward.region)
    async for finding in try_uploads(
        store, subject=ward.subject, bucket=bucket, key_prefix=section.key_prefix
    ):
        yield finding


def _driven(
    apis: Mapping[str, Series], _advised: S3UploadSetting, own: S3UploadSetting
) -> Driven[S3UploadSetting] | None:
    """How an application uploads in parts. Whole objects are ignored: times are useless without their sizes."""
    parts = apis.get("UploadPart")
    if parts is None or not parts.attempt_count:
        return None
    in_flight = parts.in_flight_count_max
    return Driven(
        sentence=f"{in_flight:.1f} parts in flight",
        setting=replace(own, thread_count=max(1, round(in_flight))),
    )


def _told_bytes(apis: Mapping[str, Series]) -> int | None:
    """The mean size of completed uploads, in bytes, from their mean count of parts; None if none was completed.

    Copies are completed by the same call, so that their parts count as well.
    """
    parts, ends = apis.get("UploadPart"), apis.get("CompleteMultipartUpload")
    if parts is None or ends is None or not ends.call_count:
        return None
    copied = apis.get("UploadPartCopy")
    made_count = parts.call_count + (copied.call_count if copied else 0)
    part_count = max(1, round(made_count / ends.call_count))
    return min(part_count * UNTOLD_PART_BYTES, OBJECT_SIZE_BYTES_MAX)


UPLOAD = Operation(
    name="s3_upload",
    service=Service.S3,
    service_classes=OBJECT_CLASSES,
    load_section=object_section,
    load_model=_model,
    make_probe=_probe,
    try_permissions=_permissions,
    driven=_driven,
    untold_payload_bytes=UNTOLD_SIZE_BYTES,
    told_payload_bytes=_told_bytes,
    payload_size_bytes_max=OBJECT_SIZE_BYTES_MAX,
    payload_ladder_bytes=OBJECT_LADDER_BYTES,
    words=object_words(
        "part_size_bytes",
        PART_SIZE_BYTES_MIN,
        demand=OBJECT_DEMAND,
        advice="threads and part size for one upload",
        query="Threads, part size and the rest of the bundle for uploading objects of a size.",
        explain="Why uploads of this size are advised as they are.",
        probe="Measure an upload of this size.",
        examples=("--object-size 1GiB", "--object-size 200MiB --memory-max 256MiB --objective frugal"),
    ),
)
