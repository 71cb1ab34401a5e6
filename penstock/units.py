"""Knows how quantities and their names are written for people and parsed; everywhere else they are plain numbers.

A name carries the unit of its value, so the ending of the name decides how the value is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB
TiB = 1024 * GiB

_BYTES = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": KiB,
    "MIB": MiB,
    "GIB": GiB,
    "TIB": TiB,
    "K": KiB,
    "M": MiB,
    "G": GiB,
    "T": TiB,
}
_SECONDS = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
# Largest first: a unit, its size, and the least number of it that is written in this unit.
_BYTE_UNITS = (("TiB", TiB, 1), ("GiB", GiB, 1), ("MiB", MiB, 1), ("KiB", KiB, 1))
_RATE_UNITS = (("GB/s", 1e9, 1), ("MB/s", 1e6, 1), ("kB/s", 1e3, 1))
_SECOND_UNITS = (("d", 86400.0, 2), ("h", 3600.0, 2), ("min", 60.0, 2), ("s", 1.0, 1), ("ms", 1e-3, 1))
# The number of digits is bounded, because converting a longer text could overflow.
_QUANTITY = re.compile(r"^\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([A-Za-z]*)\s*$")


class UnitError(ValueError):
    """A quantity that cannot be parsed; the message says what could be."""


def parse_bytes(text: str) -> int:
    """Bytes from text such as ``8MiB``, ``1 GB`` or ``65536``.

    Binary suffixes are powers of 1024, decimal ones (``MB``) powers of 1000; a bare ``M`` is binary.
    Raises UnitError.
    """
    number, suffix = _split(text, "a size such as 8MiB")
    factor = _BYTES.get(suffix.upper())
    if factor is None:
        raise UnitError(f"{text[:64]!r} is not a size: use B, KiB, MiB, GiB, TiB (or KB, MB, GB, TB)")
    return round(number * factor)


def parse_seconds(text: str) -> float:
    """Seconds from text such as ``15m``, ``250ms`` or ``30``. Raises UnitError."""
    number, suffix = _split(text, "a duration such as 15m")
    factor = _SECONDS.get(suffix)
    if factor is None:
        raise UnitError(f"{text[:64]!r} is not a duration: use us, ms, s, m, h or d")
    return number * factor


def parse_bytes_per_second(text: str) -> float:
    """Bytes per second from ``50MB/s`` (bytes) or ``10Gbps`` / ``10Gbit/s`` (bits). Raises UnitError."""
    compact = text.strip()
    for ending in ("bps", "bit/s"):
        if compact.endswith(ending):
            number, suffix = _split(compact[: -len(ending)], "a rate such as 10Gbps")
            factor = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}.get(suffix)
            if factor is None:
                break
            return number * factor / 8
    if compact.endswith("/s"):
        return float(parse_bytes(compact[:-2]))
    raise UnitError(f"{text[:64]!r} is not a rate: use for example 50MB/s or 10Gbps")


def format_bytes(count: float) -> str:
    """``8 MiB``, ``1.5 GiB``, ``1023 KiB``: binary units."""
    return _in_units(count, _BYTE_UNITS) or f"{count:.0f} B"


def format_rate(bytes_per_second: float) -> str:
    """``37.5 MB/s``: decimal units, as are usual for networks."""
    return _in_units(bytes_per_second, _RATE_UNITS) or f"{bytes_per_second:.3g} B/s"


def format_seconds(seconds: float) -> str:
    """``153 ms``, ``2.5 s``, ``22 min``, ``3.1 h``, ``2 d``; zero is ``0 s``."""
    if not seconds:
        return "0 s"
    return _in_units(seconds, _SECOND_UNITS) or f"{seconds * 1e6:.3g} us"


def counted(count: float, noun: str) -> str:
    """``1 thread``, ``1,024 threads``."""
    return f"{number(count)} {noun}{'s' * (count != 1)}"


def label(name: str) -> str:
    """A name as people say it, without the unit that its value shows: "part size" for ``part_size_bytes``."""
    if name == "usd":
        return "dollars"
    stem, qualifier = _without_qualifier(name)
    for ending in _UNIT_ENDINGS:
        if stem.endswith(ending) and stem != ending:
            return stem.removesuffix(ending).strip("_").replace("_", " ") + qualifier
    return name.replace("_", " ")


def has_unit(name: str) -> bool:
    """Whether a name contains the unit of its value."""
    return _without_qualifier(f"_{name}")[0].endswith(_UNIT_ENDINGS)


def is_rate(name: str) -> bool:
    """Whether the value of this name is a rate per second."""
    return "_per_second" in name


def rate_noun(name: str) -> str:
    """What a rate of this name counts, in the plural: "messages" for ``goodput_messages_per_second``; or nothing."""
    noun = name.partition("_per_second")[0].rsplit("_", 1)[-1]
    return noun if is_rate(name) and noun.endswith("s") else ""


def quantity(name: str, value: float) -> str:
    """A value in the unit that its name implies: ``37.5 MB/s``, ``153 ms``, ``612 messages/s``, ``8 MiB``."""
    if not math.isfinite(value):
        return "-"
    stem = f"_{_without_qualifier(name)[0]}"
    for part, shown in _SHOWN.items():
        if part in stem:
            return shown(value)
    if is_rate(stem):
        return _count_rate(stem, value)
    return money(value) if "_usd" in stem else f"{number(value)}{' Gbit/s' * stem.endswith('_gbps')}"


def money(usd: float) -> str:
    """``$0.30``, ``$0.0123``, ``$4``: cents have at least two digits, if there are any."""
    shown = number(usd)
    return f"${usd:.2f}" if len(shown.rpartition(".")[2]) == 1 and "." in shown else f"${shown}"


def number(value: float) -> str:
    """Three significant digits, without an exponent where possible: ``1,234``, ``0.000333``."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "-"
    size = abs(value)
    if size >= 1e15 or size < 1e-6:
        return f"{value:.2e}"
    if float(value).is_integer() or size >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(size)))}f}".rstrip("0").rstrip(".")


def ends(low: str, high: str, of: str = "") -> str:
    """The ends of an interval, to append to its number: `` (2.1 to 2.5)``; empty if both are written alike."""
    return "" if low == high else f" ({of}{low} to {high})"


def rounded(value: float) -> float:
    """An advised value rounded to four significant digits; whole numbers, such as bytes, stay as they are."""
    is_plain = not math.isfinite(value) or float(value).is_integer()
    return value if is_plain else float(f"{value:.4g}")


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


def _in_units(value: float, units: Sequence[tuple[str, float, int]]) -> str | None:
    """The value in the largest unit whose minimum it reaches after rounding (999.9 kB/s is 1 MB/s), or None."""
    for unit, size, least in units:
        shown = _three_digits(value / size)
        if abs(float(shown)) >= least:
            return f"{shown} {unit}"
    return None


def _three_digits(value: float) -> str:
    """Three significant digits, or all those before the decimal point: ``37.5``, ``120``, ``1023``."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def _without_qualifier(name: str) -> tuple[str, str]:
    """A name split into its stem and its qualifier: ``latency_seconds``, ``" p99"``."""
    for ending in _QUALIFIERS:
        if name.endswith(ending):
            return name.removesuffix(ending), ending.replace("_", " ")
    return name, ""


def _short_seconds(value: float) -> str:
    # CPU time per byte is this small.
    return f"{number(1e9 * value)} ns" if 0 < abs(value) < 1e-6 else format_seconds(value)


_SHOWN: dict[str, Callable[[float], str]] = {
    "_bytes_per_second": format_rate,
    "_seconds": _short_seconds,
    "_bytes": format_bytes,
    "_fraction": lambda value: f"{number(100 * value)} %",
}


def _count_rate(name: str, value: float) -> str:
    """``612 messages/s``: a rate with the noun that the name contains, if any."""
    noun = rate_noun(name)
    return f"{number(value)} {noun}/s" if noun else f"{number(value)}/s"


def _split(text: str, expected: str) -> tuple[float, str]:
    match = _QUANTITY.match(text)
    if match is None:
        raise UnitError(f"{text[:64]!r} is not {expected}")
    return float(match.group(1)), match.group(2)
