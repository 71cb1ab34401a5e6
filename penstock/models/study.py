"""Knows the form of a model's figures about its physics: lines over some quantity, and measurements beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from penstock.models.model import Fit
from penstock.vocabulary import Context, Estimate, Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One line, with its 90 % interval if `low` and `high` of its values differ."""

    name: str
    x: tuple[float, ...]
    y: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One measurement shown in a study."""

    x: float
    y: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A figure before it is drawn. The names of its axes end in their units; dates are in seconds since the epoch."""

    title: str
    sentence: str  # its conclusion, with numbers
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
    """A model that can show more of its physics than the effect of its knobs."""

    def studies(
        self, fit: Fit, context: Context, setting: Any, observations: Sequence[Observation[Any]]
    ) -> Sequence[Study]:
        """Figures around one setting (Any: of the model's own type) for one size; none if there is nothing to show."""
        ...


def known(value: float) -> Estimate:
    """An exact value as an estimate."""
    return Estimate(value, value, value)
