"""Knows the objects that probes put in order to read them, and the most that putting one costs."""

from __future__ import annotations

from math import ceil

from penstock.units import MiB
from penstock.vocabulary import Cost, Tariff

READ_OBJECT_BYTES_MAX = 256 * MiB  # to stand for a larger object, it is read several times
READ_OBJECT_PART_BYTES = 8 * MiB
_PUTTING_REQUESTS = 16  # besides two for each part; half of a plan's allowance may be used for putting
_PUTTING_BYTES_PER_SECOND_MIN = 10e6  # at a lower rate, less is put


def cost_of_putting(payload_size_bytes: int, tariff: Tariff) -> Cost:
    """The most that putting an object of this size, or of the largest size that is put, may cost."""
    put_bytes = min(max(payload_size_bytes, 1), READ_OBJECT_BYTES_MAX)
    requests = 2 * ceil(put_bytes / READ_OBJECT_PART_BYTES) + _PUTTING_REQUESTS
    return Cost(
        transferred_bytes=put_bytes,
        request_count=requests,
        usd=tariff.usd(write_request_count=requests, sent_bytes=put_bytes),
        duration_seconds=put_bytes / _PUTTING_BYTES_PER_SECOND_MIN,
    )
