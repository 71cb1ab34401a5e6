"""Knows how to write settings, places, intervals and ages as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from penstock.units import ends, format_seconds, label, number, quantity
from penstock.vocabulary import Demand, Estimate, Place, Setting, knobs, setting_values

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|[A-Z]|[^\s\d]{1,4}(?:[\s;,.)]|$))")


def interval(name: str, estimate: Estimate) -> str:
    """``37.5 MB/s (35 to 40 MB/s)``."""
    return f"{quantity(name, estimate.expected)} ({span(name, estimate)})"


def span(name: str, estimate: Estimate) -> str:
    """``35 to 40 MB/s``, ``900 kB/s to 1.1 MB/s``."""
    low, high = quantity(name, estimate.low), quantity(name, estimate.high)
    low_number, _, low_unit = low.partition(" ")
    return f"{low_number if low_unit == high.partition(' ')[2] else low} to {high}"


def gain_span(gain: Estimate) -> str:
    """The interval of a gain; see `ends`."""
    return ends(number(gain.low), number(gain.high))


def times_words(ratio: float) -> str:
    """``2.3 x``."""
    return f"{number(ratio)} x"


def setting_words(setting: Setting) -> str:
    """``thread count 24, part size 8 MiB``; a knob at a bound of 0 reads "none"."""
    return ", ".join(f"{label(name)} {knob_value(setting, name)}" for name in knobs(setting))


def knob_value(setting: Setting, name: str) -> str:
    """One knob's value."""
    value = setting_values(setting)[name]
    return "none" if value == 0 else quantity(name, value)


def place_words(place: Place) -> str:
    """``s3 upload in eu-central-1 from c5.large``, with the service class unless it is "standard"."""
    usual = "" if place.service_class == "standard" else f", {place.service_class}"
    host = "" if place.instance_type == "unknown" else f" from {place.instance_type}"
    return f"{place.operation.replace('_', ' ')} in {place.region}{host}{usual}"


def demand_words(demand: Demand) -> str:
    """The objective, and everything that differs from the ordinary demand."""
    ordinary = Demand()
    names = [f for f in Demand.__dataclass_fields__ if f != "objective"]
    stated = {n: getattr(demand, n) for n in names if getattr(demand, n) != getattr(ordinary, n)}
    return ", ".join([demand.objective.value, *(f"{label(n)} {_stated(n, v)}" for n, v in stated.items())])


def mapping_words(values: Mapping[str, float]) -> str:
    """``connection pool 25, memory 192 MiB``."""
    return ", ".join(f"{label(name)} {quantity(name, value)}" for name, value in values.items())


def date_words(moment: datetime) -> str:
    """``2026-01-05 14:02``, in UTC."""
    return f"{moment:%Y-%m-%d %H:%M}"


def age_words(moment: datetime | None, now: datetime) -> str:
    """``22 min ago``; for a moment ahead, "in 22 min"."""
    if moment is None:
        return "never"
    seconds = (now - moment).total_seconds()
    return f"{format_seconds(seconds)} ago" if seconds >= 0 else f"in {format_seconds(-seconds)}"


def percent(fraction: float) -> str:
    """``93 %``, ``1.2 %``."""
    size = abs(100 * fraction)
    return f"{100 * fraction:.{0 if size >= 10 or size == 0 else 1}f} %"


def capital(words: str) -> str:
    """The words with a capital first letter."""
    return words[:1].upper() + words[1:]


def tied(text: str) -> str:
    """The text with no-break spaces between numbers and their units."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


def _stated(name: str, value: object) -> str:
    return quantity(name, float(value)) if isinstance(value, (int, float)) else str(value)
