"""Knows what is read in this process from bytes that others may have damaged, and what reading may end in.

Each reader is fed by word and number, as `mutation` makes it, and raises for what must not be.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from penstock.api.wire import Snapshot, encode, recommendation_document, snapshot_document
from penstock.client.advice import Advice, Adviser
from penstock.client.connection import Connections, NoDaemonError, Stream
from penstock.clock import SystemClock
from penstock.daemon.config_files import ConfigError, all_keys, load
from penstock.daemon.heard.audit import Audit
from penstock.daemon.heard.hearing import Hearing
from penstock.daemon.heard.refusal_watch import RefusalWatch
from penstock.daemon.memory.database import StoreError
from penstock.daemon.memory.store import Store
from penstock.operations.table import setting_types
from penstock.vocabulary import Demand
from tests.factories import (
    CONTEXT,
    NOON,
    PLACE,
    a_fit,
    a_leftover,
    a_recommendation,
    an_inconclusive,
    an_observation,
)
from tests.fuzz.mutation import BYTES, TOKENS, Mutator
from tests.fuzz.services import MetadataReader, ResponsesReader
from tests.unit.daemon.test_board import a_board, a_learned_fit

MiB = 1 << 20
LONG = replace(CONTEXT, payload_size_bytes=1 << 40)


class Reader(Protocol):
    """One thing that is read."""

    def feed(self, mutator: Mutator) -> None:
        """Make an input and have it read. Raises for what must not be."""
        ...


@runtime_checkable
class Closable(Protocol):
    """One that keeps something open."""

    def close(self) -> None:
        """Let go of it."""
        ...


# --- The configuration


class ConfigurationReader:
    """`penstock config check` and every start: all that is wrong is said, and nothing else happens."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "penstock.toml"
        self._whole = _every_key().encode()

    def feed(self, mutator: Mutator) -> None:
        """A file with every key, bent."""
        lines = self._whole.split(b"\n")
        if mutator.happens(0.7):
            at = mutator.chance.randrange(len(lines))
            lines[at] = lines[at].partition(b"=")[0] + b"= " + _toml_value(mutator)
        data = b"\n".join(lines)
        self._file.write_bytes(mutator.bent_bytes(data) if mutator.happens(0.7) else data)
        with contextlib.suppress(ConfigError):
            loaded = load(self._file)
            loaded.warnings()
            encode(loaded.effective())


def _every_key() -> str:
    sections: dict[str, list[str]] = {}
    for path, default, _ in all_keys():
        section, _, key = path.rpartition(".")
        sections.setdefault(section, []).append(f"{key} = {_as_toml(default)}")
    return "\n".join(f"[{section}]\n" + "\n".join(keys) for section, keys in sections.items())


def _as_toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case tuple():
            return "[" + ", ".join(map(_as_toml, value)) + "]"
        case _:
            return str(value)


def _toml_value(mutator: Mutator) -> bytes:
    if mutator.happens(0.5):
        return mutator.one_of(TOKENS).encode("utf-8", "surrogatepass")
    word = mutator.one_of(
        (
            "8MiB",
            "1e400MiB",
            "9999999999999999999999GiB",
            "-1s",
            "1e308d",
            "nan",
            "inf",
            "1979-05-27",
            "eu",
            "",
        )
    )
    return b'"' + word.encode() + mutator.one_of(BYTES) + b'"' if mutator.happens(0.5) else word.encode()


# --- The snapshot, and answers of the socket


def _advice_document(mutator: Mutator) -> bytes:
    soon = a_recommendation(expires_at=NOON + timedelta(days=36500))
    if mutator.happens(0.5):
        return mutator.bent_json(recommendation_document(soon, generation=1) | _dates(soon))
    snapshot = Snapshot(
        generation=1, generated_at=NOON, region="r", instance_type="i", recommendations=(soon,)
    )
    rows = [recommendation_document(soon, generation=1) | _dates(soon)]
    return mutator.bent_json(
        snapshot_document(snapshot) | {"generated_at": NOON.isoformat(), "recommendations": rows}
    )


def _dates(recommendation: Any) -> dict[str, Any]:
    """The dates as text: the writer of bent JSON knows no others."""
    return {
        "issued_at": recommendation.issued_at.isoformat(),
        "expires_at": recommendation.expires_at.isoformat(),
        "basis": str(recommendation.basis),
        "demand": {},
    }


def _check(advice: Advice) -> None:
    """Whether an application can work with it."""
    assert isinstance(advice.basis, str)
    numbers = [*advice.setting.values(), *advice.derived.values()]
    assert all(isinstance(number, (int, float)) and math.isfinite(number) for number in numbers)
    assert advice.setting["thread_count"] == advice.setting["thread_count"]


class SnapshotReader:
    """An application that reads the file: it gets advice that it can work with, whatever is in there."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "recommendations.json"
        self._socket = str(folder / "nobody.sock")

    def feed(self, mutator: Mutator) -> None:
        """A snapshot, bent."""
        self._file.write_bytes(_advice_document(mutator))
        _check(Adviser(socket=self._socket, snapshot=str(self._file)).advise("s3_upload", 64 * MiB))


class ClientReader:
    """An application that asks a socket on which anything answers."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "false.sock")
        self._missing = str(folder / "missing.json")
        self._answers: list[bytes] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self._path)
        self._listening.listen(16)
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(5.0)
        self._listening.close()

    def feed(self, mutator: Mutator) -> None:
        """One question, or one stream, and an answer that is bent."""
        self._answers.append(_an_answer(mutator))
        match mutator.chance.randrange(3):
            case 0:
                _check(Adviser(socket=self._path, snapshot=self._missing).advise("s3_upload", 64 * MiB))
            case 1:
                with contextlib.suppress(NoDaemonError), contextlib.closing(Connections(self._path)) as asked:
                    asked.ask("GET", "/v1/status")
            case _:
                with contextlib.suppress(NoDaemonError):
                    stream = Stream(self._path, "GET", "/v1/watch", None, 5.0)
                    while stream.line(timeout_seconds=5.0) is not None:
                        pass
        self._answers.clear()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(5.0)
                    connection.recv(2**16)
                    connection.sendall(self._answers[0] if self._answers else b"")


def _an_answer(mutator: Mutator) -> bytes:
    body = _advice_document(mutator)
    length = mutator.one_of((len(body),) * 6 + (len(body) - 1, len(body) + 1, -1, 0, 10**30))
    status = mutator.one_of(
        (b"200", b"200", b"200", b"304", b"404", b"503", b"099", b"-1", b"", b"2e2", b"\xb2")
    )
    head = b"HTTP/1.1 " + status + b" OK\r\nContent-Type: application/json\r\n"
    if mutator.happens(0.8):
        head += b"Content-Length: %d\r\n" % length
    answer = head + b"\r\n" + body
    return mutator.bent_bytes(answer) if mutator.happens(0.5) else answer


# --- What SDKs tell

TOLD = {
    "Version": 1,
    "ClientId": "backup",
    "Type": "ApiCallAttempt",
    "Service": "S3",
    "Api": "UploadPart",
    "Region": "eu-west-1",
    "UserAgent": "Boto3/1.43.117 md/Botocore#1.43.117",
    "AttemptLatency": 87,
    "HttpStatusCode": 200,
}
"""A part that was uploaded, as an SDK tells it; without its secrets."""
CALL = {"Type": "ApiCall", "Latency": 90, "AttemptCount": 1}
_LOOK_COUNT = 2000


class DatagramReader:
    """What one user of the host sends to the port of SDKs: it is read or counted as unreadable, and moves no advice."""

    def __init__(self, _folder: Path) -> None:
        self._hearing = Hearing(SystemClock())
        self._board = board = a_board()
        board.restore([a_learned_fit()], [], NOON)
        self._audit = Audit(board, self._hearing, SystemClock(), PLACE)
        self._watch = RefusalWatch(self._hearing, SystemClock(), PLACE, [LONG])
        board.caution = self._watch.caution
        self._advised = self._board.recommend(LONG, Demand(), NOON)
        self._count = 0

    def feed(self, mutator: Mutator) -> None:
        """A datagram, bent; now and then somebody looks."""
        whole = TOLD | (CALL if mutator.happens(0.3) else {})
        whole |= {"ClientId": str(mutator.chance.randrange(10**6))} if mutator.happens(0.5) else {}
        whole |= {"HttpStatusCode": 503} if mutator.happens(0.3) else {}
        self._hearing.hear(mutator.bent_json(whole), user_id=1001)
        self._count += 1
        if self._count % _LOOK_COUNT == 0:
            assert encode(self._audit.document())
            self._watch.look(-math.inf)
            assert self._board.recommend(LONG, Demand(), NOON) == self._advised
            assert self._hearing.heard_count + self._hearing.unreadable_count == self._count


# --- The database


class DatabaseReader:
    """A start on a damaged file: it is read, or moved aside, or refused with a sentence."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "state"
        self._path = self._folder / "penstock.db"
        self._folder.mkdir()
        self._whole = _a_database(folder / "whole.db")

    def feed(self, mutator: Mutator) -> None:
        """The file with bytes changed, or with rows that hold something else."""
        for file in self._folder.iterdir():
            file.unlink()
        self._path.write_bytes(self._whole if mutator.happens(0.5) else _damaged(mutator, self._whole))
        if mutator.happens(0.5):
            with contextlib.suppress(sqlite3.DatabaseError, UnicodeDecodeError):
                _bend_rows(mutator, self._path)
        is_read_only = mutator.happens(0.5)
        opened = Store.open_read_only if is_read_only else Store
        with (
            contextlib.suppress(StoreError),
            contextlib.closing(opened(self._path, setting_types())) as store,
        ):
            _read_all(store)
            if not is_read_only:
                store.add_observations([an_observation()])


def _a_database(path: Path) -> bytes:
    with contextlib.closing(Store(path, setting_types())) as store:
        store.add_observations(an_observation(started_at=NOON + timedelta(seconds=n)) for n in range(20))
        store.add_fit(a_fit(), fitted_at=NOON)
        store.add_recommendation(a_recommendation())
        store.add_inconclusive(an_inconclusive())
        store.record_leftover(a_leftover(), now=NOON)
    return path.read_bytes()


def _damaged(mutator: Mutator, whole: bytes) -> bytes:
    data = bytearray(whole)
    for _ in range(mutator.one_of((1, 1, 4, 64))):
        at, new = mutator.chance.randrange(len(data)), mutator.one_of((*BYTES, mutator.chance.randbytes(200)))
        data[at : at + len(new)] = new
    cut = mutator.chance.randrange(len(data)) if mutator.happens(0.1) else len(data)
    return bytes(data[:cut])


_VALUES: tuple[object, ...] = (None, -1, 10**18, 1e308, "", "\x00", "{}", "[" * 3000, b"\xff\xfe")


def _bend_rows(mutator: Mutator, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        table = mutator.one_of(tables)
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        value: object = mutator.one_of((*_VALUES, mutator.one_of(TOKENS[:20])))
        column = mutator.one_of(columns)
        old = connection.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()  # noqa: S608
        if mutator.happens(0.6) and old and isinstance(old[0], str):
            value = mutator.bent_bytes(old[0].encode()).decode("utf-8", "replace")
        connection.execute(f"UPDATE {table} SET {column} = ?", (value,))  # noqa: S608


def _read_all(store: Store) -> None:
    store.take_notices()
    store.summaries()
    store.observations(PLACE, count_max=100)
    store.reports(PLACE, count_max=100, count_max_per_user=100)
    store.reported_places()
    store.inconclusives(count_max=100)
    store.fits()
    store.recommendations()
    store.open_leftovers()
    store.dated_leftovers()
    store.attempts()
    store.spend()


@contextlib.contextmanager
def reader_of(name: str, folder: Path) -> Iterator[Reader]:
    """By its name, in a folder of its own; what it writes to the log is of no interest here."""
    logging.disable(logging.CRITICAL)
    reader = READERS[name](folder)
    try:
        yield reader
    finally:
        if isinstance(reader, Closable):
            reader.close()
        logging.disable(logging.NOTSET)


READERS: dict[str, Callable[[Path], Reader]] = {
    "configuration": ConfigurationReader,
    "snapshot": SnapshotReader,
    "client": ClientReader,
    "database": DatabaseReader,
    "datagram": DatagramReader,
    "metadata": MetadataReader,
    "responses": ResponsesReader,
}
