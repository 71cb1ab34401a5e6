"""Knows the care of one SQLite file: its one writer, its migrations, a full disk, a broken file.

    StoreError
    ├── StoreInUse    another penstockd works on the same directory
    ├── StoreTooNew   a newer penstock wrote the file
    ├── StoreForeign  another program wrote it
    ├── StoreMissing  there is nothing to read
    ├── StoreDenied   this user may not read it, or it is no file
    ├── DiskTrouble   the disk is full, read-only or failing; what was committed is safe
    └── Lost          values that waited in memory for such a disk are gone with the process

A broken file is never an error: it is moved aside, what must not be lost is taken out of it, and a new one is
begun. One that somebody removed while it is open is written anew, whole. Every commit reaches the disk
(``synchronous=FULL``): probes are rare, and a journal that lies is none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

_log = logging.getLogger(__name__)

T = TypeVar("T")
Rescue = Callable[[Path], Callable[[sqlite3.Connection], str]]
"""Reads what it can from a broken file; returns what writes it into the new one and says so in a sentence."""

BROKEN_FILE_COUNT_MAX = 3
LOG_BYTES_MAX = 4 << 20  # of the write-ahead log, once it was folded into the file
RETURNED_PAGE_COUNT = 256  # in one go: a megabyte, milliseconds
FREE_FRACTION_MAX = 0.2  # of the file, which new rows will fill again
# Of a new file, before all else: its free pages can be given back a few at a time.
_LET_SHRINK = "PRAGMA auto_vacuum=INCREMENTAL"
BUSY_SECONDS = 5.0
_ASK_OWNER = "ask as a user who may, such as with sudo -u penstock"
_ROOM = "free space, inodes (df -i) or quota"
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_DISK = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space",
    sqlite3.SQLITE_READONLY: "the file system or the file is read-only: make it writable",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened: check the directory, its owner, its free space and inodes",
    sqlite3.SQLITE_PERM: "access is denied: check the owner of the directory",
    sqlite3.SQLITE_IOERR: "the disk reports an error: check it, its free space and its quota",
    sqlite3.SQLITE_BUSY: "another program holds the database locked: end it",
}


class StoreError(Exception):
    """The database cannot be used; the message says what to do."""


class StoreInUse(StoreError):
    """Another daemon has it."""


class StoreTooNew(StoreError):
    """A newer penstock wrote it."""


class StoreForeign(StoreError):
    """Another program wrote it."""


class StoreMissing(StoreError):
    """There is no database."""


class StoreDenied(StoreError):
    """What is there cannot be opened, which says nothing about what is in it."""


class DiskTrouble(StoreError):
    """Nothing can be written at present; trying again later may help."""


class Lost(StoreError):
    """What waited in memory could not be written before the end."""


class Database:
    """One open file. `notices` are sentences for the log about what happened while opening or since."""

    def __init__(self, path: Path, rescue: Rescue) -> None:
        self.path = path
        self.notices: list[str] = []
        self._rescue = rescue
        self._lock = _locked(path)
        try:
            self._connection = self._open()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Give up the file and its lock."""
        self._connection.close()
        os.close(self._lock)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of one question (Any: SQLite's values)."""
        return self._guarded(lambda connection: connection.execute(sql, parameters).fetchall())

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work in one transaction: all of it is on the disk on return, or none. Raises DiskTrouble."""
        return self._guarded(lambda connection: _in_transaction(connection, work))

    def shrink(self) -> bool:
        """Give a few free pages back to the disk; whether there are more to give. Raises DiskTrouble."""

        def give_back(connection: sqlite3.Connection) -> bool:
            (free,), (all_,) = (
                connection.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_count")
            )
            if free <= max(FREE_FRACTION_MAX * all_, RETURNED_PAGE_COUNT):
                return False
            connection.execute(f"PRAGMA incremental_vacuum({RETURNED_PAGE_COUNT})").fetchall()
            (left,) = connection.execute("PRAGMA freelist_count").fetchone()
            return bool(left < free)

        return self._guarded(give_back)

    def copies(self) -> list[Path]:
        """From before each upgrade, for whoever goes back."""
        return sorted(self.path.parent.glob(f"{self.path.name}.before-*"))

    def _open(self) -> sqlite3.Connection:
        try:
            with speaking_of_damage():
                return self._open_sound()
        except sqlite3.DatabaseError as error:
            if not _is_broken(error):
                raise trouble_with(self.path, error) from error
            return self._begin_again(str(error))

    def _open_sound(self) -> sqlite3.Connection:
        connection = _connect(self.path)
        try:
            _refuse_newer(connection, self.path)
            _refuse_foreign(connection, self.path)
            connection.execute(_LET_SHRINK)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA journal_size_limit={LOG_BYTES_MAX}")
            connection.execute("PRAGMA synchronous=FULL")
            # In KiB. The kernel keeps the file; by itself SQLite would hold 2 MB of it once more.
            connection.execute("PRAGMA cache_size=-256")
            _refuse_broken(connection)
            self._migrate(connection)
            _refuse_misshapen(connection)
            self._inode = _inode_of(self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        version = version_of(connection)
        if 0 < version < (newest := max(migrations())):
            backup = self.path.with_name(f"{self.path.name}.before-{newest:04}")
            backup.unlink(missing_ok=True)
            connection.execute("VACUUM INTO ?", (str(backup),))
            self.notices.append(
                f"the database was brought from version {version} to {newest}; "
                f"{backup} is a copy of it as it was"
            )
        migrate(connection)

    def _begin_again(self, reason: str, broken: sqlite3.Connection | None = None) -> sqlite3.Connection:
        """Move the broken file aside once a new one holds what was rescued from it. Raises DiskTrouble."""
        copy = self._anew()
        try:
            with contextlib.closing(_connect(copy)) as connection:
                connection.execute(_LET_SHRINK)
                migrate(connection)
                rescued = _in_transaction(connection, self._rescue(self.path))
        except sqlite3.DatabaseError as error:
            raise trouble_with(self.path, error) from error
        if broken is not None:
            broken.close()  # as below
        aside = _move_aside(self.path)
        copy.replace(self.path)
        self.notices.append(
            f"the database {self.path} was broken ({reason}); it is now {aside}, and a new one was begun; {rescued}"
        )
        return self._open_sound()

    def _anew(self) -> Path:
        """Where a file is written before it takes its place."""
        copy = self.path.with_name(f"{self.path.name}.anew")
        copy.unlink(missing_ok=True)
        return copy

    def _write_anew(self) -> None:
        """Somebody removed the file, or put another in its place: what was in it can be read as long as it is open."""
        copy, what = self._anew(), f"somebody removed the database {self.path}"
        self._connection.execute("VACUUM INTO ?", (str(copy),))
        self._connection.close()  # before there is a new one: it removes the log of that name
        for ending in ("-wal", "-shm"):
            Path(f"{self.path}{ending}").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            aside = self.path.replace(self.path.with_name(f"{self.path.name}.replaced"))
            what = (
                f"somebody put {aside} in the place of the database {self.path}: stop penstockd before that"
            )
        copy.replace(self.path)
        self._connection = self._open_sound()
        if not _lock_path(self.path).exists():  # else the next daemon would find nobody here
            before, self._lock = self._lock, _locked(self.path)
            os.close(before)
        _log.warning("%s; it was written anew, and nothing is lost", what)

    def _guarded(self, action: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with speaking_of_damage():
                if _inode_of(self.path, unknown=self._inode) != self._inode:
                    self._write_anew()
                return action(self._connection)
        except sqlite3.DatabaseError as error:
            if _is_broken(error):
                self._connection = self._begin_again(str(error), self._connection)
                return action(self._connection)
            if _code(error) in _DISK:
                raise trouble_with(self.path, error) from error
            raise


class ReadOnly:
    """The reading half of a database."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.notices: list[str] = []
        self._connection = connection
        self._path = path

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(self.each_row(sql, parameters))

    def each_row(self, sql: str, parameters: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        try:
            with speaking_of_damage():
                yield from self._connection.execute(sql, parameters)
        except sqlite3.DatabaseError as error:
            raise trouble_with(self._path, error) from error

    def write(self, _work: Callable[[sqlite3.Connection], T]) -> T:
        raise DiskTrouble(f"the database {self._path} was opened for reading only")

    def shrink(self) -> bool:
        return False

    def copies(self) -> list[Path]:
        return []

    def close(self) -> None:
        self._connection.close()


def holder(path: Path) -> str | None:
    """The process that works on this database, if one does."""
    try:
        descriptor = os.open(_lock_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _written_holder(descriptor)
    finally:
        os.close(descriptor)
    return None


def open_read_only(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing, also beside a running daemon. Raises StoreError.

    An older file is copied and migrated there.
    """
    _refuse_unopenable(path)
    try:
        with speaking_of_damage(), contextlib.ExitStack() as unless_it_serves:
            connection = unless_it_serves.enter_context(contextlib.closing(connect_read_only(path)))
            _refuse_newer(connection, path)
            if version_of(connection) == max(migrations()):
                _refuse_misshapen(connection)
                unless_it_serves.pop_all()
                return connection
            copy = sqlite3.connect("", isolation_level=None)  # in a file of its own where it is large
            connection.backup(copy)
        migrate(copy)
    except sqlite3.DatabaseError as error:
        raise trouble_with(path, error) from error
    return copy


def _refuse_unopenable(path: Path) -> None:
    try:
        is_directory = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreMissing(
            f"there is no database at {path}: start penstockd, or name another with --database"
        ) from None
    except OSError as error:
        raise StoreDenied(f"the database {path} cannot be opened ({error.strerror}): {_ASK_OWNER}") from error
    if is_directory:
        raise StoreDenied(f"{path} is a directory: name the database in it")
    if not os.access(path, os.R_OK):
        raise StoreDenied(f"the database {path} cannot be opened (Permission denied): {_ASK_OWNER}")


@contextlib.contextmanager
def speaking_of_damage() -> Iterator[None]:
    """What SQLite says of a broken file may hold bytes that are no text, and then comes as UnicodeDecodeError."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise _broken("the names in it are no text") from error


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema to the present, each step whole or not at all."""
    for number, sql in migrations().items():
        if number > version_of(connection):
            try:
                connection.executescript(f"BEGIN IMMEDIATE;\n{sql}\nPRAGMA user_version={number};\nCOMMIT;")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def migrations() -> dict[int, str]:
    """The steps of the schema in order, by the version that each brings a file to."""
    files = resources.files("penstock.daemon.memory").joinpath("schema").iterdir()
    return {
        int(file.name[:4]): file.read_text(encoding="utf-8")
        for file in sorted(files, key=lambda f: f.name)
        if file.name.endswith(".sql")
    }


def _locked(path: Path) -> int:
    """The lock beside the file; the kernel gives it up when this process ends, however it ends."""
    lock_path = _lock_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # What it is led to would be cut off: root may do this in a folder of the daemon's user.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(lock_path, flags, 0o640)
    except OSError as error:
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        remedy = _ROOM if is_full else "make it writable for this user or change daemon.state_directory"
        raise DiskTrouble(
            f"the directory {path.parent} cannot be used: {error.strerror}; {remedy}"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        process = _written_holder(descriptor)
        os.close(descriptor)
        raise StoreInUse(
            f"another penstockd (process {process}) works on {path.parent}; "
            "stop it, or give this one its own daemon.state_directory"
        ) from error
    with contextlib.suppress(OSError):  # a courtesy, which a full disk must not turn into a refusal
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _inode_of(path: Path, *, unknown: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """Which file it is; None where there is none, and `unknown` for who may not look."""
    try:
        found = path.stat()
    except OSError as error:
        return None if error.errno == errno.ENOENT else unknown
    return found.st_dev, found.st_ino


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _written_holder(descriptor: int) -> str:
    return os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"


def _connect(path: Path | str, *, uri: bool = False) -> sqlite3.Connection:
    # One thread at a time uses the connection; not always the one that opened it.
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=uri
    )
    connection.text_factory = _as_text
    return connection


def _as_text(data: bytes) -> str:
    """A damaged row is for whoever reads it to leave out; it must not keep the others from being read."""
    return data.decode("utf-8", "replace")


def connect_read_only(path: Path, *, is_damaged: bool = False) -> sqlite3.Connection:
    """As it is, of whatever version; where the index of the log cannot be made, as the file lies there.

    A file that `is_damaged` may be shorter than it says.
    """
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        connection = _connect(f"file:{quote(str(path))}?{mode}", uri=True)
        try:
            if is_damaged:  # SQLite reads one that was cut off only so
                connection.execute("PRAGMA writable_schema=ON")
            version_of(connection)
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # whose traceback would keep it open
            connection.close()
            has_other_way = _code(error) in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
            if "immutable" in mode or not has_other_way:
                raise
        else:
            return connection
    raise AssertionError("unreachable")


def _in_transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.DatabaseError):  # the first error is the one to tell
                connection.execute("ROLLBACK")
        raise
    return result


def _move_aside(path: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")  # only a name: nothing is decided by it
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    for ending in ("-wal", ""):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{ending}").replace(f"{aside}{ending}")
    Path(f"{path}-shm").unlink(missing_ok=True)  # only an index of the log; SQLite makes it again
    older = sorted(path.parent.glob(f"{path.name}.corrupt-*Z"))[:-BROKEN_FILE_COUNT_MAX]
    for file in older:
        file.unlink(missing_ok=True)
        Path(f"{file}-wal").unlink(missing_ok=True)
        Path(f"{file}-shm").unlink(missing_ok=True)
    return aside


def version_of(connection: sqlite3.Connection) -> int:
    """Which of the migrations it has, the last of them."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _refuse_newer(connection: sqlite3.Connection, path: Path) -> None:
    version, known = version_of(connection), max(migrations())
    if version > known:
        copies = sorted(path.parent.glob(f"{path.name}.before-*"))
        older = next((copy for copy in copies if copy.suffix > f".before-{known:04}"), None)
        back = f"put {older}, which is from before the upgrade, in its place, " if older else ""
        raise StoreTooNew(
            f"the database {path} has version {version}, this penstock knows up to {known}: "
            f"install the newer penstock again, {back}or name another daemon.state_directory"
        )


def _refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    """The first step of ours gives the schema its version, so what has tables and none was never ours."""
    if version_of(connection) == 0 and connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise StoreForeign(
            f"the database {path} is of another program: move it away, or name another daemon.state_directory"
        )


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _refuse_broken(connection: sqlite3.Connection) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _broken(verdict.replace("\n", " "))


def _refuse_misshapen(connection: sqlite3.Connection) -> None:
    """A damaged name of a table or a column is no damage to SQLite, and every question about it would fail."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        migrate(model)
        if missing := _shape(model) - _shape(connection):
            raise _broken(f"it has no {', '.join(sorted(missing))}")


def _shape(connection: sqlite3.Connection) -> set[str]:
    found = columns_by_table(connection).items()
    return {f"{table}.{column}" for table, columns in found for column in columns}


def columns_by_table(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The names of both."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = "SELECT name FROM pragma_table_info(?)"
    return {table: [column for (column,) in connection.execute(columns, (table,))] for table in tables}


def _broken(reason: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(reason)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _is_broken(error: sqlite3.DatabaseError) -> bool:
    return _code(error) in _BROKEN


def trouble_with(path: Path, error: sqlite3.DatabaseError) -> DiskTrouble:
    """What to say and to do about it."""
    advice = _DISK.get(_code(error))
    return DiskTrouble(f"the database {path} cannot be used ({error}){f'; {advice}' if advice else ''}")
