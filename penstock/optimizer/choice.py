"""Knows which setting is advised: within reach of measurements, the best balance of throughput and connections.

All advice is compared with the SDK's default, using the same draws of the posterior for both. The advice is never
expected to be worse than the default by more than the demand's objective allows. If it gains no more than that and
needs as many connections, the default itself is advised.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from penstock.models.model import Appraisal, Cell, Fit, HasWork, PerformanceModel
from penstock.optimizer import evidence, objective, reach
from penstock.optimizer.comparison import gain, sdks_own
from penstock.vocabulary import Context, Demand, Objective, Place

_KEEP_WITHIN = 0.01  # of the best: how much more than other settings standing advice may fall behind
_SINCE_CHANGE_MIN = 3  # measurements
_STEADY_SINCE_CHANGE = 6  # measurements; before, each of them moves the advice by one step at most


def choose(
    model: PerformanceModel[Any],
    fit: Fit,
    context: Context,
    demand: Demand,
    candidates: list[Any],  # settings of the model's own type, like the result
    *,
    near: list[Any],  # those of the candidates that are within reach
    standing: Any,  # the setting advised so far, or None
) -> Any:
    """The setting to advise: the best bargain, the SDK's default, or the standing setting if that is as good.

    After a change of the place, the advice stands until a few measurements have been made, and then moves in steps.
    """
    own = sdks_own(model, fit, context, demand)
    may_stand = standing is not None and _may_stand(model, fit, context, demand, [standing, *candidates])
    since = _since_change(fit, context)
    if may_stand and since is not None and sum(cell.count for cell in since) < _STEADY_SINCE_CHANGE:
        near = reach.a_step_from(standing, near) or near
    others = [own] * (own in candidates) + [standing] * may_stand
    # The SDK's default need not be within reach: it is what happens without advice.
    settings = list(dict.fromkeys([*near, *others]))
    appraisal = model.appraise(fit, context, settings, demand)
    share, least = objective.required_share(demand.objective), 0.0
    if own in settings:
        least = share * float(objective.utility(appraisal, demand.objective)[settings.index(own)])
    chosen = [objective.choose(appraisal, demand.objective, least=least)]
    if may_stand and (fit.suspicion.is_surprised or _is_new_since_change(model, since)):
        # The next measurement comes soon and tells more.
        return standing
    if may_stand and _is_as_good(appraisal, demand, settings.index(standing), chosen[0]):
        chosen.insert(0, settings.index(standing))
    if own is None:
        return settings[chosen[0]]
    for index in chosen:
        gained = gain(model, fit, context, demand, setting=settings[index], reference=own).expected
        if gained >= share:
            is_alike = gained * share < 1.0 and own in settings
            is_needless = is_alike and _is_as_thrifty(appraisal, demand, settings.index(own), index)
            return own if is_needless else settings[index]
    return own


def within_reach(
    model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand, settings: list[Any]
) -> list[Any]:
    """The settings close to a measured one, once enough were measured: farther away only the physics supports advice.

    If the physics is known not to fit, only settings very close to a measured one count. If there are only reports,
    settings count that are close to the advice without reports, or to what several users reported alike. If no setting
    is close enough, as for ranges smaller than any measured, only the number of threads is limited. Threads that are
    busy with the application's own work do not count.
    """
    if fit.is_from_reports:
        return reach.near_reported(model, fit, context, settings, anchor=_anchor(model, fit, context, demand))
    if not isinstance(model, HasWork):
        return reach.near_measured(model, fit, context, settings)
    shown = model.without_work(fit, context, settings, demand)
    near = set(reach.near_measured(model, fit, context, list(shown)))
    return [setting for setting, asking in zip(settings, shown, strict=True) if asking in near]


def _anchor(model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand) -> Any:
    """The setting that would be advised without the reports."""
    before = fit.unreported or from_tables(model, context.place)
    calm = unmeasured(model, before, context, demand)
    candidates = list(model.candidates(before, context, calm))
    near = within_reach(model, before, context, calm, candidates)
    return choose(model, before, context, calm, candidates, near=near, standing=None)


def unmeasured(model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand) -> Demand:
    """The demand; if nothing was measured, limited to a small multiple of the SDK's default number of threads."""
    if fit.observation_count > 0:
        return demand
    most = reach.most_unmeasured(model, context)
    return replace(demand, thread_count_max=min(demand.thread_count_max or most, most))


def default_setting(model: PerformanceModel[Any], context: Context, demand: Demand) -> Any:
    """The SDK's default, or the setting closest to it that the demand's limits allow."""
    setting = model.default_setting(context)
    if demand.thread_count_max is None and demand.memory_bytes_max is None:
        return setting
    return _default_within(model, context, demand)  # type: ignore[arg-type]  # as in `from_tables`


# Until something is measured, every snapshot computes all standing advice anew.
@lru_cache(maxsize=64)
def _default_within(model: PerformanceModel[Any], context: Context, demand: Demand) -> Any:
    setting, table = model.default_setting(context), from_tables(model, context.place)
    appraisal = model.appraise(table, context, [setting], demand)
    if objective.is_within([setting], appraisal, demand)[0]:
        return setting
    settings = list(model.candidates(table, context, demand))
    points = objective.coordinates(model.setting_type, [setting, *settings])
    return settings[int(np.argmin(np.abs(points[1:] - points[0]).sum(axis=1)))]


def from_tables(model: PerformanceModel[Any], place: Place) -> Fit:
    """The fit of a place without observations. It is cached, because every question about the place needs it."""
    return _from_tables(model, place)  # type: ignore[arg-type]  # models are values, or singletons


@lru_cache(maxsize=64)
def _from_tables(model: PerformanceModel[Any], place: Place) -> Fit:
    return model.fit(place, (), prior=None, seed=0)


def _since_change(fit: Fit, context: Context) -> list[Cell] | None:
    """The cells measured since the place changed to a new state; None if it did not, or if there are only reports."""
    if fit.changed_at is None or fit.earlier or fit.is_from_reports:
        return None
    return [c for c in fit.cells if evidence.is_current(c, fit) and evidence.is_about(c, context)]


def _is_new_since_change(model: PerformanceModel[Any], since: list[Cell] | None) -> bool:
    """Whether there are few measurements since the change, or all of them with about the same number of threads."""
    if since is None:
        return False
    threads = evidence.thread_counts(model, since)
    is_little = 0 < sum(cell.count for cell in since) < _SINCE_CHANGE_MIN
    return is_little or (len(threads) > 0 and not reach.tells_of_fewer(threads))


def _is_as_thrifty(appraisal: Appraisal, demand: Demand, own: int, chosen: int) -> bool:
    """Whether the SDK's default is good enough as well, and needs no more connections than the chosen setting.

    Never for the objective `frugal`, for which the chosen setting needs the least of everything.
    """
    is_good = objective.rank(appraisal, demand.objective)[own] < np.inf
    few = appraisal.connection_count[own] <= appraisal.connection_count[chosen]
    return bool(is_good and few and demand.objective is not Objective.FRUGAL)


def _may_stand(
    model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand, settings: list[Any]
) -> bool:
    """Whether the standing advice, the first of the settings, keeps the limits and is within reach as new advice is.

    Nor may it carry less of a demanded rate than the others, all of which carry it if any setting does.
    """
    pair = settings[:2]
    appraisal = model.appraise(fit, context, pair, demand)
    carried = objective.carries(appraisal, demand)
    if not objective.is_within(pair, appraisal, demand)[0] or carried[0] < carried[-1]:
        return False
    return pair[0] in within_reach(model, fit, context, demand, settings)


def _is_as_good(appraisal: Appraisal, demand: Demand, standing: int, best: int) -> bool:
    ranks = objective.rank(appraisal, demand.objective, slack=_KEEP_WITHIN)
    return bool(ranks[standing] <= ranks[best] + objective.kept_within(demand.objective))
