"""Knows how an application may state a size: in bytes, or as text with a unit, as the commands and the socket do."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SIZE_BYTES_MAX = 10_000 * (5 << 30)  # of an object in S3: a larger number is a mistake
_FACTORS: Mapping[str, int] = {"": 1, "B": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for ending, base in (("", 1024), ("IB", 1024), ("B", 1000))
}


def read_size(stated: Any) -> int:
    """Bytes from a number, or from text such as ``8MiB``, ``1 GB`` or ``65536``.

    Binary suffixes are powers of 1024, decimal ones (``MB``) powers of 1000; a bare ``M`` is binary.
    Raises ValueError for anything that is not a size.
    """
    try:
        size = _parse(stated) if isinstance(stated, str) else int(stated)
    except (TypeError, ValueError, KeyError, OverflowError):
        size = -1
    if not 0 <= size <= SIZE_BYTES_MAX:
        shown = repr(stated)[:64] if isinstance(stated, (str, int, float)) else f"a {type(stated).__name__}"
        raise ValueError(f"{shown} is not a size: state bytes, or text such as 8MiB")
    return size


def size_or_none(stated: Any) -> int | None:
    """Like `read_size`, but None for anything that is not a size."""
    try:
        return read_size(stated)
    except ValueError:
        return None


def _parse(text: str) -> int:
    compact = text.strip()
    suffix = compact.lstrip("0123456789.")
    number = compact[: len(compact) - len(suffix)]
    if not (number[:1].isdigit() and number[-1:].isdigit()):
        raise ValueError(text)
    return round(float(number) * _FACTORS[suffix.strip().upper()])
