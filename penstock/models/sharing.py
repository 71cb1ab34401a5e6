"""Knows how what several can use is divided among them: leases of one host, and hosts of one fleet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def water_fill(useful: Sequence[float], weights: Sequence[float], whole: float = 1.0) -> list[float]:
    """Divide the whole in proportion to the weights (above 0), nobody getting more than is useful to him.

    What one leaves goes to the others: either all of it is handed out, or everybody has all he can use.
    """
    last_first = sorted(range(len(useful)), key=lambda i: useful[i] / weights[i], reverse=True)
    weights_from_here_on = accumulate(weights[index] for index in last_first)
    parts, left = [0.0] * len(useful), whole
    for index, weight_left in reversed(list(zip(last_first, weights_from_here_on, strict=True))):
        parts[index] = min(useful[index], left * weights[index] / weight_left)
        left = max(0.0, left - parts[index])
    return parts
