"""Knows how fast one S3 upload goes: its knobs, the settings that S3 accepts, and the physics of the transfer."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.units import GiB, MiB
from penstock.vocabulary import knob

PART_COUNT_MAX = 10_000
PART_SIZE_BYTES_MIN = 5 * MiB  # the last part may be smaller
PART_SIZE_BYTES_MAX = 5 * GiB


@dataclass(frozen=True, slots=True, kw_only=True)
class S3UploadSetting:
    """How one object is uploaded. A part size at or above the object's size means a single PUT."""

    thread_count: int = knob(1, 1024)
    part_size_bytes: int = knob(PART_SIZE_BYTES_MIN, PART_SIZE_BYTES_MAX)
