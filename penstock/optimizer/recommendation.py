"""Knows how a recommendation is put together: the chosen setting, what to expect of it, and why."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from penstock.models.model import Appraisal, Fit, PerformanceModel, is_current
from penstock.optimizer import choice, evidence, explanation, objective
from penstock.optimizer.comparison import comparison_words, gain
from penstock.optimizer.reach import tells_of_fewer
from penstock.units import is_rate, rounded
from penstock.vocabulary import (
    Basis,
    Context,
    Demand,
    Estimate,
    Objective,
    Obstacle,
    Prediction,
    Recommendation,
    doubled,
    setting_values,
)

# These limits can be told apart only by measurements with different numbers of threads.
_TOLD_BY_THREADS = frozenset({"connections", "host-ceiling"})


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
    """The advice for this context and demand, from the fit; without a readable fit, the SDK's default.

    `previous` is the standing advice, which is kept while it is as good as new advice (hysteresis). `within` is the
    demand narrowed by the operator's limits: the advice keeps to these, but states the demand as it was asked. This
    runs in the daemon's own process for every new question on the socket: in milliseconds, with NumPy only.
    """
    expires_at, narrowed = now + timedelta(seconds=validity_seconds), within or demand
    if fit is None or not is_current(fit, model):
        found = _default(model, context, narrowed, now, expires_at)
    else:
        candidates = list(model.candidates(fit, context, narrowed))
        near = choice.within_reach(model, fit, context, narrowed, candidates)
        standing = _standing(previous, context, demand)
        setting = choice.choose(model, fit, context, narrowed, candidates, near=near, standing=standing)
        is_frugal = demand.objective is Objective.FRUGAL
        found = _advice(
            model,
            fit,
            context,
            narrowed,
            setting,
            aim=explanation.aim_words(demand),
            why_less="the objective allows that" if is_frugal else "the limits that are set allow no more",
            is_untried=_is_untried(candidates, near, setting),
            now=now,
            expires_at=expires_at,
        )
    return replace(found, demand=demand)


def alternatives(
    model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand, *, advised: Any, count_max: int
) -> tuple[list[Any], Appraisal]:
    """The advised setting, followed by the settings it was chosen from: by rank if good enough, then by utility.

    They are judged for the same demand, and within the same reach of measurements, as the advice.
    """
    others = choice.within_reach(model, fit, context, demand, list(model.candidates(fit, context, demand)))
    settings = [advised, *(setting for setting in others if setting != advised)]
    appraisal = model.appraise(fit, context, settings, demand)
    useful = objective.utility(appraisal, demand.objective)
    ranks = objective.rank(appraisal, demand.objective)
    order = np.lexsort((-useful[1:], ranks[1:]))[: count_max - 1] + 1
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
    """What to expect of a setting that was chosen elsewhere, as a recommendation.

    Without a readable fit there is no expectation.
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
    why_less: str = "",
    is_untried: bool = False,
    now: datetime,
    expires_at: datetime,
) -> Recommendation[Any]:
    prediction = predict(model, fit, context, setting, demand)
    over_default = gain(
        model, fit, context, demand, setting=setting, reference=model.default_setting(context)
    )
    basis = _basis(fit, context, setting)
    limiting = bottleneck = model.bottleneck(fit, context, setting, demand)
    current = [cell for cell in fit.cells if evidence.is_current(cell, fit)]
    is_known = not fit.is_from_reports and fit.changed_at is None
    is_told = is_known or tells_of_fewer(evidence.thread_counts(model, current))
    if limiting in _TOLD_BY_THREADS and not is_told:
        limiting = "unsure"
    limit = explanation.limit_words(model, prediction, demand, limiting)
    if limiting == "demand" and explanation.falls_short(model, prediction, demand):
        limiting = "unsure" if fit.observation_count else "unknown"
    expected = explanation.expectation(model.value_metric, prediction, aim, basis, limit)
    derived = model.derive(fit, context, setting, demand, limit=bottleneck)
    obstacle = Obstacle.UNTRIED if is_untried else bound(model, fit, context, demand, setting)
    remarks = [
        *explanation.suspicion_words(fit),
        *model.remarks(fit, context, setting, demand, limit=bottleneck, derived=derived, obstacle=obstacle),
        *([explanation.untried_words(setting)] if is_untried else []),
    ]
    compared = comparison_words(
        model, fit, context, demand, setting=setting, over_default=over_default, why_less=why_less
    )
    return Recommendation(
        context=context,
        setting=setting,
        derived={name: rounded(value) for name, value in derived.items()},
        prediction=prediction,
        demand=demand,
        basis=basis,
        bottleneck=limiting,
        explanation=" ".join((expected, *remarks, compared)),
        observation_count=fit.observation_count,
        newest_observation_at=fit.newest_observation_at,
        issued_at=now,
        expires_at=expires_at,
        gain_over_default=over_default,
        obstacle=obstacle,
    )


def _is_untried(candidates: list[Any], near: list[Any], setting: Any) -> bool:
    """Whether more threads would be allowed, but the setting has the most that are dared."""
    advised, dared, most = (
        objective.thread_counts(some).max(initial=0.0) for some in ([setting], near, candidates)
    )
    return bool(dared <= advised < most)


def predict(
    model: PerformanceModel[Any], fit: Fit, context: Context, setting: Any, demand: Demand
) -> Prediction:
    """The model's prediction; while a change is suspected, intervals extend to the newest, surprising measurement."""
    prediction, suspicion = model.predict(fit, context, setting, demand), fit.suspicion
    if not suspicion.is_raised:
        return prediction
    return {
        metric: _reaching(estimate, suspicion.value_ratio if is_rate(metric) else suspicion.seconds_ratio)
        for metric, estimate in prediction.items()
    }


def _reaching(estimate: Estimate, ratio: float) -> Estimate:
    """The estimate with its interval extended to contain `ratio` times the expected value."""
    moved = ratio * estimate.expected
    return Estimate(min(estimate.low, moved), estimate.expected, max(estimate.high, moved))


def bound(
    model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand, setting: Any
) -> Obstacle | None:
    """The limit of the demand that twice the threads would exceed, or None."""
    if demand.thread_count_max is None and demand.memory_bytes_max is None:
        return None
    twice = model.appraise(fit, context, [doubled(setting)], demand)
    if twice.connection_count[0] > (demand.thread_count_max or np.inf):
        return Obstacle.THREADS
    return Obstacle.MEMORY if twice.memory_bytes[0] > (demand.memory_bytes_max or np.inf) else None


def _default(
    model: PerformanceModel[Any], context: Context, demand: Demand, now: datetime, expires_at: datetime
) -> Recommendation[Any]:
    setting = choice.default_setting(model, context, demand)
    is_sdks = setting == model.default_setting(context)
    origin = "the SDK's default" if is_sdks else "as close to the SDK's default as the limits allow"
    return Recommendation(
        context=context,
        setting=setting,
        derived={},
        prediction={},
        demand=demand,
        basis=Basis.DEFAULT,
        bottleneck="unknown",
        explanation=f"Nothing is known about this place yet, so this is {origin}.",
        observation_count=0,
        newest_observation_at=None,
        issued_at=now,
        expires_at=expires_at,
    )


def _standing(previous: Recommendation[Any] | None, context: Context, demand: Demand) -> Any:
    """The setting of the previous advice, if that answers the same question and is not the SDK's default."""
    if previous is None or previous.basis is Basis.DEFAULT:
        return None
    return previous.setting if (previous.context, previous.demand) == (context, demand) else None


def _basis(fit: Fit, context: Context, setting: Any) -> Basis:
    if fit.observation_count == 0:
        return Basis.PRIOR
    if fit.is_from_reports:
        return Basis.REPORTED
    values = {name: float(value) for name, value in setting_values(setting).items()}
    current = [c for c in fit.cells if evidence.is_current(c, fit) and evidence.is_about(c, context)]
    measured = any(_is_near(cell.setting, values) for cell in current)
    return Basis.MEASURED if measured else Basis.MODEL


def _is_near(measured: Any, advised: Any) -> bool:
    """Whether the settings agree within a tenth in each knob: closer than measurements can tell apart."""
    pairs = [(measured[name], value) for name, value in advised.items()]
    return all(abs(a - b) <= 0.1 * max(abs(a), abs(b)) for a, b in pairs)
