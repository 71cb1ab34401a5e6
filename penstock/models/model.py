"""Knows what every model can do: turn observations into a fit, and a fit into predictions and candidates.

Models only compute: they use no clock, no network and no random numbers beyond their seed. SciPy is imported inside
`fit` alone, because the daemon predicts in its own process but never fits there.
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
    UNKNOWN,
    Context,
    Cost,
    Demand,
    Estimate,
    Observation,
    Obstacle,
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
    had_trouble: bool  # more requests were throttled or failed than `is_stray` excuses
    newest_at: datetime  # when the newest of its measurements was made


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """The evidence that the place has changed, while it does not suffice to say so."""

    level: float = 0.0  # of the cumulative sums that watch for a change, as a fraction of their alarm level
    # How far the newest measurement is from its prediction, in standard deviations; 0 while a place is new.
    surprise: float = 0.0
    value_ratio: float = 1.0  # the newest measurement of the model's value over its prediction
    subject: str = ""  # whose time was the surprise, in the plural; empty where it was the model's value
    subject_ratio: float = 1.0  # that time over its prediction

    @property
    def seconds_ratio(self) -> float:
        """The newest measurement over its prediction, in terms of time."""
        return self.subject_ratio if self.subject else 1.0 / self.value_ratio

    @property
    def is_surprised(self) -> bool:
        """Whether the newest measurement alone calls for another one."""
        return abs(self.surprise) >= SURPRISE_MIN

    @property
    def is_raised(self) -> bool:
        """Whether to measure again soon; one measurement far outside its interval is enough."""
        return self.is_surprised or self.level >= SUSPICION_LEVEL


SUSPICION_LEVEL = 0.6  # of the alarm level
SURPRISE_MIN = 2.3  # standard deviations; normal noise exceeds it in one measurement of 50
SURPRISE_AFTER = 8  # observations; while a place is new, much is a surprise


Periods: TypeAlias = tuple[tuple[datetime, datetime], ...]  # start (inclusive), end (exclusive)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a model learned about one place: plain data that survives JSON, so that advice is there at once on restart.

    `parameters` are the physics by name, each with its 90 % interval. `state` is private to the model: numbers,
    strings and lists of them, enough to predict without fitting again. `alone` is the fit to the place's own
    measurements and tables alone, if this fit also used a neighbour or reports.
    """

    place: Place
    parameters: Mapping[str, Estimate]
    observation_count: int
    newest_observation_at: datetime | None
    residual_fraction_p50: float  # median |observed / predicted - 1| over the observations used
    # The physics does not describe this place; predictions rely on nearby measurements instead.
    is_off_model: bool = False
    drift_count: int = 0  # how often the place changed and the fit began anew
    # When the first measurement after the newest of these changes was made.
    changed_at: datetime | None = None
    # Earlier periods in which the place was in the same state as now.
    earlier: Periods = ()
    suspicion: Suspicion = Suspicion()  # that it has changed since
    state: Mapping[str, Any] = field(default_factory=dict)
    # What was measured at which setting, or reported if nothing was measured; advice stays near these.
    cells: tuple[Cell, ...] = ()
    corroborated_cells: tuple[Cell, ...] = ()  # of reports: settings that at least two users reported
    told_thread_count: float = 0.0  # the most threads that went well for other hosts in this same place
    is_from_reports: bool = False  # nothing was measured here; everything known was reported
    # The fit without these reports, which limits how far they may move the advice.
    unreported: Fit | None = None
    alone: Fit | None = None

    def is_about(self, at: datetime) -> bool:
        """Whether the place was then in the same state as now."""
        return is_as_now(at, self.changed_at, self.earlier)


def is_as_now(at: datetime, changed_at: datetime | None, earlier: Periods) -> bool:
    """Whether a place was in its present state at the moment `at`.

    It last changed at `changed_at` (None: never); `earlier` are the periods before in which it was in that state, too.
    """
    if changed_at is None or at >= changed_at:
        return True
    return any(since <= at < until for since, until in earlier)


def speaks_of_setting(model: PerformanceModel[Any], observation: Observation[Any]) -> bool:
    """Whether an observation shows how well its setting works, and not merely how long requests take."""
    return model.measured_value(observation) > 0 or not observation.went_well


def handed_on(fit: Fit) -> Fit:
    """The fit that a neighbouring place learns from: it contains nothing that was itself learned from a neighbour.

    Otherwise two places would be each other's prior, and count the same measurements again with every fit.
    """
    return fit.alone or fit


def is_newly_changed(fit: Fit, known_until: datetime | None) -> bool:
    """Whether the place changed after the newest measurement known when the last change was noticed.

    Every fit finds the same change again while its measurements are remembered, not always at the same one of them;
    but never later than the newest one known when the change was first noticed.
    """
    return fit.changed_at is not None and (known_until is None or fit.changed_at > known_until)


# The key in `Fit.state` for the version of its format, set by models that ever changed it.
STATE_VERSION = "version"


def is_current(fit: Fit, model: object) -> bool:
    """Whether the present model can read this fit. One that another version stored is treated as no fit."""
    return bool(fit.state.get(STATE_VERSION, 0) == getattr(model, "state_version", 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Appraisal:
    """What a model expects of many settings at once: arrays of shape (number of settings,).

    `value` is what the operation is for, more being better (bytes/s, messages/s); the other arrays are what it costs.
    """

    value: Array
    latency_seconds: Array  # of one object (S3) or one delivery (SQS)
    connection_count: Array
    memory_bytes: Array
    request_rate_per_second: Array
    refused_fraction: Array  # of the requests; during a probe, those of applications would be refused as well


# Squared correlations below this number over the number of draws are taken for chance. (Draws come in mirrored pairs.)
_CHANCE = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """The joint belief about the logarithm of the value of several settings.

    `draws` (draws, settings) hold what is uncertain about all of them at once, such as the parameters of a law;
    `besides` is the covariance (settings, settings) of their deviations from each draw.
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
        """Covariance (settings, settings); correlations that so few draws cannot tell from chance are shrunk to 0."""
        away = self.draws - self.draws.mean(axis=0)
        shared, variance = away.T @ away / len(away), (away**2).mean(axis=0)
        certainty = shared**2 / np.maximum(np.outer(variance, variance), 1e-24)
        shared = shared * np.maximum(0.0, 1.0 - _CHANCE / len(away) / np.maximum(certainty, 1e-12))
        return np.asarray(shared + self.besides, dtype=np.float64)


@runtime_checkable
class HasBelief(Protocol):
    """A model that has a joint belief about all settings, which the knowledge gradient needs."""

    def belief(self, fit: Fit, context: Context, settings: Sequence[Any], demand: Demand) -> Belief:
        """The joint belief about the logarithm of the value of these settings."""
        ...


@runtime_checkable
class HasForesight(Protocol):
    """A model that can predict the value of many settings with little more work than of one."""

    def foresee(
        self, fit: Fit, context: Context, settings: Sequence[Any], demand: Demand
    ) -> Iterable[Estimate]:
        """The estimate of the value that `predict` returns, for each setting in turn."""
        ...


@runtime_checkable
class HasComparison(Protocol):
    """A model some of whose measured values are not what `predict` predicts, but can be made so with a fit."""

    def comparable_values(self, fit: Fit, observations: Sequence[Observation[Any]]) -> Sequence[float]:
        """The `measured_value` of each, to be compared with what this fit, or an earlier one, predicts."""
        ...


@runtime_checkable
class HasKindred(Protocol):
    """A model that also learns from other operations in the same place."""

    @property
    def kindred(self) -> frozenset[str]:
        """Operations whose fits in the same place say something about this one."""
        ...


@runtime_checkable
class HasCostAhead(Protocol):
    """A model of an operation whose probes need something to exist, such as an object to read.

    It is created once and kept until the daemon ends.
    """

    def cost_ahead(self, context: Context, tariff: Tariff) -> Cost:
        """The most that creating it may cost, before the first probe of this context."""
        ...


@runtime_checkable
class HasWork(Protocol):
    """A model of an operation whose threads also spend time on the application's own work, which probes do not have."""

    def without_work(
        self, fit: Fit, context: Context, settings: Sequence[Any], demand: Demand
    ) -> Sequence[Any]:
        """For each setting, the setting that asks as much of the service if there is no such work."""
        ...


@runtime_checkable
class HasBodies(Protocol):
    """A model of an operation whose setting determines how many bytes a request carries."""

    def request_bytes(self, setting: Any, payload_size_bytes: int) -> int:
        """How many bytes of a payload of this size one request carries."""
        ...


THROUGHPUT = "throughput_bytes_per_second"
"""The value metric of the operations whose value is the bytes of an observation over its time."""


DEMAND_SHARE = 0.98
"""Of the demanded rate: what carries less falls short of it."""


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
        """The metric name in a `Prediction` of the quantity in `Appraisal.value`."""
        ...

    def host_ceiling(self, place: Place) -> Ceiling | None:
        """The host's network ceiling for this operation; None if unknown, or if no bytes pass the host."""
        ...

    def default_setting(self, context: Context) -> SettingT:
        """What the SDK does when nobody advises it."""
        ...

    def advisable_default(self, fit: Fit, context: Context, demand: Demand) -> SettingT | None:
        """The SDK's default, completed with bounds that it lacks, as advice; None if it cannot be advised."""
        ...

    def legal(self, context: Context, setting: SettingT) -> SettingT:
        """The nearest setting that the service accepts for this payload; idempotent."""
        ...

    def ramp(self, context: Context) -> Sequence[SettingT]:
        """The settings with which to begin in an unknown place, gentlest first."""
        ...

    def probe_costs(
        self, fit: Fit, context: Context, settings: Sequence[SettingT], tariff: Tariff
    ) -> Sequence[Cost]:
        """The most that one probe of each setting may cost here."""
        ...

    def probe_seconds_min(self, fit: Fit, context: Context, setting: SettingT) -> float:
        """How long a probe of this setting must run to measure anything: the duration of its slowest request."""
        ...

    def measured_value(self, observation: Observation[SettingT]) -> float:
        """The value predicted by `Appraisal.value`, as measured by this observation; 0 if it did not measure it."""
        ...

    @property
    def reported_measures(self) -> frozenset[str]:
        """The `measures` of an application's report that the model reads."""
        ...

    def in_use(self, report: Observation[SettingT]) -> SettingT:
        """The part of its setting that a reported transfer really used, for which the report is evidence."""
        ...

    def discrepancies(self, fit: Fit, reports: Sequence[Observation[SettingT]]) -> tuple[Array, Array]:
        """Logarithms of reported over expected, (reports, quantities), and the standard deviation of each.

        The expectation is for what each report itself moved. The first quantity is the model's value; NaN where a
        report lacks a quantity.
        """
        ...

    def fit(
        self, place: Place, observations: Sequence[Observation[SettingT]], *, prior: Fit | None, seed: int
    ) -> Fit:
        """The posterior after these observations (of any payload size, in any order); without any, the prior.

        `prior` is the fit of a neighbouring place to its own measurements alone, which the model widens; without it,
        the prior comes from tables.
        """
        ...

    def regime(self, fit: Fit, context: Context, demand: Demand, *, beside_bytes: int = 0) -> Regime:
        """The network ceiling that applies to a demand whose regime is AUTO; `beside_bytes` move at the same time."""
        ...

    def candidates(self, fit: Fit, context: Context, demand: Demand) -> Sequence[SettingT]:
        """All legal settings worth considering within the demand's hard limits; never empty."""
        ...

    def appraise(self, fit: Fit, context: Context, settings: Sequence[SettingT], demand: Demand) -> Appraisal:
        """Posterior means for each setting."""
        ...

    def log_gains(
        self, fit: Fit, context: Context, settings: Sequence[SettingT], reference: SettingT, demand: Demand
    ) -> Array:
        """Draws of how much better each setting serves the demand's objective than the reference: (draws, settings).

        They are logarithms of the ratio of averages: of the value or, for `latency`, of the time of one object or
        message. Both sides use the same draws of the posterior, so that what slows both cancels.
        """
        ...

    def predict(self, fit: Fit, context: Context, setting: SettingT, demand: Demand) -> Prediction:
        """What to expect of a setting: each metric with its 90 % interval for one future measurement.

        What is expected of the value is the geometric mean of its draws, so that two of them differ by `log_gains`.
        """
        ...

    def usual(self, fit: Fit, context: Context, settings: Sequence[SettingT], demand: Demand) -> Array:
        """The expected value as in `predict`, of many settings at once: shape (settings,)."""
        ...

    def derive(
        self, fit: Fit, context: Context, setting: SettingT, demand: Demand, *, limit: str = UNKNOWN
    ) -> Mapping[str, float]:
        """Further client options that follow from a setting and its bottleneck `limit`, by name with units."""
        ...

    def bottleneck(self, fit: Fit, context: Context, setting: SettingT, demand: Demand) -> str:
        """What limits this setting, such as connections, host-ceiling, request-rate, client-cpu, memory or demand.

        It is "unsure" if the measurements do not tell, and "unknown" if there are none.
        """
        ...

    def remarks(
        self,
        fit: Fit,
        context: Context,
        setting: SettingT,
        demand: Demand,
        *,
        limit: str,
        derived: Mapping[str, float],
        obstacle: Obstacle | None,
    ) -> Sequence[str]:
        """Sentences that accompany the advice: what would help, and what has not been measured.

        `limit` is the setting's bottleneck, `derived` what follows from it, `obstacle` what keeps from more threads.
        """
        ...
