"""Knows how everything that penstock measured, learned, advised and spent is stored on disk and read back.

The store is synchronous; `async_store` runs it on the one thread that writes. Observations, fits and advice may wait in
memory while the disk is full. What must be recorded before an act may not, that is the journal of leftovers and the
spending: an act that cannot be recorded is not done (DiskTrouble).
"""

# ruff: noqa: S608  # only the constants of this file are pasted into SQL; every value is a parameter

from __future__ import annotations

import dataclasses
import logging
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from penstock.daemon.memory.database import (
    Database,
    DiskTrouble,
    Lost,
    ReadOnly,
    open_read_only,
)
from penstock.daemon.memory.journal_rescue import rescue
from penstock.daemon.memory.retention import forgotten
from penstock.daemon.memory.rows import (
    PLACE_COLUMNS,
    UNREADABLE,
    Documents,
    Row,
    at_place,
    client_hour_columns,
    context_of,
    count_of,
    date_text,
    moment_of,
    on_context,
    place_of,
    place_values,
    plain_document,
    reader_of,
    row_of,
    since_text,
    spend_of,
    spend_row,
    uid_of,
    until_text,
)
from penstock.daemon.memory.salvage import salvaged
from penstock.daemon.spending.budget import ROW_COUNT_MAX, hour_of
from penstock.models.model import Fit
from penstock.models.sqs.backlog_warning import BacklogSpell
from penstock.probes.probe import Leftover
from penstock.units import counted
from penstock.vocabulary import (
    Change,
    ClientHour,
    Context,
    Demand,
    Inconclusive,
    Observation,
    Origin,
    Outcome,
    Place,
    ProbeHarm,
    Recommendation,
    Spend,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")
OutcomeT = TypeVar("OutcomeT", bound="Outcome[Any]")
PENDING_COUNT_MAX = 10_000
PRUNED_COUNT_MAX = 5_000  # rows of one table at a time, so that transactions are short
COPY_DAY_COUNT = 30  # days of work after an upgrade, after which nobody goes back
_IS_PLACE = "operation = ? AND region = ? AND instance_type = ? AND service_class = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """How often a context was probed, and when last."""

    context: Context
    attempt_count: int
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSummary:
    """How much is known of a context."""

    context: Context
    observation_count: int
    newest_observation_at: datetime


class Store:
    """Everything that is stored. `setting_types` has the dataclass of each operation's settings.

    Rows of operations that are not in `setting_types`, or whose settings do not match it, are left out of results and
    counted in `unreadable_count`.
    """

    def __init__(
        self, path: Path, setting_types: Mapping[str, type], *, reading: sqlite3.Connection | None = None
    ) -> None:
        """Open the database at `path`; with a connection for `reading`, use that and write nothing."""
        self.trouble: str | None = None  # one sentence while values wait in memory
        self._reason = ""  # of the trouble
        self.dropped_count = 0  # values that waited in memory and were dropped, because too many did
        self._documents = Documents(setting_types)
        self._database = Database(path, rescue) if reading is None else ReadOnly(path, reading)
        self._damaged_tables: set[str] = set()  # those whose damage was logged
        self._pending: deque[Row[Any]] = deque()  # only while the disk is in trouble

    @classmethod
    def open_read_only(cls, path: Path, setting_types: Mapping[str, type]) -> Store:
        """A store that writes nothing, usable beside a running daemon. Raises StoreError."""
        return cls(path, setting_types, reading=open_read_only(path))

    @classmethod
    def open_salvaged(cls, path: Path, setting_types: Mapping[str, type]) -> tuple[Store, list[str]]:
        """What can be read of a file that is damaged or of another version, and a sentence for each thing missing.

        Raises DiskTrouble where nothing can be read.
        """
        copy, missing = salvaged(path)
        return cls(path, setting_types, reading=copy), missing

    def close(self) -> None:
        """Write what waits in memory and close the file. Raises Lost when the disk does not allow it."""
        is_written = self.flush()
        self._database.close()
        if not is_written:
            raise Lost(f"{self._waiting_sentence()} are lost: {self._reason}")

    @property
    def waiting_report_count(self) -> int:
        """Reports of applications that wait in memory."""
        return sum(map(_is_report, self._waiting(Observation)))

    @property
    def unreadable_count(self) -> int:
        """How many stored values could not be read back since the store was opened."""
        return self._documents.unreadable_count

    def take_notices(self) -> list[str]:
        """Sentences for the log, each returned once: a broken file that was replaced, a migration."""
        notices, self._database.notices = self._database.notices, []
        return notices

    # What was measured

    def observation_row(self, observation: Observation[Any]) -> Row[Observation[Any]]:
        """The row to write. Raises ValueError for what could not be read back, such as infinite numbers."""
        columns = self._columns_of(observation, Observation)
        if observation.origin is Origin.PROBE:
            return row_of("observations", columns, observation)
        return row_of("reports", columns | {"reporter_uid": uid_of(observation.reporter_uid)}, observation)

    def _columns_of(self, outcome: Outcome[Any], kind: type) -> dict[str, Any]:
        document = self._documents.write(outcome, kind)
        return on_context(outcome.context) | {
            "started_at": date_text(outcome.started_at),
            "document": document,
        }

    def add_observations(self, observations: Iterable[Observation[Any]]) -> None:
        """Store the observations in one transaction."""
        self.add_rows([self.observation_row(observation) for observation in observations])

    def observations(
        self, place: Place, *, count_max: int, until: datetime | None = None
    ) -> list[Observation[Any]]:
        """The newest observations of a place that penstock measured itself, oldest first."""
        sql = f"""SELECT operation, document FROM observations WHERE {_IS_PLACE} AND started_at <= ?
                  ORDER BY started_at DESC, observation_id DESC LIMIT ?"""
        stored = self._stored(Observation, sql, (*place_values(place), until_text(until), count_max))
        return _newest([*reversed(stored), *self._waiting_of(Origin.PROBE, place, None, until)], count_max)

    def each_observation(self, place: Place, *, since: datetime | None = None) -> Iterator[Observation[Any]]:
        """All observations of a place that penstock measured itself, oldest first, one by one to save memory.

        Those that wait in memory for the disk are not included.
        """
        assert isinstance(self._database, ReadOnly), (
            "one long question would keep a daemon's other ones waiting"
        )
        # As bytes: the decoder then finds invalid UTF-8.
        sql = f"""SELECT CAST(document AS BLOB) FROM observations WHERE {_IS_PLACE} AND started_at >= ?
                  ORDER BY started_at, observation_id"""
        for (document,) in self._database.each_row(sql, (*place_values(place), since_text(since))):
            value = self._documents.read(document, Observation, place.operation)
            if value is not None:
                yield value

    def reports(
        self,
        place: Place,
        *,
        count_max: int,
        count_max_per_user: int,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[Observation[Any]]:
        """The newest reports of each user about a place, oldest first; no user's reports displace another's."""
        sql = f"""SELECT operation, document FROM
                  (SELECT operation, document, started_at, row_number() OVER
                       (PARTITION BY reporter_uid ORDER BY started_at DESC, report_id DESC) AS number
                   FROM reports WHERE {_IS_PLACE} AND started_at BETWEEN ? AND ?)
                  WHERE number <= ? ORDER BY number, started_at DESC LIMIT ?"""
        dates = since_text(since), until_text(until)
        stored = self._stored(Observation, sql, (*place_values(place), *dates, count_max_per_user, count_max))
        return _newest([*stored, *self._waiting_of(Origin.APPLICATION, place, since, until)], count_max)

    def reported_places(self) -> list[Place]:
        return self._understood(
            "reports", f"SELECT DISTINCT {PLACE_COLUMNS} FROM reports ORDER BY {PLACE_COLUMNS}", (), place_of
        )

    def summaries(self) -> list[ContextSummary]:
        """Every context with stored observations."""
        sql = f"""SELECT {PLACE_COLUMNS}, payload_size_bytes, count(*), max(started_at) FROM observations
                  GROUP BY {PLACE_COLUMNS}, payload_size_bytes ORDER BY {PLACE_COLUMNS}, payload_size_bytes"""
        return self._understood(
            "observations",
            sql,
            (),
            lambda row: ContextSummary(
                context=context_of(row), observation_count=row[5], newest_observation_at=moment_of(row[6])
            ),
        )

    def add_inconclusive(self, inconclusive: Inconclusive[Any]) -> None:
        columns = self._columns_of(inconclusive, Inconclusive)
        self.add_rows([row_of("inconclusives", columns, inconclusive)])

    def inconclusives(self, *, count_max: int, since: datetime | None = None) -> list[Inconclusive[Any]]:
        """The newest probes that could not measure, oldest first."""
        sql = """SELECT operation, document FROM inconclusives WHERE started_at >= ?
                 ORDER BY started_at DESC, inconclusive_id DESC LIMIT ?"""
        stored = self._stored(Inconclusive, sql, (since_text(since), count_max))
        waiting = [value for value in self._waiting(Inconclusive) if _is_since(value, since)]
        return _newest([*stored, *waiting], count_max)

    # What was learned and advised

    def add_fit(self, fit: Fit, *, fitted_at: datetime) -> None:
        columns = {"fitted_at": date_text(fitted_at), "document": self._documents.write(fit, Fit)}
        self.add_rows([row_of("fits", at_place(fit.place) | columns, fit)])

    def fits(self) -> list[Fit]:
        """The newest fit of each place."""
        sql = f"""SELECT operation, document FROM fits WHERE fit_id IN
                  (SELECT max(fit_id) FROM fits GROUP BY {PLACE_COLUMNS}) ORDER BY {PLACE_COLUMNS}"""
        newest = {fit.place: fit for fit in self._stored(Fit, sql)}
        newest.update({fit.place: fit for fit in self._waiting(Fit)})
        return list(newest.values())

    def add_recommendation(self, recommendation: Recommendation[Any]) -> None:
        columns = on_context(recommendation.context) | {
            "demand": plain_document(recommendation.demand),
            "issued_at": date_text(recommendation.issued_at),
            "document": self._documents.write(recommendation, Recommendation),
        }
        self.add_rows([row_of("recommendations", columns, recommendation)])

    def recommendations(self) -> list[Recommendation[Any]]:
        """The newest advice for each context and demand."""
        question = f"{PLACE_COLUMNS}, payload_size_bytes, demand"
        sql = f"""SELECT operation, document FROM recommendations WHERE recommendation_id IN
                  (SELECT max(recommendation_id) FROM recommendations GROUP BY {question})
                  ORDER BY {question}"""
        stored = self._stored(Recommendation, sql)
        newest = {(r.context, r.demand): r for r in [*stored, *self._waiting(Recommendation)]}
        return list(newest.values())

    def recommendation_history(self, context: Context, *, count_max: int) -> list[Recommendation[Any]]:
        """The newest advice for one context, oldest first."""
        sql = f"""SELECT operation, document FROM recommendations WHERE {_IS_PLACE} AND payload_size_bytes = ?
                  ORDER BY recommendation_id DESC LIMIT ?"""
        parameters = (*place_values(context.place), context.payload_size_bytes, count_max)
        stored = self._stored(Recommendation, sql, parameters)
        waiting = [value for value in self._waiting(Recommendation) if value.context == context]
        return [*reversed(stored), *waiting][-count_max:]

    def fit_before(self, place: Place, at: datetime) -> Fit | None:
        """The last fit of a place that was made before this moment."""
        sql = f"SELECT operation, document FROM fits WHERE {_IS_PLACE} AND fitted_at < ? ORDER BY fit_id DESC LIMIT 1"
        return next(iter(self._stored(Fit, sql, (*place_values(place), date_text(at)))), None)

    def advice_before(self, context: Context, demand: Demand, at: datetime) -> Recommendation[Any] | None:
        sql = f"""SELECT operation, document FROM recommendations WHERE {_IS_PLACE} AND payload_size_bytes = ?
                  AND demand = ? AND issued_at < ? ORDER BY recommendation_id DESC LIMIT 1"""
        parameters = (
            *place_values(context.place),
            context.payload_size_bytes,
            plain_document(demand),
            date_text(at),
        )
        return next(iter(self._stored(Recommendation, sql, parameters)), None)

    def put_change(self, change: Change[Any]) -> None:
        """Store a change of a place, and replace an earlier row about the same change."""
        columns = at_place(change.place) | {
            "changed_at": date_text(change.changed_at),
            "noticed_at": date_text(change.noticed_at),
            "document": self._documents.write(change, Change),
        }
        self.add_rows([row_of("changes", columns, change)])

    def changes(self, *, place: Place | None = None, count_max: int) -> list[Change[Any]]:
        """The newest changes that were noticed, of one place or of all, newest first."""
        condition, parameters = (f"WHERE {_IS_PLACE}", place_values(place)) if place else ("", ())
        sql = f"SELECT operation, document FROM changes {condition} ORDER BY noticed_at DESC LIMIT ?"
        stored = self._stored(Change, sql, (*parameters, count_max))
        waiting = {(c.place, c.noticed_at): c for c in self._waiting(Change) if place in {None, c.place}}
        known = {(c.place, c.noticed_at): c for c in stored} | waiting
        return sorted(known.values(), key=lambda c: c.noticed_at, reverse=True)[:count_max]

    def add_backlog(self, spell: BacklogSpell) -> None:
        columns = {
            name: date_text(value) if isinstance(value, datetime) else value
            for name, value in dataclasses.asdict(spell).items()
        }
        self.add_rows([row_of("backlogs", columns, spell)])

    def backlogs(self, *, since: datetime | None = None) -> list[BacklogSpell]:
        """What watched queues held, oldest first."""
        names = [field.name for field in dataclasses.fields(BacklogSpell)]
        sql = f"SELECT {', '.join(names)} FROM backlogs WHERE began_at >= ? ORDER BY began_at, backlog_id"
        return self._understood(
            "backlogs",
            sql,
            (since_text(since),),
            lambda row: msgspec.convert(dict(zip(names, row, strict=True)), type=BacklogSpell),
        )

    # What applications were heard to do

    def put_client_hours(self, hours: Iterable[ClientHour]) -> None:
        """Store these hours, and replace earlier rows about the same ones."""
        self.add_rows([row_of("client_hours", client_hour_columns(hour), hour) for hour in hours])

    def client_hours(self, *, count_max: int, since: datetime | None = None) -> list[ClientHour]:
        """The newest hours, oldest first."""
        sql = "SELECT document FROM client_hours WHERE began_at >= ? ORDER BY client_hour_id DESC LIMIT ?"
        return self._understood("client_hours", sql, (since_text(since), count_max), reader_of(ClientHour))[
            ::-1
        ]

    def add_harm(self, harm: ProbeHarm) -> None:
        """Store how a probe harmed the applications beside it."""
        columns = {"started_at": date_text(harm.started_at), "document": plain_document(harm)}
        self.add_rows([row_of("harms", columns, harm)])

    def harms(self, *, count_max: int, since: datetime | None = None) -> list[ProbeHarm]:
        """The harm of the newest probes, oldest first."""
        sql = "SELECT document FROM harms WHERE started_at >= ? ORDER BY harm_id DESC LIMIT ?"
        return self._understood("harms", sql, (since_text(since), count_max), reader_of(ProbeHarm))[::-1]

    # What must be recorded before an act: on disk on return, or DiskTrouble

    def record_leftover(self, leftover: Leftover, *, now: datetime) -> None:
        row = row_of(
            "leftovers", {"document": plain_document(leftover), "recorded_at": date_text(now)}, leftover
        )
        self._commit(row.sql, row.parameters)

    def strike_leftover(self, leftover: Leftover) -> None:
        self._commit("DELETE FROM leftovers WHERE document = ?", (plain_document(leftover),))

    def date_leftover(self, leftover: Leftover, *, now: datetime) -> None:
        """Count the leftover's age from now, if it is still in the journal."""
        parameters = (date_text(now), plain_document(leftover))
        self._commit("UPDATE leftovers SET recorded_at = ? WHERE document = ?", parameters)

    def dated_leftovers(self) -> dict[Leftover, datetime]:
        """What may still exist outside, with the date of its record, oldest first."""
        sql = "SELECT document, recorded_at FROM leftovers ORDER BY recorded_at, document"
        return dict(
            self._understood(
                "leftovers",
                sql,
                (),
                lambda row: (msgspec.json.decode(row[0], type=Leftover), moment_of(row[1])),
            )
        )

    def open_leftovers(self) -> list[Leftover]:
        """The same without dates."""
        return list(self.dated_leftovers())

    def add_spend(self, spend: Spend) -> None:
        """Add to the spending of an hour, before the act that costs it."""
        row = spend_row(spend)
        self._commit(row.sql, row.parameters)

    def correct_spend(self, correction: Spend) -> None:
        """Add a correction, which is mostly negative, after the act. It may wait: until then the disk has too much."""
        self.add_rows([spend_row(correction)])

    def redate_spend(self, now: datetime) -> None:
        """Move spending at hours in the future to the present hour, as `Ledger.believing` does. Raises DiskTrouble."""
        if not self.flush():
            raise DiskTrouble(self.trouble or "")
        ahead = [spend for spend in self.spend(since=now) if spend.hour_at > now]
        rows = [spend_row(dataclasses.replace(spend, hour_at=hour_of(now))) for spend in ahead]

        def redate(connection: sqlite3.Connection) -> None:
            for row in rows:
                connection.execute(row.sql, row.parameters)
            connection.execute("DELETE FROM spend WHERE hour_at > ?", (date_text(now),))

        self._database.write(redate)

    def newest_spend(self) -> list[Spend]:
        """The last `ROW_COUNT_MAX` rows, in the order in which they were written, whatever their dates."""
        sql = "SELECT * FROM spend ORDER BY rowid DESC LIMIT ?"
        return self._understood("spend", sql, (ROW_COUNT_MAX,), spend_of)[::-1]

    def spend(self, *, since: datetime | None = None) -> list[Spend]:
        """The spending by hour and operation, oldest first."""
        sql = "SELECT * FROM spend WHERE hour_at >= ? ORDER BY hour_at, operation"
        return self._understood("spend", sql, (since_text(since),), spend_of)

    def add_attempt(self, context: Context, *, at: datetime) -> None:
        """Count a probe before it starts, so that one that kills the daemon is not repeated at once."""
        sql = f"""INSERT INTO attempts VALUES (?, ?, ?, ?, ?, 1, ?) ON CONFLICT ({PLACE_COLUMNS}, payload_size_bytes)
                  DO UPDATE SET attempt_count = attempt_count + 1, last_at = excluded.last_at"""
        self._commit(sql, (*place_values(context.place), context.payload_size_bytes, date_text(at)))

    def attempts(self) -> list[Attempts]:
        sql = f"SELECT * FROM attempts ORDER BY {PLACE_COLUMNS}, payload_size_bytes"
        return self._understood(
            "attempts",
            sql,
            (),
            lambda row: Attempts(
                context=context_of(row), attempt_count=count_of(row[5]), last_at=moment_of(row[6])
            ),
        )

    # Housekeeping

    def prune(self, *, now: datetime, retention_seconds: float, kept_count: int = 0) -> int:
        """Delete what is too old; returns the count of deleted rows. Call again while it returns more than 0.

        The newest fit and advice of each question stay whatever their age: a restart advises from them. So do the
        newest `kept_count` observations of each place, which fits use: a host that was off for months, or whose clock
        is ahead, does not lose all it has learned.
        """
        doomed = forgotten(now=now, retention_seconds=retention_seconds, kept_count=kept_count)
        return sum(self._delete(table, condition, parameters) for table, condition, parameters in doomed)

    def shrink(self) -> bool:
        """Give a little space of deleted rows back to the disk; returns whether there is more. Raises DiskTrouble."""
        return self._database.shrink()

    def remove_old_copies(self) -> None:
        """Remove copies from before upgrades after `COPY_DAY_COUNT` days on which something was spent.

        Such days are counted instead of the copy's age, because a clock that steps ahead adds only one of them.
        """
        sql = "SELECT count(DISTINCT substr(hour_at, 1, 10)) FROM spend WHERE hour_at > ?"
        for copy in self._database.copies():
            made_at = datetime.fromtimestamp(copy.stat().st_mtime, UTC)
            ((day_count,),) = self._database.rows(sql, (date_text(made_at),))
            if day_count > COPY_DAY_COUNT:
                copy.unlink()
                _log.info("removed %s: since the upgrade it worked on %d days", copy, day_count)

    def flush(self) -> bool:
        """Try to write what waits in memory; returns whether nothing waits any more."""
        if self._pending:
            self.add_rows([])
        return not self._pending

    def add_rows(self, rows: Sequence[Row[Any]]) -> None:
        """Write these rows and those that wait in one transaction; while the disk is in trouble, they wait."""
        self._pending.extend(rows)
        waiting = list(self._pending)
        try:
            self._database.write(
                lambda connection: [connection.execute(r.sql, r.parameters) for r in waiting]
            )
        except DiskTrouble as error:
            self._make_room(str(error))
        else:
            self._pending.clear()
            if self.trouble is not None:
                _log.info("the database can be written again; what waited in memory is in it")
            self.trouble = None

    def _make_room(self, reason: str) -> None:
        self._reason = reason
        while len(self._pending) > PENDING_COUNT_MAX:
            self._pending.popleft()
            self.dropped_count += 1
        if self.trouble is None:
            _log.warning("%s. What is measured and reported waits in memory until then", reason)
        self.trouble = f"{reason}. {self._waiting_sentence()} wait in memory until then"

    def _waiting_sentence(self) -> str:
        """``512 values (500 reports, 12 fits)``."""
        kinds = Counter(
            "report" if _is_report(row.value) else type(row.value).__name__ for row in self._pending
        )
        shown = ", ".join(counted(count, kind.lower()) for kind, count in kinds.most_common())
        return f"{counted(len(self._pending), 'value')} ({shown})"

    def _commit(self, sql: str, parameters: Sequence[Any]) -> None:
        self._database.write(lambda connection: connection.execute(sql, parameters))

    def _delete(self, table: str, condition: str, parameters: Sequence[Any]) -> int:
        sql = f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {condition} LIMIT ?)"
        return self._database.write(lambda c: c.execute(sql, (*parameters, PRUNED_COUNT_MAX)).rowcount)

    def _understood(
        self, table: str, sql: str, parameters: Sequence[Any], read: Callable[[tuple[Any, ...]], T]
    ) -> list[T]:
        """The rows that can be read. SQLite has no checksums, so a row may be damaged although the file is sound."""
        values = []
        for row in self._database.rows(sql, parameters):
            try:
                values.append(read(row))
            except UNREADABLE as error:
                self._documents.unreadable_count += 1
                if table not in self._damaged_tables:
                    self._damaged_tables.add(table)
                    _log.warning(
                        "the database is damaged in its %s; what cannot be read is left out: %s", table, error
                    )
        return values

    def _stored(self, kind: type[T], sql: str, parameters: Sequence[Any] = ()) -> list[T]:
        """The values of a query for operations and documents, without those that cannot be read."""
        return self._documents.read_all(self._database.rows(sql, parameters), kind)

    def _waiting_of(
        self, origin: Origin, place: Place, since: datetime | None, until: datetime | None
    ) -> Iterator[Observation[Any]]:
        return (
            value
            for value in self._waiting(Observation)
            if value.context.place == place and value.origin is origin and _is_since(value, since)
            if until is None or value.started_at <= until
        )

    def _waiting(self, kind: type[T]) -> Iterator[T]:
        return (row.value for row in self._pending if isinstance(row.value, kind))


def _newest(outcomes: Iterable[OutcomeT], count_max: int) -> list[OutcomeT]:
    """The newest `count_max`, oldest first."""
    return sorted(outcomes, key=lambda outcome: outcome.started_at)[-count_max:]


def _is_since(outcome: Outcome[Any], since: datetime | None) -> bool:
    return since is None or outcome.started_at >= since


def _is_report(value: object) -> bool:
    return isinstance(value, Observation) and value.origin is Origin.APPLICATION
