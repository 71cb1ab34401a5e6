"""The report as readers see it: at any width, in the dark, on paper, by keyboard, to a screen reader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default::ResourceWarning"),
]

AXE = Path(__file__).parent / "vendored" / "axe.min.js"
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"  # of axe-core 4.14.1, by npm
WIDTHS = (360, 768, 1400, 2560)
PRINTED_PAGE_COUNT_MAX = 4
_CUT = """() => [...document.querySelectorAll('.wide')]
    .filter(e => e.checkVisibility({contentVisibilityAuto: true}) && e.scrollWidth > e.clientWidth).length"""
_OVERFLOW = """() => [...document.querySelectorAll('body *')].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width && box.right > innerWidth + 1 && !e.closest('.wide, svg, .unseen, .live');
}).map(e => e.tagName + '.' + e.className).slice(0, 5)"""


# Whether each figure came into view and was drawn. Headless Chromium at times draws no frame of a new page at all.
_DRAW = """async () => {
    const frame = () => Promise.race([
        new Promise(resolve => requestAnimationFrame(() => resolve(true))),
        new Promise(resolve => setTimeout(resolve, 5000, false)),
    ]);
    for (const figure of document.querySelectorAll('figure')) {
        figure.scrollIntoView();
        if (!await frame()) return false;
    }
    scrollTo(0, 0);
    return true;
}"""
PAGE_COUNT_MAX = 3  # that are tried until one is drawn


@contextmanager
def opened(browser: Any, file: Path, **options: Any) -> Iterator[Any]:
    """A page that has drawn all that it draws; fails for whatever it asked for or complained of."""
    for _ in range(PAGE_COUNT_MAX):
        context = browser.new_context(**options)
        page = context.new_page()
        asked: list[str] = []
        said: list[str] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.on("console", lambda message, said=said: said.append(message.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.goto(file.as_uri())
        if page.evaluate(_DRAW):
            break
        context.close()
    else:
        pytest.fail(f"the browser drew none of {PAGE_COUNT_MAX} pages")
    page.wait_for_timeout(100)
    yield page
    assert asked == [file.as_uri()]
    assert said == []
    context.close()


@pytest.mark.parametrize("name", ["full", "many", "empty"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_at_any_width(browser: Any, files: dict[str, Path], name: str, width: int) -> None:
    """Only tables scroll sideways, each by itself; where there is room, none has to."""
    with opened(browser, files[name], viewport={"width": width, "height": 900}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(_OVERFLOW) == []
        if width >= 1920:
            assert page.evaluate(_CUT) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["full", "many", "empty"])
def test_a_screen_reader_has_nothing_to_complain_of(
    browser: Any, files: dict[str, Path], name: str, scheme: str
) -> None:
    """No finding of axe-core, of any weight, by day and by night, with all details open."""
    assert hashlib.sha256(AXE.read_bytes()).hexdigest() == AXE_SHA256
    with opened(browser, files[name], color_scheme=scheme, bypass_csp=True) as page:
        page.evaluate(
            "document.querySelectorAll('details').forEach(d => { d.removeAttribute('name'); d.open = true })"
        )
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.impact, v.nodes[0].html]))")
        assert found == []


def test_the_verdict_is_on_the_first_screen(browser: Any, files: dict[str, Path]) -> None:
    """What to set, the setting to copy and the gain are seen without scrolling; on a telephone, what to set is."""
    for width, selectors in ((1400, (".card h2", ".card pre", ".gains", ".facts")), (360, (".card h2",))):
        with opened(browser, files["full"], viewport={"width": width, "height": 900}) as page:
            for selector in selectors:
                box = page.locator(selector).first.bounding_box()
                assert box["y"] + min(box["height"], 300) < 900, (width, selector)


def test_a_telephone_shows_the_gain_of_each_place_without_scrolling_sideways(
    browser: Any, files: dict[str, Path]
) -> None:
    """Place, setting and gain are what it has room for; the rest is in the cards."""
    with opened(browser, files["many"], viewport={"width": 360, "height": 800}) as page:
        table = page.locator(".overview")
        assert table.evaluate("e => e.parentElement.scrollWidth <= e.parentElement.clientWidth")


@pytest.mark.parametrize("name", ["full", "pair", "many", "fleet", "empty"])
def test_it_prints_on_a_few_pages(browser: Any, files: dict[str, Path], name: str) -> None:
    """On paper with details closed, drawings as they were, not those of the script."""
    with opened(browser, files[name]) as page:
        printed = page.pdf(format="A4")
        assert 1 <= printed.count(b"/Type /Page\n") <= PRINTED_PAGE_COUNT_MAX
        if name != "full":
            return
        page.emulate_media(media="print")
        assert page.locator(".still svg").first.is_visible()
        assert not page.locator(".live").first.is_visible()


def test_figures_answer_to_pointer_and_keys(browser: Any, files: dict[str, Path]) -> None:
    """Hovering and arrow keys name a measurement, plus zooms, Escape shows all again."""
    with opened(browser, files["full"], viewport={"width": 1400, "height": 900}) as page:
        figure = page.locator(".live").first
        figure.scroll_into_view_if_needed()
        dot = figure.locator("[data-mark=dot] circle").first
        dot.hover(force=True)
        page.wait_for_timeout(100)
        assert figure.locator("g[aria-label=tip] text").count() > 0
        figure.focus()
        page.keyboard.press("Home")
        assert "MB/s" in page.locator("[role=status]").inner_text()
        ticks = figure.locator("[data-mark='x-axis tick label']").text_content()
        page.keyboard.press("+")
        assert figure.locator("[data-mark='x-axis tick label']").text_content() != ticks
        page.keyboard.press("Escape")
        assert figure.locator("[data-mark='x-axis tick label']").text_content() == ticks
        assert page.locator("[role=status]").inner_text() == ""


def test_without_a_script_it_says_the_same(browser: Any, files: dict[str, Path]) -> None:
    """Mail programs and strict policies run nothing."""
    with opened(browser, files["full"], java_script_enabled=True) as page:
        count = page.locator("figure").count()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(files["full"].as_uri())
    assert page.locator(".still svg").count() == count
    assert page.locator(".still svg").first.is_visible()
    context.close()
