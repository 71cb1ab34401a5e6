"""Knows the one case that is put to the optimizer, and its answer: history in, fit and proposal out.

Everything that is slow happens behind `deliberate`. The daemon calls it in a short-lived process of its own, so that
nothing here ever runs while a probe is in flight, and never imports scikit-optimize itself.
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
    """All that the answer depends on: the same case always has the same answer.

    `observations` are those of the place, oldest first, any size. `next_context` is the context that is due for a
    probe, or None to fit only; `cost_max` is what that probe may cost at the most. `prior` is the fit of a neighbour,
    of which only that counts which it hands on. `fit` is the conclusion of an earlier case about exactly these
    observations, when there was one; it saves the work of fitting again. `avoided` are settings that could not be
    measured lately: they are not tried again.
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
    tariff: Tariff = FREE  # what a probe of `next_context` is charged
    is_first: bool = False  # of `next_context` since the daemon began, or since one failed
    asks_again: bool = False  # what is measured is a client, which waits after a refusal; a probe does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion(Generic[SettingT]):
    """The fit after all observations, and what to try next (None when nothing was asked or nothing is affordable).

    `memory_bytes_min` is what every setting holds at least, where the demand allows less: then nothing is tried.
    `believed` are the reports of applications that may stand in for probes, because they agree with what was measured
    or nothing was; None when the fit was given, and nobody was heard.
    """

    fit: Fit
    plan: ProbePlan[SettingT] | None
    believed: tuple[reports.Believed, ...] | None = None
    disbelieved_count: int = 0
    memory_bytes_min: int | None = None


KNOWN_COUNT = 16  # observations: from here on a place needs no neighbour, who would cost a second fit


def deliberate(model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
    """Fit the model to the history and propose the next probe.

    What is dared is judged by own measurements alone, here and at the neighbour: a report of a thousand connections
    is no proof that they are harmless.
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
    """Whether a neighbour bore what would be asked here; what another operation says is no such proof."""
    prior = case.prior
    if prior is None or prior.is_from_reports:
        return False
    return prior.place.operation == case.place.operation


@runtime_checkable
class KnowsLateRefusals(Protocol):
    """A model for which a long transfer may be refused in its course, which no probe sees."""

    def refused_late(
        self, probes: Sequence[Observation[Any]], reports: Sequence[Observation[Any]]
    ) -> Sequence[Observation[Any]]:
        """The reports that tell of that, and of nothing else."""
        ...

    def aware_of(self, fit: Fit, probes: Sequence[Observation[Any]], late: Sequence[Observation[Any]]) -> Fit:
        """The fit that knows it."""
        ...


def _learn(
    model: PerformanceModel[Any], case: Case[Any], history: tuple[Observation[Any], ...]
) -> Conclusion[Any]:
    """From own measurements and reports; those of late refusals are heard apart."""
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
    """The fit to own measurements, and then to those reports as well that are believed beside it."""
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
    """From reports that nothing measured stands beside; `before` is what is known without them.

    Where they contradict what was measured long ago, that is where belief begins, and they stand in for no probe: one
    would tell more.
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
    """The fit, with what counts as measured: advice stays near it, so reports must not say where that is."""
    prior = handed_on(case.prior) if case.prior else None
    learned = model.fit(case.place, history, prior=prior, seed=case.seed)
    told = prior.cells if prior and prior.place == case.place else ()
    return evidence.attach(learned, model, measured, corroborated, told)


def _alone(
    model: PerformanceModel[Any], case: Case[Any], fit: Fit, history: tuple[Observation[Any], ...]
) -> Fit:
    """The fit to the same history without the neighbour; where nothing was seen there is nothing to hand on."""
    if case.prior is None or not history:
        return fit
    return model.fit(case.place, history, prior=None, seed=case.seed)


def _handing_on(fit: Fit, alone: Fit) -> Fit:
    return fit if alone is fit else replace(fit, alone=alone)
