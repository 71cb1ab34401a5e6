"""Knows which stored rows are deleted: those that are too old, and those beyond a table's count."""

# ruff: noqa: S608  # only the constants of this file are pasted into SQL; every value is a parameter

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from penstock.daemon.memory.rows import PLACE_COLUMNS, date_text
from penstock.daemon.spending.budget import ROW_COUNT_MAX

REPORT_COUNT_MAX = 20_000  # of applications
REPORT_COUNT_MAX_PER_USER = 2_000
OBSERVATION_COUNT_MAX = 200_000  # measured: 0.9 kB each; 100,000 take 0.2 s to check at the start
INCONCLUSIVE_COUNT_MAX = 20_000
FIT_COUNT_MAX = 5_000
RECOMMENDATION_COUNT_MAX = 20_000
CHANGE_COUNT_MAX = 2_000  # whatever their age
BACKLOG_COUNT_MAX = 40_000  # a year of quarters of an hour
CLIENT_HOUR_COUNT_MAX = 20_000  # 0.6 kB each
CLIENT_HOUR_COUNT_MAX_PER_USER = 5_000
HARM_COUNT_MAX = 5_000
SPEND_RETENTION = timedelta(days=400)
# The condition that an observation has at least as many newer ones of its place as the two parameters say.
_HAS_NEWER = f"""(SELECT count(*) FROM (SELECT 1 FROM observations AS newer WHERE ({PLACE_COLUMNS}) =
    (observations.operation, observations.region, observations.instance_type, observations.service_class)
    AND newer.started_at > observations.started_at LIMIT ?)) >= ?"""


def forgotten(
    *, now: datetime, retention_seconds: float, kept_count: int
) -> list[tuple[str, str, Sequence[Any]]]:
    """What to delete: table, condition on its rows, parameters of the condition. See `Store.prune` for what stays."""
    old = date_text(now - timedelta(seconds=retention_seconds))
    fits = f"fit_id NOT IN (SELECT max(fit_id) FROM fits GROUP BY {PLACE_COLUMNS})"
    advice = f"""recommendation_id NOT IN (SELECT max(recommendation_id) FROM recommendations
                 GROUP BY {PLACE_COLUMNS}, payload_size_bytes, demand)"""
    bounds = {
        ("report", "started_at"): REPORT_COUNT_MAX,
        ("client_hour", "began_at"): CLIENT_HOUR_COUNT_MAX,
        ("harm", "started_at"): HARM_COUNT_MAX,
        ("inconclusive", "started_at"): INCONCLUSIVE_COUNT_MAX,
        ("fit", "fitted_at"): FIT_COUNT_MAX,
        ("recommendation", "issued_at"): RECOMMENDATION_COUNT_MAX,
        ("backlog", "began_at"): BACKLOG_COUNT_MAX,
    }
    keeping = {"fit": f" AND {fits}", "recommendation": f" AND {advice}"}
    return [
        ("observations", f"started_at < ? AND {_HAS_NEWER}", (old, kept_count, kept_count)),
        ("observations", _beyond("observation"), (OBSERVATION_COUNT_MAX,)),
        ("reports", _beyond_of_user("report", "reporter_uid"), (REPORT_COUNT_MAX_PER_USER,)),
        ("client_hours", _beyond_of_user("client_hour", "user_id"), (CLIENT_HOUR_COUNT_MAX_PER_USER,)),
        *(
            (f"{noun}s", f"({date} < ? OR {_beyond(noun)}){keeping.get(noun, '')}", (old, most))
            for (noun, date), most in bounds.items()
        ),
        ("changes", _beyond("change"), (CHANGE_COUNT_MAX,)),
        # Rows that a budget may count stay, whatever age the clock gives them.
        (
            "spend",
            "hour_at < ? AND rowid NOT IN (SELECT rowid FROM spend ORDER BY rowid DESC LIMIT ?)",
            (date_text(now - SPEND_RETENTION), ROW_COUNT_MAX),
        ),
    ]


def _beyond(noun: str) -> str:
    """The condition on rows beyond the newest N of a table, by count: row ids have gaps and are used again."""
    excess = f"max(0, (SELECT count(*) FROM {noun}s) - ?)"
    return f"{noun}_id IN (SELECT {noun}_id FROM {noun}s ORDER BY {noun}_id LIMIT {excess})"


def _beyond_of_user(noun: str, user: str) -> str:
    """The condition on rows beyond the newest N of their user."""
    number = f"row_number() OVER (PARTITION BY {user} ORDER BY {noun}_id DESC)"
    return f"{noun}_id IN (SELECT {noun}_id FROM (SELECT {noun}_id, {number} AS number FROM {noun}s) WHERE number > ?)"
