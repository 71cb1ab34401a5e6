"""Knows how far advice may go from measured settings, and how far if nothing was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.models.model import Array, Cell, Fit, HasBodies, PerformanceModel
from penstock.optimizer import evidence, objective
from penstock.vocabulary import Context, knobs, setting_values

# In each knob, from a measured setting: how far a law that was fitted there is trusted.
_REACH_OCTAVES = 1.0
_REACH_OCTAVES_OFF_MODEL = 0.3  # if the law does not fit: about the next setting of the ladder
_DARED_RATIO = 2.0  # advised threads over the most that went well, while little was measured
# Of bytes in a request: thread counts that went well with requests smaller by more are no evidence.
_BODY_RATIO = 4.0
_TRUST_CELL_COUNT = 5  # settings measured at a size; from here on advice stays close to measured ones
_TELLING_RATIO = 1.4  # of thread counts that tell slower connections from a lower ceiling
_UNMEASURED_OVER_DEFAULT = 4  # advised threads over the SDK's own, while nothing was measured in a place


def near_measured(model: PerformanceModel[Any], fit: Fit, context: Context, settings: list[Any]) -> list[Any]:
    """The settings close to a measured one, once enough were measured; before, those that are dared."""
    known = [cell.setting for cell in fit.cells if evidence.is_about(cell, context)]
    if len(known) < _TRUST_CELL_COUNT:
        return _dared(model, fit, context, settings)
    reach = _REACH_OCTAVES_OFF_MODEL if fit.is_off_model else _REACH_OCTAVES
    tried = [model.setting_type(**values) for values in known]
    return _near(model, settings, tried, reach, in_limits=False) or _dared(model, fit, context, settings)


def near_reported(
    model: PerformanceModel[Any], fit: Fit, context: Context, settings: list[Any], *, anchor: Any
) -> list[Any]:
    """The settings close to the anchor, or to what at least two users reported alike; never empty.

    The anchor is the setting that would be advised without reports. More threads than those are dared only up to four
    times what was reported. If all reports have about the same number of threads, enough more are advised that the next
    reports tell slower connections from a lower ceiling, and no fewer.
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
    """The settings with at most twice and at least half the threads of the standing one."""
    old, counts = (objective.thread_counts(some) for some in ([standing], settings))
    low, high = old[0] / _DARED_RATIO, old[0] * _DARED_RATIO
    return [x for x, n in zip(settings, counts, strict=True) if low <= n <= high]


def tells_of_fewer(threads: Array) -> bool:
    """Whether thread counts differ enough to tell slower connections from a lower ceiling.

    With one thread count alone, either could explain a lower throughput. The first calls for more threads, the second
    for fewer.
    """
    return bool(len(threads) and threads.max() >= _TELLING_RATIO * threads.min())


def most_unmeasured(model: PerformanceModel[Any], context: Context) -> int:
    """The most threads that are advised if nothing was measured."""
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
    """The settings that differ from some known one by at most `reach` octaves in every knob.

    Without `in_limits`, knobs that may be 0 for "no limit" are ignored: they follow from the others and carry no risk.
    """
    if not settings:
        return []
    counts = np.array([in_limits or knob.low > 0 for knob in knobs(model.setting_type).values()])
    here, there = (objective.coordinates(model.setting_type, some)[:, counts] for some in (settings, known))
    distance = np.abs(here[:, None, :] - there[None, :, :]).max(axis=2).min(axis=1)
    return [setting for setting, octaves in zip(settings, distance, strict=True) if octaves <= reach]


def _has_same_limits(setting: Any, anchor: Any) -> bool:
    """Whether knobs that are 0, which means no limit, are 0 in both.

    Otherwise "no limit" and the smallest limit would be only an octave apart.
    """
    pairs = zip(setting_values(setting).values(), setting_values(anchor).values(), strict=True)
    return all((one == 0) == (other == 0) for one, other in pairs)


def _dared(model: PerformanceModel[Any], fit: Fit, context: Context, settings: list[Any]) -> list[Any]:
    """The settings that are dared while little was measured; all of them if nothing was.

    They have at most twice the threads that went well with requests of at least about the same size. They may also have
    as many as went well for other hosts in this place, up to the limit for unmeasured places and until requests are
    refused or fail here; or fewer than the least with which they did, because then both ends were measured.

    The next probe dares more. If everything was measured below a ceiling, as with objects of few parts, only this keeps
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
    least = threads.min(initial=np.inf)  # so that there is one, even if all take more than is dared
    most = np.maximum(_most_dared(model, context, quiet, settings), max(told, least))
    is_dared = (threads <= most) | (threads < below)
    return [setting for setting, is_one in zip(settings, is_dared, strict=True) if is_one]


def _most_dared(
    model: PerformanceModel[Any], context: Context, quiet: Sequence[Cell], settings: list[Any]
) -> Array:
    """For each setting, twice the threads that went well with requests of at least a quarter of its bytes.

    If all measured requests are smaller, the largest of them count, up to the limit for unmeasured places.
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
