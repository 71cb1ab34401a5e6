"""Knows how names, values, settings and ages are put into words; a name carries the unit of its value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from penstock.units import format_metric, format_seconds
from penstock.vocabulary import Demand, Estimate, Place, Setting, knobs, setting_values

_UNIT_ENDINGS = (
    "_bytes_per_second",
    "_messages_per_second",
    "_requests_per_second",
    "_per_second",
    "_bytes",
    "_seconds",
    "_fraction",
    "_usd",
    "_gbps",
)
_QUALIFIERS = ("_max", "_min", "_mean", "_p50", "_p99")


def label(name: str) -> str:
    """``part_size_bytes`` as a person says it: "part size", since its value shows the unit."""
    if name == "usd":
        return "dollars"
    stem, qualifier = name, ""
    for ending in _QUALIFIERS:
        if name.endswith(ending):
            stem, qualifier = name.removesuffix(ending), ending.replace("_", " ")
    for ending in _UNIT_ENDINGS:
        if stem.endswith(ending) and stem != ending:
            return stem.removesuffix(ending).strip("_").replace("_", " ") + qualifier
    return name.replace("_", " ")


def quantity(name: str, value: float) -> str:
    """A value in the unit of its name, in plain digits."""
    if not math.isfinite(value):
        return "-"
    if "_per_second" in name and not name.endswith("_bytes_per_second"):
        return _rate(name, value)
    if "_seconds" in name and 0 < abs(value) < 1e-6:
        return f"{number(1e9 * value)} ns"  # of CPU for one byte
    if "_bytes" in name or "_seconds" in name or "_fraction" in name:
        return format_metric(name, value)
    is_money = name.endswith("_usd") or name.startswith("usd")
    return f"{'$' * is_money}{number(value)}{' Gbit/s' * name.endswith('_gbps')}"


def _rate(name: str, value: float) -> str:
    """``612 messages/s``: of the things that the name counts, if it says so."""
    noun = name.partition("_per_second")[0].rsplit("_", 1)[-1]
    return f"{number(value)} {noun}/s" if noun.endswith("s") else f"{number(value)}/s"


def number(value: float) -> str:
    """Three significant digits and no exponent where one can do without: ``1,234``, ``0.000333``."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "-"
    size = abs(value)
    if size >= 1e15 or size < 1e-6:
        return f"{value:.2e}"
    if float(value).is_integer() or size >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(size)))}f}".rstrip("0").rstrip(".")


def interval(name: str, estimate: Estimate) -> str:
    """``37.5 MB/s (35 to 40 MB/s)``."""
    return f"{quantity(name, estimate.expected)} ({span(name, estimate)})"


def span(name: str, estimate: Estimate) -> str:
    """``35 to 40 MB/s``, ``900 kB/s to 1.1 MB/s``."""
    low, high = quantity(name, estimate.low), quantity(name, estimate.high)
    low_number, _, low_unit = low.partition(" ")
    return f"{low_number if low_unit == high.partition(' ')[2] else low} to {high}"


def setting_words(setting: Setting) -> str:
    """``thread count 24, part size 8 MiB``; a knob that stands at a bound of 0 says "none"."""
    return ", ".join(f"{label(name)} {knob_value(setting, name)}" for name in knobs(setting))


def knob_value(setting: Setting, name: str) -> str:
    """One knob's value."""
    value = setting_values(setting)[name]
    return "none" if value == 0 else quantity(name, value)


def place_words(place: Place, *, operation: str = "") -> str:
    """``s3 upload in eu-central-1 from c5.large``, with the class where it is not the usual one."""
    usual = "" if place.service_class == "standard" else f", {place.service_class}"
    host = "" if place.instance_type == "unknown" else f" from {place.instance_type}"
    return f"{operation or place.operation.replace('_', ' ')} in {place.region}{host}{usual}"


def demand_words(demand: Demand) -> str:
    """The aim, and what differs from the ordinary question."""
    ordinary = Demand()
    names = [f for f in Demand.__dataclass_fields__ if f != "objective"]
    stated = {n: getattr(demand, n) for n in names if getattr(demand, n) != getattr(ordinary, n)}
    return ", ".join([demand.objective.value, *(f"{label(n)} {_stated(n, v)}" for n, v in stated.items())])


def mapping_words(values: Mapping[str, float]) -> str:
    """``connection pool 25, memory 192 MiB``."""
    return ", ".join(f"{label(name)} {quantity(name, value)}" for name, value in values.items())


def date_words(moment: datetime) -> str:
    """``2026-01-05 14:02``, in UTC as everything is."""
    return f"{moment:%Y-%m-%d %H:%M}"


def age_words(moment: datetime | None, now: datetime) -> str:
    """``22 min ago``; of a moment ahead, "in 22 min"."""
    if moment is None:
        return "never"
    seconds = (now - moment).total_seconds()
    return f"{format_seconds(seconds)} ago" if seconds >= 0 else f"in {format_seconds(-seconds)}"


def percent(fraction: float) -> str:
    """``93 %``, ``1.2 %``."""
    size = abs(100 * fraction)
    return f"{100 * fraction:.{0 if size >= 10 or size == 0 else 1}f} %"


def _stated(name: str, value: object) -> str:
    return quantity(name, float(value)) if isinstance(value, (int, float)) else str(value)
