"""Knows how to draw charts as self-contained SVG: axes with round ticks, bands, lines, points and marks.

Colours are CSS classes, so that the page sets them for light, dark and paper. Every coordinate is finite and inside the
view box whatever the data: values outside an axis are drawn at its edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from html import escape
from itertools import groupby, pairwise

from penstock.units import number, quantity
from penstock.vocabulary import Estimate

WIDTH, HEIGHT = 480, 300
SHADE_COUNT = 8
_LEFT, _RIGHT, _TOP, _BOTTOM = 88, 14, 40, 46  # the left margin holds "500 MB/s" and a title
_CHARACTER_WIDTH = 7  # of the names of marks, roughly
_TICK_COUNT_MAX = 6
_LARGEST = 1e300  # for larger values a margin would overflow
_HOUR, _DAY = 3600.0, 86400.0
_TIME_STEPS = [*(n * _HOUR for n in (1, 3, 6, 12)), *(n * _DAY for n in (1, 2, 7, 14, 30, 90, 365))]
_CALENDAR_END = 6e10  # seconds from 1970 beyond which there are no dates


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What a coordinate means. `low` and `high` are its ends; `ticks` lie between them."""

    title: str
    low: float
    high: float
    ticks: tuple[float, ...]
    show: Callable[[float], str] = number
    is_log: bool = False
    is_date: bool = False
    name: str = ""  # of the quantity; implies its unit

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def share(self, value: float) -> float:
        """How far along the axis a value lies, from 0 to 1."""
        low, high, at = self.low, self.high, value if math.isfinite(value) else self.low
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(min(max(at, low), high))
        return min(max((at - low) / (high - low), 0.0), 1.0)


def linear_axis(
    title: str,
    values: Sequence[float],
    *,
    show: Callable[[float], str] | None = None,
    unit: float = 1.0,
    name: str = "",
) -> Axis:
    """From zero to a little above the largest value; ticks are round multiples of `unit`, shown as `name` is."""
    high = max((v for v in values if math.isfinite(v) and v < _LARGEST), default=0.0) * 1.06
    high = high if high > 1 / _LARGEST else 1.0
    ticks = tuple(tick * unit for tick in _round_ticks(0.0, high / unit))
    return Axis(title=title, low=0.0, high=high, ticks=ticks, show=show or _in_unit_of(name), name=name)


def _in_unit_of(name: str) -> Callable[[float], str]:
    return partial(quantity, name) if name else number


def round_unit(name: str, highest: float) -> float:
    """The unit in which people count such an amount: MiB and GiB, minutes and hours."""
    units = [1.0]
    if name.endswith("_bytes"):
        units = [1024.0**n for n in range(5)]
    elif name.endswith("_seconds"):
        units = [1.0, 60.0, 3600.0]
    return max((unit for unit in units if 2 * unit <= highest), default=1.0)


def log_axis(
    title: str,
    values: Sequence[float],
    *,
    show: Callable[[float], str] | None = None,
    is_binary: bool = False,
    name: str = "",
) -> Axis:
    """A logarithmic axis around the positive values; `is_binary` puts the ticks at powers of two."""
    positive = [v for v in values if math.isfinite(v) and 1 / _LARGEST < v < _LARGEST] or [1.0]
    low, high = min(positive) / 1.1, max(positive) * 1.1
    if high / low < 2:
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = middle / math.sqrt(2), middle * math.sqrt(2)
    unit = round_unit(name, math.sqrt(low) * math.sqrt(high)) if name.endswith("_seconds") else 1.0
    ticks = _binary_ticks(low, high) if is_binary else _decimal_ticks(low / unit, high / unit)
    ticks = tuple(tick * unit for tick in ticks)
    return Axis(
        title=title, low=low, high=high, ticks=ticks, show=show or _in_unit_of(name), is_log=True, name=name
    )


def time_axis(title: str, seconds: Sequence[float]) -> Axis:
    """Dates, as seconds since 1970 in UTC."""
    low, high = min(seconds, default=0.0), max(seconds, default=0.0)
    margin = max(0.02 * (high - low), 600.0)
    low, high = low - margin, high + margin
    step = next((s for s in _TIME_STEPS if (high - low) / s <= _TICK_COUNT_MAX), (high - low) / 5)
    first = math.ceil(low / step)
    ticks = tuple(
        n * step for n in range(first, math.floor(high / step) + 1) if abs(n * step) < _CALENDAR_END
    )
    return Axis(
        title=title, low=low, high=high, ticks=ticks, show=_clock if step < _DAY else _day, is_date=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The area between two curves."""

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    css: str = "band"


def estimated(x: Sequence[float], estimates: Sequence[Estimate]) -> Band:
    """The 90 % intervals of a curve."""
    return Band(x=x, low=[e.low for e in estimates], high=[e.high for e in estimates])


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Through points, straight or as a staircase."""

    x: Sequence[float]
    y: Sequence[float]
    css: str
    is_stepped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Whiskers:
    """Short lines of one style, each from one point to another."""

    x: Sequence[tuple[float, float]]
    y: Sequence[tuple[float, float]]
    css: str = "whisker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement; a cross instead of a dot means that there was trouble."""

    x: float
    y: float
    css: str
    title: str
    is_cross: bool = False


def steps(
    times: Sequence[float], values: Sequence[float], titles: Sequence[str], *, until: float
) -> list[Layer]:
    """A staircase of values, each from its moment on, the last one until `until`, with a point at each change."""
    line = Line(x=[*times, until], y=[*values, values[-1]], css="line", is_stepped=True)
    named = zip(times, values, titles, strict=True)
    return [line, *(Point(x=at, y=value, css="c0", title=title) for at, value, title in named)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A named value of x; the name is written above the plot in one of two rows."""

    x: float
    text: str
    css: str
    row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """From zero up to y, between two values of x."""

    x_low: float
    x_high: float
    y: float
    css: str
    title: str
    y_low: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A heat map: fields between edges, row by row, darker for larger values; empty fields stay blank."""

    x: Sequence[float]  # edges, one more than there are columns
    y: Sequence[float]
    values: Sequence[Sequence[float]]
    css: str = "c0"
    name: str  # of the values; implies their unit
    words: str = ""  # after each value: "measurements"
    is_counted: bool = False  # logarithmic shades, so that one is visible beside a thousand

    def shade(self, value: float) -> int:
        """From 0 for nothing to `SHADE_COUNT` for the largest value."""
        most = max(map(max, self.values), default=0.0)
        if value <= 0 or most <= 0:
            return 0
        share = 0.15 + 0.85 * math.log1p(value) / math.log1p(most) if self.is_counted else (value / most) ** 2
        return max(1, round(SHADE_COUNT * share))


Layer = Band | Line | Whiskers | Point | Mark | Bar | Grid


def draw(title: str, description: str, x: Axis, y: Axis, layers: Sequence[Layer]) -> str:
    """The figure as one SVG element."""
    inside = "".join(_layer(x, y, layer) for layer in layers)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" class="chart">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
        f"{_x_axis(x)}{_y_axis(y)}{inside}</svg>"
    )


def _layer(x: Axis, y: Axis, layer: Layer) -> str:
    match layer:
        case Band():
            upper, lower = _places(x, y, layer.x, layer.high), _places(x, y, layer.x, layer.low)
            drawn = f"{_path([*upper, *reversed(lower)])}Z" if upper else ""
        case Line():
            points = _places(x, y, layer.x, layer.y)
            drawn = _path(_stairs(points) if layer.is_stepped else points) if points else ""
        case Whiskers():
            drawn = "".join(_path(_places(x, y, a, b)) for a, b in zip(layer.x, layer.y, strict=True))
        case Point():
            return _point(x, y, layer)
        case Mark():
            return _mark(x, layer)
        case Bar():
            return _bar(x, y, layer)
        case Grid():
            return _grid(x, y, layer)
    return f'<path class="{layer.css}" d="{drawn}"/>' if drawn else ""


def _places(x: Axis, y: Axis, xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    return [_at(x, y, a, b) for a, b in zip(xs, ys, strict=True)]


def _point(x: Axis, y: Axis, point: Point) -> str:
    left, top = _at(x, y, point.x, point.y)
    title = f"<title>{escape(point.title)}</title>"
    if point.is_cross:
        path = f"M{left - 4:.1f} {top - 4:.1f}l8 8m0-8l-8 8"
        return f'<path class="cross {point.css}" d="{path}">{title}</path>'
    return f'<circle class="{point.css}" cx="{left:.1f}" cy="{top:.1f}" r="3.4">{title}</circle>'


def _mark(x: Axis, mark: Mark) -> str:
    """The name goes above its line, as far as there is room; beside it, it would cover the next one."""
    left = _left(x, mark.x)
    half = _CHARACTER_WIDTH * len(mark.text) / 2
    middle = min(max(left, half), WIDTH - half)
    return (
        f'<path class="{mark.css}" d="M{left:.1f} {_TOP - 8}V{HEIGHT - _BOTTOM}"/>'
        f'<text class="mark" x="{middle:.1f}" y="{14 + 14 * mark.row}" text-anchor="middle">'
        f"{escape(mark.text)}</text>"
    )


def _bar(x: Axis, y: Axis, bar: Bar) -> str:
    left, top = _at(x, y, bar.x_low, bar.y)
    right, bottom = _at(x, y, bar.x_high, bar.y_low)
    size = f'width="{max(right - left, 0.5):.1f}" height="{max(bottom - top, 0.0):.1f}"'
    return f'<rect class="{bar.css}" x="{left:.1f}" y="{top:.1f}" {size}><title>{escape(bar.title)}</title></rect>'


def _grid(x: Axis, y: Axis, grid: Grid) -> str:
    """One path per shade, with adjacent fields joined: a rectangle for each would take up half of a page."""
    paths: dict[int, list[str]] = {}
    lefts, tops = [round(_left(x, edge)) for edge in grid.x], [_top(y, edge) for edge in grid.y]
    for row, (bottom, top) in zip(grid.values, pairwise(tops), strict=True):
        numbered = enumerate(map(grid.shade, row))
        for shade, run in groupby(numbered, key=lambda each: each[1]):
            columns = [number for number, _ in run]
            left, right = lefts[columns[0]], lefts[columns[-1] + 1]
            if shade and right > left and bottom > top:
                path = f"M{left} {top:.1f}H{right}V{bottom:.1f}H{left}z"
                paths.setdefault(shade, []).append(path)
    return "".join(
        f'<path class="cell {grid.css}" fill-opacity="{shade / SHADE_COUNT:.2f}" d="{"".join(paths[shade])}"/>'
        for shade in sorted(paths)
    )


def _x_axis(axis: Axis) -> str:
    bottom = HEIGHT - _BOTTOM
    parts = [f'<path class="axis" d="M{_LEFT} {bottom}H{WIDTH - _RIGHT}"/>']
    texts, title = labels(axis)
    free_from = 0.0
    for tick, text in zip(axis.ticks, texts, strict=True):
        left = _left(axis, tick)
        parts.append(f'<path class="axis" d="M{left:.1f} {bottom}v5"/>')
        half = 4.3 * len(text)
        if left - half >= free_from and left + half <= WIDTH:
            free_from = left + half + 6
            parts.append(f'<text x="{left:.1f}" y="{bottom + 19}" text-anchor="middle">{escape(text)}</text>')
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(
        f'<text class="name" x="{middle:.1f}" y="{HEIGHT - 7}" text-anchor="middle">{escape(title)}</text>'
    )
    return "".join(parts)


def _y_axis(axis: Axis) -> str:
    parts = []
    texts, title = labels(axis)
    for tick, text in zip(axis.ticks, texts, strict=True):
        top = _top(axis, tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {top:.1f}H{WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{top + 4:.1f}" text-anchor="end">{escape(text)}</text>')
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    turn = f'transform="rotate(-90 12 {middle:.1f})"'
    parts.append(
        f'<text class="name" x="12" y="{middle:.1f}" text-anchor="middle" {turn}>{escape(title)}</text>'
    )
    return "".join(parts)


def labels(axis: Axis) -> tuple[list[str], str]:
    """The tick labels and the title; a unit that all labels share moves into the title."""
    texts = [axis.show(tick) if tick else "0" for tick in axis.ticks]
    units = {text.partition(" ")[2] for text in texts if text != "0"}
    if len(units) != 1 or units == {""} or axis.is_date:
        return texts, axis.title
    return [text.partition(" ")[0] for text in texts], f"{axis.title}, {units.pop()}"


def _at(x: Axis, y: Axis, x_value: float, y_value: float) -> tuple[float, float]:
    return _left(x, x_value), _top(y, y_value)


def _left(axis: Axis, value: float) -> float:
    return _LEFT + axis.share(value) * (WIDTH - _LEFT - _RIGHT)


def _top(axis: Axis, value: float) -> float:
    return HEIGHT - _BOTTOM - axis.share(value) * (HEIGHT - _TOP - _BOTTOM)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{left:.1f} {top:.1f}" for left, top in points)


def _stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    steps = list(points[:1])
    for (_, before), (left, top) in pairwise(points):
        steps += [(left, before), (left, top)]
    return steps


def _round_ticks(low: float, high: float) -> tuple[float, ...]:
    rough = (high - low) / (_TICK_COUNT_MAX - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 5, 10, 20) if f * power >= rough)
    return tuple(n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1))


def _binary_ticks(low: float, high: float) -> tuple[float, ...]:
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    every = max(1, math.ceil((last - first + 1) / 9))
    ticks = tuple(2.0**n for n in range(first, last + 1, every))
    if len(ticks) > 1:
        return ticks
    unit = 1024.0 ** max(0, math.floor(math.log(high, 1024)))
    return tuple(tick * unit for tick in _round_ticks(low / unit, high / unit))


def _decimal_ticks(low: float, high: float) -> tuple[float, ...]:
    """The closest 1-2-5 spacing that is not crowded; over a short range, equal differences."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / _TICK_COUNT_MAX))
    for factors, stride in (((1, 2, 5), 1), ((1, 3), 1), ((1,), every)):
        ticks = tuple(f * 10.0**n for n in range(first, last + 1, stride) for f in factors)
        inside = tuple(t for t in ticks if low <= t <= high)
        if 3 <= len(inside) <= _TICK_COUNT_MAX or (factors == (1,) and len(inside) > 1):
            return inside
    return _round_ticks(low, high)


def _day(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment.day} {moment:%b}"


def _clock(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return _day(seconds) if (moment.hour, moment.minute) == (0, 0) else f"{moment:%H:%M}"
