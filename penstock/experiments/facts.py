"""Knows the 84 published figures, what each is to the lab, and when one counts as reproduced.

A figure is `input` (given to the lab), `fitted` (the lab's world was fitted to it) or `predicted` (unknown to the lab);
only predictions prove anything. The remark says what was fitted to a figure, what a prediction is based on, and why a
figure is unavailable or missed.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources

import msgspec


class Kind(StrEnum):
    """What a figure is to the lab."""

    INPUT = "input"
    FITTED = "fitted"
    PREDICTED = "predicted"
    NONE = ""  # the lab does not have it


class Verdict(StrEnum):
    """What became of a figure."""

    REPRODUCED = "reproduced"
    MISSED = "missed"
    NOT_POSSIBLE = "not possible"
    NOT_MEASURED = "not measured"


class Relation(StrEnum):
    """How the study states its figure."""

    EQUAL = "equal"
    BELOW = "below"
    WITHIN = "within"  # a range


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One row of `facts.csv`."""

    name: str
    experiment: str
    kind: Kind
    verdict: Verdict  # in the lab
    relation: Relation
    tolerance: float  # relative, for a figure stated as EQUAL
    tolerance_source: str
    remark: str
    seed: str
    section: str
    service: str
    operation: str
    condition: str
    metric: str
    value: str
    unit: str

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest value that the study allows."""
        low, _, high = self.value.partition("-")
        return float(low), float(high or low)

    def words(self, value: str) -> str:
        """The value with its unit, unless it is a coefficient or a ratio."""
        return value if self.unit == "1" else f"{value} {self.unit}"

    def difference(self, measured: float) -> float | None:
        """The difference as a fraction of the published figure; None if that is a bound or a range."""
        return measured / self.bounds[0] - 1.0 if self.relation is Relation.EQUAL else None

    def judged(self, measured: float | None) -> Verdict:
        """The verdict on the figure from this measurement."""
        if self.kind is Kind.NONE:
            return Verdict.NOT_POSSIBLE
        if measured is None:
            return Verdict.NOT_MEASURED
        low, high = self.bounds
        holds = {
            Relation.EQUAL: abs(measured - low) <= self.tolerance * low,
            Relation.BELOW: measured <= high,
            Relation.WITHIN: low <= measured <= high,
        }[self.relation]
        return Verdict.REPRODUCED if holds else Verdict.MISSED


@cache
def facts() -> tuple[Fact, ...]:
    """All figures, in the order of the studies."""
    text = resources.files(__package__).joinpath("facts.csv").read_text(encoding="utf-8")
    return msgspec.convert(tuple(csv.DictReader(text.splitlines())), tuple[Fact, ...], strict=False)


def facts_of(experiment: str) -> tuple[Fact, ...]:
    """The figures of one experiment."""
    return tuple(fact for fact in facts() if fact.experiment == experiment)


def counts(verdicts: Mapping[str, Verdict]) -> Sequence[tuple[str, str, int]]:
    """How many figures of each kind got each verdict: kind, verdict, number. Verdicts are by the figure's name."""
    found = Counter((fact.kind.value or "-", verdicts[fact.name].value) for fact in facts())
    return sorted((kind, verdict, number) for (kind, verdict), number in found.items())
