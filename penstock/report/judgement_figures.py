"""Knows the figures about whether penstock was right: predictions, and what the advice of its time lost."""

from __future__ import annotations

from collections import Counter

from penstock.report import anchors, chart
from penstock.report.figure import Figure, Key, Table, drawn, table_of
from penstock.report.findings import Coverage, Measured, PlaceFindings
from penstock.report.judgement import REASONS, mean_regret, sharpness
from penstock.report.wording import date_words, percent, setting_words, span, times_words
from penstock.units import counted, format_bytes, quantity
from penstock.vocabulary import Estimate

_RATIO_MIN, _RATIO_MAX = 0.1, 5.0
_TABLE_ROW_COUNT_MAX = 25
_STEP_COUNT_MAX = 200
_LOST_MIN = 0.005


def foreseen_figure(place: PlaceFindings) -> Figure | None:
    """Each measurement over its prediction from before, with the interval that was given then."""
    pairs = [
        (m, m.promised)
        for m in place.measured
        if m.promised is not None and m.promised.expected > 0 and m.value > 0
    ]
    if len(pairs) < 2:
        return None
    ratios = [_bounded(m.value / e.expected) for m, e in pairs]
    ends = [_bounded(v / e.expected) for _, e in pairs for v in (e.low, e.high)]
    x = chart.time_axis("date, UTC", [m.started_at.timestamp() for m, _ in pairs])
    y = chart.log_axis("measured over predicted", [*ratios, *ends, 1.0], show=times_words)
    layers: list[chart.Layer] = [chart.Line(x=[x.low, x.high], y=[1.0, 1.0], css="diagonal")]
    layers.append(
        chart.Whiskers(
            x=[(m.started_at.timestamp(),) * 2 for m, _ in pairs],
            y=[(_bounded(e.low / e.expected), _bounded(e.high / e.expected)) for _, e in pairs],
        )
    )
    layers += [
        chart.Point(
            x=m.started_at.timestamp(),
            y=ratio,
            css="c0" if e.low <= m.value <= e.high else "c1",
            title=f"{date_words(m.started_at)}, {_why(m)}: {quantity(place.value_metric, m.value)} with "
            f"{setting_words(m.setting)}, predicted {quantity(place.value_metric, e.expected)} "
            f"({span(place.value_metric, e)})",
        )
        for (m, e), ratio in zip(pairs, ratios, strict=True)
    ]
    return drawn(
        (x, y, layers),
        anchor=anchors.FORESEEN,
        title="Was it right? Predicted and measured",
        description=_foreseen_words(place.promised_coverage, pairs),
        keys=(
            Key("c0", "within the predicted interval"),
            Key("c1", "not"),
            Key("whisker", "predicted 90 % interval"),
            Key("diagonal", "exactly as predicted"),
        ),
        table=_foreseen_table(place, pairs),
    )


def regret_figure(place: PlaceFindings) -> Figure | None:
    """What the advice of its time lost against today's advice; None if it lost too little for a figure."""
    steps = place.regrets[-_STEP_COUNT_MAX:]
    newest_at = place.newest_observation_at
    if newest_at is None or len(steps) < 2 or max(s.lost_fraction for s in steps) < _LOST_MIN:
        return None
    end = max(newest_at.timestamp(), steps[-1].at.timestamp())
    times, lost = [s.at.timestamp() for s in steps], [s.lost_fraction for s in steps]
    x = chart.time_axis("date, UTC", [*times, end])
    y = chart.linear_axis("lost", [*lost, 0.05], show=percent, name="lost_fraction")
    titles = [
        f"{date_words(s.at)}: {setting_words(s.setting)}, {percent(s.lost_fraction)} lost" for s in steps
    ]
    description = (
        f"Compared with what is advised today, by the newest fit: {percent(mean_regret(steps, newest_at))} "
        "on average over "
        f"time, {percent(max(lost))} at most, {percent(lost[-1])} at last."
    )
    return drawn(
        (x, y, chart.steps(times, lost, titles, until=end)),
        anchor=anchors.LOST,
        title="What earlier advice lost",
        description=description,
        keys=(Key("line", "lost"), Key("c0", "a change of the advice")),
        table=table_of(
            reversed(steps[-_TABLE_ROW_COUNT_MAX:]),
            {
                "from": lambda s: date_words(s.at),
                "advice": lambda s: setting_words(s.setting),
                "lost": lambda s: percent(s.lost_fraction),
            },
        ),
    )


def _bounded(ratio: float) -> float:
    return min(max(ratio, _RATIO_MIN), _RATIO_MAX)


def _why(measured: Measured) -> str:
    return REASONS[measured.reason] if measured.reason is not None else "reason not recorded"


def _foreseen_words(coverage: Coverage, pairs: list[tuple[Measured, Estimate]]) -> str:
    words = (
        f"{coverage.within_count} of {coverage.count} measurements ({percent(coverage.fraction)}, 90 % is right) lie "
        "within the 90 % interval that was predicted for them"
    )
    found = sharpness([(m.value, e) for m, e in pairs])
    if found is not None:
        more = "more" if found.bias_fraction >= 0 else "less"
        words += (
            f"; in the median the interval reached {percent(found.half_width_fraction)} to either side, and the "
            f"measured values were {percent(abs(found.bias_fraction))} {more} than predicted"
        )
    reasons = Counter(REASONS[m.reason] for m, _ in pairs if m.reason is not None)
    if reasons:
        words += ". Why these were tried: " + "; ".join(
            f"{name}, {counted(n, 'time')}" for name, n in reasons.most_common()
        )
    return f"{words}."


def _foreseen_table(place: PlaceFindings, pairs: list[tuple[Measured, Estimate]]) -> Table:
    metric = place.value_metric
    return table_of(
        reversed(pairs[-_TABLE_ROW_COUNT_MAX:]),
        {
            "date": lambda pair: date_words(pair[0].started_at),
            "why it was tried": lambda pair: _why(pair[0]),
            place.payload_noun: lambda pair: format_bytes(pair[0].context.payload_size_bytes),
            "setting": lambda pair: setting_words(pair[0].setting),
            "predicted": lambda pair: quantity(metric, pair[1].expected),
            "90 % interval": lambda pair: span(metric, pair[1]),
            "measured": lambda pair: quantity(metric, pair[0].value),
        },
    )
