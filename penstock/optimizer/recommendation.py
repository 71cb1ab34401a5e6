"""Knows how to choose what to advise: the fewest threads and least memory that are within reach of the best."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np

from penstock.models.model import Appraisal, Fit, PerformanceModel, is_current
from penstock.optimizer import evidence, objective
from penstock.units import quantity
from penstock.vocabulary import (
    Basis,
    Context,
    Demand,
    Estimate,
    Prediction,
    Recommendation,
    setting_values,
)

_KEEP_WITHIN = 0.01  # of the best, beyond what is tolerated anyway: advice that stands is kept
_KEEP_PRICE = 0.05  # of the logarithm of connections: advice that stands may take so much more


def recommend(
    model: PerformanceModel[Any],
    fit: Fit | None,
    context: Context,
    demand: Demand,
    *,
    previous: Recommendation[Any] | None,
    now: datetime,
    validity_seconds: float,
    within: Demand | None = None,
) -> Recommendation[Any]:
    """The advice for this context and demand, from the fit; without a fit that can be read, what the SDK would do.

    `previous` is the advice that stands: it is kept while it is as good as the new one (hysteresis). `within` is the
    demand as the operator's limits narrow it; the advice keeps them and answers what was asked. Runs in the daemon's
    own process for every new question on the socket: milliseconds, NumPy only.
    """
    expires_at, narrowed = now + timedelta(seconds=validity_seconds), within or demand
    if fit is None or not is_current(fit, model):
        found = _default(model, context, narrowed, now, expires_at)
    else:
        setting = _choose(model, fit, context, narrowed, _standing(previous, context, demand))
        found = _advice(
            model, fit, context, narrowed, setting, aim=_aim(demand), now=now, expires_at=expires_at
        )
    return replace(found, demand=demand)


def alternatives(
    model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand, *, advised: Any, count_max: int
) -> tuple[list[Any], Appraisal]:
    """The advised setting, and after it what it was chosen from: what is good enough by its rank, then by its use.

    They are judged for the same demand, and within the same reach of what was measured, as the advice is.
    """
    others = _within_reach(model, fit, context, list(model.candidates(fit, context, demand)))
    settings = [advised, *(setting for setting in others if setting != advised)]
    appraisal = model.appraise(fit, context, settings, demand)
    useful, rank = objective.utility(appraisal, demand.objective), objective.rank(appraisal, demand.objective)
    order = np.lexsort((-useful[1:], rank[1:]))[: count_max - 1] + 1
    chosen = [0, *(int(i) for i in order)]
    columns = {field.name: getattr(appraisal, field.name)[chosen] for field in fields(appraisal)}
    return [settings[i] for i in chosen], Appraisal(**columns)


def assess(
    model: PerformanceModel[Any],
    fit: Fit | None,
    context: Context,
    demand: Demand,
    setting: Any,  # of the model's own type
    *,
    now: datetime,
    validity_seconds: float,
) -> Recommendation[Any]:
    """What a setting that was chosen elsewhere will do, as a recommendation.

    Without a fit that can be read there is nothing to expect of it.
    """
    expires_at = now + timedelta(seconds=validity_seconds)
    if fit is None or not is_current(fit, model):
        return replace(_default(model, context, demand, now, expires_at), setting=setting)
    return _advice(model, fit, context, demand, setting, aim="given setting", now=now, expires_at=expires_at)


def _advice(
    model: PerformanceModel[Any],
    fit: Fit,
    context: Context,
    demand: Demand,
    setting: Any,
    *,
    aim: str,
    now: datetime,
    expires_at: datetime,
) -> Recommendation[Any]:
    prediction = model.predict(fit, context, setting, demand)
    basis = _basis(fit, context, setting)
    bottleneck = model.bottleneck(fit, context, setting, demand)
    return Recommendation(
        context=context,
        setting=setting,
        derived=model.derive(fit, context, setting, demand),
        prediction=prediction,
        demand=demand,
        basis=basis,
        bottleneck=bottleneck,
        explanation=_explain(
            model.value_metric, prediction, aim, basis, _limit(model, prediction, demand, bottleneck)
        ),
        observation_count=fit.observation_count,
        newest_observation_at=fit.newest_observation_at,
        issued_at=now,
        expires_at=expires_at,
    )


def _default(
    model: PerformanceModel[Any], context: Context, demand: Demand, now: datetime, expires_at: datetime
) -> Recommendation[Any]:
    setting = _default_setting(model, context, demand)
    is_sdks = setting == model.default_setting(context)
    origin = "what the SDK does by itself" if is_sdks else "as near to what the SDK does as the limits allow"
    return Recommendation(
        context=context,
        setting=setting,
        derived={},
        prediction={},
        demand=demand,
        basis=Basis.DEFAULT,
        bottleneck="unknown",
        explanation=f"Nothing is known about this place yet: this is {origin}.",
        observation_count=0,
        newest_observation_at=None,
        issued_at=now,
        expires_at=expires_at,
    )


def _default_setting(model: PerformanceModel[Any], context: Context, demand: Demand) -> Any:
    """What the SDK does, or the most of it that the demand's limits allow."""
    setting = model.default_setting(context)
    if demand.thread_count_max is None and demand.memory_bytes_max is None:
        return setting
    table = model.fit(context.place, (), prior=None, seed=0)
    appraisal = model.appraise(table, context, [setting], demand)
    if objective.is_within([setting], appraisal, demand)[0]:
        return setting
    settings = list(model.candidates(table, context, demand))
    points = objective.coordinates(model.setting_type, [setting, *settings])
    return settings[int(np.argmin(np.abs(points[1:] - points[0]).sum(axis=1)))]


def _choose(
    model: PerformanceModel[Any],
    fit: Fit,
    context: Context,
    demand: Demand,
    standing: Any,  # a setting of the model's own type, or None; as is what is returned
) -> Any:
    candidates = list(model.candidates(fit, context, demand))
    settings = _within_reach(model, fit, context, candidates)
    if standing is None or not _may_stand(model, fit, context, demand, [standing, *candidates]):
        return settings[objective.choose(model.appraise(fit, context, settings, demand), demand.objective)]
    settings = list(dict.fromkeys([*settings, standing]))
    appraisal = model.appraise(fit, context, settings, demand)
    best = objective.choose(appraisal, demand.objective)
    return standing if _is_as_good(appraisal, demand, settings.index(standing), best) else settings[best]


def _may_stand(
    model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand, settings: list[Any]
) -> bool:
    """Whether old advice, the first setting, keeps the limits and is as near to what was measured as new has to be."""
    old = settings[:1]
    if not objective.is_within(old, model.appraise(fit, context, old, demand), demand)[0]:
        return False
    return old[0] in _within_reach(model, fit, context, settings)


_REACH_OCTAVES = 1.0
_REACH_OCTAVES_OFF_MODEL = 0.3
_TRUST_CELL_COUNT = 5  # settings measured at a size: from here on advice stays near what was measured


def _within_reach(model: PerformanceModel[Any], fit: Fit, context: Context, settings: list[Any]) -> list[Any]:
    """The settings near a measured one, once enough were measured: beyond, the physics would speak alone.

    Where the physics is known to be wrong, near means almost there.
    """
    known = [cell.setting for cell in evidence.cells(fit) if cell.is_about(context)]
    if len(known) < _TRUST_CELL_COUNT:
        return _dared(model, fit, settings)
    reach = _REACH_OCTAVES_OFF_MODEL if fit.is_off_model else _REACH_OCTAVES
    here = objective.coordinates(model.setting_type, settings)
    there = objective.coordinates(model.setting_type, [SimpleNamespace(**values) for values in known])
    distance = np.abs(here[:, None, :] - there[None, :, :]).max(axis=2).min(axis=1)
    near = [setting for setting, octaves in zip(settings, distance, strict=True) if octaves <= reach]
    return near or settings


def _dared(model: PerformanceModel[Any], fit: Fit, settings: list[Any]) -> list[Any]:
    """While little was measured, no more than four times the threads that went well, as for the next probe."""
    cells = evidence.cells(fit)
    quiet = [cell for cell in cells if not cell.had_trouble] or cells
    if not quiet:
        return settings
    tried = [SimpleNamespace(**cell.setting) for cell in quiet]
    most = evidence.STEP_RATIO_MAX * objective.thread_counts(model.setting_type, tried).max()
    threads = objective.thread_counts(model.setting_type, settings)
    few = [setting for setting, count in zip(settings, threads, strict=True) if count <= most]
    return few or settings


def _standing(previous: Recommendation[Any] | None, context: Context, demand: Demand) -> Any:
    """The setting of advice that answers the same question and rests on something."""
    if previous is None or previous.basis is Basis.DEFAULT:
        return None
    return previous.setting if (previous.context, previous.demand) == (context, demand) else None


def _is_as_good(appraisal: Appraisal, demand: Demand, standing: int, best: int) -> bool:
    rank = objective.rank(appraisal, demand.objective, slack=_KEEP_WITHIN)
    return bool(rank[standing] <= rank[best] + _KEEP_PRICE)


def _basis(fit: Fit, context: Context, setting: Any) -> Basis:
    if fit.observation_count == 0:
        return Basis.PRIOR
    values = {name: float(value) for name, value in setting_values(setting).items()}
    current = [cell for cell in evidence.cells(fit) if cell.is_current and cell.is_about(context)]
    measured = any(_is_near(cell.setting, values) for cell in current)
    return Basis.MEASURED if measured else Basis.MODEL


def _is_near(measured: Any, advised: Any) -> bool:
    """Within a tenth, knob by knob: closer than any measurement can tell apart."""
    pairs = [(measured[name], value) for name, value in advised.items()]
    return all(abs(a - b) <= 0.1 * max(abs(a), abs(b)) for a, b in pairs)


_LIMITS = {
    "connections": "what one connection carries is the limit",
    "host-ceiling": "the host's network is full",
    "request-rate": "the service's request rate is reached",
    "client-cpu": "the client's CPU is the limit",
    "message-groups": "each message group has one receiver at a time, and there are few",
    "memory": "memory is the limit",
    "demand": "this carries what was asked for",
}


_DEMAND_SHARE = 0.98  # of a rate that was asked for: what comes so near carries it


def _limit(model: PerformanceModel[Any], prediction: Prediction, demand: Demand, bottleneck: str) -> str:
    """What is in the way; of a demand, whether it is met by what is expected."""
    expected, asked = prediction.get(model.value_metric), demand.message_rate_per_second
    if bottleneck == "demand" and expected is not None and asked is not None and expected.expected < asked:
        is_near = expected.expected >= _DEMAND_SHARE * asked
        return (
            "this carries what was asked for to within 2 %"
            if is_near
            else "this falls short of what was asked for"
        )
    return _LIMITS.get(bottleneck, "what limits it is not known yet")


def _explain(metric: str, prediction: Prediction, aim: str, basis: Basis, limit: str) -> str:
    expected = prediction.get(metric)
    reached = f"Expects {_range(metric, expected)}" if expected is not None else "Follows the model"
    rest = {
        Basis.PRIOR: "from tables and neighbours, nothing was measured here",
        Basis.MODEL: "from what was measured at other settings here",
        Basis.MEASURED: "measured at this setting",
        Basis.DEFAULT: "by default",
    }[basis]
    return f"{reached} with the {aim}, {rest}; {limit}."


def _aim(demand: Demand) -> str:
    return {
        "throughput": "fewest connections within 2 % of the best",
        "latency": "shortest time for one",
        "frugal": "least memory, connections and requests that reach 80 % of the best",
    }[demand.objective.value]


def _range(metric: str, estimate: Estimate) -> str:
    low, expected, high = (quantity(metric, v) for v in (estimate.low, estimate.expected, estimate.high))
    return f"{expected} (90 %: {low} to {high})"
