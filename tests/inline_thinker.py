"""Thinks in the caller's process: for virtual time, where nothing real can be disturbed."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from penstock.models.model import Fit, PerformanceModel
from penstock.optimizer.deliberation import Case, Conclusion, deliberate
from penstock.vocabulary import Demand, Place, ProbePlan, Reason


class InlineThinker:
    """`penstock.daemon.thinker.Thinker`, with neither a process nor anything that it holds."""

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
        fit = self._fits.setdefault(case.place, model.fit(case.place, (), prior=None, seed=1))
        context, plan = case.next_context, None
        if context is not None:
            setting = self._dice.choice(list(model.candidates(fit, context, Demand(thread_count_max=256))))
            cost_max = dataclasses.replace(
                model.probe_costs(fit, context, [setting], case.tariff)[0], duration_seconds=10.0
            )
            plan = ProbePlan(context=context, setting=setting, reason=Reason.EXPLORE, cost_max=cost_max)
        return Conclusion(fit=fit, plan=plan)

    def rest(self) -> None:
        """Nothing runs."""
