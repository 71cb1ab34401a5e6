"""What holds for every figure, whatever the data."""

from __future__ import annotations

import json
import math
import re
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from penstock.report import chart
from penstock.report.live import live

ANY = st.floats(allow_nan=True, allow_infinity=True)
POSITIVE = st.floats(min_value=1e-12, max_value=1e18)
_NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:e[+-]?\d+)?|nan|inf)", re.IGNORECASE)


def corners(svg: str) -> list[tuple[float, float]]:
    """Every absolute point of lines, bands, dots and bars."""
    found: list[tuple[float, float]] = []
    for element in ET.fromstring(svg).iter():  # noqa: S314 - our own words
        css = element.get("class", "")
        if element.tag == "circle":
            found.append((float(element.attrib["cx"]), float(element.attrib["cy"])))
        elif element.tag == "rect":
            left, top = float(element.attrib["x"]), float(element.attrib["y"])
            size = float(element.attrib["width"]), float(element.attrib["height"])
            found += [(left, top), (left + size[0], top + size[1])]
        elif element.tag == "path" and css in {"line", "band"}:
            numbers = [float(n) for n in _NUMBER.findall(element.attrib["d"])]
            found += list(zip(numbers[::2], numbers[1::2], strict=True))
        elif element.tag == "text":
            found.append((float(element.attrib["x"]), float(element.attrib["y"])))
    return found


@given(st.lists(st.tuples(ANY, ANY, ANY), max_size=30), st.lists(POSITIVE, max_size=5), st.booleans())
def test_every_coordinate_is_finite_and_inside_the_view_box(
    rows: list[tuple[float, float, float]], range_of_axes: list[float], is_log: bool
) -> None:
    """What lies outside an axis is drawn at its edge; nothing is ever drawn outside the figure."""
    xs, ys, zs = ([row[n] for row in rows] for n in range(3))
    x = chart.log_axis("x", [*range_of_axes, *xs], is_binary=True) if is_log else chart.linear_axis("x", xs)
    y = chart.log_axis("y", range_of_axes) if is_log else chart.linear_axis("y", [*range_of_axes, *ys])
    layers: list[chart.Layer] = [
        chart.Band(x=xs, low=ys, high=zs),
        chart.Line(x=xs, y=ys, css="line"),
        chart.Line(x=xs, y=zs, css="line", is_stepped=True),
        *(chart.Point(x=a, y=b, css="c0", title="") for a, b, _ in rows),
        *(chart.Bar(x_low=min(a, b), x_high=max(a, b), y=c, css="b0", title="") for a, b, c in rows),
        *(chart.Mark(x=a, text="here", css="advised", row=0) for a, _, _ in rows),
    ]
    for left, top in corners(chart.draw("title", "what it shows", x, y, layers)):
        assert math.isfinite(left)
        assert math.isfinite(top)
        assert -0.2 <= left <= chart.WIDTH + 0.2
        assert -0.2 <= top <= chart.HEIGHT + 0.2


@given(st.lists(POSITIVE, min_size=1, max_size=20), st.booleans())
def test_axes_have_a_few_ticks_in_order_that_lie_on_them(values: list[float], is_binary: bool) -> None:
    """An axis can be read: at least one tick, not too many, none outside."""
    for axis in (chart.linear_axis("x", values), chart.log_axis("x", values, is_binary=is_binary)):
        assert 1 <= len(axis.ticks) <= 12
        assert list(axis.ticks) == sorted(axis.ticks)
        assert all(axis.low * (1 - 1e-9) <= tick <= axis.high * (1 + 1e-9) for tick in axis.ticks)
        assert all(0.0 <= axis.share(value) <= 1.0 for value in values)


@given(st.lists(st.datetimes().map(lambda d: (d.toordinal() - 719163) * 86400.0), min_size=1, max_size=5))
def test_any_date_can_be_on_a_time_axis(seconds: list[float]) -> None:
    """The calendar's ends are no trouble."""
    axis = chart.time_axis("date", seconds)
    assert all(axis.show(tick) for tick in axis.ticks)


def test_a_figure_says_what_it_is_and_escapes_every_word() -> None:
    """Title and description are there for screen readers, and text is never markup."""
    axis = chart.linear_axis("<x>", [1.0])
    svg = chart.draw("<b>&", "<i>", axis, axis, [chart.Mark(x=1.0, text="<s>", css="advised", row=0)])
    root = ET.fromstring(svg)  # noqa: S314 - our own words
    assert root.findtext("title") == "<b>&"
    assert root.findtext("desc") == "<i>"
    assert {element.tag for element in root.iter()} == {"svg", "title", "desc", "path", "text"}


def test_no_mark_runs_through_the_name_of_another() -> None:
    """Names stand in rows above the plot, in both drawings; lines begin below them."""
    axis = chart.linear_axis("x", [1.0, 2.0])
    marks = [chart.Mark(x=1.0, text=f"in row {row}", css="advised", row=row) for row in (0, 1)]
    root = ET.fromstring(chart.draw("t", "d", axis, axis, marks))  # noqa: S314 - our own words
    names = [float(text.get("y", "0")) for text in root.iter("text") if text.get("class") == "mark"]
    lines = [path.get("d", "") for path in root.iter("path") if path.get("class") == "advised"]
    assert len(names) == len(lines) == 2
    assert min(float(line.split()[1].partition("V")[0]) for line in lines) > max(names)
    assert [layer["row"] for layer in json.loads(live("t", axis, axis, marks))["layers"]] == [0, 1]


def test_the_name_of_a_mark_stands_over_it() -> None:
    """Beside two near lines, each name stood over the other's; at the edges it stays within the drawing."""
    axis = chart.log_axis("x", [1.0, 128.0])
    marks = [
        chart.Mark(x=x, text=f"default: {x:.0f}", css="advised", row=0) for x in (1.0, 10.0, 16.0, 128.0)
    ]
    root = ET.fromstring(chart.draw("t", "d", axis, axis, marks))  # noqa: S314 - our own words
    names = [float(text.get("x", "0")) for text in root.iter("text") if text.get("class") == "mark"]
    lines = [
        float(path.get("d", "").split()[0].removeprefix("M"))
        for path in root.iter("path")
        if path.get("class") == "advised"
    ]
    assert names[:3] == lines[:3]
    assert all(40 < name < chart.WIDTH - 40 for name in names)


def test_minutes_are_round_on_an_axis_by_ratios() -> None:
    """Nobody counts 3.33 minutes."""
    texts, _ = chart.labels(chart.log_axis("stop", [30.0, 1100.0], name="stop_seconds"))
    assert texts == ["30 s", "60 s", "2 min", "5 min", "10 min", "20 min"]


def test_the_title_of_an_axis_stands_beside_its_longest_label() -> None:
    """Not through it: "500 MB/s" is as long as they get where units differ."""
    axis = chart.log_axis("throughput", [2e8, 2e9], name="throughput_bytes_per_second")
    root = ET.fromstring(chart.draw("t", "d", axis, axis, []))  # noqa: S314 - our own words
    ends = [
        float(text.get("x", "0")) - 8 * len(text.text or "")
        for text in root.iter("text")
        if text.get("text-anchor") == "end"
    ]
    (title,) = (float(text.get("x", "0")) for text in root.iter("text") if text.get("transform"))
    assert min(ends) > title + 4


def test_a_unit_that_all_ticks_share_is_written_once() -> None:
    """The title of the axis carries it, so that long units do not crowd the ticks."""
    axis = chart.linear_axis("goodput", [100.0], show=lambda value: f"{value:.0f} messages/s")
    svg = chart.draw("t", "d", axis, axis, [])
    assert "goodput, messages/s" in svg
    assert svg.count("messages/s") == 2
