"""Knows the question that the daemon puts to the optimizer, and its answer: history in, fit and proposal out.

Everything slow happens inside `deliberate`. The daemon calls it in a short-lived process, never while a probe is in
flight, so that the daemon itself never imports scikit-optimize.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, runtime_checkable

from penstock.models.model import Fit, PerformanceModel, handed_on
from penstock.optimizer import evidence, reports
from penstock.optimizer.proposal import Quest, propose, unkept_memory_bytes
from penstock.vocabulary import (
    FREE,
    Context,
    Cost,
    Demand,
    Observation,
    Place,
    ProbePlan,
    SettingT,
    Tariff,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Generic[SettingT]):
    """Everything that the answer depends on: the same case always has the same answer.

    `observations` are those of the place, of any size. `next_context` is the context that is due for a probe, or None
    to fit only; `cost_max` is the most that this probe may cost. `prior` is the fit of a neighbour; only what the
    neighbour learned by itself is used. `fit` is the fit of an earlier case with exactly these observations, if there
    is one, which saves fitting again. `avoided` are settings that could not be measured lately; they are not tried.
    """

    place: Place
    observations: tuple[Observation[SettingT], ...]
    seed: int
    prior: Fit | None = None
    next_context: Context | None = None
    cost_max: Cost = field(default_factory=Cost)
    demand: Demand = field(default_factory=Demand)
    fit: Fit | None = None
    avoided: tuple[SettingT, ...] = ()
    tariff: Tariff = FREE  # the prices for a probe of `next_context`
    is_first: bool = False  # the first probe of `next_context` since the daemon began, or since one failed
    asks_again: bool = False  # a client is measured, which waits long after a refusal; a probe hardly waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion(Generic[SettingT]):
    """The fit after all observations, and what to try next (None if nothing was asked, or nothing is affordable).

    `memory_bytes_min` is the least memory that any setting needs, if the demand allows less; then nothing is tried.
    `believed` are the reports that may replace probes, because they agree with measurements or there are none; None
    if the fit was given, so that no reports were examined.
    """

    fit: Fit
    plan: ProbePlan[SettingT] | None
    believed: tuple[reports.Believed, ...] | None = None
    disbelieved_count: int = 0
    memory_bytes_min: int | None = None


KNOWN_COUNT = 16  # observations; from here on a place needs no neighbour, which would cost a second fit


def deliberate(model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
    """Fit the model to the history and propose the next probe.

    How many connections a probe dares depends on own measurements alone, here and in the neighbouring place: a report
    of a thousand connections does not prove that they are harmless.
    """
    history = tuple(sorted(case.observations, key=lambda o: o.started_at))
    probes = reports.own(history)
    if len(history) >= KNOWN_COUNT:
        case = replace(case, prior=None)
    conclusion = Conclusion(fit=case.fit, plan=None) if case.fit else _learn(model, case, history)
    if case.next_context is None:
        return conclusion
    quest = Quest(
        model=model,
        fit=conclusion.fit,
        history=probes,
        context=case.next_context,
        demand=case.demand,
        cost_max=case.cost_max,
        seed=case.seed,
        has_prior=_bears(case),
        avoided=case.avoided,
        tariff=case.tariff,
        is_first=case.is_first,
        asks_again=case.asks_again,
    )
    plan = propose(quest)
    return replace(
        conclusion, plan=plan, memory_bytes_min=None if plan is not None else unkept_memory_bytes(quest)
    )


def _bears(case: Case[Any]) -> bool:
    """Whether a neighbour's own measurements of this operation show what connections can be dared here."""
    prior = case.prior
    if prior is None or prior.is_from_reports:
        return False
    return prior.place.operation == case.place.operation


@runtime_checkable
class KnowsLateRefusals(Protocol):
    """A model of an operation whose long transfers may be refused midway, which no probe sees."""

    def refused_late(
        self, probes: Sequence[Observation[Any]], reports: Sequence[Observation[Any]]
    ) -> Sequence[Observation[Any]]:
        """The reports that show such late refusals, and are evidence of nothing else."""
        ...

    def aware_of(self, fit: Fit, probes: Sequence[Observation[Any]], late: Sequence[Observation[Any]]) -> Fit:
        """The fit, completed with what these reports show."""
        ...


def _learn(
    model: PerformanceModel[Any], case: Case[Any], history: tuple[Observation[Any], ...]
) -> Conclusion[Any]:
    """Learn from own measurements and reports; reports of late refusals are treated separately."""
    probes, reported = reports.own(history), reports.reported(history)
    if not isinstance(model, KnowsLateRefusals):
        return _learn_together(model, case, probes, reported)
    late = model.refused_late(probes, reported)
    apart = {id(report) for report in late}
    found = _learn_together(model, case, probes, tuple(o for o in reported if id(o) not in apart))
    return replace(found, fit=model.aware_of(found.fit, probes, late)) if late else found


def _learn_together(
    model: PerformanceModel[Any],
    case: Case[Any],
    probes: tuple[Observation[Any], ...],
    reported: tuple[Observation[Any], ...],
) -> Conclusion[Any]:
    """Fit own measurements, and then fit again with the reports that are believed beside them."""
    fit = _fit(model, case, probes, measured=probes)
    alone = _alone(model, case, fit, probes)
    if not reported:
        return Conclusion(fit=_handing_on(fit, alone), plan=None, believed=())
    hearing = reports.hear(model, fit, probes, reported)
    if not hearing.probes and hearing.learned_from:
        return _from_reports(model, case, fit, hearing, were_measured=bool(probes))
    if hearing.learned_from:
        fit = _fit(model, case, (*hearing.probes, *hearing.learned_from), measured=probes)
    return Conclusion(
        fit=_handing_on(fit, alone),
        plan=None,
        believed=tuple(
            reports.Believed(context=o.context, started_at=o.started_at) for o in hearing.believed
        ),
        disbelieved_count=hearing.disbelieved_count,
    )


def _from_reports(
    model: PerformanceModel[Any],
    case: Case[Any],
    before: Fit,
    hearing: reports.Hearing,
    *,
    were_measured: bool,
) -> Conclusion[Any]:
    """Learn from reports alone; `before` is the fit without them.

    If they overrule old measurements, the fit to these is their prior, and the reports replace no probes, because a
    probe would tell more.
    """
    learned_from = hearing.learned_from
    case = replace(case, prior=before) if were_measured else case
    fit = _fit(
        model,
        case,
        learned_from,
        measured=learned_from,
        corroborated=reports.corroborated(model, learned_from),
    )
    alone = fit if were_measured else _alone(model, case, fit, learned_from)
    believed = () if were_measured else hearing.believed
    return Conclusion(
        fit=replace(_handing_on(fit, alone), is_from_reports=True, unreported=replace(before, alone=None)),
        plan=None,
        believed=tuple(reports.Believed(context=o.context, started_at=o.started_at) for o in believed),
        disbelieved_count=hearing.disbelieved_count,
    )


def _fit(
    model: PerformanceModel[Any],
    case: Case[Any],
    history: tuple[Observation[Any], ...],
    *,
    measured: tuple[Observation[Any], ...],
    corroborated: tuple[Observation[Any], ...] = (),
) -> Fit:
    """The fit with cells of the `measured` observations only: advice stays near cells, which reports must not move."""
    prior = handed_on(case.prior) if case.prior else None
    learned = model.fit(case.place, history, prior=prior, seed=case.seed)
    told = prior.cells if prior and prior.place == case.place else ()
    return evidence.attach(learned, model, measured, corroborated, told)


def _alone(
    model: PerformanceModel[Any], case: Case[Any], fit: Fit, history: tuple[Observation[Any], ...]
) -> Fit:
    """The fit to the same history without the neighbour; `fit` itself if there was no neighbour or no history."""
    if case.prior is None or not history:
        return fit
    return model.fit(case.place, history, prior=None, seed=case.seed)


def _handing_on(fit: Fit, alone: Fit) -> Fit:
    return fit if alone is fit else replace(fit, alone=alone)
