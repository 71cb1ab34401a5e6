"""Knows how values are given on the command line: numbers with units, and names with a hint when mistyped."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

import click

from penstock.units import UnitError, parse_bytes, parse_bytes_per_second, parse_seconds


class Quantity(click.ParamType[float]):
    """Text with a unit, read by one of the functions of `penstock.units`."""

    def __init__(self, name: str, read: Callable[[str], float], *, is_positive: bool = True) -> None:
        self.name = name
        self._read = read
        self._is_positive = is_positive

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of bytes, bytes per second or seconds; a usage error says what is expected."""
        try:
            found = self._read(str(value))
        except (UnitError, OverflowError) as trouble:
            self.fail(str(trouble), param, ctx)
        if self._is_positive and not found:
            self.fail(f"a {self.name} here is more than 0", param, ctx)
        return found


class Name(click.Choice[str]):
    """One of many names; the error for a mistyped one suggests the nearest, instead of listing all."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name itself; a usage error suggests what may have been meant."""
        near = get_close_matches(str(value), self.choices, n=2)
        if near and value not in self.choices:
            self.fail(f"{value!r} is not known. Did you mean {' or '.join(near)}?", param, ctx)
        return super().convert(value, param, ctx)


def read_age(text: str) -> float:
    """Seconds of an age; refuses a bare number, which would be seconds, not the usual days. Raises UnitError."""
    if text.strip().replace(".", "", 1).isdigit() and float(text):
        raise UnitError(
            f"{text.strip()[:64]!r} has no unit: say {text.strip()[:64]}d for days, or use s, m, h"
        )
    return parse_seconds(text)


BYTES = Quantity("size", parse_bytes)
RATE = Quantity("rate", parse_bytes_per_second)
SECONDS = Quantity("duration", parse_seconds, is_positive=False)
PERIOD = Quantity("duration", parse_seconds)
AGE = Quantity("duration", read_age, is_positive=False)
