"""Thinks in the caller's process: for virtual time, where nothing real can be disturbed."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from penstock.models.model import Fit, PerformanceModel
from penstock.optimizer.deliberation import Case, Conclusion, deliberate
from penstock.vocabulary import Context, Demand, Place, ProbePlan, Reason, Tariff


class InlineThinker:
    """`penstock.daemon.cycle.thinker.Thinker`, with neither a process nor anything that it holds."""

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        """Answer at once."""
        return deliberate(model, case)

    def rest(self) -> None:
        """Hold nothing."""


class DiceThinker:
    """Proposes whatever is legal, so that every clean-up is met: from one object of a probe to hundreds."""

    def __init__(self) -> None:
        self._fits: dict[Place, Fit] = {}
        self._dice = random.Random(5)

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        """No fit is made: what is learned meanwhile is not what it is for."""
        if case.place not in self._fits:
            self._fits[case.place] = model.fit(case.place, (), prior=None, seed=1)
        fit, context = self._fits[case.place], case.next_context
        plan = None if context is None else self.plan(model, fit, context, case.tariff)
        return Conclusion(fit=fit, plan=plan)

    def plan(
        self, model: PerformanceModel[Any], fit: Fit, context: Context, tariff: Tariff
    ) -> ProbePlan[Any]:
        """The next probe."""
        setting = self._dice.choice(list(model.candidates(fit, context, Demand(thread_count_max=256))))
        (cost_max,) = model.probe_costs(fit, context, [setting], tariff)
        cost_max = dataclasses.replace(cost_max, duration_seconds=10.0)
        return ProbePlan(context=context, setting=setting, reason=Reason.EXPLORE, cost_max=cost_max)

    def rest(self) -> None:
        """Nothing runs."""
