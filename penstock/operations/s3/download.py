"""The row of `s3_download`: objects from S3, in ranges of a size by a number of threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from penstock.models.s3.parts import OBJECT_SIZE_BYTES_MAX, READ_WHOLE_BYTES_MAX
from penstock.operations.operation import Driven, Equipment, Operation, Service, Ward
from penstock.operations.s3.objects import (
    OBJECT_CLASSES,
    OBJECT_DEMAND,
    OBJECT_LADDER_BYTES,
    UNTOLD_SIZE_BYTES,
    object_words,
    workspace,
)

if TYPE_CHECKING:
    from penstock.listening.tally import Series
    from penstock.models.model import PerformanceModel
    from penstock.models.s3.download import S3DownloadSetting
    from penstock.operations.sections.downloads import DownloadSection
    from penstock.probes.finding import Finding
    from penstock.probes.probe import Probe


def _section() -> type[DownloadSection]:
    from penstock.operations.sections.downloads import DownloadSection

    return DownloadSection


def _model() -> PerformanceModel[S3DownloadSetting]:
    from penstock.models.s3.download import S3DownloadModel

    return S3DownloadModel()


async def _probe(section: DownloadSection, equipment: Equipment) -> Probe[S3DownloadSetting]:
    from penstock.probes.s3.download import S3DownloadProbe

    return S3DownloadProbe(
        await workspace(section, equipment),
        object_key=section.object_key,
        object_storage_class=section.object_storage_class,
    )


async def _permissions(section: DownloadSection, ward: Ward) -> AsyncIterator[Finding]:
    from penstock.probes.s3.permissions import try_downloads

    store, bucket = await ward.outside.object_store(ward.region), section.bucket_in(ward.region)
    async for finding in try_downloads(
        store,
        subject=ward.subject,
        bucket=bucket,
        key_prefix=section.key_prefix,
        object_key=section.object_key,
    ):
        yield finding


def _driven(
    apis: Mapping[str, Series], _advised: S3DownloadSetting, _own: S3DownloadSetting
) -> Driven[S3DownloadSetting] | None:
    """How an application downloads. SDKs report only the time to the first byte, so reading bodies is not heard."""
    gets = apis.get("GetObject")
    if gets is None or not gets.attempt_count:
        return None
    return Driven(
        sentence=f"{gets.in_flight_count_max:.1f} in flight up to the first byte; SDKs tell no more of a download",
        setting=None,
    )


DOWNLOAD = Operation(
    name="s3_download",
    service=Service.S3,
    service_classes=OBJECT_CLASSES,
    load_section=_section,
    load_model=_model,
    make_probe=_probe,
    try_permissions=_permissions,
    driven=_driven,
    untold_payload_bytes=UNTOLD_SIZE_BYTES,
    payload_size_bytes_max=OBJECT_SIZE_BYTES_MAX,
    payload_ladder_bytes=OBJECT_LADDER_BYTES,
    words=object_words(
        "range_size_bytes",
        READ_WHOLE_BYTES_MAX,
        demand=(*OBJECT_DEMAND, "access", "range_size_bytes", "sink"),
        advice="threads and range size for one download",
        query="Threads, range size and the rest of the bundle for downloading objects of a size.",
        explain="Why downloads of this size are advised as they are.",
        probe="Measure a download of this size.",
        examples=("--object-size 1GiB", "--object-size 4GiB --access random --range-size 256KiB"),
    ),
)
