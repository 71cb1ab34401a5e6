"""Knows which context is kept up to date by which probe, and how much money and memory that may take."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.daemon.spending.budget import ALLOWED, Verdict
from penstock.models.model import Fit
from penstock.operations.sections.section import Section
from penstock.operations.table import OPERATIONS
from penstock.probes.probe import Probe
from penstock.units import format_bytes
from penstock.vocabulary import Context, Cost, Observation, Tariff


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One context that is kept up to date, and its probe."""

    context: Context
    section: Section
    probe: Probe[Any]
    tariff: Callable[[], Tariff]  # as it is known when called
    note_observed: Callable[[Observation[Any]], None] = lambda _observation: None

    @property
    def cost_max(self) -> Cost:
        return self.section.cost_max(self.tariff())

    def memory_verdict(self, memory_bytes_min: int | None) -> Verdict:
        """Whether some setting stays within the memory that a probe may use.

        `memory_bytes_min` is what the smallest one takes where none does, else None.
        """
        most = self.section.memory_bytes_max
        if most is None or memory_bytes_min is None:
            return ALLOWED
        return Verdict(
            f"a probe needs at least {format_bytes(memory_bytes_min)} of memory, but "
            f"probes.{self.context.operation}.memory_bytes_max allows only {format_bytes(most)}: raise it"
        )

    def wanted(self, fit: Fit) -> Cost:
        """The cost to ask the ledger for when nothing could be planned, so that it says what is missing.

        It is the most that a probe may take, but the burst credits of the gentlest probe, and its dollars where the
        former has none.
        """
        (gentlest, *_), most = self._costs(fit, self._ramp[:1]), self.cost_max
        return dataclasses.replace(most, credit_bytes=gentlest.credit_bytes, usd=most.usd or gentlest.usd)

    def least(self, fit: Fit) -> Cost:
        """A lower bound on the cost of every step of the safe start; no duration, because a step may be cut short."""
        costs = self._costs(fit, self._ramp)
        least = {f.name: min(getattr(cost, f.name) for cost in costs) for f in dataclasses.fields(Cost)}
        return Cost(**{**least, "duration_seconds": 0.0})

    @property
    def _ramp(self) -> Sequence[Any]:  # settings of the operation's own type
        return OPERATIONS[self.context.operation].model.ramp(self.context)

    def _costs(self, fit: Fit, steps: Sequence[Any]) -> Sequence[Cost]:
        model, context = OPERATIONS[self.context.operation].model, self.context
        return model.probe_costs(fit, context, [model.legal(context, step) for step in steps], self.tariff())
