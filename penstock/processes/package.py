"""Knows which penstock this process began with, and whether its files have been replaced since."""

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
    content: bytes = b""


@cache
def begun() -> Package:
    """As it was when this was asked first, which a daemon does when it begins."""
    files = files_below(_FOLDER)
    return Package(version("penstock"), files, content_of(files))


def trouble() -> str | None:
    """One sentence once they were replaced. It takes a millisecond, and reads them all where dates have changed."""
    began, files = begun(), files_below(_FOLDER)
    return None if files == began.files or content_of(files) == began.content else _REPLACED


def refuse_replaced() -> None:
    """Raises ReplacedError."""
    if (why := trouble()) is not None:
        raise ReplacedError(why)


def files_below(folder: Path) -> frozenset[tuple[str, int, int]]:
    """Each with its size and its date; not what Python compiles of them, whenever it first imports one.

    Nor what is hidden, as editors and NFS leave it.
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
                with contextlib.suppress(OSError):  # gone just now, or out of reach
                    told = entry.stat()
                    found.add((entry.path, told.st_size, told.st_mtime_ns))
    return frozenset(found)


@lru_cache(maxsize=1)  # which is asked of the same files again and again
def content_of(files: frozenset[tuple[str, int, int]]) -> bytes:
    """A digest of all of them: who touches one, or installs the same again, has replaced nothing."""
    digest = sha256()
    for name, *_ in sorted(files):
        with contextlib.suppress(OSError):
            digest.update(f"{name}\0".encode() + sha256(Path(name).read_bytes()).digest())
    return digest.digest()
