"""Knows the configuration that operations on objects share: a bucket in each region, and limits for probes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from penstock.client.sdk_client import DIRECTORY_BUCKET_ENDINGS, is_directory_bucket
from penstock.operations.sections.section import Contradiction, OrphanPlace, Section
from penstock.operations.sections.values import (
    BucketName,
    Bytes,
    KeyPrefix,
    ObjectPath,
    PayloadSizes,
    ThreadCount,
    WorkerCount,
)
from penstock.probes.probe import Leftover
from penstock.units import GiB, MiB, format_bytes
from penstock.vocabulary import Cost, Tariff


class ObjectSection(Section, frozen=True, kw_only=True):
    """The keys of every operation on objects."""

    thread_count_max: ThreadCount = 256
    service_class: Literal["standard", "express"] = "standard"
    network_path: ObjectPath = "auto"
    bucket: BucketName = ""
    requester_pays: bool = False
    key_prefix: KeyPrefix = "penstock-probe/"
    object_size_bytes: PayloadSizes = (64 * MiB, GiB)
    transferred_bytes_max: Bytes = 2 * GiB
    memory_bytes_max: Bytes = GiB
    worker_count_max: WorkerCount = 4

    def bucket_in(self, region: str) -> str:
        """The bucket to use in a region, whose name replaces ``{region}``."""
        return self.bucket.replace("{region}", region)

    @property
    def payload_size_bytes(self) -> tuple[int, ...]:
        return self.object_size_bytes

    def cost_max(self, tariff: Tariff) -> Cost:
        del tariff
        return Cost(transferred_bytes=self.transferred_bytes_max, duration_seconds=self.duration_seconds_max)

    def moved_bytes_min(self, size_bytes: int) -> int:
        """The bytes that a probe of objects of this size moves at least: one part."""
        from penstock.models.s3.parts import PART_SIZE_BYTES_MIN

        return min(size_bytes, PART_SIZE_BYTES_MIN)

    def contradictions(self, path: str) -> Iterator[Contradiction]:
        """A bucket that is missing, of the other class, or one for several regions; sizes too large for any probe."""
        key = f"{path}.bucket"
        if self.is_enabled and not self.bucket:
            sentence = f"missing; expected the name of a bucket, because {path}.is_enabled is true"
            yield Contradiction(key, sentence, (f"{path}.is_enabled",))
        if re.search(r"[{}]", self.bucket.replace("{region}", "")):
            sentence = f'found "{self.bucket}"; the only word in braces can be {{region}}'
            yield Contradiction(key, sentence)
        if self.bucket and is_directory_bucket(self.bucket) != (self.service_class == "express"):
            sentence = (
                f'found "{self.bucket}"; the name of a directory bucket ends with '
                f"{' or '.join(DIRECTORY_BUCKET_ENDINGS)}, those of others do not, and {path}.service_class is "
                f'"{self.service_class}"'
            )
            yield Contradiction(key, sentence, (f"{path}.service_class",))
        if self.requester_pays and self.service_class == "express":
            sentence = "found true; a directory bucket is paid for by its owner"
            yield Contradiction(f"{path}.requester_pays", sentence, (f"{path}.service_class",))
        if len(self.regions) > 1 and self.bucket and "{region}" not in self.bucket:
            count = len(self.regions)
            sentence = (
                f'found "{self.bucket}"; expected {{region}} in the name, because regions lists {count}'
            )
            yield Contradiction(key, sentence)
        most = self.transferred_bytes_max
        # Skipped if the limit is certainly large enough, to avoid the imports of `moved_bytes_min`.
        for size in sorted(self.object_size_bytes) if most < 2 * max(self.object_size_bytes) else ():
            if (least := self.moved_bytes_min(size)) > most:
                sentence = (
                    f"found {format_bytes(most)}; a probe of objects of {format_bytes(size)} moves "
                    f"{format_bytes(least)} at the least, so that none would ever begin"
                )
                yield Contradiction(f"{path}.transferred_bytes_max", sentence, (f"{path}.object_size_bytes",))
                break

    def region_of(self, leftover: Leftover, home_region: str) -> str | None:
        """See `Section`; the region of the leftover's bucket."""
        regions = self.regions or (home_region,)
        return next((region for region in regions if self.bucket_in(region) == leftover.container), None)

    def orphan_place(self, region: str) -> OrphanPlace | None:
        return OrphanPlace(bucket=self.bucket_in(region), key_prefix=self.key_prefix)
