"""Knows what a report says about a database, place by place: current advice, its curve, its record, its cost.

HTML, Markdown and JSON are three renderings of these plain values; `study.py` computes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from penstock.models.model import Fit
from penstock.models.sqs.backlog_warning import BacklogSpell
from penstock.models.study import Study
from penstock.report.changes import ChangeFinding
from penstock.report.clients import ClientFindings
from penstock.report.density import Density
from penstock.report.difference import Comparison
from penstock.report.distributions import Spread
from penstock.report.episodes import Episode
from penstock.report.judgement import Hearsay, Regret
from penstock.report.material import Copy
from penstock.report.retries import Retries
from penstock.report.rhythm import Rhythm, Sample
from penstock.report.wording import times_words
from penstock.units import number
from penstock.vocabulary import (
    Context,
    Cost,
    Demand,
    Estimate,
    Inconclusive,
    Place,
    ProbeHarm,
    Reason,
    Recommendation,
    setting_values,
)

SCHEMA = 2  # version of the JSON document
_NEAR = 1.1  # knob values within this ratio count as equal
_RHYTHMIC_CHANGE_COUNT_MIN = 3  # so many changes of a place with a rhythm are the rhythm, not news


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a daemon that starts from this database advises, and the SDK's default for comparison."""

    recommendation: Recommendation[Any]
    default_setting: Any  # of the operation's own type
    default_expected: Estimate | None
    default_prices: Mapping[str, float]  # in dollars, by the names of `derived`; empty if there are none
    doubled_knob: str
    doubled_gain_fraction: float | None  # of the value, with all divided knobs doubled

    @property
    def payload_size_bytes(self) -> int:
        return self.recommendation.context.payload_size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The value over one knob, all others as advised; each estimate is for one future measurement."""

    context: Context
    knob: str
    knob_values: tuple[float, ...]
    expected: tuple[Estimate, ...]
    advised: float
    default: float
    density: Density | None = None  # of all measurements of this size, whatever the other knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """The expected value over the first two knobs, all others as advised; each row of `values` is one of the second."""

    context: Context
    knobs: tuple[str, str]
    first: tuple[float, ...]
    second: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]
    advised: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One observation, with the fit's prediction for its setting and what the advice of its time had promised."""

    context: Context
    setting: Any  # of the operation's own type
    started_at: datetime
    value: float
    origin: str
    client: str
    throttled_count: int
    failed_count: int
    fitted: Estimate | None
    # For a probe: from the fit before it, or from earlier advice on this very setting.
    promised: Estimate | None
    reason: Reason | None  # why it was measured, if known


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRecord:
    """All measurements of one setting."""

    context: Context
    setting: Any  # of the operation's own type
    count: int
    value_median: float
    fitted: Estimate | None
    trouble_count: int  # of measurements with throttled or failed requests


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The ordinary advice for one context over time, oldest first."""

    context: Context
    recommendations: tuple[Recommendation[Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How often a measurement fell within its 90 % interval."""

    within_count: int
    count: int

    @property
    def fraction(self) -> float:
        """1 if there is nothing to judge."""
        return self.within_count / self.count if self.count else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What the reader should know: a code to search for, a title, and the reason with its numbers."""

    code: str
    title: str
    reason: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientGain:
    """The gain of the advice over one client's default."""

    client: str
    setting: Any  # of the operation's own type, as the service accepts it
    setting_words: str
    gain: Estimate

    @property
    def words(self) -> str:
        """``2.3 x``."""
        return times_words(self.gain.expected)

    @property
    def span(self) -> str:
        """``2.1 to 2.5``."""
        return f"{number(self.gain.low)} to {number(self.gain.high)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceVerdict:
    """The first screen of one place."""

    sentence: str
    payload_size_bytes: int
    setting_words: str
    copies: tuple[Copy, ...]
    gains: tuple[ClientGain, ...]  # the operation's own SDK first
    usd: float | None  # spent by the operation in the time that the report covers
    spent: Cost | None  # the same with bytes and time, which others on the host may feel
    usd_period_seconds: float | None
    usd_place_count: int  # places of the operation, which share that cost
    days: tuple[tuple[date, int], ...]  # number of measurements by day
    is_expired: bool

    @property
    def gained(self) -> float:
        """The expected gain over the SDK's defaults, by which places are sorted."""
        return self.gains[0].gain.expected if self.gains else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFindings:
    """All that is known of one place."""

    place: Place
    payload_noun: str
    payload_note: str
    request_rate_help: str
    value_metric: str
    observation_count: int  # measured, or reported and believed
    measured_count: int  # by probes
    newest_observation_at: datetime | None
    fit: Fit | None
    advice: tuple[Advice, ...]
    curves: tuple[Curve, ...]
    surface: Surface | None  # of the size that is measured most
    measured: tuple[Measured, ...]  # the newest by probes, and the newest reports that are believed
    records: tuple[SettingRecord, ...]
    histories: tuple[History, ...]
    fitted_coverage: Coverage
    promised_coverage: Coverage
    inconclusives: tuple[Inconclusive[Any], ...]
    changes: tuple[ChangeFinding, ...] = ()
    episodes: tuple[Episode, ...] = ()
    rhythms: tuple[Rhythm, ...] = ()
    spreads: tuple[Spread, ...] = ()
    # Other results of the model, around the advice for the size that is measured most.
    studies: tuple[Study, ...] = ()
    regrets: tuple[Regret, ...] = ()  # for the same size
    hearsay: tuple[Hearsay, ...] = ()
    retries: Retries | None = None
    # Measurements relative to what is expected now: the newest one by one, before them the median of each hour.
    course: tuple[Sample, ...] = ()
    course_density: Density | None = None  # of all measurements
    verdict: PlaceVerdict | None = None
    remarks: tuple[Remark, ...] = ()

    @property
    def ordinary_advice(self) -> list[Advice]:
        """Advice for demands that state nothing but the size."""
        return [advice for advice in self.advice if advice.recommendation.demand == Demand()]

    def is_about_now(self, at: datetime) -> bool:
        """Whether the place then was as it is now: since the last change, or before a temporary change."""
        return is_about_now(self.fit, self.changes, at)

    @property
    def is_back(self) -> bool:
        """Whether the place changed temporarily, and is again as it was."""
        return self.fit is not None and bool(self.fit.earlier)

    @property
    def aside_words(self) -> str:
        """How to call measurements that are not about the place as it is now."""
        return "while the place was another one" if self.is_back else "before the place changed"

    @property
    def news(self) -> list[ChangeFinding]:
        """Changes that are certain, oldest first; none where a rhythm explains them."""
        certain = [change for change in self.changes if change.is_certain]
        is_rhythmic = any(rhythm.is_significant for rhythm in self.rhythms)
        return [] if is_rhythmic and len(certain) >= _RHYTHMIC_CHANGE_COUNT_MIN else certain


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySpend:
    """What one operation cost on one calendar day in UTC."""

    day: date
    operation: str
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole report. `schema` is raised when a key is removed or changes its meaning."""

    schema: int = SCHEMA
    source: str
    generated_at: datetime
    since: datetime | None
    places: tuple[PlaceFindings, ...]
    spending: tuple[DaySpend, ...]
    daily_limit: Cost | None
    usd_limits: Mapping[str, float]
    leftover_count: int
    unreadable_count: int
    damage: tuple[str, ...] = ()
    backlogs: tuple[BacklogSpell, ...] = ()  # of watched queues
    clients: tuple[ClientFindings, ...] = ()
    harms: tuple[ProbeHarm, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    remarks: tuple[Remark, ...] = ()


def last_change(fit: Fit | None, changes: Iterable[ChangeFinding]) -> datetime:
    """Since when the place is as it is: by the newest fit, which forgets older data, and by recorded changes."""
    by_fit = [fit.changed_at] if fit is not None and fit.changed_at is not None else []
    certain = (change.changed_at for change in changes if change.is_certain and not change.is_withdrawn)
    return max([*by_fit, *certain], default=datetime.min.replace(tzinfo=UTC))


def is_about_now(fit: Fit | None, changes: Iterable[ChangeFinding], at: datetime) -> bool:
    """Whether the place then was as it is now: since the last change, or before a temporary change."""
    return at >= last_change(fit, changes) or (fit is not None and bool(fit.earlier) and fit.is_about(at))


def is_on_curve(curve: Curve, measured: Measured, advised: Any) -> bool:
    """Whether all other knobs were about as advised."""
    here, there = setting_values(measured.setting), setting_values(advised)
    pairs = [(here[name], there[name]) for name in here if name != curve.knob]
    return all(max(pair) <= _NEAR * min(pair) for pair in pairs)
