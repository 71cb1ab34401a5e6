"""Knows which version of penstock this process started with, and whether its files have been replaced since."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

_FOLDER = Path(__file__).parents[1]
_REPLACED = (
    "penstock was upgraded after this process started, and what it would start now is of another version: "
    "restart it (systemctl restart penstock)"
)


class ReplacedError(OSError):
    """No other process of the same version can be started any more; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Package:
    """A version, and what identifies its files."""

    version: str
    files: frozenset[tuple[str, int, int]]  # path, size in bytes, time of modification in ns
    content: bytes = b""  # a digest


@cache
def begun() -> Package:
    """The package at the first call, which the daemon makes at its start."""
    files = files_below(_FOLDER)
    return Package(version("penstock"), files, content_of(files))


def trouble() -> str | None:
    """One sentence once the files were replaced, else None. Takes 1 ms; reads all files only if dates have changed."""
    began, files = begun(), files_below(_FOLDER)
    return None if files == began.files or content_of(files) == began.content else _REPLACED


def refuse_replaced() -> None:
    """Raise ReplacedError if the files were replaced."""
    if (why := trouble()) is not None:
        raise ReplacedError(why)


def files_below(folder: Path) -> frozenset[tuple[str, int, int]]:
    """Path, size in bytes and time of modification in ns of each file, without `__pycache__` and hidden files.

    Python writes the former whenever it imports a file first; editors and NFS leave the latter behind.
    """
    found, folders = set[tuple[str, int, int]](), [str(folder)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name == "__pycache__" or entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                    continue
                with contextlib.suppress(OSError):  # gone just now, or not accessible
                    told = entry.stat()
                    found.add((entry.path, told.st_size, told.st_mtime_ns))
    return frozenset(found)


@lru_cache(maxsize=1)  # it is asked about the same files again and again
def content_of(files: frozenset[tuple[str, int, int]]) -> bytes:
    """A digest of all files: touching one, or installing the same version again, does not change it."""
    digest = sha256()
    for name, *_ in sorted(files):
        with contextlib.suppress(OSError):
            digest.update(f"{name}\0".encode() + sha256(Path(name).read_bytes()).digest())
    return digest.digest()
