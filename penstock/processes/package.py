"""Knows which penstock this process began with, and whether its files have been replaced since."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

_FOLDER = Path(__file__).parents[1]
_REPLACED = (
    "the files of penstock were replaced since this one began, and what it would start now is of another version: "
    "restart it (systemctl restart penstock)"
)


class ReplacedError(OSError):
    """No other process of the same penstock can be started any more; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Package:
    """A version, and what of its files changes with them."""

    version: str
    files: frozenset[tuple[str, int, int]]


@cache
def begun() -> Package:
    """As it was when this was asked first, which a daemon does when it begins."""
    return Package(version("penstock"), files_below(_FOLDER))


def trouble() -> str | None:
    """One sentence once they were replaced. It takes 2 ms."""
    return None if files_below(_FOLDER) == begun().files else _REPLACED


def refuse_replaced() -> None:
    """Raises ReplacedError."""
    if (why := trouble()) is not None:
        raise ReplacedError(why)


def files_below(folder: Path) -> frozenset[tuple[str, int, int]]:
    """Each with its size and its date; not what Python compiles of them, whenever it first imports one."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = (name for name in folders if name != "__pycache__")
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # just now
                told = Path(place, name).stat()
                found.append((f"{place}/{name}", told.st_size, told.st_mtime_ns))
    return frozenset(found)
