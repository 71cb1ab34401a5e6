"""Knows the tables of advice, parameters and failures as text, for both the page and the Markdown."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.report.difference import Comparison
from penstock.report.figure import Table, table_of
from penstock.report.findings import Advice, PlaceFindings
from penstock.report.retries import retries_sentence
from penstock.report.wording import (
    age_words,
    date_words,
    demand_words,
    gain_span,
    knob_value,
    mapping_words,
    percent,
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
    demand: str  # empty for the ordinary demand
    knobs: tuple[tuple[str, str], ...]  # name and value
    derived: str
    expected: str
    interval: str
    gain: str  # over the SDK's defaults
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


def seen_words(place: PlaceFindings, now: datetime) -> str:
    """What was seen of a place, what had to be sent again, and how well the fit agrees.

    ``3 observations, 1 of them reported by applications, the newest 22 min ago; 0 probes without a result. ...``.
    Reports of applications are counted apart, because penstock did not see them itself.
    """
    words = counted(place.observation_count, "observation")
    if (reported_count := place.observation_count - place.measured_count) > 0:
        words += f", {number(reported_count)} of them reported by applications"
    if place.newest_observation_at is not None:
        words += f", the newest {age_words(place.newest_observation_at, now)}"
    words += f"; {counted(len(place.inconclusives), 'probe')} without a result"
    if others := sum(each.heard_count - each.believed_count for each in place.hearsay):
        words += f"; {counted(others, 'report')} not believed"
    sentences = [f"{words}.", retries_sentence(place.retries) if place.retries else ""]
    if place.fit is not None and place.fit.observation_count:
        sentences.append(
            f"The fit rests on {counted(place.fit.observation_count, 'observation')}; half of them lie within "
            f"{percent(place.fit.residual_fraction_p50)} of it."
        )
    return " ".join(filter(None, sentences))


def evidence_tables(place: PlaceFindings) -> list[tuple[str, Table]]:
    """The facts about a place that only tables show, by title; empty tables are left out."""
    tables = {
        "Whose reports were believed": _hearsay_table(place),
        "The physics": _parameter_table(place),
        "What could not be measured": _inconclusive_table(place),
    }
    return [(title, table) for title, table in tables.items() if table.rows]


def _hearsay_table(place: PlaceFindings) -> Table:
    return table_of(
        place.hearsay,
        {
            "who": lambda h: h.client,
            "reported": lambda h: number(h.reported_count),
            "looked at": lambda h: number(h.heard_count),
            "believed": lambda h: number(h.believed_count),
            "learned from": lambda h: number(h.learned_count),
            "last": lambda h: date_words(h.newest_at),
        },
    )


def _parameter_table(place: PlaceFindings) -> Table:
    parameters = place.fit.parameters.items() if place.fit is not None else ()
    rows = tuple((name, quantity(name, e.expected), span(name, e)) for name, e in parameters)
    return Table(("parameter", "typical", "90 % interval"), rows)


def _inconclusive_table(place: PlaceFindings) -> Table:
    """Why probes could not measure, the most frequent reason first."""
    groups: dict[tuple[str, int], list[Inconclusive[Any]]] = defaultdict(list)
    for one in place.inconclusives:
        groups[(one.reason, one.context.payload_size_bytes)].append(one)
    return table_of(
        sorted(groups.values(), key=lambda alike: -len(alike))[:INCONCLUSIVE_ROW_COUNT_MAX],
        {
            "times": lambda alike: str(len(alike)),
            place.payload_noun: lambda alike: format_bytes(alike[-1].context.payload_size_bytes),
            "last": lambda alike: date_words(alike[-1].started_at),
            "setting then": lambda alike: setting_words(alike[-1].setting),
            "reason": lambda alike: alike[-1].reason,
        },
    )


def comparison_table(comparison: Comparison) -> Table:
    """A row for each place and size that was compared; certain differences first."""
    ordered = sorted(comparison.differences, key=lambda d: not d.is_certain)
    return Table(
        ("place", comparison.one, comparison.other, "difference", "certain"),
        tuple((d.what, d.one, d.other, d.words, "yes" if d.is_certain else "no") for d in ordered),
    )
