"""Knows how to choose the next probe: the one that is expected to improve the advice most for its price.

An unknown place is probed gently: first the model's ramp, and never more than four times the connections that went
well before. From then on each affordable setting is judged by its knowledge gradient (`gradient`), divided by the
square root of the probe's price as a share of what a probe may cost.

The gradient needs a joint belief about all settings. If the model has none, or if its law does not describe the place,
that of scikit-optimize's Gaussian process is used (`surrogate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.models.model import (
    Appraisal,
    Array,
    Belief,
    Fit,
    HasBelief,
    HasCostAhead,
    PerformanceModel,
    speaks_of_setting,
)
from penstock.optimizer import evidence, objective, surrogate
from penstock.optimizer.gradient import knowledge_gradient
from penstock.vocabulary import (
    FREE,
    Context,
    Cost,
    Demand,
    Objective,
    Observation,
    ProbePlan,
    Reason,
    Regime,
    Tariff,
)

_NEIGHBOUR_RATIO_MAX = 1.25  # connections of a first probe over those advised from a neighbour's fit
_PAYS = 1.15  # the gain that each step of the ramp must bring, or the ramp ends
# Connections of the next probe, over the most that paid off although some requests were refused.
_REFUSED_STEP_RATIO_MAX = 2.0
_CLIMB_COUNT = 24  # the best settings within one step, of which the first affordable one is tried
_PRICED_COUNT = 12  # the settings with the greatest gradients; only these are priced
# After a dozen probes of this payload size, one in three is made near the advice, where changes mostly show: with one
# in six a change was noticed after 8.5 probes (median of 42 uploads that changed), with one in three after 4.
_VERIFY_EVERY = 3
_VERIFY_AFTER = 12
_VERIFY_OCTAVES = 0.5  # in each knob: a measurement this close to the advice verifies it
# One in so many probes since a change repeats the best setting of before, if that did clearly better.
_REVISIT_EVERY = 6
# While a change is suspected, so many of the latest three probes are made near the advice; the others find out what
# changed. Requiring the same setting twice in a row took five of six probes, because it moved a little with each.
_SUSPECT_REPEATS = 2
_SUSPECT_AMONG = 4  # the latest probes, among which what surpasses all expectations is repeated as often
_NOISE_MIN = 0.04  # of the logarithm: a few measurements that agree do not show that noise is smaller
_SURPASSES = 1.15  # times the best expected value: such a surprise is measured again at its own setting
_REPEAT_WINDOW = 10  # probes; measuring again what was measured among them tells less
_PRICE_FLOOR = 0.05  # of what a probe may cost, so that even the cheapest probe has a price


@dataclass(frozen=True, kw_only=True)  # without slots: what is appraised is kept
class Quest:
    """What a proposal is made from. `history` has the probes of the place, oldest first; `fit` has learned from it."""

    model: PerformanceModel[Any]
    fit: Fit
    history: Sequence[Observation[Any]]
    context: Context
    demand: Demand
    cost_max: Cost
    seed: int
    has_prior: bool = False
    avoided: tuple[Any, ...] = ()  # settings that could not be measured lately
    tariff: Tariff = FREE
    is_first: bool = False  # the first probe of this context since the daemon began, or since one failed
    asks_again: bool = False  # a client is measured, which waits long after a refusal; a probe hardly waits

    def costs(self, settings: Sequence[Any]) -> list[Cost]:  # settings of the operation's own type
        """The most that a probe of each setting may cost, including what has to be created first."""
        ahead = Cost()
        if self.is_first and isinstance(self.model, HasCostAhead):
            ahead = self.model.cost_ahead(self.context, self.tariff)
        probing = self.model.probe_costs(self.fit, self.context, settings, self.tariff)
        return [cost + ahead for cost in probing]

    @property
    def own(self) -> list[Observation[Any]]:
        """The observations at this payload size that show how well their settings work."""
        return [
            o
            for o in self.history
            if evidence.is_same_size(o.context, self.context) and speaks_of_setting(self.model, o)
        ]

    @cached_property
    def choice(self) -> tuple[list[Any], Appraisal]:
        """The candidate settings, and their appraisal."""
        settings = list(self.model.candidates(self.fit, self.context, self.demand))
        return settings, self.model.appraise(self.fit, self.context, settings, self.demand)


def propose(quest: Quest) -> ProbePlan[Any] | None:
    """The next probe of this context; None if nothing is affordable, or all settings need too much memory."""
    if unkept_memory_bytes(quest) is not None:
        return None
    plan = _propose(quest)
    if plan is None and quest.demand.regime is Regime.AUTO:
        # If no burst credits may be spent, the sustained regime can still be learned.
        return _propose(replace(quest, demand=replace(quest.demand, regime=Regime.SUSTAINED)))
    return plan


def _propose(quest: Quest) -> ProbePlan[Any] | None:
    step = _ramp_step(quest)
    if step is not None and (plan := _plan(quest, step, Reason.RAMP)) is not None:
        return plan
    field = _field(quest)
    incumbent = field.settings[field.incumbent]
    doubted = _rival(quest) or (incumbent if _should_verify(quest, incumbent) else _revisited(quest))
    if doubted is not None and (plan := _plan(quest, doubted, Reason.VERIFY)) is not None:
        return plan
    reachable = _reachable(quest, field)
    if not reachable[field.incumbent] and (plan := _climb(quest, field, reachable)) is not None:
        return plan
    return _most_telling(quest, field, reachable)


def unkept_memory_bytes(quest: Quest) -> int | None:
    """The memory of the lightest setting, if it is more than the demand allows; None if the limit can be kept."""
    most = quest.demand.memory_bytes_max
    if most is None:
        return None
    held = float(quest.choice[1].memory_bytes.min())
    return ceil(held) if held > most else None


def _climb(quest: Quest, field: _Field, reachable: NDArray[np.bool_]) -> ProbePlan[Any] | None:
    """The best affordable setting within one step that is not measured yet, while the advice is farther away."""
    met = {o.setting for o in quest.own}
    is_open = reachable & np.array([setting not in met for setting in field.settings])
    expected = np.where(is_open, field.belief.mean, -np.inf)
    for index in np.argsort(-expected)[:_CLIMB_COUNT]:
        if is_open[index] and (plan := _plan(quest, field.settings[index], Reason.RAMP)) is not None:
            return plan
    return None


def _ramp_step(quest: Quest) -> Any:  # a setting, or None when the ramp is over
    model, own = quest.model, quest.own
    if not quest.history:
        return None if quest.has_prior else _gentle(quest)[0]
    if not own or isinstance(model, HasBelief):
        return None
    ramp = _gentle(quest)
    reached = [[o for o in own if o.setting == step] for step in ramp]
    done = next((i for i, measured in enumerate(reached) if not measured), len(ramp))
    if done in {0, len(ramp)}:
        return None if done else ramp[0]
    if not all(o.went_well for o in reached[done - 1]):
        return None
    best = [max(model.measured_value(o) for o in measured) for measured in reached[:done]]
    return ramp[done] if done < 2 or best[-1] >= _PAYS * best[-2] else None


def _gentle(quest: Quest) -> list[Any]:
    """The steps of the ramp that the demand's limits allow; if none, the gentlest setting that they do allow."""
    model, fit, context, demand = quest.model, quest.fit, quest.context, quest.demand
    ramp = [model.legal(context, setting) for setting in model.ramp(context)]
    appraisal = model.appraise(fit, context, ramp, demand)
    is_allowed = objective.is_within(ramp, appraisal, demand)
    allowed = [step for step, is_one in zip(ramp, is_allowed, strict=True) if is_one]
    if allowed:
        return allowed
    settings, appraisal = quest.choice
    return [settings[int(np.lexsort((appraisal.memory_bytes, appraisal.connection_count))[0])]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """The settings to choose from, what is believed of them, and which of them would be advised."""

    settings: list[Any]
    belief: Belief
    connections: Array
    price: Array  # the logarithm of what each needs, because the advice weighs it too
    refused_fraction: Array
    incumbent: int  # the index of the setting that would be advised


def _field(quest: Quest) -> _Field:
    model, fit, context, demand = quest.model, quest.fit, quest.context, quest.demand
    settings, appraisal = quest.choice
    if isinstance(model, HasBelief) and not fit.is_off_model:
        belief = model.belief(fit, context, settings, demand)
    else:
        belief = surrogate.belief(
            model, fit, quest.own, settings, context=context, demand=demand, seed=quest.seed
        )
    incumbent = objective.choose(appraisal, demand.objective)
    return _Field(
        settings=settings,
        belief=belief,
        connections=appraisal.connection_count,
        price=objective.price(appraisal, Objective.THROUGHPUT),
        refused_fraction=appraisal.refused_fraction,
        incumbent=incumbent,
    )


def _should_verify(quest: Quest, incumbent: Any) -> bool:
    """Whether to measure the incumbent: after a surprise elsewhere, on suspicion, or if no recent probe was near it.

    Also first of all, where a neighbour's measurements advise it: what they say is tried where it matters.
    """
    own, suspicion = [o.setting for o in quest.own], quest.fit.suspicion
    if not own:
        return quest.has_prior and not quest.history
    points = objective.coordinates(quest.model.setting_type, [incumbent, *own[-_VERIFY_EVERY:]])
    is_near = np.abs(points[1:] - points[0]).max(axis=1) <= _VERIFY_OCTAVES
    if suspicion.is_surprised and not is_near[-1]:
        return True
    if suspicion.is_raised and is_near.sum() < _SUSPECT_REPEATS:
        return True
    return len(own) >= _VERIFY_AFTER and not is_near.any()


def _rival(quest: Quest) -> Any:  # a setting, or None
    """The setting to repeat after a measurement that surpasses all expectations.

    It is the one that did best before the place changed, if any, and otherwise the surprising one. A repetition shows
    whether a ceiling was lifted; settings below that ceiling would look as they always did.
    """
    suspicion, latest = quest.fit.suspicion, quest.own[-_SUSPECT_AMONG:]
    if not latest or latest[-1] is not quest.history[-1] or not latest[-1].went_well:
        return None
    if not suspicion.is_surprised or suspicion.value_ratio <= 1.0:
        return None
    settings, appraisal = quest.choice
    rival, best = latest[-1].setting, float(appraisal.value.max())
    if quest.model.measured_value(latest[-1]) <= _SURPASSES * best:
        return None
    for setting in [*_best_before(quest), rival]:
        if setting in settings and sum(o.setting == setting for o in latest) < _SUSPECT_REPEATS:
            return setting
    return None


def _revisited(quest: Quest) -> Any:  # a setting, or None
    """Now and then, the setting that did best before the place changed: only there a lifted ceiling shows."""
    changed_at = quest.fit.changed_at
    since = [o for o in quest.own if changed_at is not None and o.started_at >= changed_at]
    if len(since) < _REVISIT_EVERY:
        return None
    lately = [o.setting for o in since[-_REVISIT_EVERY:]]
    return next((setting for setting in _best_before(quest) if setting not in lately), None)


def _best_before(quest: Quest) -> list[Any]:
    """The setting that did best in an earlier state, if clearly better than anything now; the state may return.

    A list of at most one setting.
    """
    settings, appraisal = quest.choice
    least = _SURPASSES * float(appraisal.value.max())
    before = [c for c in quest.fit.cells if not evidence.is_current(c, quest.fit) and not c.had_trouble]
    about = [c for c in before if evidence.is_about(c, quest.context) and c.value_median > least]
    if not about:
        return []
    was = quest.model.setting_type(**max(about, key=lambda c: c.value_median).setting)
    # From the candidates, because the knobs of a cell are floats.
    return [setting for setting in settings if setting == was]


_REFUSAL_PRICE = 20.0  # on a probe's price, times the share of refused requests: applications suffer too


def _most_telling(quest: Quest, field: _Field, reachable: NDArray[np.bool_]) -> ProbePlan[Any] | None:
    sigma = max(_NOISE_MIN, quest.fit.residual_fraction_p50 / 0.67)
    worth = objective.probing_worth(quest.demand.objective) * field.price
    gains = knowledge_gradient(replace(field.belief, draws=field.belief.draws - worth), sigma)
    allowed = np.flatnonzero(reachable)
    priced: list[tuple[float, int]] = []
    ordered = allowed[np.argsort(-gains[allowed])]
    settings = [field.settings[index] for index in ordered]
    for index, setting, cost in zip(ordered, settings, quest.costs(settings), strict=True):
        if _is_affordable(quest, setting, cost):
            repeats = sum(o.setting == setting for o in quest.history[-_REPEAT_WINDOW:])
            price = _share(cost, quest.cost_max) ** 0.5 * (1 + repeats)
            price *= 1.0 + _REFUSAL_PRICE * float(field.refused_fraction[index])
            priced.append((float(gains[index]) / price, int(index)))
        if len(priced) >= _PRICED_COUNT:
            break
    if not priced:
        return None
    _, index = max(priced)
    return _plan(quest, field.settings[index], _reason(quest.model, field, index))


def _reachable(quest: Quest, field: _Field) -> NDArray[np.bool_]:
    """Which settings take at most four times the connections that went well before: shape (settings,).

    For clients, at most twice those that paid off although requests were refused is allowed as well.
    """
    quiet = [o for o in quest.history if o.went_well]
    bound = evidence.STEP_RATIO_MAX * _most_connections(quest, quiet)
    bound = bound or evidence.STEP_RATIO_MAX * _connections(quest, quest.context, _gentle(quest)[:1])
    bound = max(bound, _REFUSED_STEP_RATIO_MAX * _most_connections(quest, _paid_though_refused(quest)))
    # What a neighbour's measurements would advise is dared, and a little more.
    if not quest.history and quest.has_prior:
        bound = max(bound, _NEIGHBOUR_RATIO_MAX * float(field.connections[field.incumbent]))
    reachable = field.connections <= bound
    return reachable if reachable.any() else field.connections <= field.connections.min()


def _most_connections(quest: Quest, tried: Sequence[Observation[Any]]) -> float:
    settings: dict[Context, list[Any]] = {}
    for observation in tried:
        settings.setdefault(observation.context, []).append(observation.setting)
    return max((_connections(quest, context, some) for context, some in settings.items()), default=0.0)


def _connections(quest: Quest, context: Context, settings: list[Any]) -> float:
    """The most connections that any of the settings takes."""
    appraisal = quest.model.appraise(quest.fit, context, settings, quest.demand)
    return float(appraisal.connection_count.max())


def _paid_though_refused(quest: Quest) -> list[Observation[Any]]:
    """Measurements of a client with refusals, whose thread count still reached clearly more than half as many threads.

    A client that waits long after a refusal loses most with the fewest threads that meet one. A probe hardly waits.
    """
    own = quest.own if quest.asks_again else []
    threads = objective.thread_counts([o.setting for o in own])
    values = np.array([quest.model.measured_value(o) for o in own])

    def has_paid(count: float) -> bool:
        fewer = threads[threads <= count / 2].max(initial=0.0)
        reached, before = (np.median(values[threads == n]) if n else np.inf for n in (count, fewer))
        return bool(reached > _PAYS * before)  # False where both reached nothing

    paid = {float(count) for count in np.unique(threads) if has_paid(count)}
    return [o for o, count in zip(own, threads, strict=True) if not o.went_well and float(count) in paid]


def _is_affordable(quest: Quest, setting: Any, cost: Cost) -> bool:
    """Whether all bounds hold. The time limit may end a probe, but not before it has measured anything."""
    names = [f.name for f in fields(Cost) if f.name != "duration_seconds"]
    return (
        all(getattr(cost, name) <= getattr(quest.cost_max, name) for name in names)
        and not _is_too_much(quest, setting)
        and quest.model.probe_seconds_min(quest.fit, quest.context, setting)
        <= quest.cost_max.duration_seconds
    )


def _is_too_much(quest: Quest, setting: Any) -> bool:
    """Whether the setting could not be measured lately or, given a law, exceeds half of such a setting in all knobs."""
    if setting in quest.avoided or not quest.avoided or not isinstance(quest.model, HasBelief):
        return setting in quest.avoided
    points = objective.coordinates(quest.model.setting_type, [setting, *quest.avoided])
    return bool((points[0] > points[1:] - 1.0).all(axis=1).any())


def _share(cost: Cost, cost_max: Cost) -> float:
    """The price of a probe: the mean share of the bounds that it uses up, plus a small constant."""
    pairs = [(float(getattr(cost, f.name)), float(getattr(cost_max, f.name))) for f in fields(Cost)]
    shares = [spent / bound for spent, bound in pairs if bound > 0]
    return _PRICE_FLOOR + sum(shares) / max(len(shares), 1)


def _plan(quest: Quest, setting: Any, reason: Reason) -> ProbePlan[Any] | None:
    (cost,) = quest.costs([setting])
    if not _is_affordable(quest, setting, cost):
        return None
    bound = Cost(
        **{f.name: min(getattr(cost, f.name), getattr(quest.cost_max, f.name)) for f in fields(Cost)}
    )
    return ProbePlan(
        context=quest.context,
        setting=setting,
        reason=reason,
        cost_max=bound,
        seed=quest.seed,
        tariff=quest.tariff,
    )


def _reason(model: PerformanceModel[Any], field: _Field, index: int) -> Reason:
    if index == field.incumbent:
        return Reason.VERIFY
    points = objective.coordinates(
        model.setting_type, [field.settings[index], field.settings[field.incumbent]]
    )
    return Reason.REFINE if np.abs(points[0] - points[1]).max() <= 1.0 else Reason.EXPLORE
