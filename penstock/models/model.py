"""Knows what every model can do: turn observations into a fit, and a fit into predictions and candidates.

Models compute. They touch no clock, no network and no hidden chance; SciPy is imported inside `fit` alone, because
the daemon predicts in its own process but never fits there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.models.burst import Ceiling
from penstock.vocabulary import (
    Context,
    Cost,
    Demand,
    Estimate,
    Observation,
    Place,
    Prediction,
    Regime,
    SettingT,
    Tariff,
)

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One setting that was measured at one payload size."""

    payload_size_bytes: int
    setting: Mapping[str, float]
    count: int
    value_median: float
    had_trouble: bool  # more requests throttled or failed than happens to anybody
    newest_at: datetime  # when the newest of its measurements was made


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """What speaks for a change of the place while it is not certain."""

    level: float = 0.0  # of the sums that watch for a change, over what raises the alarm
    # Of the newest measurement: standard deviations from what was expected of it; 0 while a place is new.
    surprise: float = 0.0
    value_ratio: float = 1.0  # the newest measurement over what was expected of it, in the model's value
    subject: str = ""  # whose seconds it was that surprised, in the plural; empty where it was the value
    subject_ratio: float = 1.0  # these seconds over what was expected of them

    @property
    def seconds_ratio(self) -> float:
        """The newest measurement over what was expected of it, where time is what is expected."""
        return self.subject_ratio if self.subject else 1.0 / self.value_ratio

    @property
    def is_surprised(self) -> bool:
        """Whether the newest measurement alone asks for another one."""
        return abs(self.surprise) >= SURPRISE_MIN

    @property
    def is_raised(self) -> bool:
        """Whether to look again soon: one measurement far outside of its interval is enough."""
        return self.is_surprised or self.level >= SUSPICION_LEVEL


SUSPICION_LEVEL = 0.6  # of what raises the alarm
SURPRISE_MIN = 2.3  # standard deviations: by normal noise one measurement in 50 is looked at again
SURPRISE_AFTER = 8  # observations: before, a place is being learned, and much is a surprise


Periods: TypeAlias = tuple[tuple[datetime, datetime], ...]  # from, to before


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
    # The physics does not describe this place: what was measured nearby is trusted.
    is_off_model: bool = False
    drift_count: int = 0  # how often the place changed and the fit started again
    # When the first measurement after the newest of these changes was made.
    changed_at: datetime | None = None
    # When it was, before it was another place, what it is now again.
    earlier: Periods = ()
    suspicion: Suspicion = Suspicion()  # that it has changed since
    state: Mapping[str, Any] = field(default_factory=dict)
    # What was measured at which setting, or reported where nothing was: advice stays near it.
    cells: tuple[Cell, ...] = ()
    corroborated_cells: tuple[Cell, ...] = ()  # of what was reported, what at least two users did
    told_thread_count: float = 0.0  # the most that went well where other hosts measured this very place
    is_from_reports: bool = False  # nothing was measured here: all that is known was reported
    # What is known without these reports: advice stays near what follows from it.
    unreported: Fit | None = None
    alone: Fit | None = None

    def is_about(self, at: datetime) -> bool:
        """Whether the place was then what it is now."""
        return is_as_now(at, self.changed_at, self.earlier)


def is_as_now(at: datetime, changed_at: datetime | None, earlier: Periods) -> bool:
    """Whether a place that last changed at that time, and was the same earlier, was so at another."""
    if changed_at is None or at >= changed_at:
        return True
    return any(since <= at < until for since, until in earlier)


def speaks_of_setting(model: PerformanceModel[Any], observation: Observation[Any]) -> bool:
    """Whether it says what comes of its setting, and not merely how long requests take."""
    return model.measured_value(observation) > 0 or not observation.went_well


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


# The key in `Fit.state` under which a model that ever changed its state says which it is.
STATE_VERSION = "version"


def is_current(fit: Fit, model: object) -> bool:
    """Whether the model of today can read this fit. One that another version stored is as good as none."""
    return bool(fit.state.get(STATE_VERSION, 0) == getattr(model, "state_version", 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Appraisal:
    """What a model expects of many settings at once: arrays of shape (number of settings,).

    `value` is what the operation is for and bigger is better (bytes/s, messages/s); the other arrays are its price.
    """

    value: Array
    latency_seconds: Array  # of one object (S3) or one delivery (SQS)
    connection_count: Array
    memory_bytes: Array
    request_rate_per_second: Array
    refused_fraction: Array  # of the requests: applications beside a probe would meet that as well


# Squared correlations below so many over the number of draws are chance; draws come in mirrored pairs.
_CHANCE = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What is believed of the logarithm of the value of some settings, together.

    `draws` (draws, settings) share what is uncertain of all of them at once, such as the parameters of a law;
    `besides` is the covariance (settings, settings) of what each may be off by around every draw.
    """

    draws: Array
    besides: Array

    @property
    def mean(self) -> Array:
        return np.asarray(self.draws.mean(axis=0), dtype=np.float64)

    @property
    def variance(self) -> Array:
        return np.asarray(self.draws.var(axis=0) + np.diag(self.besides), dtype=np.float64)

    @property
    def covariance(self) -> Array:
        """Of all settings; what so few draws cannot tell from chance counts as nothing."""
        away = self.draws - self.draws.mean(axis=0)
        shared, variance = away.T @ away / len(away), (away**2).mean(axis=0)
        certainty = shared**2 / np.maximum(np.outer(variance, variance), 1e-24)
        shared = shared * np.maximum(0.0, 1.0 - _CHANCE / len(away) / np.maximum(certainty, 1e-12))
        return np.asarray(shared + self.besides, dtype=np.float64)


@runtime_checkable
class HasBelief(Protocol):
    """A model that can say what it believes about all settings together, which the knowledge gradient needs."""

    def belief(self, fit: Fit, context: Context, settings: Sequence[Any], demand: Demand) -> Belief:
        """Of the logarithm of the value."""
        ...


@runtime_checkable
class HasForesight(Protocol):
    """A model that says what it predicts of the value of many settings with little more work than of one."""

    def foresee(
        self, fit: Fit, context: Context, settings: Sequence[Any], demand: Demand
    ) -> Iterable[Estimate]:
        """As `predict` has each."""
        ...


@runtime_checkable
class HasKindred(Protocol):
    """A model that learns from other operations in the same place as well."""

    @property
    def kindred(self) -> frozenset[str]:
        """Operations whose fit to the same place says something about this one."""
        ...


@runtime_checkable
class HasCostAhead(Protocol):
    """A model of an operation that needs something to be there, which lasts until the daemon ends."""

    def cost_ahead(self, context: Context, tariff: Tariff) -> Cost:
        """The most that it costs to make it, before the first probe of this context."""
        ...


@runtime_checkable
class HasWork(Protocol):
    """A model of an operation whose threads are held by the application's own work, too, which no probe has."""

    def without_work(
        self, fit: Fit, context: Context, settings: Sequence[Any], demand: Demand
    ) -> Sequence[Any]:
        """For each setting the one that asks as much of the service where there is no work."""
        ...


@runtime_checkable
class HasBodies(Protocol):
    """A model of an operation whose requests carry as much as the setting says."""

    def request_bytes(self, setting: Any, payload_size_bytes: int) -> int:
        """What one request carries of such a payload."""
        ...


class PerformanceModel(Protocol[SettingT]):
    """One operation: its knobs, its legal settings, its physics."""

    @property
    def operation(self) -> str:
        """The key in the table of operations."""
        ...

    @property
    def setting_type(self) -> type[SettingT]:
        """The dataclass of the knobs."""
        ...

    @property
    def value_metric(self) -> str:
        """The name in a `Prediction` of what `Appraisal.value` holds."""
        ...

    def host_ceiling(self, place: Place) -> Ceiling | None:
        """What the host's network carries of it; None where tables do not tell, or none of it passes the host."""
        ...

    def default_setting(self, context: Context) -> SettingT:
        """What the SDK does when nobody advises it."""
        ...

    def advisable_default(self, fit: Fit, context: Context, demand: Demand) -> SettingT | None:
        """The SDK's own setting as it may be advised, with the bounds that it lacks; None where it cannot be."""
        ...

    def legal(self, context: Context, setting: SettingT) -> SettingT:
        """The nearest setting that the service accepts for this payload; idempotent."""
        ...

    def ramp(self, context: Context) -> Sequence[SettingT]:
        """The safe start, gentlest first."""
        ...

    def probe_costs(
        self, fit: Fit, context: Context, settings: Sequence[SettingT], tariff: Tariff
    ) -> Sequence[Cost]:
        """The most that one probe of each setting may cost here."""
        ...

    def probe_seconds_min(self, fit: Fit, context: Context, setting: SettingT) -> float:
        """How long a probe of this setting needs to measure anything: the slowest request, from begin to end."""
        ...

    def measured_value(self, observation: Observation[SettingT]) -> float:
        """What `Appraisal.value` predicts, as this observation measured it; 0 where it says nothing of that."""
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

    def regime(self, fit: Fit, context: Context, demand: Demand, *, beside_bytes: int = 0) -> Regime:
        """Which ceiling such a demand meets, where it leaves that open; `beside_bytes` move at the same time."""
        ...

    def candidates(self, fit: Fit, context: Context, demand: Demand) -> Sequence[SettingT]:
        """Every legal setting worth considering, within the demand's hard limits; never empty."""
        ...

    def appraise(self, fit: Fit, context: Context, settings: Sequence[SettingT], demand: Demand) -> Appraisal:
        """Posterior means for each setting."""
        ...

    def log_gains(
        self, fit: Fit, context: Context, settings: Sequence[SettingT], reference: SettingT, demand: Demand
    ) -> Array:
        """Draws of how much better each setting serves the demand's aim than the reference: (draws, settings).

        Logarithms of the ratio of what both do on average: of the value, or for `latency` of the time of one. They
        come from the same draws of the posterior, so that what makes both slower makes no difference.
        """
        ...

    def predict(self, fit: Fit, context: Context, setting: SettingT, demand: Demand) -> Prediction:
        """What the setting will do, each metric with its 90 % interval for one future measurement."""
        ...

    def usual(self, fit: Fit, context: Context, settings: Sequence[SettingT], demand: Demand) -> Array:
        """The middle of what `predict` says of the value, of many settings at once."""
        ...

    def derive(self, fit: Fit, context: Context, setting: SettingT, demand: Demand) -> Mapping[str, float]:
        """The rest of the bundle that follows from a setting, by name with units."""
        ...

    def bottleneck(self, fit: Fit, context: Context, setting: SettingT, demand: Demand) -> str:
        """What limits this setting: connections, host-ceiling, request-rate, client-cpu, memory or demand.

        "unsure" where what was measured does not tell, "unknown" where nothing was.
        """
        ...

    def remarks(self, fit: Fit, context: Context, setting: SettingT, demand: Demand) -> Sequence[str]:
        """Sentences that belong to the advice: what would help, and what no measurement has shown."""
        ...
