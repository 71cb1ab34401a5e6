"""Thinks in the caller's process: for virtual time, where nothing real can be disturbed."""

from __future__ import annotations

from typing import Any

from penstock.models.model import PerformanceModel
from penstock.optimizer.deliberation import Case, Conclusion, deliberate


class InlineThinker:
    """`penstock.daemon.thinker.Thinker`, with neither a process nor anything that it holds."""

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        """Answer at once."""
        return deliberate(model, case)

    def rest(self) -> None:
        """Hold nothing."""
