"""Knows what a benchmark concludes: figures, their targets, and the statistics they are computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number and its target."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    unit: str = ""

    @property
    def verdict(self) -> str:
        """One of "pass", "MISS" and "not measured"."""
        if self.value is None or not np.isfinite(self.value):
            return "not measured"
        above, below = (
            self.low is None or self.value >= self.low,
            self.high is None or self.value <= self.high,
        )
        return "pass" if above and below else "MISS"

    def line(self) -> str:
        """A line of the table."""
        value = "-" if self.value is None else f"{self.value:.2f}{self.unit}"
        bounds = [
            f">= {self.low:g}" if self.low is not None else "",
            f"<= {self.high:g}" if self.high is not None else "",
        ]
        return f"{self.name:68s} {value:>9s}  {' and '.join(b for b in bounds if b):18s} {self.verdict}"

    def document(self) -> dict[str, Any]:
        """The figure with its verdict."""
        return {**asdict(self), "verdict": self.verdict}


def mean(values: Sequence[float]) -> float | None:
    """The mean; None without values."""
    return float(np.mean(values)) if values else None


def quantile(values: Sequence[float], q: float) -> float | None:
    """The quantile; None without values."""
    return float(np.quantile(values, q)) if values else None


def median(values: Sequence[float]) -> float | None:
    """The median; None without values."""
    return quantile(values, 0.5)


_STATISTICS: Mapping[str, Callable[[Sequence[float]], float | None]] = {
    "median": median,
    "mean": mean,
    "p90": lambda values: quantile(values, 0.9),
    "most": lambda values: max(values, default=None),
}


def at_most(
    name: str, values: Sequence[float], unit: str = "", suffix: str = "", **bounds: float | None
) -> list[Figure]:
    """A figure for each named statistic, with the most that it should be."""
    return [
        Figure(f"{name}, {statistic}{suffix}", _STATISTICS[statistic](values), high=bound, unit=unit)
        for statistic, bound in bounds.items()
    ]


def held(rows: Mapping[str, tuple[float, float]]) -> dict[str, dict[str, Any]]:
    """What was reached, the most that it should be, and whether it is met; also printed."""
    found = {
        name: {"reached": reached, "target_max": most, "is_met": reached <= most}
        for name, (reached, most) in rows.items()
    }
    for name, row in found.items():
        met = "met" if row["is_met"] else "MISSED"
        print(f"{name}: {row['reached']:.3g} (at most {row['target_max']:.3g}): {met}", flush=True)
    return found
