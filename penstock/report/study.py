"""Knows how the material of a report becomes findings: place by place, each by its own model and knobs.

No operation is named here: their differences are in their models.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from statistics import median
from typing import Any

from penstock.models.model import Fit, HasComparison, HasForesight, PerformanceModel, speaks_of_setting
from penstock.models.study import HasStudies, Study
from penstock.optimizer.recommendation import recommend
from penstock.optimizer.reports import own, reported
from penstock.report.changes import ChangeFinding, change_findings
from penstock.report.clients import clients
from penstock.report.density import over_knob, over_time
from penstock.report.distributions import spreads
from penstock.report.episodes import episodes
from penstock.report.findings import (
    Advice,
    Coverage,
    Curve,
    DaySpend,
    History,
    Measured,
    PlaceFindings,
    Report,
    SettingRecord,
    Surface,
    is_about_now,
    last_change,
)
from penstock.report.judgement import Hearsay, Regret, hearsay, regrets
from penstock.report.material import Material
from penstock.report.retries import retries
from penstock.report.rhythm import Sample, corrected, rhythms
from penstock.report.tally import answers_of, beats, detail_begins_at, middles, tally_of
from penstock.report.verdicts import UNREADABLE, verdict_on
from penstock.report.wording import setting_words
from penstock.units import format_bytes
from penstock.vocabulary import (
    Basis,
    Context,
    Cost,
    Demand,
    Estimate,
    Observation,
    Origin,
    Place,
    Recommendation,
    divided_knobs,
    doubled,
    knobs,
    setting_values,
)

CURVE_POINT_COUNT = 25
JUDGED_COUNT_MAX = 100
PRICED = "usd_per_"  # derived values whose names begin so are prices
FIGURED_CONTEXT_COUNT_MAX = 3  # contexts with figures per place; the others are only rows of the table
_FLAT = 1.05  # a knob that changes the value by less than this ratio is not drawn


def study(material: Material) -> Report:
    """All findings from the material, without remarks."""
    studied = {place: _Studied(material, place) for place in _places(material)}
    places = _asked_together([each.findings() for each in studied.values()])
    standing = [advice.recommendation for place in places for advice in place.advice]
    return Report(
        source=material.source,
        generated_at=material.generated_at,
        since=material.since,
        places=tuple(studied[place.place].with_verdict(place) for place in places),
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


def _places(material: Material) -> list[Place]:
    places = {
        *material.observations,
        *(fit.place for fit in material.fits),
        *(r.context.place for r in material.recommendations),
        *(i.context.place for i in material.inconclusives),
    }
    known = [place for place in places if place.operation in material.models]
    return sorted(known, key=lambda p: (p.operation, p.region, p.instance_type, p.service_class))


def _asked_together(places: Sequence[PlaceFindings]) -> list[PlaceFindings]:
    """The same, with the probabilities of all rhythms corrected for their number."""
    answers = iter(corrected([rhythm for place in places for rhythm in place.rhythms]))
    return [
        dataclasses.replace(place, rhythms=tuple(next(answers) for _ in place.rhythms)) for place in places
    ]


class Expectations:
    """What the newest fit of a place predicts, each question computed once; None where it cannot predict."""

    def __init__(self, model: PerformanceModel[Any], fit: Fit | None) -> None:
        self._model = model
        self.fit = fit
        self.is_readable = fit is not None
        self._answers: dict[tuple[Context, Demand], dict[Any, Estimate | None]] = {}

    def of(self, context: Context, setting: Any, demand: Demand | None = None) -> Estimate | None:
        """The predicted value of a setting, as one future measurement."""
        (answer,) = self.each(context, [setting], demand)
        return answer

    def each(
        self, context: Context, settings: Sequence[Any], demand: Demand | None = None
    ) -> list[Estimate | None]:
        """The same for many settings, computed together."""
        known = self._answers.setdefault((context, demand or Demand()), {})
        unknown = [setting for setting in dict.fromkeys(settings) if setting not in known]
        if unknown:
            known.update(zip(unknown, self._ask(context, unknown, demand or Demand()), strict=True))
        return [known[setting] for setting in settings]

    def means(self, payload_size_bytes: int, settings: Sequence[Any]) -> list[float | None]:
        """The expected values of many settings, computed together: averages, including what late requests cost."""
        return self._together(payload_size_bytes, settings, lambda *asked: self._model.appraise(*asked).value)

    def usual(self, payload_size_bytes: int, settings: Sequence[Any]) -> list[float | None]:
        """The middle of what `of` predicts for each, computed together: what a single measurement is compared with."""
        return self._together(payload_size_bytes, settings, self._model.usual)

    def measured(self, observations: Sequence[Observation[Any]]) -> Sequence[float]:
        """What each measured, to be compared with what is predicted."""
        if self.fit is not None and isinstance(self._model, HasComparison):
            with contextlib.suppress(*UNREADABLE):
                return self._model.comparable_values(self.fit, observations)
        return [self._model.measured_value(observation) for observation in observations]

    def _together(
        self, payload_size_bytes: int, settings: Sequence[Any], ask: Callable[..., Iterable[float]]
    ) -> list[float | None]:
        if self.fit is not None:
            context = Context(place=self.fit.place, payload_size_bytes=payload_size_bytes)
            with contextlib.suppress(*UNREADABLE):
                return [float(v) for v in ask(self.fit, context, settings, Demand())]
        return [None] * len(settings)

    def _ask(self, context: Context, settings: Sequence[Any], demand: Demand) -> Sequence[Estimate | None]:
        fit, model = self.fit, self._model
        if fit is not None and self.is_readable:
            try:
                if isinstance(model, HasForesight):
                    return list(model.foresee(fit, context, settings, demand))
                predictions = [model.predict(fit, context, setting, demand) for setting in settings]
                return [prediction.get(model.value_metric) for prediction in predictions]
            except UNREADABLE:
                self.is_readable = False
        return [None] * len(settings)


class _Studied:
    """One place: its newest observations one by one, a tally of all, and what follows from them."""

    def __init__(self, material: Material, place: Place) -> None:
        self._material, self._place = material, place
        self._model: PerformanceModel[Any] = material.models[place.operation]
        fit = next((f for f in material.fits if f.place == place), None)
        self._expectations = Expectations(self._model, fit)
        observations = material.observations.get(place, ())
        self._own = own(observations)
        self._hearsay, self._believed = self._heard(reported(observations))
        self._observations = _in_time([*self._own, *self._believed])
        self._tally = material.tallies.get(place) or tally_of(
            self._own, self._model.measured_value, self._expectations.means
        )
        self._beats = beats(self._tally, self._own)
        self._measured, self._advice = self._judged(), self._standing()
        self._ordinary = [a for a in self._advice if a.recommendation.demand == Demand()]
        self._fit = fit if self._expectations.is_readable else None  # known only after it was asked

    def findings(self) -> PlaceFindings:
        """All findings except the verdict."""
        material, place, tally, measured = self._material, self._place, self._tally, self._measured
        curves, words = self._curves(), material.words[place.operation]
        probed = [m for m in measured if m.origin == Origin.PROBE.value] or measured  # nobody can forge them
        is_readable = self._expectations.is_readable
        return PlaceFindings(
            place=place,
            payload_noun=words.payload,
            payload_note=words.payload_note,
            request_rate_help=words.request_rate_help,
            value_metric=self._model.value_metric,
            observation_count=tally.measured_count + len(self._believed),
            measured_count=tally.measured_count,
            newest_observation_at=max((o.started_at for o in self._own or self._believed), default=None),
            fit=self._fit,
            advice=self._advice,
            curves=curves,
            surface=self._surface() if is_readable else None,
            measured=measured,
            records=self._records,
            histories=self._histories,
            fitted_coverage=_coverage(
                (m.value, m.fitted)
                for m in probed
                if is_about_now(self._expectations.fit, self._changes, m.started_at)
            ),
            promised_coverage=_coverage((m.value, m.promised) for m in measured),
            inconclusives=tuple(i for i in material.inconclusives if i.context.place == place),
            changes=self._changes,
            episodes=episodes(self._beats),
            rhythms=tuple(rhythms(self._samples())),
            spreads=spreads(tally),
            studies=self._studies() if is_readable else (),
            regrets=self._regrets(),
            hearsay=self._hearsay,
            retries=retries(self._beats, self._own),
            course=tuple(self._course()),
            course_density=over_time(tally),
        )

    def with_verdict(self, findings: PlaceFindings) -> PlaceFindings:
        """The same with the verdict, on the ordinary advice for the size that was measured most."""
        advice = self._most_measured
        if advice is None:
            return findings
        place_count = sum(place.operation == self._place.operation for place in _places(self._material))
        verdict = verdict_on(self._material, findings, advice, place_count=place_count, moments=self._moments)
        return dataclasses.replace(findings, verdict=verdict)

    @property
    def _size_counts(self) -> Counter[int]:
        """How often each size was measured, or reported and believed."""
        counts = Counter(o.context.payload_size_bytes for o in self._believed)
        for (size, _), histogram in self._tally.levels.items():
            counts[size] += sum(histogram.counts)
        return counts

    @property
    def _moments(self) -> list[tuple[float, int]]:
        """Seconds since 1970 of measurements and of believed reports, and their number at each."""
        told = [(o.started_at.timestamp(), 1) for o in self._believed]
        return [*((beat.first_at, beat.measured_count) for beat in self._beats), *told]

    def _heard(
        self, reports: Sequence[Observation[Any]]
    ) -> tuple[tuple[Hearsay, ...], tuple[Observation[Any], ...]]:
        """What became of the reports, and those that are believed; the rest of the page ignores the others."""
        with contextlib.suppress(*UNREADABLE):
            return hearsay(self._model, self._expectations.fit, self._own, reports)
        return hearsay(self._model, None, self._own, reports)

    # --- What happened over time. ---

    @cached_property
    def _changes(self) -> tuple[ChangeFinding, ...]:
        known = [change for change in self._material.changes if change.place == self._place]
        advice = self._most_measured
        if advice is None:
            return ()
        size = advice.context.payload_size_bytes
        return change_findings(self._model, known, self._own or self._believed, size, self._expectations.fit)

    @property
    def _changed_at(self) -> datetime:
        return last_change(self._expectations.fit, self._changes)

    def _detailed(self) -> Iterator[tuple[Observation[Any], float]]:
        """Successful measurements one by one, in the time that the newest cover."""
        begins_at = detail_begins_at(self._tally, self._own)
        for one in self._own:
            value = self._model.measured_value(one) if one.went_well else 0.0
            if value > 0 and one.started_at.timestamp() >= begins_at:
                yield one, value

    def _samples(self) -> list[Sample]:
        """Successful measurements as they are: rhythms compare within a setting, and need no fit."""
        single = (Sample(o.started_at, _setting_of(o), math.log(value)) for o, value in self._detailed())
        return [*self._by_the_hour(), *single]

    def _course(self) -> list[Sample]:
        """The same relative to what the newest fit expects of each setting; empty without a fit.

        If hours are drawn before single measurements, both are relative to the same expectation: otherwise there would
        be a step between them.
        """
        detailed, hours = list(self._detailed()), self._by_the_hour()
        single = [one for one, _ in detailed]
        values = [value for _, value in detailed] if hours else self._expectations.measured(single)
        ask = self._expectations.means if hours else self._expectations.usual
        keys = [(one.context.payload_size_bytes, one.setting) for one in single]
        expected = answers_of(ask, keys)
        return [
            *hours,
            *(
                Sample(one.started_at, _setting_of(one), math.log(value / most))
                for one, value, key in zip(single, values, keys, strict=True)
                if (most := expected[key])
            ),
        ]

    def _by_the_hour(self) -> list[Sample]:
        until = detail_begins_at(self._tally, self._own)
        return [
            Sample(datetime.fromtimestamp(at, UTC), "the middle of an hour", math.log(ratio), count)
            for at, ratio, count in middles(self._tally, before=until)
        ]

    # --- The advice that stands. ---

    def _standing(self) -> tuple[Advice, ...]:
        stored = [r for r in self._material.recommendations if r.context.place == self._place]
        stored.sort(key=lambda r: (r.demand != Demand(), r.context.payload_size_bytes))
        return tuple(self._advised(self._renewed(previous)) for previous in stored)

    def _advised(self, standing: Recommendation[Any]) -> Advice:
        context, setting, demand = standing.context, standing.setting, standing.demand
        default, ask = self._model.default_setting(context), self._expectations.of
        # Double all divided knobs: more threads alone gain nothing if they wait at a rate limit or a window.
        twice = self._model.legal(context, doubled(setting))
        if standing.bottleneck == "request-rate":  # what is sent beyond the advised limit is refused
            limits = [name for name, bounds in knobs(setting).items() if bounds.low == 0]
            twice = dataclasses.replace(twice, **{name: getattr(setting, name) for name in limits})
        now, then = ask(context, setting, demand), ask(context, twice, demand)
        return Advice(
            recommendation=standing,
            default_setting=default,
            default_expected=ask(context, default, demand),
            default_prices=self._prices(context, default, demand),
            doubled_knob=divided_knobs(setting)[0],
            doubled_gain_fraction=then.expected / now.expected - 1.0
            if now and then and now.expected > 0
            else None,
        )

    def _prices(self, context: Context, setting: Any, demand: Demand) -> dict[str, float]:
        fit = self._expectations.fit
        if fit is None or self._expectations.of(context, setting, demand) is None:
            return {}
        derived = self._model.derive(fit, context, setting, demand)
        return {name: value for name, value in derived.items() if name.startswith(PRICED)}

    def _renewed(self, previous: Recommendation[Any]) -> Recommendation[Any]:
        """The stored advice as a daemon that starts now would give it: only changes are stored, while fits go on."""
        fit, context, demand = self._expectations.fit, previous.context, previous.demand
        if fit is None or self._expectations.of(context, previous.setting, demand) is None:
            return previous
        newest_at = fit.newest_observation_at or previous.issued_at
        return recommend(
            self._model,
            fit,
            context,
            demand,
            previous=previous,
            now=max(newest_at, previous.issued_at),
            validity_seconds=(previous.expires_at - previous.issued_at).total_seconds(),
            within=self._material.within_limits(context, demand),
        )

    # --- What was measured, and what had been expected. ---

    def _judged(self) -> tuple[Measured, ...]:
        histories, model = self._material.histories, self._model
        newest = _in_time([*self._own[-JUDGED_COUNT_MAX:], *self._believed[-JUDGED_COUNT_MAX:]])
        judged = [o for o in newest if speaks_of_setting(model, o)]
        for context in {o.context for o in judged}:
            self._expectations.each(context, [o.setting for o in judged if o.context == context])
        return tuple(
            Measured(
                context=o.context,
                setting=o.setting,
                started_at=o.started_at,
                value=value,
                origin=o.origin.value,
                client=o.client,
                throttled_count=o.throttled_count,
                failed_count=o.failed_count,
                fitted=self._expectations.of(o.context, o.setting),
                promised=_promised(model.value_metric, o, histories.get(o.context, ())),
                reason=o.reason,
            )
            for o, value in zip(judged, self._expectations.measured(judged), strict=True)
        )

    @cached_property
    def _records(self) -> tuple[SettingRecord, ...]:
        """Records by size and setting."""
        groups: dict[tuple[Context, Any], list[Measured]] = defaultdict(list)
        for one in self._measured:
            groups[(one.context, one.setting)].append(one)
        records = (
            SettingRecord(
                context=context,
                setting=setting,
                count=len(group),
                value_median=median(m.value for m in group),
                fitted=group[0].fitted,
                trouble_count=sum(m.throttled_count + m.failed_count > 0 for m in group),
            )
            for (context, setting), group in groups.items()
        )
        return tuple(
            sorted(records, key=lambda r: (r.context.payload_size_bytes, *setting_values(r.setting).values()))
        )

    @cached_property
    def _histories(self) -> tuple[History, ...]:
        stored = self._material.histories
        contexts = [context for context in stored if context.place == self._place]
        histories = (
            History(
                context=context, recommendations=tuple(r for r in stored[context] if r.demand == Demand())
            )
            for context in sorted(contexts, key=lambda c: c.payload_size_bytes)
        )
        return tuple(history for history in histories if history.recommendations)

    # --- The curve of each knob that matters. ---

    @cached_property
    def _contexts(self) -> list[Context]:
        """Contexts that get figures: those measured most, or the first with advice."""
        counts: Counter[Context] = Counter()
        for record in self._records:
            counts[record.context] += record.count
        most = sorted(counts, key=lambda c: (-counts[c], c.payload_size_bytes))[:FIGURED_CONTEXT_COUNT_MAX]
        contexts = most or [a.recommendation.context for a in self._advice if self._fit][:1]
        return sorted(contexts, key=lambda c: c.payload_size_bytes)

    def _curves(self) -> tuple[Curve, ...]:
        ordinary = {a.recommendation.context: a for a in reversed(self._ordinary)}
        return tuple(
            curve
            for context in self._contexts
            if self._fit is not None and (advice := ordinary.get(context)) is not None
            for curve in self._curves_of(advice)
        )

    def _curves_of(self, advice: Advice) -> list[Curve]:
        """The curve of the first knob, and of the other knob with the greatest effect."""
        curves = [self._curve(advice, name) for name in _swept(advice.recommendation.setting)]
        others = [c for c in curves[1:] if _effect(c) >= _FLAT]
        return [*(c for c in curves[:1] if c.expected), *sorted(others, key=_effect, reverse=True)[:1]]

    def _curve(self, advice: Advice, name: str) -> Curve:
        context, setting = advice.recommendation.context, advice.recommendation.setting
        swept = _knob_values(self._records, advice, name)
        legal = [self._model.legal(context, dataclasses.replace(setting, **{name: value})) for value in swept]
        estimates = zip(legal, self._expectations.each(context, legal), strict=True)
        found = {float(getattr(at, name)): estimate for at, estimate in estimates if estimate is not None}
        values = sorted(found)
        return Curve(
            context=context,
            knob=name,
            knob_values=tuple(values),
            expected=tuple(found[value] for value in values),
            advised=float(getattr(setting, name)),
            default=float(getattr(advice.default_setting, name)),
            density=over_knob(self._tally, context.payload_size_bytes, name),
        )

    def _surface(self) -> Surface | None:
        """The surface over the first two quantitative knobs; None if the operation has fewer."""
        advice = next((a for a in self._ordinary if a.recommendation.context in self._contexts), None)
        if advice is None or self._fit is None:
            return None
        setting, context = advice.recommendation.setting, advice.recommendation.context
        names = _swept(setting)[:2]
        if len(names) < 2:
            return None
        first, second = (sorted(set(_knob_values(self._records, advice, name)[::2])) for name in names)
        grid = [dataclasses.replace(setting, **{names[0]: a, names[1]: b}) for b in second for a in first]
        legal = [self._model.legal(context, each) for each in grid]
        values = [v for v in self._expectations.usual(context.payload_size_bytes, legal) if v is not None]
        if len(values) < len(grid):
            return None
        return Surface(
            context=context,
            knobs=(names[0], names[1]),
            first=tuple(map(float, first)),
            second=tuple(map(float, second)),
            values=tuple(tuple(values[n : n + len(first)]) for n in range(0, len(values), len(first))),
            advised=(float(getattr(setting, names[0])), float(getattr(setting, names[1]))),
        )

    # --- What follows from the advice for the size that was measured most. ---

    @cached_property
    def _most_measured(self) -> Recommendation[Any] | None:
        counts, fit = self._size_counts, self._expectations.fit
        learned: Counter[int] = Counter()
        for cell in fit.cells if fit else ():
            learned[cell.payload_size_bytes] += cell.count

        def measured(one: Recommendation[Any]) -> tuple[int, int]:
            """Measurements in the report's time; where there are none, those that the fit has learned from."""
            size = one.context.payload_size_bytes
            return counts[size], learned[size]

        made = [a.recommendation for a in self._ordinary]
        if not any(map(any, map(measured, made))):  # a middle size represents the others
            return made[len(made) // 2] if made else None
        return max(made, key=measured)

    def _regrets(self) -> tuple[Regret, ...]:
        advice = self._most_measured
        if self._fit is None or advice is None:
            return ()
        history = next((h for h in self._histories if h.context == advice.context), None)
        if history is None:
            return ()
        return regrets(
            history.recommendations,
            lambda setting: self._expectations.of(advice.context, setting),
            best=advice.setting,
            since=self._changed_at,
        )

    def _studies(self) -> tuple[Study, ...]:
        advice, model = self._most_measured, self._model
        if self._fit is None or advice is None or not isinstance(model, HasStudies):
            return ()
        with contextlib.suppress(*UNREADABLE):
            return tuple(model.studies(self._fit, advice.context, advice.setting, self._observations))
        return ()


def _swept(setting: Any) -> list[str]:  # of the operation's own type
    """The knobs that are quantities."""
    return [name for name, bounds in knobs(setting).items() if bounds.low > 0]


def _in_time(observations: Iterable[Observation[Any]]) -> list[Observation[Any]]:
    return sorted(observations, key=lambda o: o.started_at)


def _setting_of(observation: Observation[Any]) -> str:
    return _size_and_setting(observation.context.payload_size_bytes, observation.setting)


@lru_cache(maxsize=4096)
def _size_and_setting(size_bytes: int, setting: Any) -> str:  # of the operation's own type
    return f"{format_bytes(size_bytes)} with {setting_words(setting)}"


def _promised(
    metric: str, observation: Observation[Any], history: Sequence[Recommendation[Any]]
) -> Estimate | None:
    """What was foreseen for a probe, or what the ordinary advice of that moment said about its setting.

    Reports have no promise: otherwise a lie would look like a missed promise.
    """
    if observation.foreseen or observation.origin is not Origin.PROBE:
        return observation.foreseen
    before = [r for r in history if r.demand == Demand() and r.issued_at <= observation.started_at]
    if not before or before[-1].setting != observation.setting or before[-1].basis is Basis.DEFAULT:
        return None
    return before[-1].prediction.get(metric)


def _coverage(pairs: Iterable[tuple[float, Estimate | None]]) -> Coverage:
    judged = [estimate.low <= value <= estimate.high for value, estimate in pairs if estimate is not None]
    return Coverage(within_count=sum(judged), count=len(judged))


def _knob_values(records: Sequence[SettingRecord], advice: Advice, name: str) -> list[Any]:
    """Values around all that was tried and advised, within the knob's bounds; integers for an integer knob."""
    setting, context = advice.recommendation.setting, advice.recommendation.context
    bounds = knobs(setting)[name]
    tried = [float(getattr(r.setting, name)) for r in records if r.context == context]
    known = [*tried, float(getattr(setting, name)), float(getattr(advice.default_setting, name))]
    low = max(bounds.low, min(known) / 2)
    high = max(min(bounds.high, 2 * max(known)), low)
    values = [low * (high / low) ** (n / (CURVE_POINT_COUNT - 1)) for n in range(CURVE_POINT_COUNT)]
    kind = type(getattr(setting, name))
    return sorted({kind(round(v)) if kind is int else v for v in values} | {getattr(setting, name)})


def _effect(curve: Curve) -> float:
    values = [estimate.expected for estimate in curve.expected]
    return max(values) / max(min(values), 1e-300) if values else 0.0


def _by_day(material: Material) -> tuple[DaySpend, ...]:
    days: dict[tuple[date, str], Cost] = defaultdict(Cost)
    for expense in material.expenses:
        days[(expense.hour_at.date(), expense.operation)] += expense.cost
    return tuple(DaySpend(day=day, operation=name, cost=days[(day, name)]) for day, name in sorted(days))
