"""Knows what probes may cost in any 24 hours, and refuses before an act what would go beyond it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.vocabulary import Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """What one operation cost in one hour."""

    hour_at: datetime  # when the hour began
    operation: str
    cost: Cost
