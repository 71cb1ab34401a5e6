"""Knows quantiles of draws.

`np.quantile` gives the same results in ten times the time, and imports masked arrays, 1.4 MB of the daemon's memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def quantiles(draws: ArrayLike, fractions: Sequence[float]) -> NDArray[np.float64]:
    """Quantiles (fractions, ...) of draws (draws, ...), with linear interpolation between draws."""
    ordered = np.sort(np.asarray(draws, dtype=float), axis=0)
    places = np.asarray(fractions) * (len(ordered) - 1)
    below = places.astype(int)
    low, high = ordered[below], ordered[np.minimum(below + 1, len(ordered) - 1)]
    share = (places - below).reshape(-1, *(1,) * (ordered.ndim - 1))
    told: NDArray[np.float64] = low + share * (high - low)
    return told
