"""Knows the figures about time and single requests: the course, the surface, the hours of the day, the tails."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

from penstock.models.inference.histogram import distribution
from penstock.models.study import Study
from penstock.report import anchors, chart
from penstock.report.changes import change_sentence
from penstock.report.density import Density
from penstock.report.distributions import COUNT_MIN, Hedge, Spread
from penstock.report.episodes import episode_sentence
from penstock.report.figure import Figure, Key, Table, drawn, table_of
from penstock.report.findings import PlaceFindings, Surface
from penstock.report.rhythm import (
    EFFECT_MIN,
    SIGNIFICANCE,
    Rhythm,
    Sample,
    group_words,
    rhythm_sentence,
)
from penstock.report.wording import date_words, percent, span, times_words
from penstock.units import counted, format_bytes, label, number, quantity

POINT_COUNT_MAX = 600  # single points; with more, their density is drawn
_SIZE_COUNT_MAX = 4  # lines of one figure
_TABLE_ROW_COUNT_MAX = 12
_RATIO_MIN, _RATIO_MAX = 0.05, 5.0
_HOUR_SECONDS = 3600.0


def course_figure(place: PlaceFindings) -> Figure | None:
    """All measurements over time, relative to what the newest fit expects of their settings."""
    if len(place.course) < 2:
        return None
    density = place.course_density
    count = max(density.count if density else 0, len(place.course))
    dense = density if count > POINT_COUNT_MAX else None
    moments = dense.x if dense else [one.at.timestamp() for one in place.course]
    ratios = dense.y if dense else [_ratio(one) for one in place.course]
    x = chart.time_axis("date, UTC", moments)
    y = chart.log_axis("measured over expected now", [*ratios, 1.0], show=times_words)
    has_aside = not dense and not all(place.is_about_now(one.at) for one in place.course)
    layers: list[chart.Layer] = [
        chart.Band(
            x=[e.begins_at.timestamp(), max(e.ends_at.timestamp(), e.begins_at.timestamp() + _HOUR_SECONDS)],
            low=[y.low] * 2,
            high=[y.high] * 2,
        )
        for e in place.episodes
    ]
    layers.append(chart.Line(x=[x.low, x.high], y=[1.0, 1.0], css="diagonal"))
    layers += [counted_grid(dense)] if dense else _dots(place)
    layers += [
        chart.Mark(x=at, text="changed" if is_apart else "", css="advised", row=0)
        for at, is_apart in _apart([c.changed_at.timestamp() for c in place.changes], (x.high - x.low) / 8)
    ]
    words = [episode_sentence(e) for e in place.episodes] + [
        change_sentence(change, place.value_metric) for change in place.changes
    ]
    others = place.measured_count - count
    without = (
        f", without {number(others)} in which requests were refused or that have no value"
        if others > 0
        else ""
    )
    description = f"{counted(count, 'measurement')} of all settings{without}. " + (
        " ".join(words[-4:]) or "No change was noticed, and nothing was refused for long."
    )
    return drawn(
        (x, y, layers),
        anchor=anchors.COURSE,
        title=f"What was measured over time, {label(place.value_metric)} beside what is expected now",
        description=description,
        keys=(
            Key("b0", "measured, darker where there is more") if dense else Key("c0", "measured"),
            Key("diagonal", "as expected now"),
            *([Key("c0 aside", place.aside_words)] if has_aside else []),
            *([Key("advised", "the place changed")] if place.changes else []),
            *([Key("band", "requests were refused")] if place.episodes else []),
        ),
        table=_by_day(place.course),
    )


def _apart(moments: Sequence[float], least: float) -> list[tuple[float, bool]]:
    """Each moment, and whether it is at least this far from the last one for which that was true."""
    found: list[tuple[float, bool]] = []
    told = -math.inf
    for at in sorted(moments):
        found.append((at, at - told >= least))
        told = at if at - told >= least else told
    return found


def _ratio(sample: Sample) -> float:
    return min(max(math.exp(sample.log_ratio), _RATIO_MIN), _RATIO_MAX)


def _dots(place: PlaceFindings) -> list[chart.Layer]:
    return [
        chart.Point(
            x=one.at.timestamp(),
            y=_ratio(one),
            css="c0" if place.is_about_now(one.at) else "c0 aside",
            title=f"{date_words(one.at)}: {times_words(math.exp(one.log_ratio))} what is expected now, {one.setting}",
        )
        for one in place.course
    ]


def counted_grid(density: Density) -> chart.Grid:
    """A heat map of the counts."""
    return chart.Grid(
        x=density.x,
        y=density.y,
        values=density.counts,
        name="measurement_count",
        words="measurements",
        is_counted=True,
    )


def _by_day(course: Sequence[Sample]) -> Table:
    days: dict[str, list[Sample]] = defaultdict(list)
    for one in course:
        days[one.at.date().isoformat()].append(one)
    rows = []
    for day, samples in list(days.items())[-_TABLE_ROW_COUNT_MAX:]:
        ratios = [math.exp(one.log_ratio) for one in samples for _ in range(one.count)]
        # For an hour that was summed up, only its median is known.
        is_whole = len(ratios) == len(samples)
        ends = (times_words(min(ratios)), times_words(max(ratios))) if is_whole else ("-", "-")
        rows.append((day, number(len(ratios)), times_words(median(ratios)), *ends))
    return Table(("day", "measurements", "middle", "least", "most"), tuple(rows))


def surface_figure(place: PlaceFindings) -> Figure | None:
    """The expected value over two knobs at a time, stronger where it is larger."""
    surface = place.surface
    if surface is None or min(len(surface.first), len(surface.second)) < 2:
        return None
    (x_name, y_name), metric = surface.knobs, place.value_metric
    x_edges, y_edges = _edges(surface.first), _edges(surface.second)
    x = chart.log_axis(label(x_name), x_edges, is_binary=True, name=x_name)
    y = chart.log_axis(label(y_name), y_edges, is_binary=True, name=y_name)
    most = max(max(row) for row in surface.values)
    layers: list[chart.Layer] = [chart.Grid(x=x_edges, y=y_edges, values=surface.values, name=metric)]
    marked = [each for each in _marked(place, surface) if x.holds(each[1][0]) and y.holds(each[1][1])]
    layers += [
        chart.Point(
            x=at[0], y=at[1], css=css, title=f"{name}: {quantity(x_name, at[0])}, {quantity(y_name, at[1])}"
        )
        for name, at, css in marked
    ]
    description = (
        f"{place.payload_noun.capitalize()}s of {format_bytes(surface.context.payload_size_bytes)}; the strongest "
        f"field is {quantity(metric, most)}. The points are the advice and the defaults of known clients."
    )
    rows = tuple((name, quantity(x_name, at[0]), quantity(y_name, at[1])) for name, at, _ in marked)
    return drawn(
        (x, y, layers),
        anchor=anchors.SURFACE,
        title=f"{label(metric).capitalize()} over {label(x_name)} and {label(y_name)}",
        description=description,
        keys=(
            Key("c1", "advised"),
            Key("c2", "a client's default"),
            Key("b0", "more is stronger"),
        ),
        table=Table(("who", label(x_name), label(y_name)), rows),
    )


def _marked(place: PlaceFindings, surface: Surface) -> list[tuple[str, tuple[float, float], str]]:
    """Name, position on the map and colour of the advice, and of clients' defaults."""
    marked = [("advised", surface.advised, "c1")]
    verdict, (x_name, y_name) = place.verdict, surface.knobs
    if verdict is not None and verdict.payload_size_bytes == surface.context.payload_size_bytes:
        marked += [
            (each.client, (getattr(each.setting, x_name), getattr(each.setting, y_name)), "c2")
            for each in verdict.gains
        ]
    return marked


def _edges(values: Sequence[float]) -> list[float]:
    """Edges halfway between values, by ratio, and as far beyond the ends."""
    middles = [math.sqrt(a * b) for a, b in pairwise(values)]
    return [values[0] ** 2 / middles[0], *middles, values[-1] ** 2 / middles[-1]]


def hours_figure(place: PlaceFindings) -> Figure | None:
    """By the hour of the day, and whether the difference is more than chance."""
    rhythm = next((r for r in place.rhythms if r.question == "hour of the day"), None)
    if rhythm is None:
        return None
    x = chart.Axis(
        title="hour of the day, UTC",
        low=0.0,
        high=24.0,
        ticks=(0.0, 6.0, 12.0, 18.0, 24.0),
        show=lambda hour: f"{hour:02.0f}:00",
    )
    y = chart.linear_axis(
        "over the middle of its day", [ratio for _, ratio, _ in rhythm.groups], show=times_words
    )
    layers: list[chart.Layer] = [
        chart.Bar(
            x_low=int(name[:2]) + 0.15,
            x_high=int(name[:2]) + 2.85,
            y=ratio,
            css="b0",
            title=f"from {name} UTC: {group_words(ratio)}, {counted(count, 'measurement')}",
        )
        for name, ratio, count in rhythm.groups
    ]
    layers.append(chart.Line(x=[0.0, 24.0], y=[1.0, 1.0], css="diagonal"))
    return drawn(
        (x, y, layers),
        anchor=anchors.HOURS,
        title="By the hour of the day",
        description=_rhythm_words(place.rhythms),
        keys=(Key("b0", "measured"), Key("diagonal", "the middle")),
        table=Table(
            ("of", "from", "beside the middle", "measurements"),
            tuple(
                (r.question, name, group_words(ratio), str(n))
                for r in place.rhythms
                for name, ratio, n in r.groups
            ),
        ),
    )


def _rhythm_words(found: Sequence[Rhythm]) -> str:
    return " ".join(
        rhythm_sentence(rhythm)
        if rhythm.is_significant
        else f"No {rhythm.question} clearly differs from the others (p {number(rhythm.probability)}, "
        f"corrected for all questions asked; one is named if p is below {SIGNIFICANCE:g}, from "
        f"{100 * EFFECT_MIN:g} % on)."
        for rhythm in found
    )


def study_figure(study: Study) -> Figure:
    """A result of a model beyond its knobs."""
    seen_x = [*(v for t in study.traces for v in t.x), *(s.x for s in study.sightings), *study.marks.values()]
    seen_y = [*(e.expected for t in study.traces for e in t.y), *(s.y for s in study.sightings)]
    x = _study_axis(study.x_name, seen_x, is_log=study.is_x_log, is_dated=study.is_x_dated)
    y = _study_axis(study.y_name, seen_y, is_log=study.is_y_log, is_dated=False)
    layers: list[chart.Layer] = []
    for n, trace in enumerate(study.traces):
        if any(e.low < e.high for e in trace.y):
            layers.append(chart.estimated(trace.x, trace.y))
        layers.append(chart.Line(x=trace.x, y=[e.expected for e in trace.y], css=f"cdf d{n}"))
    has_band = any(isinstance(layer, chart.Band) for layer in layers)
    layers += [chart.Point(x=s.x, y=s.y, css="c4", title=s.words) for s in study.sightings]
    layers += [
        chart.Mark(x=at, text=name, css="advised", row=n % 2)
        for n, (name, at) in enumerate(study.marks.items())
    ]
    return drawn(
        (x, y, layers),
        title=study.title,
        description=study.sentence,
        keys=(
            *(Key(f"cdf d{n}", trace.name) for n, trace in enumerate(study.traces)),
            *([Key("band", "90 % interval")] if has_band else []),
            *([Key("c4", "measured")] if study.sightings else []),
        ),
        table=_study_table(study),
    )


def _study_axis(name: str, values: Sequence[float], *, is_log: bool, is_dated: bool) -> chart.Axis:
    if is_dated:
        return chart.time_axis("date, UTC", values)
    if is_log:
        return chart.log_axis(label(name), values, name=name)
    unit = chart.round_unit(name, max(values, default=1.0))
    return chart.linear_axis(label(name), values, unit=unit, name=name)


def _study_table(study: Study) -> Table:
    def at(value: float) -> str:
        if study.is_x_dated:
            return date_words(datetime.fromtimestamp(value, UTC))
        return quantity(study.x_name, value)

    rows = []
    for trace in study.traces:
        every = max(1, -(-len(trace.x) // _TABLE_ROW_COUNT_MAX))
        rows += [
            (
                trace.name,
                at(value),
                quantity(study.y_name, e.expected),
                span(study.y_name, e) if e.low < e.high else "-",
            )
            for value, e in list(zip(trace.x, trace.y, strict=True))[::every]
        ]
    x_label = "date" if study.is_x_dated else label(study.x_name)
    return Table(("line", x_label, label(study.y_name), "90 % interval"), tuple(rows))


def spread_figures(place: PlaceFindings) -> list[Figure]:
    """How long single requests took: a figure for each kind, with a line for each size."""
    names = list(dict.fromkeys(spread.name for spread in place.spreads))
    return [_spread_figure(place, name, [s for s in place.spreads if s.name == name]) for name in names]


def _spread_figure(place: PlaceFindings, name: str, found: Sequence[Spread]) -> Figure:
    most = sorted(found, key=lambda s: -s.count)[:_SIZE_COUNT_MAX]
    shown = sorted(most, key=lambda s: s.payload_size_bytes)
    curves = [distribution(spread.histogram) for spread in shown]
    seconds = [value for curve in curves for value, _ in curve]
    x = chart.log_axis(label(name), seconds, name=name)
    y = chart.linear_axis("share that took no longer", [0.94], show=percent, name="fraction_fraction")
    layers: list[chart.Layer] = []
    for n, (spread, curve) in enumerate(zip(shown, curves, strict=True)):
        layers.append(
            chart.Line(x=[v for v, _ in curve], y=[f for _, f in curve], css=f"cdf d{n}", is_stepped=True)
        )
        layers += [
            chart.Point(
                x=value,
                y=fraction,
                css=f"c{n}",
                title=f"{format_bytes(spread.payload_size_bytes)}: {percent(fraction)} within {quantity(name, value)}",
            )
            for value, fraction in (
                (spread.p50_seconds, 0.5),
                (spread.p90_seconds, 0.9),
                (spread.p99_seconds, 0.99),
            )
        ]
    return drawn(
        (x, y, layers),
        title=f"How long one takes: {label(name)}",
        description=_spread_words(name, shown),
        keys=tuple(
            Key(f"c{n}", f"{place.payload_noun}s of {format_bytes(spread.payload_size_bytes)}")
            for n, spread in enumerate(shown)
        ),
        table=_spread_table(place, name, found),
    )


def _spread_words(name: str, shown: Sequence[Spread]) -> str:
    """The median and the tail, what hedging would gain, and the correlation."""
    words = []
    for spread in shown[:2]:
        said = (
            f"{format_bytes(spread.payload_size_bytes)}: of {number(spread.count)}, at all settings that were tried, "
            f"half within {quantity(name, spread.p50_seconds)} and 99 of 100 within "
            f"{quantity(name, spread.p99_seconds)}"
        )
        hedge = spread.best_hedge
        if hedge is not None:
            said += (
                f"; if those that take more than {quantity(name, hedge.delay_seconds)} "
                f"({percent(hedge.extra_fraction)}) were sent again, 99 of 100 within "
                f"{quantity(name, hedge.p99_seconds)}"
            )
        if spread.correlation is not None:
            r = spread.correlation
            said += f"; successive ones correlate by {r.expected:.2f} ({r.low:.2f} to {r.high:.2f})"
        words.append(said + ".")
    return " ".join(words)


def _spread_table(place: PlaceFindings, name: str, found: Sequence[Spread]) -> Table:
    def hedged(spread: Spread, words: Callable[[Hedge], str]) -> str:
        return words(spread.best_hedge) if spread.best_hedge else "-"

    return table_of(
        found,
        {
            place.payload_noun: lambda s: format_bytes(s.payload_size_bytes),
            "timed": lambda s: number(s.count),
            "p50": lambda s: quantity(name, s.p50_seconds),
            "p90": lambda s: quantity(name, s.p90_seconds),
            "p99": lambda s: quantity(name, s.p99_seconds),
            # With fewer requests it would just be the slowest one.
            "p99.9": lambda s: quantity(name, s.p999_seconds) if s.count >= 10 * COUNT_MIN else "-",
            "sent again after": lambda s: hedged(s, lambda hedge: quantity(name, hedge.delay_seconds)),
            "then p99": lambda s: hedged(s, lambda hedge: quantity(name, hedge.p99_seconds)),
            "sent twice": lambda s: hedged(s, lambda hedge: percent(hedge.extra_fraction)),
            "correlation": lambda s: "-" if s.correlation is None else f"{s.correlation.expected:.2f}",
        },
    )
