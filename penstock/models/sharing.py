"""Knows how a shared resource is divided: among the leases of a host, and among the hosts of a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def water_fill(useful: Sequence[float], weights: Sequence[float], whole: float = 1.0) -> list[float]:
    """Divide the whole in proportion to the weights (above 0), without giving anyone more than they can use.

    What one cannot use goes to the others: either the whole is handed out, or all have as much as they can use.
    """
    last_first = sorted(range(len(useful)), key=lambda i: useful[i] / weights[i], reverse=True)
    weights_from_here_on = accumulate(weights[index] for index in last_first)
    parts, left = [0.0] * len(useful), whole
    for index, weight_left in reversed(list(zip(last_first, weights_from_here_on, strict=True))):
        parts[index] = min(useful[index], left * weights[index] / weight_left)
        left = max(0.0, left - parts[index])
    return parts
