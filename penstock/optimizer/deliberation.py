"""Knows the one question that is put to the optimizer, and its answer: history in, fit and proposal out.

Everything that is slow happens behind `deliberate`. The daemon calls it in a short-lived process of its own, so that
nothing here ever runs while a probe is in flight, and never imports scikit-optimize itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

from penstock.models.model import Fit, PerformanceModel
from penstock.optimizer import evidence
from penstock.optimizer.proposal import Quest, propose
from penstock.vocabulary import Context, Cost, Demand, Observation, Place, ProbePlan, SettingT


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[SettingT]):
    """All that the answer depends on: the same question always has the same answer.

    `observations` are those of the place, oldest first, any size. `next_context` is the context that is due for a
    probe, or None to fit only; `cost_max` is what that probe may cost at the most. `fit` is the conclusion of an
    earlier question about exactly these observations, when there was one; it saves the work of fitting again.
    `avoided` are settings that could not be measured lately: they are not tried again.
    """

    place: Place
    observations: tuple[Observation[SettingT], ...]
    prior: Fit | None
    next_context: Context | None
    cost_max: Cost
    demand: Demand
    seed: int
    fit: Fit | None = None
    avoided: tuple[SettingT, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion(Generic[SettingT]):
    """The fit after all observations, and what to try next (None when nothing was asked or nothing is affordable)."""

    fit: Fit
    plan: ProbePlan[SettingT] | None


def deliberate(model: PerformanceModel[Any], question: Question[Any]) -> Conclusion[Any]:
    """Fit the model to the history and propose the next probe."""
    history = tuple(sorted(question.observations, key=lambda o: o.started_at))
    fit = question.fit or _fit(model, question, history)
    if question.next_context is None:
        return Conclusion(fit=fit, plan=None)
    quest = Quest(
        model=model,
        fit=fit,
        history=history,
        context=question.next_context,
        demand=question.demand,
        cost_max=question.cost_max,
        seed=question.seed,
        has_prior=question.prior is not None,
        avoided=question.avoided,
    )
    return Conclusion(fit=fit, plan=propose(quest))


def _fit(model: PerformanceModel[Any], question: Question[Any], history: tuple[Observation[Any], ...]) -> Fit:
    learned = model.fit(question.place, history, prior=question.prior, seed=question.seed)
    return evidence.attach(learned, model, history)
