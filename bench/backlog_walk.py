"""Knows how old the oldest undeleted message grows if a deleter is about as fast as the arrivals: a random walk.

Many long runs at once, by Lindley's recursion W' = max(0, W + delete - gap) in its summed form, for single arrivals.
Duplicates are left out, so ages are valid only up to the visibility timeout.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def oldest_undeleted_seconds(
    *,
    arrival_rate_per_second: float,
    load: float,
    variation: float,
    duration_seconds: float,
    sample_seconds: float,
    seed: int,
) -> NDArray[np.float64]:
    """The age at every sample of one run; `variation` is the coefficient of variation of gaps and deletes (gamma)."""
    rng = np.random.default_rng(seed)
    count = int(duration_seconds * arrival_rate_per_second * 1.02)
    shape = 1.0 / variation**2
    gap_seconds = rng.gamma(shape, 1.0 / (shape * arrival_rate_per_second), count)
    delete_seconds = rng.gamma(shape, load / (shape * arrival_rate_per_second), count)
    walk = np.concatenate([[0.0], np.cumsum(delete_seconds[:-1] - gap_seconds[1:])])
    waits = walk - np.minimum.accumulate(walk)
    taken_at = np.cumsum(gap_seconds) + waits
    samples = np.arange(sample_seconds, duration_seconds, sample_seconds)
    newest = np.clip(np.searchsorted(taken_at, samples) - 1, 0, count - 1)
    return np.asarray(waits[newest])
