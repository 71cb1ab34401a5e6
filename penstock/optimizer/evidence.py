"""Knows what was measured at which setting, in the form that travels with a fit: the advice rests on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from penstock.models.model import Fit, PerformanceModel
from penstock.vocabulary import Context, Observation, setting_values

STEP_RATIO_MAX = 4.0  # connections of what is tried or advised next over the most that went well
_KEY = "cells"
_CELL_COUNT_MAX = 64
_SIZE_RATIO = 1.5  # payloads within this ratio count as the same size


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One setting that was measured at one payload size."""

    payload_size_bytes: int
    setting: Mapping[str, float]
    count: int
    value_median: float
    had_trouble: bool  # more requests throttled or failed than happens to anybody
    is_current: bool  # measured since the place last changed

    def is_about(self, context: Context) -> bool:
        """Whether it was measured at about this payload size."""
        return _is_similar(self.payload_size_bytes, context.payload_size_bytes)


def is_same_size(one: Context, other: Context) -> bool:
    """Whether what was measured at one payload size counts as measured at the other."""
    return _is_similar(one.payload_size_bytes, other.payload_size_bytes)


def _is_similar(one: int, other: int) -> bool:
    low, high = sorted((max(one, 1), max(other, 1)))
    return high <= _SIZE_RATIO * low


def attach(fit: Fit, model: PerformanceModel[Any], observations: Sequence[Observation[Any]]) -> Fit:
    """The fit with the cells of its observations in its state."""
    groups: dict[tuple[Any, ...], list[Observation[Any]]] = {}
    for observation in observations:
        key = (observation.context.payload_size_bytes, *setting_values(observation.setting).values())
        groups[key] = [*groups.pop(key, ()), observation]  # what was measured last is last
    cells = [_cell_row(model, group) for group in list(groups.values())[-_CELL_COUNT_MAX:]]
    return replace(fit, state={**fit.state, _KEY: cells})


def cells(fit: Fit) -> list[Cell]:
    """What was measured; empty for a fit that came straight from the model."""
    changed_at = fit.changed_at.timestamp() if fit.changed_at else -math.inf
    return [
        Cell(
            payload_size_bytes=size,
            setting=setting,
            count=count,
            value_median=value,
            had_trouble=trouble,
            is_current=newest_at >= changed_at,
        )
        for size, setting, count, value, trouble, newest_at in fit.state.get(_KEY, ())
    ]


def _cell_row(model: PerformanceModel[Any], group: Sequence[Observation[Any]]) -> list[Any]:
    return [
        group[0].context.payload_size_bytes,
        {name: float(value) for name, value in setting_values(group[0].setting).items()},
        len(group),
        float(median(model.measured_value(o) for o in group)),
        not all(o.went_well for o in group),
        max(o.started_at for o in group).timestamp(),
    ]
