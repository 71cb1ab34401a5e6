"""Knows how measurements are summarised by setting, as cells that accompany a fit and support its advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.models.model import Array, Cell, Fit, PerformanceModel, speaks_of_setting
from penstock.optimizer import objective
from penstock.vocabulary import Context, Observation, setting_values

STEP_RATIO_MAX = 4.0  # connections of the next probe over the most that went well
_CELL_COUNT_MAX = 64  # the newest cells: as many as observations that a fit learns from
_SIZE_RATIO = 1.5  # payloads within this ratio count as the same size


def is_about(cell: Cell, context: Context) -> bool:
    """Whether the cell was measured at about this payload size."""
    return _is_similar(cell.payload_size_bytes, context.payload_size_bytes)


def is_current(cell: Cell, fit: Fit) -> bool:
    """Whether the cell was measured while the place was in its present state."""
    return fit.is_about(cell.newest_at)


def is_same_size(one: Context, other: Context) -> bool:
    """Whether measurements at one of these payload sizes count for the other."""
    return _is_similar(one.payload_size_bytes, other.payload_size_bytes)


def _is_similar(one: int, other: int) -> bool:
    low, high = sorted((max(one, 1), max(other, 1)))
    return high <= _SIZE_RATIO * low


def attach(
    fit: Fit,
    model: PerformanceModel[Any],
    observations: Sequence[Observation[Any]],
    corroborated: Sequence[Observation[Any]] = (),
    told: Sequence[Cell] = (),
) -> Fit:
    """The fit with the cells of these observations, and of reports that more than one user corroborates.

    `told` are the cells of other hosts in the same place.
    """
    return replace(
        fit,
        cells=_cells(fit, model, observations),
        corroborated_cells=_cells(fit, model, corroborated),
        told_thread_count=float(
            thread_counts(model, [c for c in told if not c.had_trouble]).max(initial=0.0)
        ),
    )


def thread_counts(model: PerformanceModel[Any], cells: Sequence[Cell]) -> Array:
    """The total number of threads of each cell: shape (cells,)."""
    return objective.thread_counts([model.setting_type(**cell.setting) for cell in cells])


def _cells(
    fit: Fit, model: PerformanceModel[Any], observations: Sequence[Observation[Any]]
) -> tuple[Cell, ...]:
    """One cell for each size and setting that was really used, apart for the present and other states of the place."""
    groups: dict[tuple[Any, ...], list[Observation[Any]]] = {}
    for allowed in observations:
        if not speaks_of_setting(model, allowed):
            continue
        observation = replace(allowed, setting=model.in_use(allowed))
        place = (observation.context.payload_size_bytes, fit.is_about(observation.started_at))
        key = (*place, *setting_values(observation.setting).values())
        # Removed and added again, so that the groups are in the order of their newest measurements.
        groups[key] = [*groups.pop(key, ()), observation]
    return tuple(_cell(model, group) for group in list(groups.values())[-_CELL_COUNT_MAX:])


def _cell(model: PerformanceModel[Any], group: Sequence[Observation[Any]]) -> Cell:
    return Cell(
        payload_size_bytes=group[0].context.payload_size_bytes,
        setting={name: float(value) for name, value in setting_values(group[0].setting).items()},
        count=len(group),
        value_median=float(np.median([model.measured_value(o) for o in group])),
        had_trouble=not all(o.went_well for o in group),
        newest_at=max(o.started_at for o in group),
    )
