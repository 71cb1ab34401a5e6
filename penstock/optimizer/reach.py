"""Knows how far from what was measured advice may go, and how far where nothing was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.models.model import Array, Cell, Fit, HasBodies, PerformanceModel
from penstock.optimizer import evidence, objective
from penstock.vocabulary import Context, knobs, setting_values

# Of each knob, from a measured setting: as far as a law is believed that was fitted there.
_REACH_OCTAVES = 1.0
_REACH_OCTAVES_OFF_MODEL = 0.3  # where none is: about the next setting of the ladder
_DARED_RATIO = 2.0  # threads that are advised over the most that went well, while little was measured
# Of bytes in a request: what was borne with smaller ones is not known to be borne.
_BODY_RATIO = 4.0
_TRUST_CELL_COUNT = 5  # settings measured at a size: from here on advice stays near what was measured
_TELLING_RATIO = 1.4  # of threads: what differs by so much tells a slower connection from a lower ceiling
_UNMEASURED_OVER_DEFAULT = 4  # times the SDK's own threads, as long as nothing was measured in a place


def near_measured(model: PerformanceModel[Any], fit: Fit, context: Context, settings: list[Any]) -> list[Any]:
    """The settings near a measured one, once enough were measured; before, those that are dared."""
    known = [cell.setting for cell in fit.cells if evidence.is_about(cell, context)]
    if len(known) < _TRUST_CELL_COUNT:
        return _dared(model, fit, context, settings)
    reach = _REACH_OCTAVES_OFF_MODEL if fit.is_off_model else _REACH_OCTAVES
    tried = [model.setting_type(**values) for values in known]
    return _near(model, settings, tried, reach, in_limits=False) or _dared(model, fit, context, settings)


def near_reported(
    model: PerformanceModel[Any], fit: Fit, context: Context, settings: list[Any], *, anchor: Any
) -> list[Any]:
    """Near the anchor, or near what at least two users reported alike; never empty.

    The anchor is what would be advised without reports. No more threads than that are dared where nobody came near
    them. Where all reports are of as many, so many more are advised that it tells what they did not, and no fewer.
    """
    alike = [cell for cell in fit.corroborated_cells if evidence.is_about(cell, context)]
    known = [anchor, *(model.setting_type(**cell.setting) for cell in alike if not cell.had_trouble)]
    near = _near(model, [s for s in settings if _has_same_limits(s, anchor)], known, _REACH_OCTAVES)
    used = evidence.thread_counts(model, fit.cells)
    before_used, threads = (objective.thread_counts(some) for some in (known, near))
    most = max(evidence.STEP_RATIO_MAX * used.max(initial=0.0), before_used.max())
    least = 0.0 if tells_of_fewer(used) else _TELLING_RATIO * used.max(initial=0.0)
    return [s for s, count in zip(near, threads, strict=True) if least <= count <= most] or [anchor]


def a_step_from(standing: Any, settings: list[Any]) -> list[Any]:
    """Those with at most twice its threads, and at least half of them."""
    old, counts = (objective.thread_counts(some) for some in ([standing], settings))
    low, high = old[0] / _DARED_RATIO, old[0] * _DARED_RATIO
    return [x for x, n in zip(settings, counts, strict=True) if low <= n <= high]


def tells_of_fewer(threads: Array) -> bool:
    """Whether such different numbers of threads were measured that a slower connection is told from a lower ceiling.

    What is slower with so many may be each connection or all of them together: more would help, or fewer do as well.
    """
    return bool(len(threads) and threads.max() >= _TELLING_RATIO * threads.min())


def most_unmeasured(model: PerformanceModel[Any], context: Context) -> int:
    """Threads that are advised at the most where nothing was measured."""
    sdks = objective.thread_counts([model.default_setting(context)])[0]
    return _UNMEASURED_OVER_DEFAULT * int(sdks)


def _near(
    model: PerformanceModel[Any],
    settings: list[Any],
    known: list[Any],
    reach: float,
    *,
    in_limits: bool = True,
) -> list[Any]:
    """Those that differ from any of the known ones by no more than so many octaves, in every knob.

    Or in every one but the limits, which may be 0 for none: they follow from the others, and dare nothing.
    """
    if not settings:
        return []
    counts = np.array([in_limits or knob.low > 0 for knob in knobs(model.setting_type).values()])
    here, there = (objective.coordinates(model.setting_type, some)[:, counts] for some in (settings, known))
    distance = np.abs(here[:, None, :] - there[None, :, :]).max(axis=2).min(axis=1)
    return [setting for setting, octaves in zip(settings, distance, strict=True) if octaves <= reach]


def _has_same_limits(setting: Any, anchor: Any) -> bool:
    """Whether 0, which is no limit, is 0 in both: from none to the smallest there is would be but an octave."""
    pairs = zip(setting_values(setting).values(), setting_values(anchor).values(), strict=True)
    return all((one == 0) == (other == 0) for one, other in pairs)


def _dared(model: PerformanceModel[Any], fit: Fit, context: Context, settings: list[Any]) -> list[Any]:
    """Where little was measured, no more than twice the threads that went well with requests as large, or nearly.

    Whether more are borne is not known.

    Or what other hosts of the place bore, as far as is dared where nothing was measured, until it goes badly here.

    Or fewer than the least with which requests were refused or failed: between the two both ends were measured.
    The next probe dares more. Where all was measured below a ceiling, as with objects of few parts, nothing else keeps
    the advice from what the physics alone promises.
    """
    quiet = [cell for cell in fit.cells if not cell.had_trouble] or fit.cells
    if not quiet:
        return settings
    threads = objective.thread_counts(settings)
    troubled = evidence.thread_counts(model, [cell for cell in fit.cells if cell.had_trouble])
    more = troubled[troubled > evidence.thread_counts(model, quiet).max()]
    below = more.min() if len(more) else 0.0
    told = min(fit.told_thread_count, most_unmeasured(model, context)) if not len(troubled) else 0.0
    least = threads.min(initial=np.inf)  # where all that would serve take more than is dared
    most = np.maximum(_most_dared(model, context, quiet, settings), max(told, least))
    is_dared = (threads <= most) | (threads < below)
    return [setting for setting, is_one in zip(settings, is_dared, strict=True) if is_one]


def _most_dared(
    model: PerformanceModel[Any], context: Context, quiet: Sequence[Cell], settings: list[Any]
) -> Array:
    """Of each setting, twice the threads that went well with requests of at least a quarter of its bytes.

    Where all that were measured are smaller, with the largest of them, as far as is dared where nothing was measured.
    """
    counts = evidence.thread_counts(model, quiet)
    if not isinstance(model, HasBodies):
        return np.full(len(settings), _DARED_RATIO * counts.max())
    tried = [model.request_bytes(model.setting_type(**c.setting), c.payload_size_bytes) for c in quiet]
    asked = [model.request_bytes(setting, context.payload_size_bytes) for setting in settings]
    largest = max(tried)
    is_as_large = _BODY_RATIO * np.array(tried) >= np.minimum(asked, largest).reshape(-1, 1)
    borne = np.where(is_as_large, counts, 0.0).max(axis=1)
    most = np.where(np.array(asked) > _BODY_RATIO * largest, most_unmeasured(model, context), np.inf)
    return np.asarray(np.minimum(_DARED_RATIO * borne, most))
