"""What holds for every page, whatever is in the database."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

import pytest

from penstock.report.figures import place_figures
from penstock.report.markdown import escape, render_markdown
from penstock.report.page import render_html
from penstock.vocabulary import Context, Origin, Place
from tests.factories import an_inconclusive
from tests.unit.report.materials import (
    UPLOAD,
    a_material,
    a_real_fit,
    a_report,
    real_advice,
    some_observations,
)

VOID = {"meta", "link", "br", "hr", "img", "input"}
HOSTILE = "</title><script>alert(1)</script>\"' onload='x' | `rm` [a](http://evil.example) <img src=//evil>"


class Outline(HTMLParser):
    """The tree of a page; fails where an element is closed that is not open."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.figures: list[list[str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag == "figure":
            self.figures.append([])
        if "figure" in self.open:
            self.figures[-1].append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def outline(html: str) -> Outline:
    """Parse it all."""
    page = Outline()
    page.feed(html)
    page.close()
    assert page.open == []
    return page


def hostile_report() -> str:
    """A page of a database whose every free text is an attack."""
    place = Place(operation="s3_upload", region=HOSTILE, instance_type=HOSTILE, service_class="standard")
    context = Context(place=place, payload_size_bytes=64 * 2**20)
    observations = [
        dataclasses.replace(o, context=context, origin=Origin.APPLICATION, client=HOSTILE)
        for o in some_observations()
    ]
    advice = dataclasses.replace(real_advice(), context=context, explanation=HOSTILE, bottleneck=HOSTILE)
    report = a_report(
        source=HOSTILE,
        payload_nouns={"s3_upload": "object"},
        observations={place: observations},
        inconclusives=[an_inconclusive(context=context, reason=HOSTILE)],
        fits=[dataclasses.replace(a_real_fit(), place=place)],
        recommendations=[advice],
        histories={context: [advice, advice]},
    )
    return render_html(report)


def test_the_page_is_well_formed_and_fetches_and_runs_nothing() -> None:
    """It can be mailed: no script, no address outside, and a policy that forbids both."""
    html = render_html(a_report())
    page = outline(html)
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(page.tags)
    assert all(value.startswith("#") for name, value in page.attributes if name in {"href", "src"})
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "http" not in html.replace("http-equiv", "")
    assert "url(" not in html
    assert "@import" not in html
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_every_figure_has_a_title_a_description_and_a_table() -> None:
    """What the eye sees can also be heard."""
    page = outline(render_html(a_report()))
    assert len(page.figures) >= 4
    for figure in page.figures:
        assert {"title", "desc", "table", "figcaption"} <= set(figure)


def test_hostile_text_is_shown_as_text() -> None:
    """Names of clients and reasons come from others."""
    page = outline(hostile_report())
    assert not {"script", "img"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert HOSTILE in page.text


@pytest.mark.parametrize("render", [render_html, render_markdown])
def test_a_database_without_anything_still_makes_a_document(render: object) -> None:
    """It says that it is empty, and what to expect."""
    assert callable(render)
    report = a_report(
        observations={}, inconclusives=[], fits=[], recommendations=[], histories={}, expenses=[]
    )
    assert "The database holds no observations" in render(report)


def test_the_page_stays_small_however_long_the_history_is() -> None:
    """A few hundred kilobytes at most; the newest measurements are those that count."""
    report = a_report(observations={next(iter(a_material().observations)): some_observations() * 300})
    assert len(render_html(report)) < 300_000


def test_no_operation_is_named_in_this_room() -> None:
    """The models are all that the report knows of an operation; a renamed one makes the same page."""
    place = dataclasses.replace(next(iter(a_material().observations)), operation="tape_upload")
    context = Context(place=place, payload_size_bytes=64 * 2**20)
    report = a_report(
        models={"tape_upload": UPLOAD},
        payload_nouns={"tape_upload": "tape"},
        observations={place: [dataclasses.replace(o, context=context) for o in some_observations()]},
        inconclusives=[],
        fits=[dataclasses.replace(a_real_fit(), place=place)],
        recommendations=[dataclasses.replace(real_advice(), context=context)],
        histories={},
        expenses=[],
    )
    html = render_html(report)
    assert "tapes of 64 MiB" in html
    assert "s3" not in html.lower()


def test_markdown_has_the_advice_and_its_tables_are_whole() -> None:
    """Each row of a table has as many cells as its heading."""
    text = render_markdown(a_report())
    assert "### The advice that stands" in text
    width = 0
    for line in text.splitlines():
        cells = line.replace("\\|", "").count("|")
        width = (width or cells) if line.startswith("|") else 0
        assert cells == width or not line.startswith("|"), line


def test_markdown_marks_in_a_text_mean_nothing() -> None:
    """A reason that somebody else wrote cannot become a link, a cell or HTML."""
    assert escape("a | b\n<i> [x](y) `c` *d*") == r"a \| b \<i\> \[x\](y) \`c\` \*d\*"
    text = render_markdown(a_report(inconclusives=[an_inconclusive(reason=HOSTILE)]))
    assert "<script>" not in text.replace("\\<", "")
    assert "\\<script\\>" in text


def test_however_many_clients_there_are_the_legend_stays_short() -> None:
    """Names of clients come from others; from the fifth on they share a colour and a word."""
    observations = [
        dataclasses.replace(o, origin=Origin.APPLICATION, client=f"client-{n}")
        for n, o in enumerate(some_observations() * 5)
    ]
    figure = place_figures(a_report(observations={observations[0].context.place: observations}).places[0])[0]
    assert [key.text for key in figure.keys if key.text.startswith(("application", "other"))] == [
        "application (client-0)",
        "application (client-1)",
        "application (client-10)",
        "application (client-11)",
        "other applications",
    ]
