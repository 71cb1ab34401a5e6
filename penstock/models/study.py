"""Knows what a model can show of its physics beside its knobs: lines over a quantity, and what was measured of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from penstock.models.model import Fit
from penstock.vocabulary import Context, Estimate, Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One line, with its 90 % interval where `low` and `high` of its values differ."""

    name: str
    x: tuple[float, ...]
    y: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One measurement on a study."""

    x: float
    y: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A figure before it is drawn. Its axes are named as quantities are, with their units; dates are in seconds."""

    title: str
    sentence: str  # what it comes to, with its numbers
    x_name: str
    y_name: str
    traces: tuple[Trace, ...]
    sightings: tuple[Sighting, ...] = ()
    marks: Mapping[str, float] = field(default_factory=dict)  # values of x that have a name
    is_x_dated: bool = False
    is_x_log: bool = False
    is_y_log: bool = False


@runtime_checkable
class HasStudies(Protocol):
    """A model whose physics says more than its knobs show."""

    def studies(
        self, fit: Fit, context: Context, setting: Any, observations: Sequence[Observation[Any]]
    ) -> Sequence[Study]:
        """Around one setting (Any: of the model's own), for one size; none where nothing can be shown."""
        ...


def known(value: float) -> Estimate:
    """A value that is not estimated."""
    return Estimate(value, value, value)
