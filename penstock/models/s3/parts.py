"""Knows into what parts S3 lets an object be cut, whether they are sent or copied."""

from __future__ import annotations

from penstock.units import GiB, MiB

PART_COUNT_MAX = 10_000
PART_SIZE_BYTES_MIN = 5 * MiB  # the last part may be smaller
PART_SIZE_BYTES_MAX = 5 * GiB
