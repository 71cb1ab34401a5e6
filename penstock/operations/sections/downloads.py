"""Knows the configuration of downloads beside what all operations on objects share: which object is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from penstock.operations.sections.objects import ObjectSection
from penstock.operations.sections.section import Contradiction, OrphanPlace
from penstock.operations.sections.values import ObjectKey


class DownloadSection(ObjectSection, frozen=True, kw_only=True):
    """The keys of downloads. If the operator names an object, nothing is ever written."""

    object_key: ObjectKey = ""
    object_storage_class: Literal["standard", "standard-ia", "onezone-ia", "glacier-ir"] = "standard"

    @property
    def price_class(self) -> str:
        """See `Section`; reading objects of some storage classes has a price for each byte."""
        return self.service_class if self.object_storage_class == "standard" else self.object_storage_class

    @property
    def puts_what_it_needs(self) -> bool:
        """See `Section`; False if an object is named."""
        return not self.object_key

    @property
    def kept_bytes_max(self) -> int:
        """See `Section`; objects to be read are kept until the daemon stops."""
        from penstock.models.s3.read_objects import READ_OBJECT_BYTES_MAX

        if self.object_key:
            return 0
        return sum({min(size, READ_OBJECT_BYTES_MAX) for size in self.object_size_bytes})

    def moved_bytes_min(self, size_bytes: int) -> int:
        """The bytes of one range; for the smallest size, with those of the object that has to be put first."""
        from penstock.models.s3.download import RANGE_SIZE_BYTES_MIN
        from penstock.models.s3.read_objects import READ_OBJECT_BYTES_MAX

        is_first = size_bytes == min(self.object_size_bytes)
        put_bytes = min(size_bytes, READ_OBJECT_BYTES_MAX) if is_first and not self.object_key else 0
        return put_bytes + min(size_bytes, RANGE_SIZE_BYTES_MIN)

    def contradictions(self, path: str) -> Iterator[Contradiction]:
        """Those of all operations on objects, and a storage class without an object."""
        yield from ObjectSection.contradictions(self, path)
        if self.object_storage_class != "standard" and not self.object_key:
            found = f'found "{self.object_storage_class}"'
            sentence = f"{found}; that is said of an object of yours, and {path}.object_key is not set"
            yield Contradiction(f"{path}.object_storage_class", sentence, (f"{path}.object_key",))

    def orphan_place(self, region: str) -> OrphanPlace | None:
        """See `Section`; None if an object is named, because then nothing is written."""
        return None if self.object_key else ObjectSection.orphan_place(self, region)
