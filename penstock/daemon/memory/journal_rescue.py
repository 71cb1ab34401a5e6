"""Knows how to save the journal of leftovers and the spending from a broken database."""

from __future__ import annotations

import mmap
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from penstock.daemon.memory.database import speaking_of_damage
from penstock.daemon.memory.rows import date_text
from penstock.daemon.memory.salvage import copied
from penstock.probes.probe import Leftover

RESCUED_COUNT_MAX = 10_000
_TEXT = rb'"(?:[^"\\]|\\.)*"'
_LEFTOVER = re.compile(
    rb'\{"kind":%b,"service":%b,"container":%b,"name":%b'
    rb'(?:,"region":(?:null|%b),"endpoint_url":(?:null|%b)(?:,"machine":(?:null|%b))?)?\}' % ((_TEXT,) * 7)
)


def rescue(broken: Path) -> Callable[[sqlite3.Connection], str]:
    """Read the journal from a broken file with SQLite; where that fails, search the bytes for entries.

    The bytes may also contain entries that were struck out long ago; removing something that is gone does no harm.
    Spending is read row by row: a broken file must not let a day's budget be spent twice.
    """
    carved = _carve(broken) | _carve(Path(f"{broken}-wal"))  # before SQLite checkpoints the log
    documents, is_complete = _ask(broken)
    if not is_complete:
        documents |= carved
    known = sorted(filter(_is_leftover, documents))[:RESCUED_COUNT_MAX]

    def restore(connection: sqlite3.Connection) -> str:
        rows = [(document, date_text(datetime.now(UTC))) for document in known]  # their own dates are lost
        connection.executemany("INSERT OR IGNORE INTO leftovers (document, recorded_at) VALUES (?, ?)", rows)
        spent = (
            "what was spent" if copied(broken, connection, "spend") else "what can be read of what was spent"
        )
        return f"{len(known)} entries of the journal and {spent} were saved, the observations in it were not"

    return restore


def _ask(broken: Path) -> tuple[set[str], bool]:
    documents: set[str] = set()
    try:
        with speaking_of_damage(), closing(sqlite3.connect(broken)) as connection:
            for (document,) in connection.execute("SELECT document FROM leftovers"):
                documents.add(str(document))
    except sqlite3.DatabaseError:
        return documents, False
    return documents, True


def _carve(path: Path) -> set[str]:
    with (
        suppress(OSError, ValueError),  # ValueError: an empty file cannot be mapped
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return {match.group().decode("utf-8", "replace") for match in _LEFTOVER.finditer(data)}
    return set()


def _is_leftover(document: str) -> bool:
    with suppress(msgspec.DecodeError):
        msgspec.json.decode(document, type=Leftover)
        return True
    return False
