"""Knows the rows of advice, parameters and failures in words, as the page and the Markdown both show them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.report.difference import Comparison
from penstock.report.figure import Table
from penstock.report.findings import Advice, PlaceFindings
from penstock.report.wording import (
    age_words,
    date_words,
    demand_words,
    gain_span,
    knob_value,
    mapping_words,
    setting_words,
    span,
)
from penstock.units import counted, format_bytes, label, number, quantity
from penstock.vocabulary import Demand, Inconclusive, knobs

INCONCLUSIVE_ROW_COUNT_MAX = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRow:
    """One line of the table of advice."""

    size: str
    demand: str  # empty for the ordinary one
    knobs: tuple[tuple[str, str], ...]  # name and value
    derived: str
    expected: str
    interval: str
    gain: str  # over what the SDK does by itself
    default: str
    basis: str
    age: str
    valid_until: str
    bottleneck: str
    explanation: str


def advice_rows(place: PlaceFindings, now: datetime) -> list[AdviceRow]:
    """The advice of a place, small payloads first."""
    return [_advice_row(place, advice, now) for advice in place.advice]


def _advice_row(place: PlaceFindings, advice: Advice, now: datetime) -> AdviceRow:
    made = advice.recommendation
    metric, expected = place.value_metric, made.prediction.get(place.value_metric)
    gain = made.gain_over_default
    return AdviceRow(
        size=format_bytes(made.context.payload_size_bytes),
        demand="" if made.demand == Demand() else demand_words(made.demand),
        knobs=tuple((label(name), knob_value(made.setting, name)) for name in knobs(made.setting)),
        derived=mapping_words(made.derived),
        expected=quantity(metric, expected.expected) if expected else "-",
        interval=span(metric, expected) if expected else "-",
        gain="-" if gain is None else f"{number(gain.expected)} times{gain_span(gain)}",
        default=setting_words(advice.default_setting),
        basis=made.basis.value,
        age=age_words(made.newest_observation_at, now),
        valid_until=date_words(made.expires_at),
        bottleneck=made.bottleneck,
        explanation=made.explanation,
    )


def seen_words(place: PlaceFindings) -> str:
    """``3 observations``; what applications reported is told apart: nobody else saw it."""
    words, reported_count = (
        counted(place.observation_count, "observation"),
        place.observation_count - place.measured_count,
    )
    words += f", {number(reported_count)} of them reported by applications" if reported_count else ""
    others = sum(each.heard_count - each.believed_count for each in place.hearsay)
    return f"{words}; {counted(others, 'report')} not believed" if others else words


def parameter_rows(place: PlaceFindings) -> list[tuple[str, str, str]]:
    """Name, typical value and 90 % interval of the physics."""
    if place.fit is None:
        return []
    return [(name, quantity(name, e.expected), span(name, e)) for name, e in place.fit.parameters.items()]


def inconclusive_rows(place: PlaceFindings) -> list[tuple[str, str, str, str, str]]:
    """Why probes could not measure, the most frequent reason first: times, size, last, setting then, reason."""
    groups: dict[tuple[str, int], list[Inconclusive[Any]]] = defaultdict(list)
    for one in place.inconclusives:
        groups[(one.reason, one.context.payload_size_bytes)].append(one)
    most = sorted(groups.items(), key=lambda group: -len(group[1]))[:INCONCLUSIVE_ROW_COUNT_MAX]
    return [
        (
            str(len(alike)),
            format_bytes(size),
            date_words(alike[-1].started_at),
            setting_words(alike[-1].setting),
            reason,
        )
        for (reason, size), alike in most
    ]


def comparison_table(comparison: Comparison) -> Table:
    """What was compared, a row for each place and size; what is certain first."""
    ordered = sorted(comparison.differences, key=lambda d: not d.is_certain)
    return Table(
        ("place", comparison.one, comparison.other, "difference", "certain"),
        tuple((d.what, d.one, d.other, d.words, "yes" if d.is_certain else "no") for d in ordered),
    )
