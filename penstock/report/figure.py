"""Knows what a figure is: a drawing, a legend, and a table with the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.report.chart import Axis, Layer, draw
from penstock.report.live import live

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Table:
    """Headings and rows of text."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table_of(rows: Iterable[RowT], columns: Mapping[str, Callable[[RowT], str]]) -> Table:
    """A table with a row for each item; `columns` maps a heading to the function that gives its cell."""
    cells = tuple(columns.values())
    return Table(tuple(columns), tuple(tuple(cell(row) for cell in cells) for row in rows))


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: the class of the sample, and what it means."""

    css: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A drawing, its description, and a table with the same numbers."""

    title: str
    description: str
    svg: str
    live: str  # the drawing as data for the page's script
    keys: tuple[Key, ...]
    table: Table
    anchor: str = ""  # unique within its place


def drawn(
    drawing: tuple[Axis, Axis, Sequence[Layer]], *, title: str, description: str, **rest: Any
) -> Figure:
    """The figure of two axes and layers; `rest` is the legend, the table and perhaps an anchor (Any: several types)."""
    x, y, layers = drawing
    svg = draw(title, description, x, y, layers)
    return Figure(title=title, description=description, svg=svg, live=live(title, x, y, layers), **rest)
