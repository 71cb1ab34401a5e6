"""Knows how to choose what to advise: the fewest threads and least memory that are within reach of the best."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from penstock.models.model import Fit, PerformanceModel
from penstock.vocabulary import Context, Demand, Observation, Recommendation


def recommend(
    model: PerformanceModel[Any],
    fit: Fit | None,
    context: Context,
    demand: Demand,
    *,
    previous: Recommendation[Any] | None,
    now: datetime,
    validity_seconds: float,
) -> Recommendation[Any]:
    """The advice for this context and demand, from the fit; without a fit, what the SDK would do.

    `previous` is the advice that stands: it is kept while it is as good as the new one (hysteresis). Runs in the
    daemon's own process for every new question on the socket: milliseconds, NumPy only.
    """
    raise NotImplementedError
