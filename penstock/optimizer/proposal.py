"""Knows how to choose the next probe: the one that is expected to improve the advice most for its price.

A cold place is entered gently: the model's ramp first, and never more than four times the connections that were
tried before. From then on each affordable setting is judged by its knowledge gradient: if it were measured, how much
better would the advice be, on average over what the measurement may turn out to be? With posterior draws F (draws,
settings) of the logarithm of the value and noise sigma,

    gain(x) = mean_j max_z sum_k w_jk(x) exp F_kz  -  max_z mean_k exp F_kz,
    w_jk(x) ~ exp(-(F_jx + e_j - F_kx)^2 / (2 sigma^2)),

and the gain is divided by the price of the probe as a share of what a probe may cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.models.model import Fit, PerformanceModel
from penstock.optimizer import objective, surrogate
from penstock.vocabulary import Context, Cost, Demand, Observation, ProbePlan, Reason

Array = NDArray[np.float64]

_STEP_RATIO_MAX = 4.0  # connections of the next probe over the most that were tried
_PAYS = 1.15  # a step of the ramp must bring so much, or the ramp is over
_SHORTLIST_COUNT = 48
_PRICED_COUNT = 12  # of the shortlist, the most telling: only these are priced
_VERIFY_EVERY = 6
_VERIFY_AFTER = 12
_VERIFY_PAUSE = 3
_ALERT = 3.0  # of the change detector: look again at the incumbent
_NOISE_MIN = 0.04
_REPEAT_WINDOW = 10  # probes: what was measured among them tells less when it is measured again


@runtime_checkable
class DrawsPosterior(Protocol):
    """A model that can say what it believes about all settings together, which the knowledge gradient needs."""

    def draws(self, fit: Fit, context: Context, settings: Sequence[Any], demand: Demand) -> Array:
        """Logarithm of the value, (draws, settings)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """What the choice is made from: settings, what is believed of them, and where the advice stands."""

    settings: list[Any]
    log_draws: Array
    connections: Array
    incumbent: int


def propose(
    model: PerformanceModel[Any],
    fit: Fit,
    history: Sequence[Observation[Any]],
    *,
    context: Context,
    demand: Demand,
    cost_max: Cost,
    seed: int,
    has_prior: bool = False,
) -> ProbePlan[Any] | None:
    """The next probe of this context, or None when nothing is affordable. `history` is oldest first."""
    own = [o for o in history if _is_about(o, context)]
    step = None if has_prior and not history else _ramp_step(model, history, own, context)
    if step is not None:
        plan = _plan(model, fit, context, step, Reason.RAMP, cost_max, seed)
        if plan is not None:
            return plan
    field = _field(model, fit, history, context, demand, seed)
    if own and _should_verify(fit, history, field, context):
        plan = _plan(model, fit, context, field.settings[field.incumbent], Reason.VERIFY, cost_max, seed)
        if plan is not None:
            return plan
    return _most_telling(model, fit, field, history, context, cost_max, seed)


def _ramp_step(
    model: PerformanceModel[Any],
    history: Sequence[Observation[Any]],
    own: Sequence[Observation[Any]],
    context: Context,
) -> Any:  # a setting, or None when the ramp is over
    ramp = [model.legal(context, setting) for setting in model.ramp(context)]
    if not history:
        return ramp[0]
    if not own or isinstance(model, DrawsPosterior):
        return None
    measured = [(o.setting, model.measured_value(o), o.throttled_count + o.failed_count) for o in own]
    reached = [[(v, t) for s, v, t in measured if s == step] for step in ramp]
    done = next((i for i, values in enumerate(reached) if not values), len(ramp))
    if done in {0, len(ramp)}:
        return None if done else ramp[0]
    if any(trouble for _, trouble in reached[done - 1]):
        return None
    best = [max(value for value, _ in values) for values in reached[:done]]
    return ramp[done] if done < 2 or best[-1] >= _PAYS * best[-2] else None


def _field(
    model: PerformanceModel[Any],
    fit: Fit,
    history: Sequence[Observation[Any]],
    context: Context,
    demand: Demand,
    seed: int,
) -> _Field:
    settings = list(model.candidates(fit, context, demand))
    appraisal = model.appraise(fit, context, settings, demand)
    if isinstance(model, DrawsPosterior) and not fit.is_off_model:
        log_draws = model.draws(fit, context, settings, demand)
    else:
        log_draws = surrogate.draws(model, fit, history, settings, context=context, demand=demand, seed=seed)
    incumbent = objective.choose(appraisal, demand.objective)
    return _Field(
        settings=settings, log_draws=log_draws, connections=appraisal.connection_count, incumbent=incumbent
    )


def _should_verify(fit: Fit, history: Sequence[Observation[Any]], field: _Field, context: Context) -> bool:
    """When change is in the air, and now and then; never twice within a few probes."""
    incumbent = field.settings[field.incumbent]
    recent = [o.setting for o in history[-_VERIFY_PAUSE:] if _is_about(o, context)]
    if incumbent in recent:
        return False
    is_alert = float(fit.state.get("cusum", 0.0)) >= _ALERT
    return is_alert or (len(history) >= _VERIFY_AFTER and len(history) % _VERIFY_EVERY == 0)


def _most_telling(
    model: PerformanceModel[Any],
    fit: Fit,
    field: _Field,
    history: Sequence[Observation[Any]],
    context: Context,
    cost_max: Cost,
    seed: int,
) -> ProbePlan[Any] | None:
    reachable = _reachable(model, fit, field, history, context)
    sigma = max(_NOISE_MIN, fit.residual_fraction_p50 / 0.67)
    shortlist = _shortlist(model, field, reachable, seed)
    gains = knowledge_gradient(field.log_draws, shortlist, sigma, seed)
    priced = []
    for position in np.argsort(-gains):
        index, gain = shortlist[position], gains[position]
        cost = model.probe_cost(fit, context, field.settings[index])
        if _is_affordable(cost, cost_max):
            repeats = sum(o.setting == field.settings[index] for o in history[-_REPEAT_WINDOW:])
            priced.append((gain / _share(cost, cost_max) ** 0.5 / (1 + repeats), index))
        if len(priced) >= _PRICED_COUNT:
            break
    if not priced:
        return None
    _, index = max(priced)
    setting = field.settings[index]
    return _plan(model, fit, context, setting, _reason(model, field, index), cost_max, seed)


def _reachable(
    model: PerformanceModel[Any],
    fit: Fit,
    field: _Field,
    history: Sequence[Observation[Any]],
    context: Context,
) -> NDArray[np.bool_]:
    """No more than four times the connections that went well before."""
    quiet = [o.setting for o in history if o.throttled_count + o.failed_count == 0]
    tried = list(quiet or [model.ramp(context)[0]])
    most = float(model.appraise(fit, context, tried, Demand()).connection_count.max())
    threads = max(most, float(field.connections[field.incumbent]) if not history else 0.0)
    reachable = field.connections <= _STEP_RATIO_MAX * threads
    return reachable if reachable.any() else field.connections <= field.connections.min()


def _shortlist(
    model: PerformanceModel[Any], field: _Field, reachable: NDArray[np.bool_], seed: int
) -> list[int]:
    """The incumbent, promising settings, and some from all over."""
    rng = np.random.default_rng(seed)
    allowed = np.flatnonzero(reachable)
    optimism = field.log_draws.mean(axis=0) + 1.5 * field.log_draws.std(axis=0)
    ranked = allowed[np.argsort(-optimism[allowed])]
    half = _SHORTLIST_COUNT // 2
    chosen = [int(i) for i in ranked[: 4 * half : 4]]
    spread = [int(i) for i in rng.permutation(allowed)[:half]]
    mine = [field.incumbent] if reachable[field.incumbent] else []
    return list(dict.fromkeys([*mine, *chosen, *spread]))


def knowledge_gradient(log_draws: Array, shortlist: Sequence[int], sigma: float, seed: int) -> Array:
    """Expected relative improvement of the advice from one measurement of each setting on the list."""
    rng = np.random.default_rng(seed)
    count = len(log_draws)
    values = np.exp(log_draws - log_draws.max())
    before = values.mean(axis=0).max()
    noise = sigma * rng.standard_normal(count)
    gains = np.empty(len(shortlist))
    for position, index in enumerate(shortlist):
        believed = log_draws[:, index]
        away = (believed + noise)[:, None] - believed[None, :]
        weights = np.exp(-0.5 * (away / sigma) ** 2) + 1e-12
        weights /= weights.sum(axis=1, keepdims=True)
        gains[position] = (weights @ values).max(axis=1).mean()
    spread = np.array([log_draws[:, i].std() for i in shortlist])
    return np.maximum(gains / before - 1.0, 0.0) + 1e-3 * spread


def _is_affordable(cost: Cost, cost_max: Cost) -> bool:
    """Every bound holds, but for time: a probe that takes too long ends early, and still measured."""
    return all(
        getattr(cost, f.name) <= getattr(cost_max, f.name)
        for f in fields(Cost)
        if f.name != "duration_seconds"
    )


def _share(cost: Cost, cost_max: Cost) -> float:
    """The price: the mean share of the bounds, and a little that every probe costs."""
    shares = [
        getattr(cost, f.name) / getattr(cost_max, f.name)
        for f in fields(Cost)
        if getattr(cost_max, f.name) > 0
    ]
    return 0.05 + sum(shares) / max(len(shares), 1)


def _plan(
    model: PerformanceModel[Any],
    fit: Fit,
    context: Context,
    setting: Any,
    reason: Reason,
    cost_max: Cost,
    seed: int,
) -> ProbePlan[Any] | None:
    cost = model.probe_cost(fit, context, setting)
    if not _is_affordable(cost, cost_max):
        return None
    bound = Cost(**{f.name: min(getattr(cost, f.name), getattr(cost_max, f.name)) for f in fields(Cost)})
    return ProbePlan(context=context, setting=setting, reason=reason, cost_max=bound, seed=seed)


def _reason(model: PerformanceModel[Any], field: _Field, index: int) -> Reason:
    if index == field.incumbent:
        return Reason.VERIFY
    points = objective.coordinates(
        model.setting_type, [field.settings[index], field.settings[field.incumbent]]
    )
    return Reason.REFINE if np.abs(points[0] - points[1]).max() <= 1.0 else Reason.EXPLORE


def _is_about(observation: Observation[Any], context: Context) -> bool:
    low, high = sorted((max(observation.context.payload_size_bytes, 1), max(context.payload_size_bytes, 1)))
    return high <= 1.5 * low
