"""Knows how an experiment is shown, published figures beside measured ones: as HTML, Markdown and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib import resources
from pathlib import Path

from penstock.experiments.archive import measured
from penstock.experiments.experiment import SHORT_FORM, Experiment, Plot, Records
from penstock.experiments.facts import Fact, Kind, Relation, Verdict, counts, facts_of
from penstock.experiments.table import EXPERIMENTS, STUDIES
from penstock.report.chart import Layer, Line, Point, draw, linear_axis, log_axis
from penstock.units import number

_COLOUR_COUNT = 5
_ADDRESS_COUNT_MAX = 40
_INPUT_REMARK = "given to the lab"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One figure: published, in the lab, and on real services if it was measured there."""

    fact: Fact
    lab: float | None
    measured: float | None = None
    # 90 % intervals, if the figure is based on repetitions.
    lab_interval: tuple[float, float] | None = None
    measured_interval: tuple[float, float] | None = None
    is_short: bool = False  # the lab's figures are of the short form, which is not to reproduce any

    @property
    def verdict(self) -> Verdict:
        """The verdict on the lab."""
        return Verdict.NOT_MEASURED if self.is_short else self.fact.judged(self.lab)

    def cells(self) -> tuple[str, ...]:
        """The cells of its row."""
        fact = self.fact
        sign = "below " if fact.relation is Relation.BELOW else ""
        return (
            fact.name,
            f"{fact.operation}, {fact.condition}: {fact.metric}",
            f"{sign}{fact.words(fact.value)}",
            _value(fact, self.lab, self.lab_interval),
            _percent(fact, self.lab),
            _value(fact, self.measured, self.measured_interval),
            _percent(fact, self.measured),
            fact.kind.value or "-",
            "-" if self.verdict is Verdict.NOT_MEASURED else self.verdict.value,
        )


HEADINGS = ("figure", "what", "published", "lab", "difference", "here", "difference", "kind", "in the lab")
_WORDS, _OF_THE_LAB, _OF_HERE = {1}, {3, 4, 7, 8}, {5, 6}  # columns


def comparison_table(
    rows: Sequence[Comparison], *, is_brief: bool = False
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Headings and rows, without columns that were not measured; with only the lab's figures if it was not asked."""
    is_of_lab = any(row.lab is not None for row in rows)
    is_of_here = any(row.measured is not None for row in rows)
    parts = ((_WORDS, is_brief), (_OF_THE_LAB, not is_of_lab), (_OF_HERE, not is_of_here))
    left_out = {column for columns, is_left_out in parts if is_left_out for column in columns}
    shown = [row.cells() for row in rows if is_of_lab or row.measured is not None]
    kept = [index for index in range(len(HEADINGS)) if index not in left_out]
    return [HEADINGS[index] for index in kept if shown], [[row[index] for index in kept] for row in shown]


def compare(experiment: Experiment, lab: Records, here: Records) -> list[Comparison]:
    """Every figure of the experiment."""
    (values, ends), (values_here, ends_here) = (
        (experiment.quantities(run), experiment.intervals(run)) if len(run) else ({}, {})
        for run in (lab, here)
    )
    return [
        Comparison(
            fact=fact,
            lab=values.get(fact.name),
            measured=values_here.get(fact.name),
            lab_interval=ends.get(fact.name),
            measured_interval=ends_here.get(fact.name),
            is_short=lab.is_short,
        )
        for fact in facts_of(experiment.name)
    ]


def _value(fact: Fact, value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None:
        return "-"
    reach = f" ({number(interval[0])} to {number(interval[1])})" if interval else ""
    return fact.words(number(value)) + reach


def _percent(fact: Fact, value: float | None) -> str:
    difference = fact.difference(value) if value is not None else None
    return "-" if difference is None else f"{round(100 * difference, 1) + 0.0:+.1f} %"  # never -0.0


def svg_of(plot: Plot, like: Sequence[Plot]) -> str:
    """The plot as SVG, with axes that fit those beside it as well."""
    every = [series for one in (plot, *like) for series in one.series]
    xs, ys = [x for series in every for x in series.x], [y for series in every for y in series.y]
    x = (log_axis if plot.is_log_x else linear_axis)(plot.x_title, xs)
    y = (log_axis if plot.is_log_y else linear_axis)(plot.y_title, ys)
    layers: list[Layer] = []
    for index, series in enumerate(plot.series):
        colour = f"c{index % _COLOUR_COUNT}"
        if series.is_line:
            layers.append(Line(x=series.x, y=series.y, css=f"line {colour}"))
        layers += [
            Point(x=a, y=b, css=colour, title=f"{series.name}: {number(b)} at {number(a)}")
            for a, b in zip(series.x, series.y, strict=True)
            if not series.is_line or len(series.x) <= 40
        ]
    names = ", ".join(series.name for series in plot.series)
    return draw(plot.title, f"{plot.y_title} by {plot.x_title}: {names}", x, y, layers)


def measured_html(directory: Path) -> str:
    """Every experiment that was run on real services, as sections of a page; empty if none was."""
    return "".join(
        section_html(row, Records([]), here)
        for row in EXPERIMENTS.values()
        if len(here := measured(directory, row))
    )


def section_html(experiment: Experiment, lab: Records, here: Records) -> str:
    """One experiment as a section of a page."""
    headings, rows = comparison_table(compare(experiment, lab, here))
    parts = [
        f'<section id="{experiment.name}"><h2>{escape(experiment.title)}</h2>',
        f"<p>{escape(experiment.summary)} {escape(_source(experiment))}</p>",
        _table_html(headings, rows) if rows else "",
        *(
            f"<h3>{escape(grid.title)}, {name}</h3>{_table_html(grid.headings, grid.cells())}"
            for name, run in {"lab": lab, "here": here}.items()
            for grid in experiment.tables(run)
        ),
        *_figures_html(experiment, {"lab": lab, "here": here}),
        _addresses_html(here),
    ]
    if answers := experiment.answers(here if len(here) else lab):
        parts.append(f"<h3>{'What was measured here shows' if len(here) else 'What the lab shows'}</h3><ul>")
        parts += [f"<li>{escape(sentence)}</li>" for sentence in answers]
        parts.append("</ul>")
    return "".join([*parts, "</section>"])


def _figures_html(experiment: Experiment, runs: Mapping[str, Records]) -> list[str]:
    """Each figure as the study's text gives it, then on the same axes those of the lab and of this place."""
    beside: dict[str, list[tuple[str, Plot]]] = {}
    for name, records in runs.items():
        words = f"{name}, {SHORT_FORM}" if records.is_short else name
        for plot in experiment.plots(records) if len(records) else ():
            if any(series.x for series in plot.series if not series.is_published):
                beside.setdefault(plot.title, []).append((words, plot))
    found = []
    for drawn in beside.values():
        alone = [(name, _only(plot, is_published=False)) for name, plot in drawn]
        study = _only(drawn[0][1], is_published=True)
        row = [("the study", study), *alone] if study.series else alone
        figures = "".join(_figure_html(plot, name, [plot for _, plot in row]) for name, plot in row)
        found.append(f'<div class="figures beside">{figures}</div>')
    return found


def _only(plot: Plot, *, is_published: bool) -> Plot:
    return replace(plot, series=[series for series in plot.series if series.is_published is is_published])


def _source(experiment: Experiment) -> str:
    return f"{STUDIES[experiment.study]}: {experiment.section}."


def _figure_html(plot: Plot, name: str, like: Sequence[Plot]) -> str:
    keys = "".join(
        f'<li><span class="key c{index % _COLOUR_COUNT}"></span>{escape(series.name)}</li>'
        for index, series in enumerate(plot.series)
    )
    caption = f'<figcaption><ul class="keys">{keys}</ul></figcaption>'
    return f"<figure><h4>{escape(plot.title)} ({name})</h4>{svg_of(plot, like)}{caption}</figure>"


def _addresses_html(here: Records) -> str:
    """The addresses that answered: table 1 of study 001."""
    rows = [
        (row.address, number(row.request_count), row.first_seen_at, row.last_seen_at)
        for row in here.addresses()[:_ADDRESS_COUNT_MAX]
    ]
    if not rows:
        return ""
    table = _table_html(("address", "answers", "first seen", "last seen"), rows)
    return f"<h3>Addresses that answered</h3>{table}"


def _table_html(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def page_html(sections: Mapping[str, str]) -> str:
    """A self-contained page; `sections` are by their title in the table of contents."""
    style = resources.files("penstock.report").joinpath("templates/report.css").read_text(encoding="utf-8")
    contents = "".join(f'<li><a href="#{name}">{escape(name)}</a></li>' for name in sections)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>penstock: experiments</title>'
        f"<style>{style}</style></head><body><header><h1>Published experiments, run again</h1></header>"
        f"<nav><ul>{contents}</ul></nav>{''.join(sections.values())}</body></html>"
    )


def verdicts(chosen: Sequence[Experiment], lab: Mapping[str, Records]) -> dict[str, Verdict]:
    """The lab's verdict on each figure, by name."""
    return {
        row.fact.name: row.verdict
        for experiment in chosen
        for row in compare(experiment, lab[experiment.name], Records([]))
    }


def page_markdown(chosen: Sequence[Experiment], lab: Mapping[str, Records]) -> str:
    """The page of the manual."""
    rows = [(kind, verdict, str(n)) for kind, verdict, n in counts(verdicts(chosen, lab))]
    sections = [section_markdown(experiment, lab[experiment.name]) for experiment in chosen]
    introduction = resources.files(__package__).joinpath("experiments.md").read_text(encoding="utf-8")
    counted = _table_markdown(("kind", "verdict", "figures"), rows)
    return introduction.replace("@COUNTS@", "\n".join(counted)) + "\n" + "\n".join(sections)


def section_markdown(experiment: Experiment, lab: Records) -> str:
    """One experiment for the manual, with the lab's figures."""
    about = f"{experiment.title}. {experiment.summary} *{_source(experiment)}*"
    lines = [f"## {experiment.name}", "", about, ""]
    if rows := compare(experiment, lab, Records([])):
        lines += [*_table_markdown(_MANUAL_HEADINGS, [_manual_cells(row) for row in rows]), ""]
    for grid in experiment.tables(lab):
        lines += [f"{grid.title}:", "", *_table_markdown(grid.headings, grid.cells()), ""]
    return "\n".join([*lines, *(f"- {sentence}" for sentence in experiment.answers(lab)), ""])


_MANUAL_HEADINGS = ("figure", "published", "lab", "difference", "kind", "in the lab", "remark")


def _manual_cells(row: Comparison) -> Sequence[str]:
    name, _, published, value, difference, _, _, kind, verdict = row.cells()
    remark = row.fact.remark or (_INPUT_REMARK if row.fact.kind is Kind.INPUT else "")
    return f"`{name}`", published, value, difference, kind, verdict, remark


def _table_markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(headings)} |",
        "| --- " * len(headings) + "|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
