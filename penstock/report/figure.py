"""Knows what a figure is: a drawing, a legend, and the table beside it that says the same in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """Headings and rows of text."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: the class of the sample, and what it means."""

    css: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A drawing, what it shows, and the same in numbers."""

    title: str
    description: str
    svg: str
    live: str  # the same as data for the page's script
    keys: tuple[Key, ...]
    table: Table
    anchor: str = ""  # its name on the page, within its place
