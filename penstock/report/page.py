"""Knows the report as one HTML page that fetches nothing, runs only its own script, and can be printed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import jinja2

from penstock.report import anchors, figures, live, wording
from penstock.report.backlog_figures import backlog_figures
from penstock.report.clients import clients_table, harms_table
from penstock.report.figure import Table
from penstock.report.findings import PlaceFindings, Report
from penstock.report.first_screen import CARD_COUNT_MAX, first_screens
from penstock.report.remarks import SPENT, cost_words
from penstock.report.summary import advice_rows, comparison_table, evidence_tables, seen_words
from penstock.vocabulary import knobs

PAPER_ROW_COUNT_MAX = 25  # rows of a printed table
_BUFFERED_COUNT = 1000  # pieces of the template per write


def render_html(report: Report, experiments: str = "") -> Iterator[str]:
    """The page, piece by piece, so that it is never in memory as a whole. `experiments` are sections in HTML."""
    environment = _environment()
    environment.filters.update(
        date=wording.date_words,
        place_words=wording.place_words,
        tied=wording.tied,
    )
    stream = environment.get_template("report.html").stream(
        report=report,
        experiments=experiments,
        scripts=live.scripts(),
        script_hashes=live.script_hashes(),
        comparison_table=comparison_table,
        screens=first_screens(report),
        card_count_max=CARD_COUNT_MAX,
        paper_row_count_max=PAPER_ROW_COUNT_MAX,
        places=(_place(place, report) for place in report.places),
        backlog_figures=backlog_figures(report.backlogs),
        spend_figures=figures.spend_figures(report),
        spend_totals=_spend_totals(report),
        clients_table=clients_table(report.clients),
        harms_table=harms_table(report.harms),
    )
    stream.enable_buffering(_BUFFERED_COUNT)
    return iter(stream)


def render_tables(title: str, lead: str, tables: Iterable[tuple[str, Table]]) -> str:
    """A page of tables alone, each with its title."""
    return _environment().get_template("tables.html").render(title=title, lead=lead, tables=tables)


def _environment() -> jinja2.Environment:
    """Everything from the database is escaped; only figures, which escape themselves, are marked as safe."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("penstock.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _place(place: PlaceFindings, report: Report) -> dict[str, Any]:
    """What the template shows of one place (Any: each entry has its own type)."""
    drawn = figures.place_figures(place)
    anchor = anchors.place_anchor(**dataclasses.asdict(place.place))
    first = {figure.anchor: n for n, figure in reversed(list(enumerate(drawn))) if figure.anchor}
    ids = [f"{anchor}.{f.anchor}" if first.get(f.anchor) == n else "" for n, f in enumerate(drawn)]
    told = {anchors.curve_anchor(knob) for advice in place.advice for knob in knobs(advice.default_setting)}
    return {
        "anchor": anchor,
        "ids": ids,
        # Anchors that commands may name and no figure has, as of a knob with little effect, lead to the first figure.
        "undrawn": sorted(f"{anchor}.{name}" for name in {*told, anchors.PREDICTED} - set(first)),
        "findings": place,
        "seen": seen_words(place, report.generated_at),
        "advice": advice_rows(place, report.generated_at),
        "figures": drawn,
        "tables": evidence_tables(place),
    }


def _spend_totals(report: Report) -> list[tuple[str, str]]:
    names = ("transferred_bytes", "request_count", "usd", "duration_seconds")
    totals = {name: sum(getattr(spend.cost, name) for spend in report.spending) for name in names}
    return [(SPENT[name], cost_words(name, total)) for name, total in totals.items()]
