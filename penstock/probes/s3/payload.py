"""Knows how to make bytes to upload: fast, from a seed, and incompressible."""

from __future__ import annotations

import math
import random

from penstock.units import MiB

_RANDOM_BLOCK_BYTES = MiB  # no compressor on the way looks back as far as this


def incompressible_payload(size_bytes: int, seed: int) -> bytes:
    """`size_bytes` bytes, always the same for the same seed, made at the speed of a copy."""
    block = random.Random(seed).randbytes(min(size_bytes, _RANDOM_BLOCK_BYTES))
    repeats = math.ceil(size_bytes / len(block)) if block else 0
    return (block * repeats)[:size_bytes]
