"""Knows how bytes, seconds and rates are written down and read back; everywhere else they are plain numbers."""

from __future__ import annotations

import re

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
_QUANTITY = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*$")


class UnitError(ValueError):
    """A quantity that cannot be read; the message says what would be."""


def parse_bytes(text: str) -> int:
    """Bytes from text such as ``8MiB``, ``1 GB`` or ``65536``.

    Binary suffixes are powers of 1024, decimal ones (``MB``) powers of 1000; a bare ``M`` is binary.
    Raises UnitError.
    """
    number, suffix = _split(text, "a size such as 8MiB")
    factor = _BYTES.get(suffix.upper())
    if factor is None:
        raise UnitError(f"{text!r} is not a size: use B, KiB, MiB, GiB, TiB (or KB, MB, GB, TB)")
    return round(number * factor)


def parse_seconds(text: str) -> float:
    """Seconds from text such as ``15m``, ``250ms`` or ``30``. Raises UnitError."""
    number, suffix = _split(text, "a duration such as 15m")
    factor = _SECONDS.get(suffix)
    if factor is None:
        raise UnitError(f"{text!r} is not a duration: use us, ms, s, m, h or d")
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
    raise UnitError(f"{text!r} is not a rate: use for example 50MB/s or 10Gbps")


def format_bytes(count: float) -> str:
    """``8 MiB``, ``1.5 GiB``: at most three significant digits, binary units."""
    for unit, size in (("TiB", TiB), ("GiB", GiB), ("MiB", MiB), ("KiB", KiB)):
        if abs(count) >= size:
            return f"{count / size:.3g} {unit}" if abs(count) < 1000 * size else f"{count / size:.0f} {unit}"
    return f"{count:.0f} B"


def format_rate(bytes_per_second: float) -> str:
    """``37.5 MB/s``: decimal, as links are sold."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if abs(bytes_per_second) >= size:
            return (
                f"{bytes_per_second / size:.3g} {unit}"
                if abs(bytes_per_second) < 1e3 * size
                else f"{bytes_per_second / size:.0f} {unit}"
            )
    return f"{bytes_per_second:.3g} B/s"


def format_seconds(seconds: float) -> str:
    """``153 ms``, ``2.5 s``, ``22 min``, ``3.1 h``, ``2 d``."""
    size = abs(seconds)
    if size < 1e-3:
        return f"{seconds * 1e6:.3g} us"
    if size < 1:
        return f"{seconds * 1e3:.3g} ms"
    if size < 120:
        return f"{seconds:.3g} s"
    if size < 7200:
        return f"{seconds / 60:.3g} min"
    if size < 172800:
        return f"{seconds / 3600:.3g} h"
    return f"{seconds / 86400:.3g} d"


def format_metric(name: str, value: float) -> str:
    """A value in the unit that its name ends in: ``37.5 MB/s``, ``153 ms``, ``612 messages/s``, ``8 MiB``."""
    for ending, shown in (
        ("_bytes_per_second", format_rate),
        ("_bytes", format_bytes),
        ("_bytes_max", format_bytes),
        ("_bytes_min", format_bytes),
    ):
        if name.endswith(ending):
            return shown(value)
    if "_per_second" in name:
        return (
            f"{value:,.{0 if value >= 100 else 1}f} {name.removesuffix('_per_second').rsplit('_', 1)[-1]}/s"
        )
    if "_seconds" in name:
        return format_seconds(value)
    if "_fraction" in name:
        return f"{value:.1%}"
    return f"{value:.4g}" if isinstance(value, float) and not value.is_integer() else f"{value:.0f}"


def _split(text: str, expected: str) -> tuple[float, str]:
    match = _QUANTITY.match(text)
    if match is None:
        raise UnitError(f"{text!r} is not {expected}")
    return float(match.group(1)), match.group(2)
