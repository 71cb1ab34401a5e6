"""Knows how DuckDB answers the questions: embedded, in bounded memory, spilling to disk."""

from __future__ import annotations

import tempfile
from itertools import groupby
from operator import itemgetter
from typing import Any

import duckdb

from penstock.analysis import questions
from penstock.analysis.files import FilesError, dataset
from penstock.analysis.schema import OBSERVATIONS, PLACE, SPEND

MEMORY_LIMIT = "1GB"


def answers(source: str) -> dict[str, list[dict[str, Any]]]:
    """Rows by the names of `questions.QUESTIONS`, and `fits`. Raises FilesError."""
    with tempfile.TemporaryDirectory(prefix="penstock-duckdb-") as spilled, duckdb.connect() as connection:
        connection.execute("SET memory_limit = ?", [MEMORY_LIMIT])
        connection.execute("SET temp_directory = ?", [spilled])
        connection.execute("SET preserve_insertion_order = false")
        connection.execute("SET TimeZone = 'UTC'")
        for table, name in (
            (OBSERVATIONS, OBSERVATIONS),
            (OBSERVATIONS, questions.DOCUMENTS),
            (SPEND, SPEND),
        ):
            rows = connection.from_arrow(dataset(source, table)).filter(questions.SOUND[table])
            rows.create_view(name)
        by_place = itemgetter(*PLACE)
        try:
            found = {name: _rows(connection, sql) for name, sql in questions.QUESTIONS.items()}
            sample = sorted(_rows(connection, questions.SAMPLE), key=by_place)
        except (duckdb.Error, OSError) as trouble:
            raise FilesError(f"{source} cannot be read: {trouble}") from trouble
    fits = [row for _, rows in groupby(sample, key=by_place) for row in questions.fit_of(rows)]
    return {**found, "fits": questions.in_order(fits)}


def _rows(connection: Any, sql: str) -> list[dict[str, Any]]:
    cursor = connection.execute(sql)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
