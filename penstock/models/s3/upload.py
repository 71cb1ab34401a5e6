"""Knows the model of S3 uploads: the settings that S3 accepts, what is worth trying, and what it costs.

What a setting will do and what follows from it is in `transfer`, the law itself in `law`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

from penstock.models.inference.histogram import tail_ratio
from penstock.models.s3.directions import UPLOADS, Direction, S3Setting
from penstock.models.s3.law import PARAMETERS, THREAD_COUNT_MAX
from penstock.models.s3.parts import PART_COUNT_MAX, PART_SIZE_BYTES_MAX, PART_SIZE_BYTES_MIN
from penstock.models.s3.transfer import S3TransferModel
from penstock.units import MiB
from penstock.vocabulary import Context, Demand, Observation, Tariff, knob

__all__ = ["PARAMETERS", "THREAD_COUNT_MAX", "S3UploadModel", "S3UploadSetting"]

_PART_SIZES_MIB = (5, 6, 8, 11, 16, 23, 32, 45, 64, 128, 256, 512, 1024, 2048, 5120)
_SINGLE_PUT_BYTES_MAX = 64 * MiB
_TAIL_COUNT_MIN = 200  # requests; with fewer, their 99th percentile means little
# Create, complete and, at worst, several requests to remove the object. Single PUTs need one DELETE for each thread.
_MULTIPART_REQUESTS = 6


def part_size_bytes_least(object_size_bytes: int) -> int:
    """The smallest legal part: at least 5 MiB, and an object has at most 10,000 parts."""
    return max(PART_SIZE_BYTES_MIN, ceil(object_size_bytes / PART_COUNT_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class S3UploadSetting(S3Setting):
    """How one object is uploaded. A part size at or above the object's size means a single PUT."""

    direction: ClassVar[Direction] = UPLOADS

    part_size_bytes: int = knob(PART_SIZE_BYTES_MIN, PART_SIZE_BYTES_MAX)

    @property
    def request_size_bytes(self) -> int:
        """The size of a part."""
        return self.part_size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class S3UploadModel(S3TransferModel[S3UploadSetting]):
    """Uploads of whole objects. The fields limit the settings considered, for clients that lack one of the knobs."""

    operation: ClassVar[str] = "s3_upload"
    setting_type: ClassVar[type[S3UploadSetting]] = S3UploadSetting

    request_size_bytes_min: int = PART_SIZE_BYTES_MIN
    request_size_bytes_max: int = PART_SIZE_BYTES_MAX

    def default_setting(self, context: Context) -> S3UploadSetting:
        """The default of boto3: ten threads, and parts of 8 MiB, doubled until there are at most 10,000 of them."""
        part_size_bytes = 8 * MiB
        while ceil(context.payload_size_bytes / part_size_bytes) > PART_COUNT_MAX:
            part_size_bytes *= 2
        return self.legal(context, self.setting(10, part_size_bytes))

    def size_bytes_least(self, context: Context) -> int:
        """See `part_size_bytes_least`."""
        return part_size_bytes_least(context.payload_size_bytes)

    def learned_besides(self, observations: Sequence[Observation[S3UploadSetting]]) -> dict[str, Any]:
        """How much longer the slowest requests take than usual ones, which tells when to send one again."""
        seen = [o.histograms["request_seconds"] for o in observations if "request_seconds" in o.histograms]
        return {"tail_ratio": tail_ratio(seen, 0.99, count_min=_TAIL_COUNT_MIN)}

    def request_sizes_bytes(self, context: Context, demand: Demand) -> Sequence[int]:
        """Part sizes that divide the object evenly; also the whole object, if it is small enough for a single PUT."""
        del demand
        size = max(context.payload_size_bytes, 1)
        low = max(self.request_size_bytes_min, ceil(size / PART_COUNT_MAX))
        high = max(low, min(self.request_size_bytes_max, size))
        wanted = [min(max(x * MiB, low), high) for x in _PART_SIZES_MIB]
        even = {max(low, ceil(size / ceil(size / s))) for s in wanted}
        if size <= min(_SINGLE_PUT_BYTES_MAX, self.request_size_bytes_max):
            even.add(max(size, low))
        return sorted(even)

    def requests_around(self, context: Context, setting: S3UploadSetting, part_count: int) -> int:
        """The requests to create, complete and remove an object."""
        # At worst they are deleted one by one, after a batch was refused.
        deletions = min(setting.thread_count, part_count) + 1
        is_multipart = setting.part_size_bytes < max(context.payload_size_bytes, 1)
        return _MULTIPART_REQUESTS if is_multipart else deletions

    def usd(self, tariff: Tariff, *, request_count: int, transferred_bytes: float) -> float:
        """The price if all requests were PUT, an upper bound because deletions are free."""
        return tariff.usd(write_request_count=request_count, sent_bytes=transferred_bytes)
