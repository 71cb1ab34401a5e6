"""Knows how values become rows of the database, and rows become values again.

Functions that read a row raise one of `UNREADABLE` when it is damaged.
"""

# ruff: noqa: S608  # only the constants of the schema are pasted into SQL; every value is a parameter

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec

from penstock.models.model import Fit
from penstock.vocabulary import Change, ClientHour, Context, Cost, Place, Spend

T = TypeVar("T")
UNREADABLE = (msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError)
"""What reading a stored value may raise, if it is damaged or was written by another version of penstock."""
PLACE_COLUMNS = "operation, region, instance_type, service_class"
_SPENT = ("transferred_bytes", "request_count", "usd", "credit_bytes", "duration_seconds")
_UNKNOWN_UID = -1


@dataclass(frozen=True, slots=True)
class Row(Generic[T]):
    """One value, and the statement that writes it."""

    sql: str
    parameters: tuple[Any, ...]  # SQLite's values
    value: T


class Documents:
    """Converts values to JSON and back, with each operation's own type of setting."""

    def __init__(self, setting_types: Mapping[str, type]) -> None:
        self._setting_types = setting_types
        self._decoders: dict[tuple[type, str], msgspec.json.Decoder[Any] | None] = {}
        self.unreadable_count = 0

    def write(self, value: Any, kind: type) -> str:
        """The value as JSON. Raises ValueError for a value that could not be read back."""
        document = msgspec.json.encode(value)
        operation = (value if isinstance(value, (Fit, Change)) else value.context).place.operation
        decoder = self._decoder(kind, operation)
        if decoder is None:
            raise ValueError(f"{operation!r} is not an operation of this penstock")
        try:
            decoder.decode(document)
        except msgspec.ValidationError as error:
            raise ValueError(f"this {kind.__name__.lower()} cannot be stored: {error}") from error
        return document.decode()

    def read(self, document: str | bytes, kind: type[T], operation: str) -> T | None:
        """The value, or None when this version does not understand it; then `unreadable_count` rises."""
        decoder = self._decoder(kind, operation)
        with suppress(*UNREADABLE):
            if decoder is not None:
                value: T = decoder.decode(document)
                return value
        self.unreadable_count += 1
        return None

    def read_all(self, rows: Iterable[tuple[Any, ...]], kind: type[T]) -> list[T]:
        """The values of rows (operation, document), without those that this version does not understand."""
        values = (self.read(document, kind, operation) for operation, document in rows)
        return [value for value in values if value is not None]

    def _decoder(self, kind: Any, operation: str) -> msgspec.json.Decoder[Any] | None:
        key = (kind, operation)
        if key not in self._decoders:
            setting_type = self._setting_types.get(operation)
            concrete = kind if kind is Fit else (kind[setting_type] if setting_type else None)
            self._decoders[key] = msgspec.json.Decoder(concrete) if concrete else None
        return self._decoders[key]


def row_of(table: str, columns: Mapping[str, Any], value: T) -> Row[T]:
    """A row that replaces any with the same key."""
    places = ", ".join("?" * len(columns))
    sql = f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({places})"
    return Row(sql, tuple(columns.values()), value)


def spend_row(spend: Spend) -> Row[Spend]:
    """A row that is added to the spending of its hour and operation."""
    sql = """INSERT INTO spend VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (hour_at, operation) DO UPDATE SET
             transferred_bytes = transferred_bytes + excluded.transferred_bytes,
             request_count = request_count + excluded.request_count, usd = usd + excluded.usd,
             credit_bytes = credit_bytes + excluded.credit_bytes,
             duration_seconds = duration_seconds + excluded.duration_seconds"""
    numbers = (getattr(spend.cost, name) for name in _SPENT)
    return Row(sql, (date_text(spend.hour_at), spend.operation, *numbers), spend)


def client_hour_columns(hour: ClientHour) -> dict[str, Any]:
    """The columns of a row in `client_hours`."""
    sender = (hour.name, hour.product, hour.version, hour.service, hour.api, hour.region)
    return {
        "began_at": date_text(hour.began_at),
        "user_id": uid_of(hour.user_id),
        "sender": " ".join(sender),
        "document": plain_document(hour),
    }


def uid_of(known: int | None) -> int:
    """The user id as it is stored: -1 for an unknown one."""
    return _UNKNOWN_UID if known is None else known


def plain_document(value: Any) -> str:
    """The JSON of a value that belongs to no operation."""
    return msgspec.json.encode(value).decode()


def reader_of(kind: type[T]) -> Callable[[tuple[Any, ...]], T]:
    """A function that reads a value of this kind from the first column of a row."""
    return lambda row: msgspec.json.decode(row[0], type=kind)


def place_values(place: Place) -> tuple[str, str, str, str]:
    """The values of `PLACE_COLUMNS`."""
    return place.operation, place.region, place.instance_type, place.service_class


def at_place(place: Place) -> dict[str, Any]:
    """The columns of a place."""
    return dict(zip(PLACE_COLUMNS.split(", "), place_values(place), strict=True))


def on_context(context: Context) -> dict[str, Any]:
    """The columns of a context."""
    return at_place(context.place) | {"payload_size_bytes": context.payload_size_bytes}


def place_of(row: tuple[Any, ...]) -> Place:
    """The place in a row that begins with `PLACE_COLUMNS`."""
    return msgspec.convert(dict(zip(PLACE_COLUMNS.split(", "), row, strict=False)), type=Place)


def context_of(row: tuple[Any, ...]) -> Context:
    """The context in a row that begins with the columns of `on_context`."""
    return Context(place=place_of(row), payload_size_bytes=count_of(row[4]))


def count_of(value: Any) -> int:
    """The value as an integer. Raises `msgspec.ValidationError` for anything else."""
    return msgspec.convert(value, type=int)


def spend_of(row: tuple[Any, ...]) -> Spend:
    """The spending in a row of `spend`."""
    cost = msgspec.convert(dict(zip(_SPENT, row[2:], strict=True)), type=Cost)
    return Spend(hour_at=moment_of(row[0]), operation=msgspec.convert(row[1], type=str), cost=cost)


def moment_of(text: Any) -> datetime:
    """The date that `date_text` wrote."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.astimezone(UTC)


def since_text(since: datetime | None) -> str:
    """The text of a lower bound; without one, a text that sorts before all dates."""
    return date_text(since) if since else ""


def until_text(until: datetime | None) -> str:
    """The text of an upper bound; without one, a text that sorts after all dates."""
    return date_text(until) if until else "~"


def date_text(moment: datetime) -> str:
    """The date in UTC as ISO 8601, so that texts sort as dates do."""
    assert moment.tzinfo is not None, "dates are aware"
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
