"""Knows how to read as much as possible of a database that is damaged, truncated or of another version.

Rows are copied one by one into an empty database; after a row that cannot be read, the next readable one is searched
for. The file itself is opened read-only and not changed.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from penstock.daemon.memory.database import (
    columns_by_table,
    connect_read_only,
    migrate,
    speaking_of_damage,
    trouble_with,
    version_of,
)
from penstock.units import counted

_GAP_MAX = 1 << 40  # row ids to skip after a damaged row before giving up
_HOLE_COUNT_MAX = 2_000  # damaged places of one table
_BATCH = 1_000


def salvaged(path: Path) -> tuple[sqlite3.Connection, list[str]]:
    """A copy of what can be read, and a sentence for each thing that is missing in it.

    Raises DiskTrouble where nothing can be read.
    """
    copy = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # a temporary file where large
    migrate(copy)
    try:
        with speaking_of_damage(), contextlib.closing(connect_read_only(path, is_damaged=True)) as damaged:
            notes = list(_version_note(damaged, copy))
            known = columns_by_table(damaged)
            for table, columns in columns_by_table(copy).items():
                there = [column for column in columns if column in known.get(table, ())]
                if not there:
                    notes.append(f"the table of {table} is missing")
                    continue
                hole_count = _copy(damaged, copy, table, there)
                if hole_count:
                    notes.append(f"{table} has {counted(hole_count, 'place')} that cannot be read")
    except sqlite3.DatabaseError as error:
        copy.close()
        raise trouble_with(path, error) from error
    return copy, notes


def copied(path: Path, copy: sqlite3.Connection, table: str) -> bool:
    """Copy what can be read of one table; returns whether that is all of it."""
    try:
        with speaking_of_damage(), contextlib.closing(connect_read_only(path, is_damaged=True)) as damaged:
            return _copy(damaged, copy, table, columns_by_table(copy)[table]) == 0
    except sqlite3.DatabaseError:
        return False


def _version_note(damaged: sqlite3.Connection, copy: sqlite3.Connection) -> Iterator[str]:
    version, known = version_of(damaged), version_of(copy)
    if version > known:
        yield f"it is of version {version} and this penstock knows up to {known}: what is new in it is not shown"


def _copy(damaged: sqlite3.Connection, copy: sqlite3.Connection, table: str, columns: list[str]) -> int:
    """Copy the rows that can be read; returns the count of damaged places between them."""
    names = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - names of our own schema
    select = f"SELECT rowid, {names} FROM {table} WHERE rowid > ? ORDER BY rowid"  # noqa: S608 - likewise
    last, hole_count = -1, 0
    while hole_count < _HOLE_COUNT_MAX:
        try:
            rows = damaged.execute(select, (last,))
            while batch := rows.fetchmany(_BATCH):
                _insert(copy, insert, [row[1:] for row in batch])
                last = batch[-1][0]
        except sqlite3.DatabaseError:
            hole_count += 1
            last, is_over = _beyond(damaged, copy, insert, select, last)
            if not is_over:
                continue
        break
    return hole_count


def _beyond(
    damaged: sqlite3.Connection, copy: sqlite3.Connection, insert: str, select: str, last: int
) -> tuple[int, bool]:
    """Find and copy the next readable row after a damaged one; returns its id, and whether the table is finished."""
    gap = 0
    while gap < _GAP_MAX:
        try:
            row = damaged.execute(f"{select} LIMIT 1", (last + gap,)).fetchone()
        except sqlite3.DatabaseError:
            gap = 2 * gap + 1
            continue
        if row is None:
            return last, True
        _insert(copy, insert, [row[1:]])
        return int(row[0]), False
    return last, True


def _insert(copy: sqlite3.Connection, insert: str, rows: list[tuple[object, ...]]) -> None:
    """Insert rows, except those that violate the schema, such as damaged ones without a required number."""
    for row in rows:
        with contextlib.suppress(sqlite3.IntegrityError):
            copy.execute(insert, row)
