"""Knows which figures a page shows, and the table with the same numbers beside each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import date
from itertools import groupby
from typing import Any

from penstock.report import anchors, chart
from penstock.report.density import Density
from penstock.report.evidence_figures import (
    counted_grid,
    course_figure,
    hours_figure,
    spread_figures,
    study_figure,
    surface_figure,
)
from penstock.report.figure import Figure, Key, Table, drawn, table_of
from penstock.report.findings import (
    Curve,
    History,
    Measured,
    PlaceFindings,
    Report,
    is_on_curve,
)
from penstock.report.judgement_figures import foreseen_figure, regret_figure
from penstock.report.remarks import SPENT, cost_words
from penstock.report.retries import Retries, retries_sentence
from penstock.report.wording import date_words, interval, knob_value, percent, setting_words, span
from penstock.units import counted, format_bytes, label, number, quantity
from penstock.vocabulary import Cost, Origin, Recommendation, Setting, knobs

_CLIENT_COUNT_MAX = 5  # colours for clients
_TABLE_ROW_COUNT_MAX = 12
_STEP_COUNT_MAX = 200
_RETRY_DAY_COUNT_MAX = 60
_DAY_SECONDS = 86400.0
_SEEN_FRACTION = 0.999  # of all measurements must be visible within a curve's height


def place_figures(place: PlaceFindings) -> list[Figure]:
    """Curves, course, tails, hours, record and history of one place."""
    figures = [_curve_figure(place, curve) for curve in place.curves]
    more = (surface_figure(place), course_figure(place), hours_figure(place))
    figures += [figure for figure in more if figure is not None]
    figures += [study_figure(study) for study in place.studies]
    figures += spread_figures(place)
    judgements = (foreseen_figure(place), regret_figure(place))
    figures += [figure for figure in judgements if figure is not None]
    if place.retries and any(day.refused_count + day.failed_count for day in place.retries.days):
        figures.append(_retries_figure(place.retries))
    judged = [m for m in place.measured if m.fitted is not None and m.fitted.expected > 0 and m.value > 0]
    if judged:
        figures.append(_record_figure(place, judged))
    return figures + [
        _history_figure(place, history) for history in place.histories if _moved(place, history)
    ]


def spend_figures(report: Report) -> list[Figure]:
    """A figure for each kind of cost that was spent."""
    if not report.spending:
        return []
    spent = [f.name for f in fields(Cost) if any(getattr(s.cost, f.name) for s in report.spending)]
    return [_spend_figure(report, name) for name in spent]


# --- The curve. ---


def _curve_figure(place: PlaceFindings, curve: Curve) -> Figure:
    made = (advice.recommendation for advice in place.ordinary_advice)
    advised = next(each.setting for each in made if each.context == curve.context)
    measured = [m for m in place.measured if m.context == curve.context]
    metric, size = place.value_metric, format_bytes(curve.context.payload_size_bytes)
    density = curve.density if curve.density and curve.density.count > len(measured) else None
    x = _knob_axis(curve, density)
    heights = [*_heights(curve, measured), *([density.y_within(_SEEN_FRACTION)] if density else [])]
    y = chart.linear_axis(label(metric), heights, name=metric)
    if density:  # it also counts those that are off the curve
        measured = [m for m in measured if is_on_curve(curve, m, advised) or _has_trouble(m)]
    colours, clients = _colours(place), _client_points(place, curve, metric)
    layers: list[chart.Layer] = [
        *([counted_grid(density)] if density else []),
        chart.estimated(curve.knob_values, curve.expected),
        chart.Line(x=curve.knob_values, y=[e.expected for e in curve.expected], css="line"),
        *_marks(curve, x.show),
        *clients,
        *_curve_points(place, curve, measured, advised, colours),
    ]
    others = ", ".join(f"{label(n)} {knob_value(advised, n)}" for n in knobs(advised) if n != curve.knob)
    description = (
        f"With {others or 'nothing else to set'}, as advised. "
        "The band holds one future measurement in 90 % of cases."
    )
    if density:
        description += (
            f" The shaded fields count all {counted(density.count, 'measurement')} of this size, whatever "
            "the other knobs; the points are the newest with the others as advised."
        )
    has_aside = any(not is_on_curve(curve, m, advised) for m in measured)
    return drawn(
        (x, y, layers),
        anchor=anchors.curve_anchor(curve.knob),
        title=f"{label(metric).capitalize()} against {label(curve.knob)}, {place.payload_noun}s of {size}",
        description=description,
        keys=(
            Key("line", "expected"),
            Key("band", "90 % interval"),
            *_shown_colours(measured, colours),
            *([Key("b0", "all measurements, darker where there are more")] if density else []),
            *([Key("c2", "a client's default")] if clients else []),
            *([Key("c0 aside", "with other knobs set differently, or before a change")] if has_aside else []),
            *_trouble_key(measured),
        ),
        table=_curve_table(curve, metric),
    )


def _knob_axis(curve: Curve, density: Density | None) -> chart.Axis:
    ends = [*curve.knob_values, curve.advised, curve.default]
    ends += [density.x[0], density.x[-1]] if density else []
    return chart.log_axis(label(curve.knob), ends, is_binary=True, name=curve.knob)


def _curve_points(
    place: PlaceFindings,
    curve: Curve,
    measured: Sequence[Measured],
    advised: Setting,
    colours: Mapping[str, Key],
) -> list[chart.Point]:
    """The measurements; those on the curve come last, to lie on top. Those before a change are off the curve."""

    def belongs(m: Measured) -> bool:
        return is_on_curve(curve, m, advised) and place.is_about_now(m.started_at)

    return [
        _point(
            m,
            colours,
            x=float(getattr(m.setting, curve.knob)),
            words=f"{quantity(place.value_metric, m.value)} with {setting_words(m.setting)}",
            is_aside=not belongs(m),
        )
        for m in sorted(measured, key=belongs)
    ]


def _client_points(place: PlaceFindings, curve: Curve, metric: str) -> list[chart.Layer]:
    """Where each client stands by default, at the value it reaches, which its other knobs may reduce."""
    verdict = place.verdict
    if verdict is None or verdict.payload_size_bytes != curve.context.payload_size_bytes:
        return []
    pairs = zip(curve.knob_values, curve.expected, strict=True)
    _, advised = min(pairs, key=lambda pair: abs(pair[0] - curve.advised))
    return [
        chart.Point(
            x=float(getattr(each.setting, curve.knob)),
            y=advised.expected / each.gain.expected,
            css="c2",
            title=f"{each.client} by itself: {each.setting_words}, about "
            f"{quantity(metric, advised.expected / each.gain.expected)}",
        )
        for each in verdict.gains
        if min(curve.knob_values) <= getattr(each.setting, curve.knob) <= max(curve.knob_values)
    ]


def _heights(curve: Curve, measured: Sequence[Measured]) -> list[float]:
    """The values that must be visible: points and curve in full, the band up to twice their height."""
    seen = [*(m.value for m in measured), *(e.expected for e in curve.expected)]
    return [*seen, min(max(e.high for e in curve.expected), 2 * max(seen))]


def _marks(curve: Curve, show: Callable[[float], str]) -> list[chart.Layer]:
    if curve.advised == curve.default:
        return [
            chart.Mark(
                x=curve.advised, text=f"advised and default: {show(curve.advised)}", css="advised", row=0
            )
        ]
    return [
        chart.Mark(x=curve.default, text=f"default: {show(curve.default)}", css="default", row=1),
        chart.Mark(x=curve.advised, text=f"advised: {show(curve.advised)}", css="advised", row=0),
    ]


def _curve_table(curve: Curve, metric: str) -> Table:
    pairs = list(zip(curve.knob_values, curve.expected, strict=True))
    every = max(1, -(-len(pairs) // _TABLE_ROW_COUNT_MAX))
    rows = [
        pair for n, pair in enumerate(pairs) if n % every == 0 or pair[0] in {curve.advised, curve.default}
    ]
    return table_of(
        rows,
        {
            label(curve.knob): lambda pair: quantity(curve.knob, pair[0]),
            f"expected {label(metric)}": lambda pair: quantity(metric, pair[1].expected),
            "90 % interval": lambda pair: span(metric, pair[1]),
        },
    )


# --- The record: observed against predicted. ---


def _record_figure(place: PlaceFindings, judged: Sequence[Measured]) -> Figure:
    metric = place.value_metric
    pairs = [(m, m.fitted) for m in judged if m.fitted is not None]
    both = [v for m, fitted in pairs for v in (m.value, fitted.expected)]
    x = chart.log_axis("predicted", both, name=metric)
    y = chart.log_axis("measured", both, name=metric)
    colours = _colours(place)
    layers: list[chart.Layer] = [chart.Line(x=[x.low, x.high], y=[x.low, x.high], css="diagonal")]
    layers.append(
        chart.Whiskers(
            x=[(max(f.low, x.low), min(f.high, x.high)) for _, f in pairs],
            y=[(m.value, m.value) for m, _ in pairs],
        )
    )
    layers += [
        _point(
            m,
            colours,
            x=fitted.expected,
            words=f"{quantity(metric, m.value)}, predicted {interval(metric, fitted)} for {setting_words(m.setting)}",
            is_aside=not place.is_about_now(m.started_at),
        )
        for m, fitted in pairs
    ]
    fitted, promised = place.fitted_coverage, place.promised_coverage
    has_aside = not all(place.is_about_now(m.started_at) for m in judged)
    now = " of the place as it is now" if place.is_back else " since the place changed" if has_aside else ""
    learned_count = place.fit.observation_count if place.fit else 0
    learned = "them" if learned_count >= fitted.count else f"the newest {number(learned_count)}"
    description = (
        f"On the diagonal a prediction is exact. {fitted.within_count} of {fitted.count} measurements{now} lie "
        f"within the 90 % interval of the newest fit, which has learned from {learned}"
    )
    if promised.count:
        description += (
            f"; {promised.within_count} of {promised.count} lie within what had been predicted for them "
            f"({percent(promised.fraction)}, 90 % is right)"
        )
    return drawn(
        (x, y, layers),
        anchor=anchors.PREDICTED,
        title=f"Measured against predicted {label(metric)}",
        description=description + ".",
        keys=(
            Key("diagonal", "exact"),
            Key("whisker", "90 % interval"),
            *_shown_colours(judged, colours),
            *([Key("c0 aside", place.aside_words)] if has_aside else []),
            *_trouble_key(judged),
        ),
        table=_record_table(place),
    )


def _record_table(place: PlaceFindings) -> Table:
    metric = place.value_metric
    return table_of(
        place.records,
        {
            place.payload_noun: lambda r: format_bytes(r.context.payload_size_bytes),
            "setting": lambda r: setting_words(r.setting),
            "times": lambda r: str(r.count),
            "measured (median)": lambda r: quantity(metric, r.value_median),
            "predicted": lambda r: quantity(metric, r.fitted.expected) if r.fitted else "-",
            "90 % interval": lambda r: span(metric, r.fitted) if r.fitted else "-",
            "with trouble": lambda r: str(r.trouble_count),
        },
    )


# --- What had to be sent again. ---


def _retries_figure(found: Retries) -> Figure:
    x = _day_axis([day.day for day in found.days])
    shares = [(d.refused_count + d.failed_count) / max(d.request_count, 1) for d in found.days]
    y = chart.linear_axis("sent again", shares, show=percent, name="sent_again_fraction")
    layers: list[chart.Layer] = []
    for day in found.days:
        title = (
            f"{day.day}: {number(day.refused_count)} refused and {number(day.failed_count)} failed of "
            f"{counted(day.request_count, 'request')}"
        )
        refused, failed = (n / max(day.request_count, 1) for n in (day.refused_count, day.failed_count))
        layers += _stacked(day.day, [(refused, "b1", title), (failed, "b0", title)])
    return drawn(
        (x, y, layers),
        anchor=anchors.RETRIES,
        title="Requests that had to be sent again",
        description=retries_sentence(found),
        keys=(Key("b1", "refused by the service"), Key("b0", "failed on the way")),
        table=table_of(
            reversed(found.days[-_RETRY_DAY_COUNT_MAX:]),
            {
                "day": lambda d: str(d.day),
                "measurements": lambda d: number(d.measurement_count),
                "requests": lambda d: number(d.request_count),
                "refused": lambda d: number(d.refused_count),
                "failed": lambda d: number(d.failed_count),
            },
        ),
    )


# --- How the advice changed. ---


def _moved(place: PlaceFindings, history: History) -> bool:
    """Whether it is worth a figure: the advice changed, and its context was measured."""
    return len(_changes(history)) > 1 and any(c.context == history.context for c in place.curves)


def _changes(history: History) -> list[Recommendation[Any]]:
    """Changes in more than the bottleneck, which varies from fit to fit."""
    alike = groupby(history.recommendations, key=lambda r: (r.setting, r.basis))
    return [next(group) for _, group in alike][-_STEP_COUNT_MAX:]


def _history_figure(place: PlaceFindings, history: History) -> Figure:
    steps = _changes(history)
    name = next(iter(knobs(steps[-1].setting)))
    times = [r.issued_at.timestamp() for r in steps]
    values = [float(getattr(r.setting, name)) for r in steps]
    end = max(times[-1], *(m.started_at.timestamp() for m in place.measured), times[-1])
    x = chart.time_axis("date, UTC", [*times, end])
    y = chart.log_axis(label(name), values, is_binary=True, name=name)
    titles = [
        f"{date_words(r.issued_at)}: {setting_words(r.setting)}; {r.basis.value}, {r.bottleneck}"
        for r in steps
    ]
    size = format_bytes(history.context.payload_size_bytes)
    count = counted(len(steps) - 1, "change")
    return drawn(
        (x, y, chart.steps(times, values, titles, until=end)),
        title=f"How the advised {label(name)} changed, {place.payload_noun}s of {size}",
        description=f"{count} of setting or basis since {date_words(steps[0].issued_at)}.",
        keys=(Key("line", f"advised {label(name)}"), Key("c0", "a change of the advice")),
        table=_history_table(place, history),
    )


def _history_table(place: PlaceFindings, history: History) -> Table:
    """The newest changes, newest first."""
    metric = place.value_metric
    return table_of(
        reversed(_changes(history)[-_STEP_COUNT_MAX // 4 :]),
        {
            "from": lambda r: date_words(r.issued_at),
            "advice": lambda r: setting_words(r.setting),
            "expected": lambda r: interval(metric, r.prediction[metric]) if metric in r.prediction else "-",
            "basis": lambda r: r.basis.value,
            "bottleneck": lambda r: r.bottleneck,
        },
    )


# --- What it cost. ---


def _spend_figure(report: Report, name: str) -> Figure:
    limit = getattr(report.daily_limit, name) if report.daily_limit is not None else None
    amounts = {(s.day, s.operation): float(getattr(s.cost, name)) for s in report.spending}
    days = sorted({day for day, _ in amounts})
    operations = sorted({operation for _, operation in amounts})
    totals = [sum(amounts.get((day, operation), 0.0) for operation in operations) for day in days]
    highest = max(totals)
    is_limit_seen = limit is not None and 0 < limit <= 3 * highest
    heights = [*totals, limit] if limit is not None and is_limit_seen else totals
    unit = chart.round_unit(name, max(heights))
    x = _day_axis(days)
    y = chart.linear_axis(
        SPENT[name], heights, show=lambda value: cost_words(name, value), unit=unit, name=name
    )
    keys = [Key(f"b{n % _CLIENT_COUNT_MAX}", op.replace("_", " ")) for n, op in enumerate(operations)]
    rows, layers = [], list[chart.Layer]()
    for day in days:
        spent = [amounts.get((day, operation), 0.0) for operation in operations]
        words = [cost_words(name, amount) for amount in spent]
        rows.append((str(day), *words))
        titles = [f"{day}, {key.text}: {said}" for key, said in zip(keys, words, strict=True)]
        layers += _stacked(day, list(zip(spent, (key.css for key in keys), titles, strict=True)))
    if limit is not None and is_limit_seen:
        layers.append(chart.Line(x=[x.low, x.high], y=[limit] * 2, css="limit"))
    return drawn(
        (x, y, layers),
        title=f"Spent by day: {SPENT[name]}",
        description=_budget_words(name, highest, limit),
        keys=(*keys, Key("limit", "budget of 24 hours")) if is_limit_seen else tuple(keys),
        table=Table(("day", *(key.text for key in keys)), tuple(reversed(rows))),
    )


def _budget_words(name: str, highest: float, limit: float | None) -> str:
    if limit is None:
        return f"At most {cost_words(name, highest)} on one day; the budget is not known without the configuration."
    if limit <= 0:
        return f"At most {cost_words(name, highest)} on one day; there is no budget for it."
    return (
        f"At most {cost_words(name, highest)} on one day, of {cost_words(name, limit)} that the budget allows in any "
        f"24 hours ({percent(highest / limit)})."
    )


# --- Bars of days. ---


def _day_axis(days: Sequence[date]) -> chart.Axis:
    starts = list(map(_midnight, days))
    return chart.time_axis("day, UTC", [*starts, starts[-1] + _DAY_SECONDS])


def _stacked(day: date, parts: Sequence[tuple[float, str, str]]) -> list[chart.Layer]:
    """Stacked bars, each with its height, colour and title."""
    bars: list[chart.Layer] = []
    x_low, x_high = (_midnight(day) + share * _DAY_SECONDS for share in (0.1, 0.9))
    height = 0.0
    for amount, css, title in parts:
        if amount > 0:
            top = height + amount
            bars.append(chart.Bar(x_low=x_low, x_high=x_high, y_low=height, y=top, css=css, title=title))
            height = top
    return bars


def _midnight(day: date) -> float:
    return (day.toordinal() - date(1970, 1, 1).toordinal()) * _DAY_SECONDS


# --- Words that figures share. ---


def _who(measured: Measured) -> str:
    return "probe" if measured.origin == Origin.PROBE.value else f"application ({measured.client})"


def _point(
    measured: Measured, colours: Mapping[str, Key], *, x: float, words: str, is_aside: bool
) -> chart.Point:
    who = _who(measured)
    return chart.Point(
        x=x,
        y=measured.value,
        css=f"{colours[who].css}{' aside' if is_aside else ''}",
        title=f"{who}, {date_words(measured.started_at)}: {words}{_trouble(measured)}",
        is_cross=_has_trouble(measured),
    )


def _colours(place: PlaceFindings) -> dict[str, Key]:
    """A colour for each origin, the same in all figures of a place; those beyond the fourth share the last."""
    names = sorted({_who(m) for m in place.measured}, key=lambda name: (name != "probe", name))
    last = _CLIENT_COUNT_MAX - 1
    keys = {name: Key(f"c{n}", name) for n, name in enumerate(names[:last])}
    rest = names[last:]
    return keys | {name: Key(f"c{last}", name if len(rest) == 1 else "other applications") for name in rest}


def _shown_colours(measured: Sequence[Measured], colours: Mapping[str, Key]) -> list[Key]:
    return sorted({colours[_who(m)] for m in measured}, key=lambda key: key.css)


def _trouble_key(measured: Sequence[Measured]) -> list[Key]:
    return [Key("cross", "throttled or failed requests")] if any(map(_has_trouble, measured)) else []


def _has_trouble(measured: Measured) -> bool:
    return measured.throttled_count + measured.failed_count > 0


def _trouble(measured: Measured) -> str:
    words = [(measured.throttled_count, "throttled"), (measured.failed_count, "failed")]
    return "".join(f", {count} {word}" for count, word in words if count)
