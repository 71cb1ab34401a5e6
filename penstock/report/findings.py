"""Knows what a database says, place by place: the advice that stands, its curve, its record, its cost.

`study` turns the material of a report into plain values; HTML, Markdown and JSON are three ways to write them down.
No operation is named here: what differs between them is in their models and knobs.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from statistics import median
from typing import Any

from penstock.models.model import Fit, PerformanceModel, speaks_of_setting
from penstock.models.sqs.backlog_warning import BacklogSpell
from penstock.models.study import HasStudies, Study
from penstock.optimizer.recommendation import recommend
from penstock.report.changes import ChangeFinding, change_findings
from penstock.report.clients import ClientFindings, clients
from penstock.report.density import Density, over_knob, over_time
from penstock.report.difference import Comparison
from penstock.report.distributions import Spread, spreads
from penstock.report.episodes import Episode, episodes
from penstock.report.judgement import Hearsay, Regret, hearsay, regrets
from penstock.report.material import Material
from penstock.report.retries import Retries, retries
from penstock.report.rhythm import Rhythm, Sample, corrected, rhythms
from penstock.report.tally import Tally, beats, detail_begins_at, middles, tally_of
from penstock.report.verdicts import PlaceVerdict, client_gains, days_of, sentence_of
from penstock.report.wording import setting_words
from penstock.units import format_bytes
from penstock.vocabulary import (
    Basis,
    Context,
    Cost,
    Demand,
    Estimate,
    Inconclusive,
    Observation,
    Origin,
    Place,
    ProbeHarm,
    Reason,
    Recommendation,
    Scale,
    knobs,
    setting_values,
)

SCHEMA = 2  # of the JSON
FIGURED_CONTEXT_COUNT_MAX = 3  # of one place; the others are rows of the table
CURVE_POINT_COUNT = 25
JUDGED_COUNT_MAX = 100
_NEAR = 1.1  # knobs within this ratio count as alike
_HOUR_SECONDS = 3600.0  # expenses are booked by the hour
_FLAT = 1.05  # a knob that changes the value by less than this is not drawn
# A fit that an older penstock left.
_UNREADABLE = (KeyError, IndexError, TypeError, ValueError, ArithmeticError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a daemon that starts from this database advises, beside what the SDK does by itself."""

    recommendation: Recommendation[Any]
    default_setting: Any  # of the operation's own type
    default_expected: Estimate | None
    doubled_knob: str
    doubled_gain_fraction: float | None  # of the value, with twice the threads of every kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The value against one knob, all others as advised; each estimate is of one future measurement."""

    context: Context
    knob: str
    knob_values: tuple[float, ...]
    expected: tuple[Estimate, ...]
    advised: float
    default: float
    density: Density | None = None  # of all measurements of this size, whatever the other knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What is expected over the first two knobs, all others as advised: `values` by row of the second."""

    context: Context
    knobs: tuple[str, str]
    first: tuple[float, ...]
    second: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]
    advised: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One observation beside what the fit says of its setting, and what the advice of its moment had promised."""

    context: Context
    setting: Any  # of the operation's own type
    started_at: datetime
    value: float
    origin: str
    client: str
    throttled_count: int
    failed_count: int
    fitted: Estimate | None
    # By the fit of before, or by advice that was issued before for this very setting.
    promised: Estimate | None
    reason: Reason | None  # why it was measured, where that is remembered


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
    """The advice for one context and demand as it was put up, oldest first."""

    context: Context
    recommendations: tuple[Recommendation[Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How often a measurement fell within the 90 % interval that was there for it."""

    within_count: int
    count: int

    @property
    def fraction(self) -> float:
        """1 where there is nothing to judge."""
        return self.within_count / self.count if self.count else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What the reader should know: a code to search for, a title, and the reason with its numbers."""

    code: str
    title: str
    reason: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFindings:
    """All that is known of one place."""

    place: Place
    payload_noun: str
    value_metric: str
    observation_count: int  # measured and reported
    measured_count: int  # by probes
    newest_observation_at: datetime | None
    fit: Fit | None
    advice: tuple[Advice, ...]
    curves: tuple[Curve, ...]
    surface: Surface | None  # of the size that is measured most
    measured: tuple[Measured, ...]  # the newest
    records: tuple[SettingRecord, ...]
    histories: tuple[History, ...]
    fitted_coverage: Coverage
    promised_coverage: Coverage
    inconclusives: tuple[Inconclusive[Any], ...]
    changes: tuple[ChangeFinding, ...] = ()
    episodes: tuple[Episode, ...] = ()
    rhythms: tuple[Rhythm, ...] = ()
    spreads: tuple[Spread, ...] = ()
    # What else the physics says, around the advice for the size that is measured most.
    studies: tuple[Study, ...] = ()
    regrets: tuple[Regret, ...] = ()  # of the advice for the same size
    hearsay: tuple[Hearsay, ...] = ()
    retries: Retries | None = None
    # What was measured beside what is expected now: the newest one by one, before them the middle of each hour.
    course: tuple[Sample, ...] = ()
    course_density: Density | None = None  # all of it
    verdict: PlaceVerdict | None = None
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySpend:
    """What one operation cost on one day of the calendar, in UTC."""

    day: date
    operation: str
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole of it. `schema` is raised when a key goes or means something else."""

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


def study(material: Material) -> Report:
    """Everything that the material says, without remarks."""
    found = {place: _Evidence(material, place) for place in _places(material)}
    places = _asked_together([_study_place(material, p, e) for p, e in found.items()])
    standing = [advice.recommendation for place in places for advice in place.advice]
    return Report(
        source=material.source,
        generated_at=material.generated_at,
        since=material.since,
        places=tuple(_with_verdict(material, place, found[place.place]) for place in places),
        spending=_by_day(material),
        daily_limit=material.daily_limit,
        usd_limits=material.usd_limits,
        leftover_count=material.leftover_count,
        unreadable_count=material.unreadable_count,
        damage=tuple(material.damage),
        backlogs=tuple(material.backlogs),
        clients=clients(dataclasses.replace(material, recommendations=standing)),
        harms=tuple(material.harms),
    )


def figured_contexts(findings: PlaceFindings) -> list[Context]:
    """The contexts that get figures: those that were measured most, or the first that has advice."""
    counts: dict[Context, int] = defaultdict(int)
    for record in findings.records:
        counts[record.context] += record.count
    most = sorted(counts, key=lambda c: (-counts[c], c.payload_size_bytes))[:FIGURED_CONTEXT_COUNT_MAX]
    contexts = most or [a.recommendation.context for a in findings.advice if findings.fit][:1]
    return sorted(contexts, key=lambda c: c.payload_size_bytes)


def _places(material: Material) -> list[Place]:
    places = {
        *material.observations,
        *(fit.place for fit in material.fits),
        *(r.context.place for r in material.recommendations),
        *(i.context.place for i in material.inconclusives),
    }
    known = [place for place in places if place.operation in material.models]
    return sorted(known, key=lambda p: (p.operation, p.region, p.instance_type, p.service_class))


class _Evidence:
    """What there is of one place: the newest observations one by one, and all of them counted."""

    def __init__(self, material: Material, place: Place) -> None:
        model = material.models[place.operation]
        fit = next((f for f in material.fits if f.place == place), None)
        self.expectations = Expectations(model, fit)
        self.observations = material.observations.get(place, ())
        self.own = [o for o in self.observations if o.origin is Origin.PROBE]
        self.reported = [o for o in self.observations if o.origin is Origin.APPLICATION]
        self.tally = material.tallies.get(place) or tally_of(
            self.own, model.measured_value, self.expectations.means
        )
        self.beats = beats(self.tally, self.own)

    @property
    def size_counts(self) -> Counter[int]:
        """How often each size was measured or reported."""
        counts = Counter(o.context.payload_size_bytes for o in self.reported)
        for (size, _), histogram in self.tally.levels.items():
            counts[size] += sum(histogram.counts)
        return counts

    @property
    def moments(self) -> list[tuple[float, int]]:
        """When was measured or reported, and how often then."""
        told = [(o.started_at.timestamp(), 1) for o in self.reported]
        return [*((beat.first_at, beat.measured_count) for beat in self.beats), *told]


def _study_place(material: Material, place: Place, evidence: _Evidence) -> PlaceFindings:
    model, expectations, fit = (
        material.models[place.operation],
        evidence.expectations,
        evidence.expectations.fit,
    )
    observations, own, tally = evidence.observations, evidence.own, evidence.tally
    measured = _measured(model, expectations, observations, material.histories)
    advice = _advice(material, model, expectations, place)
    findings = PlaceFindings(
        place=place,
        payload_noun=material.payload_nouns.get(place.operation, "payload"),
        value_metric=model.value_metric,
        observation_count=tally.measured_count + len(evidence.reported),
        measured_count=tally.measured_count,
        newest_observation_at=observations[-1].started_at if observations else None,
        fit=fit if expectations.is_readable else None,
        advice=advice,
        curves=(),
        surface=None,
        measured=measured,
        records=_records(measured),
        histories=_histories(material, place),
        fitted_coverage=_coverage((m.value, m.fitted) for m in measured if is_since_change(m, fit)),
        promised_coverage=_coverage((m.value, m.promised) for m in measured),
        inconclusives=tuple(i for i in material.inconclusives if i.context.place == place),
    )
    findings = dataclasses.replace(
        findings,
        curves=_curves(model, expectations, findings, tally),
        surface=_surface(model, findings) if expectations.is_readable else None,
        studies=_studies(model, findings, evidence) if expectations.is_readable else (),
    )
    return dataclasses.replace(
        findings,
        course=tuple(_course(model, expectations, tally, own)),
        course_density=over_time(tally),
        episodes=episodes(evidence.beats),
        rhythms=tuple(rhythms(_samples(model, tally, own))),
        spreads=spreads(tally),
        retries=retries(evidence.beats, own),
        regrets=_regrets(findings, evidence),
        hearsay=_hearsay(model, findings, observations),
    )


def _asked_together(places: Sequence[PlaceFindings]) -> list[PlaceFindings]:
    """The same with the probabilities of all rhythms corrected for how many were looked for."""
    answers = iter(corrected([rhythm for place in places for rhythm in place.rhythms]))
    return [
        dataclasses.replace(place, rhythms=tuple(next(answers) for _ in place.rhythms)) for place in places
    ]


def _samples(model: PerformanceModel[Any], tally: Tally, newest: Sequence[Observation[Any]]) -> list[Sample]:
    """What went well, as it was measured: whoever compares it does so within a setting, and needs no fit."""
    begins_at = detail_begins_at(tally, newest)
    return [
        *_by_the_hour(tally, begins_at),
        *(
            Sample(one.started_at, _setting_of(one), math.log(value))
            for one in newest
            if one.went_well
            and (value := model.measured_value(one)) > 0
            and one.started_at.timestamp() >= begins_at
        ),
    ]


def _course(
    model: PerformanceModel[Any],
    expectations: Expectations,
    tally: Tally,
    newest: Sequence[Observation[Any]],
) -> list[Sample]:
    """The same beside what the newest fit expects of each setting; nothing where there is no fit."""
    begins_at = detail_begins_at(tally, newest)
    single = [
        (one, value)
        for one in newest
        if one.started_at.timestamp() >= begins_at
        and one.went_well
        and (value := model.measured_value(one)) > 0
    ]
    asked: dict[int, dict[Any, None]] = defaultdict(dict)
    for one, _ in single:
        asked[one.context.payload_size_bytes][one.setting] = None
    means = {
        (size, setting): mean
        for size, settings in asked.items()
        for setting, mean in zip(settings, expectations.means(size, list(settings)), strict=True)
    }
    return [
        *_by_the_hour(tally, begins_at),
        *(
            Sample(one.started_at, _setting_of(one), math.log(value / mean))
            for one, value in single
            if (mean := means[one.context.payload_size_bytes, one.setting])
        ),
    ]


def _by_the_hour(tally: Tally, until: float) -> list[Sample]:
    return [
        Sample(datetime.fromtimestamp(at, UTC), "the middle of an hour", math.log(ratio), count)
        for at, ratio, count in middles(tally, before=until)
    ]


def _setting_of(observation: Observation[Any]) -> str:
    return _size_and_setting(observation.context.payload_size_bytes, observation.setting)


@lru_cache(maxsize=4096)
def _size_and_setting(size_bytes: int, setting: Any) -> str:  # of the operation's own type
    return f"{format_bytes(size_bytes)} with {setting_words(setting)}"


def _with_verdict(material: Material, findings: PlaceFindings, evidence: _Evidence) -> PlaceFindings:
    """The same with what is to be said first: of the ordinary advice for the size that was measured most."""
    model = material.models[findings.place.operation]
    advice = _most_measured(findings, evidence)
    if advice is None:
        return findings
    size = advice.context.payload_size_bytes
    known = [change for change in material.changes if change.place == findings.place]
    changes = change_findings(model, known, evidence.observations, size)
    unadvised = {
        client: model.setting_type(**values) for client, values in material.unadvised(advice.context).items()
    }
    words = material.setting_words[findings.place.operation]
    in_words = words(setting_values(advice.setting))
    gains = client_gains(
        model, findings.fit, advice, unadvised, lambda setting: words(setting_values(setting))
    )
    expenses = [e for e in material.expenses if e.operation == findings.place.operation]
    usd = sum(e.cost.usd for e in expenses) if expenses else None
    hours = [e.hour_at for e in expenses]
    seconds = (max(hours) - min(hours)).total_seconds() + _HOUR_SECONDS if expenses else None
    sharing_count = sum(place.operation == findings.place.operation for place in _places(material))
    verdict = PlaceVerdict(
        sentence=sentence_of(
            advice,
            setting_words=in_words,
            gains=gains,
            changes=changes,
            episodes=findings.episodes,
            rhythm=next((r for r in findings.rhythms if r.is_significant), None),
            unmeasured_count=0 if findings.observation_count else len(findings.inconclusives),
            usd=usd if sharing_count == 1 else None,
            usd_period_seconds=seconds,
            now=material.generated_at,
        ),
        payload_size_bytes=size,
        setting_words=in_words,
        copies=tuple(material.copies(advice)),
        gains=gains,
        usd=usd,
        usd_period_seconds=seconds,
        usd_place_count=sharing_count,
        days=days_of(evidence.moments),
        is_expired=advice.has_expired(material.generated_at),
    )
    return dataclasses.replace(findings, changes=changes, verdict=verdict)


class Expectations:
    """What the newest fit of a place says, each question answered once; None where it cannot answer."""

    def __init__(self, model: PerformanceModel[Any], fit: Fit | None) -> None:
        self._model = model
        self.fit = fit
        self.is_readable = fit is not None
        self._answers: dict[tuple[Context, Any, Demand], Estimate | None] = {}

    def of(self, context: Context, setting: Any, demand: Demand | None = None) -> Estimate | None:
        """The value of a setting."""
        key = (context, setting, demand or Demand())
        if key not in self._answers:
            self._answers[key] = self._ask(*key)
        return self._answers[key]

    def means(self, payload_size_bytes: int, settings: Sequence[Any]) -> list[float | None]:
        """The expected values of many settings, asked all at once."""
        if self.fit is None:
            return [None] * len(settings)
        context = Context(place=self.fit.place, payload_size_bytes=payload_size_bytes)
        try:
            values = self._model.appraise(self.fit, context, settings, Demand()).value
        except _UNREADABLE:
            return [None] * len(settings)
        return [float(value) for value in values]

    def _ask(self, context: Context, setting: Any, demand: Demand) -> Estimate | None:
        if self.fit is None or not self.is_readable:
            return None
        try:
            prediction = self._model.predict(self.fit, context, setting, demand)
        except _UNREADABLE:
            self.is_readable = False
            return None
        return prediction.get(self._model.value_metric)


# --- The advice that stands. ---


def _advice(
    material: Material, model: PerformanceModel[Any], expectations: Expectations, place: Place
) -> tuple[Advice, ...]:
    stored = [r for r in material.recommendations if r.context.place == place]
    stored.sort(key=lambda r: (r.demand != Demand(), r.context.payload_size_bytes))
    return tuple(
        _advise(model, expectations, _renewed(material, model, expectations, previous)) for previous in stored
    )


def _advise(
    model: PerformanceModel[Any], expectations: Expectations, standing: Recommendation[Any]
) -> Advice:
    context, setting, demand = standing.context, standing.setting, standing.demand
    default = model.default_setting(context)
    names = [name for name in knobs(setting) if name.endswith("thread_count")]
    doubled = model.legal(
        context, dataclasses.replace(setting, **{name: 2 * getattr(setting, name) for name in names})
    )
    now, then = expectations.of(context, setting, demand), expectations.of(context, doubled, demand)
    return Advice(
        recommendation=standing,
        default_setting=default,
        default_expected=expectations.of(context, default, demand),
        doubled_knob=names[0],
        doubled_gain_fraction=then.expected / now.expected - 1.0
        if now and then and now.expected > 0
        else None,
    )


def _renewed(
    material: Material,
    model: PerformanceModel[Any],
    expectations: Expectations,
    previous: Recommendation[Any],
) -> Recommendation[Any]:
    """The stored advice as a daemon that starts now gives it again: only changes are stored, fits go on."""
    fit = expectations.fit
    if fit is None or expectations.of(previous.context, previous.setting, previous.demand) is None:
        return previous
    newest_at = fit.newest_observation_at or previous.issued_at
    return recommend(
        model,
        fit,
        previous.context,
        previous.demand,
        previous=previous,
        now=max(newest_at, previous.issued_at),
        validity_seconds=(previous.expires_at - previous.issued_at).total_seconds(),
        within=material.within_limits(previous.context, previous.demand),
    )


# --- What was measured, and what had been expected. ---


def _measured(
    model: PerformanceModel[Any],
    expectations: Expectations,
    observations: Sequence[Observation[Any]],
    histories: Mapping[Context, Sequence[Recommendation[Any]]],
) -> tuple[Measured, ...]:
    return tuple(
        Measured(
            context=o.context,
            setting=o.setting,
            started_at=o.started_at,
            value=model.measured_value(o),
            origin=o.origin.value,
            client=o.client,
            throttled_count=o.throttled_count,
            failed_count=o.failed_count,
            fitted=expectations.of(o.context, o.setting),
            promised=o.foreseen or _promised(model.value_metric, o, histories.get(o.context, ())),
            reason=o.reason,
        )
        for o in observations[-JUDGED_COUNT_MAX:]
        if speaks_of_setting(model, o)
    )


def is_since_change(measured: Measured, fit: Fit | None) -> bool:
    """Whether the place of the newest fit is the one that was measured then."""
    return fit is None or fit.changed_at is None or measured.started_at >= fit.changed_at


def _promised(
    metric: str, observation: Observation[Any], history: Sequence[Recommendation[Any]]
) -> Estimate | None:
    """What the ordinary advice of that moment said about this setting, before it was measured."""
    before = [r for r in history if r.demand == Demand() and r.issued_at <= observation.started_at]
    if not before or before[-1].setting != observation.setting or before[-1].basis is Basis.DEFAULT:
        return None
    return before[-1].prediction.get(metric)


def _coverage(pairs: Iterable[tuple[float, Estimate | None]]) -> Coverage:
    judged = [estimate.low <= value <= estimate.high for value, estimate in pairs if estimate is not None]
    return Coverage(within_count=sum(judged), count=len(judged))


def _records(measured: Sequence[Measured]) -> tuple[SettingRecord, ...]:
    groups: dict[tuple[Context, Any], list[Measured]] = defaultdict(list)
    for one in measured:
        groups[(one.context, one.setting)].append(one)
    records = [
        SettingRecord(
            context=context,
            setting=setting,
            count=len(group),
            value_median=median(m.value for m in group),
            fitted=group[0].fitted,
            trouble_count=sum(m.throttled_count + m.failed_count > 0 for m in group),
        )
        for (context, setting), group in groups.items()
    ]
    return tuple(sorted(records, key=_size_and_knobs))


def _size_and_knobs(record: SettingRecord) -> tuple[float, ...]:
    return (record.context.payload_size_bytes, *setting_values(record.setting).values())


def _histories(material: Material, place: Place) -> tuple[History, ...]:
    contexts = sorted((c for c in material.histories if c.place == place), key=lambda c: c.payload_size_bytes)
    histories = (
        History(
            context=context,
            recommendations=tuple(r for r in material.histories[context] if r.demand == Demand()),
        )
        for context in contexts
    )
    return tuple(history for history in histories if history.recommendations)


# --- The curve of each knob that matters. ---


def _curves(
    model: PerformanceModel[Any], expectations: Expectations, findings: PlaceFindings, tally: Tally
) -> tuple[Curve, ...]:
    curves: list[Curve] = []
    for context in figured_contexts(findings):
        advice = next(
            (
                a
                for a in findings.advice
                if a.recommendation.context == context and a.recommendation.demand == Demand()
            ),
            None,
        )
        if advice is not None and findings.fit is not None:
            curves += [
                dataclasses.replace(curve, density=_over(tally, curve, advice))
                for curve in _curves_of(model, expectations, findings, advice)
            ]
    return tuple(curves)


def _curves_of(
    model: PerformanceModel[Any], expectations: Expectations, findings: PlaceFindings, advice: Advice
) -> list[Curve]:
    """That of the first knob, and that of the other knob with the greatest effect."""
    setting = advice.recommendation.setting
    swept = [name for name, bounds in knobs(setting).items() if bounds.low > 0]
    curves = [_curve(model, expectations, findings, advice, name) for name in swept]
    others = [c for c in curves[1:] if _effect(c) >= _FLAT]
    return [*(c for c in curves[:1] if c.expected), *sorted(others, key=_effect, reverse=True)[:1]]


def _over(tally: Tally, curve: Curve, advice: Advice) -> Density | None:
    scale = knobs(advice.recommendation.setting)[curve.knob].scale
    return over_knob(tally, curve.context.payload_size_bytes, curve.knob, scale)


def _surface(model: PerformanceModel[Any], findings: PlaceFindings) -> Surface | None:
    """Asked all at once; None for an operation whose first two knobs are no quantities."""
    contexts = figured_contexts(findings)
    ordinary = [a for a in findings.advice if a.recommendation.demand == Demand()]
    advice = next((a for a in ordinary if a.recommendation.context in contexts), None)
    if advice is None or findings.fit is None:
        return None
    setting, context = advice.recommendation.setting, advice.recommendation.context
    names = [name for name, bounds in knobs(setting).items() if bounds.low > 0][:2]
    if len(names) < 2:
        return None
    first, second = (sorted(set(_knob_values(findings, advice, name)[::2])) for name in names)
    grid = [dataclasses.replace(setting, **{names[0]: a, names[1]: b}) for b in second for a in first]
    try:
        appraisal = model.appraise(
            findings.fit, context, [model.legal(context, each) for each in grid], Demand()
        )
    except _UNREADABLE:
        return None
    rows = appraisal.value.reshape(len(second), len(first))
    return Surface(
        context=context,
        knobs=(names[0], names[1]),
        first=tuple(map(float, first)),
        second=tuple(map(float, second)),
        values=tuple(tuple(float(v) for v in row) for row in rows),
        advised=(float(getattr(setting, names[0])), float(getattr(setting, names[1]))),
    )


def _most_measured(findings: PlaceFindings, evidence: _Evidence) -> Recommendation[Any] | None:
    """The ordinary advice for the size that was measured most."""
    counts = evidence.size_counts
    ordinary = [a.recommendation for a in findings.advice if a.recommendation.demand == Demand()]
    cells = evidence.expectations.fit.cells if evidence.expectations.fit else ()
    learned: Counter[int] = Counter()
    for cell in cells:
        learned[cell.payload_size_bytes] += cell.count
    # What the fit knows decides where nothing is as young as was asked for.
    return max(
        ordinary,
        key=lambda made: (counts[made.context.payload_size_bytes], learned[made.context.payload_size_bytes]),
        default=None,
    )


def _regrets(findings: PlaceFindings, evidence: _Evidence) -> tuple[Regret, ...]:
    advice = _most_measured(findings, evidence)
    if findings.fit is None or advice is None:
        return ()
    history = next((h for h in findings.histories if h.context == advice.context), None)
    if history is None:
        return ()
    return regrets(
        history.recommendations,
        lambda setting: evidence.expectations.of(advice.context, setting),
        best=advice.setting,
        since=findings.fit.changed_at,
    )


def _hearsay(
    model: PerformanceModel[Any], findings: PlaceFindings, observations: Sequence[Observation[Any]]
) -> tuple[Hearsay, ...]:
    if findings.fit is None:
        return ()
    try:
        return hearsay(model, findings.fit, observations)
    except _UNREADABLE:
        return ()


def _studies(model: PerformanceModel[Any], findings: PlaceFindings, evidence: _Evidence) -> tuple[Study, ...]:
    advice = _most_measured(findings, evidence)
    if findings.fit is None or advice is None or not isinstance(model, HasStudies):
        return ()
    try:
        return tuple(model.studies(findings.fit, advice.context, advice.setting, evidence.observations))
    except _UNREADABLE:
        return ()


def _curve(
    model: PerformanceModel[Any],
    expectations: Expectations,
    findings: PlaceFindings,
    advice: Advice,
    name: str,
) -> Curve:
    context, setting = advice.recommendation.context, advice.recommendation.setting
    found: dict[float, Estimate] = {}
    for value in _knob_values(findings, advice, name):
        legal = model.legal(context, dataclasses.replace(setting, **{name: value}))
        estimate = expectations.of(context, legal)
        if estimate is not None:
            found[float(getattr(legal, name))] = estimate
    values = sorted(found)
    return Curve(
        context=context,
        knob=name,
        knob_values=tuple(values),
        expected=tuple(found[value] for value in values),
        advised=float(getattr(setting, name)),
        default=float(getattr(advice.default_setting, name)),
    )


def _knob_values(findings: PlaceFindings, advice: Advice, name: str) -> list[Any]:
    """Around all that was tried and advised, within the knob's bounds; whole numbers for a whole knob."""
    setting, context = advice.recommendation.setting, advice.recommendation.context
    bounds = knobs(setting)[name]
    tried = [float(getattr(r.setting, name)) for r in findings.records if r.context == context]
    known = [*tried, float(getattr(setting, name)), float(getattr(advice.default_setting, name))]
    low = max(bounds.low, min(known) / 2)
    high = max(min(bounds.high, 2 * max(known)), low)
    shares = [n / (CURVE_POINT_COUNT - 1) for n in range(CURVE_POINT_COUNT)]
    if bounds.scale is Scale.LOG:
        values = [low * (high / low) ** share for share in shares]
    else:
        values = [low + (high - low) * share for share in shares]
    kind = type(getattr(setting, name))
    return sorted({kind(round(v)) if kind is int else v for v in values} | {getattr(setting, name)})


def _effect(curve: Curve) -> float:
    values = [estimate.expected for estimate in curve.expected]
    return max(values) / max(min(values), 1e-300) if values else 0.0


def is_on_curve(curve: Curve, measured: Measured, advised: Any) -> bool:
    """Whether all other knobs stood about where they are advised."""
    here, there = setting_values(measured.setting), setting_values(advised)
    return all(_is_near(here[name], there[name]) for name in here if name != curve.knob)


def _is_near(one: float, other: float) -> bool:
    return max(one, other) <= _NEAR * min(one, other)


# --- What it cost. ---


def _by_day(material: Material) -> tuple[DaySpend, ...]:
    days: dict[tuple[date, str], Cost] = defaultdict(Cost)
    for expense in material.expenses:
        days[(expense.hour_at.date(), expense.operation)] += expense.cost
    return tuple(DaySpend(day=day, operation=name, cost=days[(day, name)]) for day, name in sorted(days))
