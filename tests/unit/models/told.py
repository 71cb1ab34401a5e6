"""Asks a model for its remarks on a setting as advice does: with what was found out about it before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.models.model import Fit, PerformanceModel
from penstock.optimizer.recommendation import bound
from penstock.vocabulary import Context, Demand


def told(
    model: PerformanceModel[Any], fit: Fit, context: Context, setting: Any, demand: Demand
) -> Sequence[str]:
    """What is told of a setting, a sentence each."""
    limit = model.bottleneck(fit, context, setting, demand)
    return model.remarks(
        fit,
        context,
        setting,
        demand,
        limit=limit,
        derived=model.derive(fit, context, setting, demand, limit=limit),
        obstacle=bound(model, fit, context, demand, setting),
    )
