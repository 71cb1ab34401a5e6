"""Knows into which parts S3 allows an object to be divided, to send or to copy it, and what is read whole."""

from __future__ import annotations

from penstock.units import GiB, MiB

PART_COUNT_MAX = 10_000
PART_SIZE_BYTES_MIN = 5 * MiB  # the last part may be smaller
PART_SIZE_BYTES_MAX = 5 * GiB
READ_WHOLE_BYTES_MAX = MiB  # our own choice: smaller objects are not read in ranges
# Since December 2025: docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
OBJECT_SIZE_BYTES_MAX = PART_COUNT_MAX * PART_SIZE_BYTES_MAX
