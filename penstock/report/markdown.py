"""Knows the report as Markdown, for tickets, mail and terminals: the page's text and tables, without figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.report.backlog_figures import backlog_figures
from penstock.report.clients import clients_table, harms_table
from penstock.report.figure import Figure, Table
from penstock.report.figures import place_figures, spend_figures
from penstock.report.findings import PlaceFindings, Remark, Report
from penstock.report.first_screen import CARD_COUNT_MAX, first_screens
from penstock.report.material import Copy
from penstock.report.summary import advice_rows, comparison_table, evidence_tables, seen_words
from penstock.report.wording import date_words, place_words
from penstock.units import counted

_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>#|~!&$"})
# On the short page.
_PLACE_COUNT_MAX, _WARNING_COUNT_MAX, _CLIENT_COUNT_MAX, _DIFFERENCE_COUNT_MAX = 12, 6, 3, 6
_CHANGE_COUNT_MAX = 4


def render_markdown(report: Report, *, is_full: bool = False) -> str:
    """One page for a chat; with `is_full`, everything that can be said in words or tables."""
    return "\n".join(_lines(report) if is_full else _page(report)) + "\n"


def markdown_tables(title: str, lead: str, tables: Iterable[tuple[str, Table]]) -> str:
    """Tables alone, each with its title."""
    lines = [f"# {title}", "", escape(lead)]
    for name, table in tables:
        lines += ["", f"## {name}", *(_table(table) if table.rows else ("", "Nothing."))]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """The text in one line, with nothing that Markdown or a terminal would interpret."""
    line = " ".join(text.split()).translate(_SPECIAL)
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)


def _page(report: Report) -> Iterator[str]:
    """The verdicts and warnings; more detail of one place, a few lines for each of several."""
    screens, changes_left = first_screens(report), _CHANGE_COUNT_MAX
    yield f"**penstock**, {date_words(report.generated_at)} UTC, from {escape(report.source)}"
    for screen in screens[:_PLACE_COUNT_MAX]:
        yield from ("", f"**{escape(screen.name)}, {escape(screen.size)}.** {escape(screen.sentence)}")
        changes = screen.changes[: min(2, changes_left)]
        changes_left -= len(changes)
        yield from (f"- {escape(words)}" for words in changes)
        gains = ", ".join(f"{each.client} {each.words} ({each.span})" for each, _ in screen.gains)
        if gains and len(screens) <= CARD_COUNT_MAX:
            yield f"- Gain over each client's defaults: {escape(gains)}."
        for copy in screen.copies[:1] if len(screens) == 1 else ():
            yield from _copy(copy)
    if len(screens) > _PLACE_COUNT_MAX:
        more = counted(len(screens) - _PLACE_COUNT_MAX, "place")
        yield from ("", f"And {more} more, with less to gain.")
    for comparison in report.comparisons:
        yield from ("", f"**{escape(comparison.title)}.**")
        yield from (f"- {escape(words)}." for words in comparison.sentences[:_DIFFERENCE_COUNT_MAX])
    for client in report.clients[:_CLIENT_COUNT_MAX]:
        yield from (f"- {escape(client.title)}: {escape(sentence)}." for sentence in client.sentences[:2])
    if not screens:
        yield ""
        yield "The database holds no observations, fits or advice." if not report.places else "No advice yet."
    remarks = [("", r) for r in report.remarks]
    remarks += [(f"{place_words(p.place)}: ", r) for p in report.places for r in p.remarks]
    warnings = [f"- Warning: {escape(of + r.title)} ({escape(r.code)})." for of, r in remarks if r.is_warning]
    if warnings:
        yield ""
    yield from dict.fromkeys(warnings[:_WARNING_COUNT_MAX])
    yield from ("", "Evidence: `penstock report`, or `--format markdown --full`.")


def _lines(report: Report) -> Iterator[str]:
    since = f", since {date_words(report.since)} UTC" if report.since else ""
    yield from ("# What penstock learned and advises", "")
    yield f"From {escape(report.source)}, {date_words(report.generated_at)} UTC{since}. Intervals are of 90 %."
    yield from _verdicts(report)
    for comparison in report.comparisons:
        if comparison.differences:
            yield from _titled(f"## {escape(comparison.title)}", comparison_table(comparison))
        else:
            yield from ("", f"## {escape(comparison.title)}", "", f"{comparison.sentences[0]}.")
    yield from _remarks(report.remarks)
    if not report.places:
        yield from ("", "The database holds no observations, fits or advice.")
    for place in report.places:
        yield from _place(place, report)
    yield from _figures("## What watched queues held", backlog_figures(report.backlogs))
    yield from _heard(report)
    yield from _figures("## What was spent", spend_figures(report))


def _figures(heading: str, figures: Sequence[Figure]) -> Iterator[str]:
    if figures:
        yield from ("", heading)
    for figure in figures:
        yield from _titled(escape(f"{figure.title}. {figure.description}"), figure.table)


def _heard(report: Report) -> Iterator[str]:
    if report.clients:
        yield from _titled("## What applications do", clients_table(report.clients))
        yield ""
        for client in report.clients:
            yield from (f"- {escape(client.title)}: {escape(sentence)}." for sentence in client.sentences)
    if report.harms:
        yield from _titled("## What probes cost applications", harms_table(report.harms))


def _verdicts(report: Report) -> Iterator[str]:
    """The verdicts: what fits into a chat."""
    for screen in first_screens(report):
        yield from ("", f"## {escape(screen.name)}, {escape(screen.size)}")
        yield from ("", f"**{escape(screen.sentence)}**")
        for words in screen.changes:
            yield from ("", escape(words))
        if screen.gains:
            rows = tuple((each.client, each.setting_words, each.words, each.span) for each, _ in screen.gains)
            yield from _table(Table(("client", "by itself", "gain", "90 % interval"), rows))
        yield ""
        yield from (f"- {escape(name)}: {escape(words)}" for name, words in screen.facts)
        for copy in screen.copies[:1]:
            yield from _copy(copy)


def _place(place: PlaceFindings, report: Report) -> Iterator[str]:
    yield from ("", f"## The evidence: {escape(place_words(place.place))}", "")
    yield seen_words(place, report.generated_at)
    yield from _remarks(place.remarks)
    advice = advice_rows(place, report.generated_at)
    if advice:
        names = [name for name, _ in advice[0].knobs]
        said = ("expected", "interval", "over the default", "basis", "newest evidence", "limited by")
        rows = tuple(
            (
                *(row.size, row.demand or "ordinary", *(value for _, value in row.knobs)),
                *(row.expected, row.interval, row.gain, row.basis, row.age, row.bottleneck),
            )
            for row in advice
        )
        table = Table((place.payload_noun, "demand", *names, *said), rows)
        yield from _titled("### The current advice", table)
        yield from ("", escape(place.payload_note)) if place.payload_note else ()
    yield from _figures("### The figures in numbers", place_figures(place))
    for title, found in evidence_tables(place):
        yield from _titled(f"### {title}", found)


def _copy(copy: Copy) -> Iterator[str]:
    yield from ("", f"For {escape(copy.client)}:", "")
    yield from (f"    {line}" for line in copy.text.splitlines())


def _remarks(remarks: Sequence[Remark]) -> Iterator[str]:
    if remarks:
        yield ""
    for remark in remarks:
        warning = "Warning: " if remark.is_warning else ""
        yield f"- **{warning}{escape(remark.title)}.** {escape(remark.reason)} ({escape(remark.code)})"


def _titled(title: str, table: Table) -> Iterator[str]:
    yield from ("", title)
    yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    yield ""
    yield _row(map(escape, table.headings))
    yield _row(["---"] * len(table.headings))
    for row in table.rows:
        yield _row(map(escape, row))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
