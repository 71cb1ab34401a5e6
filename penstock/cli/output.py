"""Knows how a document is shown: as JSON, or as a table of aligned text.

Names carry their units, so a value is shown by the ending of its name: ``part_size_bytes`` 8388608 is "8 MiB".
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import reduce
from itertools import zip_longest
from typing import Any, TypeAlias

import click

from penstock.units import has_unit, label, quantity

NARROW = 80
"""Columns of the narrowest terminal that tables are designed for."""
_NARROWEST = 20  # columns; sentences are never wrapped to fewer

Command: TypeAlias = Callable[..., None]

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def options(*given: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator; help lists them in this order."""
    return lambda command: reduce(lambda inner, option: option(inner), reversed(given), command)


def print_json(document: Mapping[str, Any]) -> None:
    """One document, indented on a terminal and on one line elsewhere; dates as text."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(document, indent=indent, default=_jsonable))


def print_detail(document: Mapping[str, Any], *, as_json: bool) -> None:
    """Print an answer of the daemon; for people it is one sentence."""
    if as_json:
        print_json(document)
    else:
        click.echo(document["detail"])


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", width: int | None = None
) -> None:
    """Print aligned columns, within the terminal's width or `width`; cells wrap, and nothing is cut off."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else width
    lines = [list(row) for row in rows]
    if any(headings):
        lines.insert(0, list(headings))
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))] if lines else []
    if room is not None:
        widths = _within(widths, room)
    if title:
        click.secho(title, bold=True)
    for line in lines:
        cells = (_broken(cell, column) for cell, column in zip(line, widths, strict=True))
        for parts in zip_longest(*cells, fillvalue=""):
            padded = (part.ljust(column) for part, column in zip(parts, widths, strict=True))
            click.secho("  ".join(padded).rstrip(), bold=line == list(headings) or None)


def print_mapping(document: Mapping[str, Any], *, width: int | None = None) -> None:
    """Print a document whose names carry their units: plain values first, then its sections and lists as tables."""
    for index, (inner_title, headings, rows) in enumerate(_tables(document, "")):
        if index:
            click.echo()
        print_table(headings, rows, title=inner_title, width=width)


def filled(sentence: str, indent: int = 2) -> str:
    """A sentence wrapped to the terminal, to at most 80 columns, with later lines indented."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else NARROW
    width = min(max(room, _NARROWEST), NARROW)
    return textwrap.fill(
        sentence, width, subsequent_indent=" " * min(indent, width // 4), break_on_hyphens=False
    )


def text(name: str, value: Any) -> str:
    """A value formatted by its name: bytes, seconds, a rate, a fraction, money, a date, a count."""
    if value is None:
        return "-"
    if isinstance(value, bool) or name.startswith("is_"):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(text("", item) for item in value) or "-"
    return quantity(name, value) if isinstance(value, (int, float)) else str(value)


def limit_text(name: str, value: Any) -> str:
    """The same for a setting, where a window or a rate limit of 0 means none."""
    is_limit = "_limit_" in name or "_window_" in name
    return "none" if is_limit and value == 0 else text(name, value)


def estimate_rows(estimates: Mapping[str, Mapping[str, float]]) -> list[tuple[str, ...]]:
    """Rows of name, lower end, expected value and upper end."""
    ends = ("low", "expected", "high")
    return [(label(name), *(text(name, one[end]) for end in ends)) for name, one in estimates.items()]


def any_of(words: Sequence[str]) -> str:
    """Alternatives in words: "a, b or c"."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


_Table: TypeAlias = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def _tables(document: Mapping[str, Any], title: str) -> Iterator[_Table]:
    plain = [(label(name), text(name, value)) for name, value in document.items() if not _is_nested(value)]
    if plain:
        yield title, ("", ""), plain
    for name, value in document.items():
        inner_title = f"{title}: {label(name)}" if title else label(name)
        if _is_table(value):
            yield _table(inner_title, [{"": key} | dict(row) for key, row in value.items()])
        elif isinstance(value, Mapping):
            yield from _tables(value, inner_title)
        elif _is_list_of_mappings(value):
            yield _table(inner_title, [_flat(item) for item in value])


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> _Table:
    """A line for each row. A column whose name has no unit uses the unit of the row's first name."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return title, [label(name) for name in names], [[_cell(name, row) for name in names] for row in rows]


def _cell(name: str, row: Mapping[str, Any]) -> str:
    if name == "":
        return label(str(row[name]))
    return text(name if has_unit(name) else str(row.get("", name)), row.get(name))


def _flat(item: Mapping[str, Any]) -> dict[str, Any]:
    """The item, with its sections' values on the top level."""
    flat: dict[str, Any] = {}
    for name, value in item.items():
        flat.update(value if isinstance(value, Mapping) else {name: value})
    return flat


_COLUMN_WIDTH_MIN = 4


def _within(widths: Sequence[int], width: int) -> list[int]:
    """Narrower columns, the widest first, until all fit with two spaces between them."""
    narrowed, room = list(widths), width - 2 * (len(widths) - 1)
    while sum(narrowed) > room and max(narrowed) > _COLUMN_WIDTH_MIN:
        narrowed[narrowed.index(max(narrowed))] -= 1
    return narrowed


def _broken(cell: str, width: int) -> list[str]:
    """The lines of a cell, broken between words if possible, else after a hyphen."""
    is_narrow = any(len(word) > width for word in cell.split())
    return [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=is_narrow)


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping) or _is_list_of_mappings(value)


def _is_table(value: Any) -> bool:
    """Whether it is a mapping whose values are mappings with the same keys, so that it can be shown as one table."""
    if not isinstance(value, Mapping) or not value:
        return False
    rows = list(value.values())
    return all(
        isinstance(row, Mapping)
        and row
        and list(row) == list(rows[0])
        and not any(map(_is_nested, row.values()))
        for row in rows
    )


def _is_list_of_mappings(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple)) and bool(value) and all(isinstance(item, Mapping) for item in value)
    )


def _jsonable(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
