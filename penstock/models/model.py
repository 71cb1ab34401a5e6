"""Knows what every model can do: turn observations into a fit, and a fit into predictions and candidates.

Models compute. They touch no clock, no network and no hidden chance; SciPy is imported inside `fit` alone, because
the daemon predicts in its own process but never fits there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.vocabulary import Context, Cost, Demand, Estimate, Observation, Place, Prediction, SettingT

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a model learned about one place: plain data that survives JSON, so that a restart advises at once.

    `parameters` are the physics by name, each with its 90 % interval. `state` is the model's own: numbers, strings
    and lists of them, enough to predict without fitting again. `alone` is what own measurements and tables say by
    themselves, where a neighbour or reports were heard as well.
    """

    place: Place
    parameters: Mapping[str, Estimate]
    observation_count: int
    newest_observation_at: datetime | None
    residual_fraction_p50: float  # median |observed / predicted - 1| over the observations used
    is_off_model: bool = (
        False  # the physics does not describe this place: what was measured nearby is trusted
    )
    drift_count: int = 0  # how often the place changed and the fit started again
    changed_at: datetime | None = (
        None  # when the first measurement after the newest of these changes was made
    )
    state: Mapping[str, Any] = field(default_factory=dict)
    is_from_reports: bool = False  # nothing was measured here: all that is known was reported
    alone: Fit | None = None


def handed_on(fit: Fit) -> Fit:
    """What a neighbour learns from: nothing that was inherited itself.

    Otherwise two places would be each other's prior, and count the same measurements again with every fit.
    """
    return fit.alone or fit


def is_newly_changed(fit: Fit, known_until: datetime | None) -> bool:
    """Whether the place changed after what was known when the last change was noticed.

    The same change is found again by every fit while its measurements are remembered, and not always at the same of
    them; it is over when it was first noticed.
    """
    return fit.changed_at is not None and (known_until is None or fit.changed_at > known_until)


STATE_VERSION = (
    "version"  # the key in `Fit.state` under which a model that ever changed its state says which it is
)


def is_current(fit: Fit, model: object) -> bool:
    """Whether the model of today can read this fit. One that another version stored is as good as none."""
    return bool(fit.state.get(STATE_VERSION, 0) == getattr(model, "state_version", 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Appraisal:
    """What a model expects of many settings at once: arrays of shape (number of settings,).

    `value` is what the operation is for and bigger is better (bytes/s, messages/s); the other arrays are its price.
    """

    value: Array
    shortfall: (
        Array  # of the best of these settings, relative: what each may fall short of it, by `shortfall`
    )
    latency_seconds: Array  # of one object (S3) or one delivery (SQS)
    connection_count: Array
    memory_bytes: Array
    request_rate_per_second: Array
    refused_fraction: Array  # of the requests: applications beside a probe would meet that as well


def shortfall(drawn_values: Array) -> Array:
    """From draws of the value (draws, settings) to the mean share of the best that each setting loses.

    What is lost beyond 3 % counts four times: a setting that may be far from the best is worse than its mean tells.
    """
    best = np.maximum(drawn_values.max(axis=1, keepdims=True), 1e-300)
    lost = 1.0 - drawn_values / best
    return np.asarray((lost + _GRAVITY * np.maximum(lost - _TOLERABLE, 0.0)).mean(axis=0), dtype=np.float64)


_TOLERABLE = 0.03
_GRAVITY = 3.0


class PerformanceModel(Protocol[SettingT]):
    """One operation: its knobs, its legal settings, its physics."""

    @property
    def operation(self) -> str:
        """The key in the table of services."""
        ...

    @property
    def setting_type(self) -> type[SettingT]:
        """The dataclass of the knobs."""
        ...

    @property
    def value_metric(self) -> str:
        """The name in a `Prediction` of what `Appraisal.value` holds."""
        ...

    def default_setting(self, context: Context) -> SettingT:
        """What the SDK does when nobody advises it."""
        ...

    def legal(self, context: Context, setting: SettingT) -> SettingT:
        """The nearest setting that the service accepts for this payload; idempotent."""
        ...

    def ramp(self, context: Context) -> Sequence[SettingT]:
        """The safe start, gentlest first."""
        ...

    def probe_cost(self, fit: Fit, context: Context, setting: SettingT) -> Cost:
        """The most that one probe of this setting may cost here, at list price."""
        ...

    def probe_seconds_min(self, fit: Fit, context: Context, setting: SettingT) -> float:
        """How long a probe of this setting needs to measure anything: the slowest request, from begin to end."""
        ...

    def measured_value(self, observation: Observation[SettingT]) -> float:
        """What `Appraisal.value` predicts, as this observation measured it."""
        ...

    @property
    def reported_measures(self) -> frozenset[str]:
        """The `measures` of an application's report that the model reads."""
        ...

    def in_use(self, report: Observation[SettingT]) -> SettingT:
        """What a report's transfer used of the setting that it was allowed: that is what was measured."""
        ...

    def discrepancies(self, fit: Fit, reports: Sequence[Observation[SettingT]]) -> tuple[Array, Array]:
        """Logarithms of measured over expected, (reports, quantities), and the standard deviation of each.

        What is expected follows from what each report itself moved. The first quantity is what the operation is for;
        NaN where a report does not say.
        """
        ...

    def fit(
        self, place: Place, observations: Sequence[Observation[SettingT]], *, prior: Fit | None, seed: int
    ) -> Fit:
        """The posterior after these observations (any payload size, any order). Works with none: then it is the prior.

        `prior` is the fit of a neighbouring place to its own measurements alone, widened by the model; without it,
        tables serve.
        """
        ...

    def candidates(self, fit: Fit, context: Context, demand: Demand) -> Sequence[SettingT]:
        """Every legal setting worth considering, within the demand's hard limits; never empty."""
        ...

    def appraise(self, fit: Fit, context: Context, settings: Sequence[SettingT], demand: Demand) -> Appraisal:
        """Posterior means for each setting."""
        ...

    def predict(self, fit: Fit, context: Context, setting: SettingT, demand: Demand) -> Prediction:
        """What the setting will do, each metric with its 90 % interval for one future measurement."""
        ...

    def derive(self, fit: Fit, context: Context, setting: SettingT, demand: Demand) -> Mapping[str, float]:
        """The rest of the bundle that follows from a setting, by name with units."""
        ...

    def bottleneck(self, fit: Fit, context: Context, setting: SettingT, demand: Demand) -> str:
        """What limits this setting: connections, host-ceiling, request-rate, client-cpu, memory, demand or unknown."""
        ...
