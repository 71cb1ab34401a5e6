"""Knows what probes put to have something to read, and what putting it costs at the most."""

from __future__ import annotations

from math import ceil

from penstock.units import MiB
from penstock.vocabulary import Cost, Tariff

READ_OBJECT_BYTES_MAX = 256 * MiB  # a larger object is read over and over
READ_OBJECT_PART_BYTES = 8 * MiB
_PUTTING_REQUESTS = 16  # and two for each part: half of what a plan allows may go into putting
_PUTTING_BYTES_PER_SECOND_MIN = 10e6  # slower than that, less is put


def cost_of_putting(payload_size_bytes: int, tariff: Tariff) -> Cost:
    """That of putting such an object, or as much of it as is put."""
    put_bytes = min(max(payload_size_bytes, 1), READ_OBJECT_BYTES_MAX)
    requests = 2 * ceil(put_bytes / READ_OBJECT_PART_BYTES) + _PUTTING_REQUESTS
    return Cost(
        transferred_bytes=put_bytes,
        request_count=requests,
        usd=tariff.usd(write_request_count=requests, sent_bytes=put_bytes),
        duration_seconds=put_bytes / _PUTTING_BYTES_PER_SECOND_MIN,
    )
