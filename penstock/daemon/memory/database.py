"""Knows how to look after one SQLite file: a single writer, migrations, a full disk, a broken file.

    StoreError
    ├── StoreInUse    another penstockd uses the same directory
    ├── StoreTooNew   a newer penstock wrote the file
    ├── StoreForeign  another program wrote the file
    ├── StoreMissing  there is no file
    ├── StoreDenied   this user may not read it, or it is not a file
    ├── DiskTrouble   the disk is full, read-only or failing; what was committed is safe
    └── Lost          values that waited in memory for such a disk were lost with the process

A broken file is never an error: it is moved aside, what must not be lost is copied out of it, and a new file is begun.
A file that somebody removed while it was open is written again, complete. Every commit reaches the disk
(``synchronous=FULL``): probes are rare, and a journal must be reliable to be of use.
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
"""Reads what it can from a broken file; returns a function that writes it into the new file and returns a sentence."""

BROKEN_FILE_COUNT_MAX = 3
LOG_BYTES_MAX = 4 << 20  # of the write-ahead log, after a checkpoint
RETURNED_PAGE_COUNT = 256  # at a time: a megabyte, in milliseconds
FREE_FRACTION_MAX = 0.2  # of the file; new rows will use these free pages
# Must come first in a new file: then free pages can be given back a few at a time.
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
    """Another daemon uses the database."""


class StoreTooNew(StoreError):
    """A newer penstock wrote the database."""


class StoreForeign(StoreError):
    """Another program wrote the database."""


class StoreMissing(StoreError):
    """There is no database."""


class StoreDenied(StoreError):
    """The file cannot be opened; its content may be fine."""


class DiskTrouble(StoreError):
    """Nothing can be written at present; trying again later may help."""


class Lost(StoreError):
    """Values that waited in memory could not be written before the store was closed."""


class Database:
    """One open database. `notices` are sentences for the log about what happened to the file."""

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
        """Close the file and release its lock."""
        self._connection.close()
        os.close(self._lock)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of one query (Any: SQLite's values)."""
        return self._guarded(lambda connection: connection.execute(sql, parameters).fetchall())

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work in one transaction: on return it is on disk. Raises DiskTrouble; then none of it is."""
        return self._guarded(lambda connection: _in_transaction(connection, work))

    def shrink(self) -> bool:
        """Give a few free pages back to the disk; returns whether there are more. Raises DiskTrouble."""

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
        """The copies made before upgrades, for going back to an older version."""
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
            # In KiB. The kernel caches the file already; SQLite's default would cache 2 MB of it once more.
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
        """Write what can be rescued into a new file, then move the broken one aside. Raises DiskTrouble."""
        copy = self._anew()
        try:
            with contextlib.closing(_connect(copy)) as connection:
                connection.execute(_LET_SHRINK)
                migrate(connection)
                rescued = _in_transaction(connection, self._rescue(self.path))
        except sqlite3.DatabaseError as error:
            raise trouble_with(self.path, error) from error
        if broken is not None:
            broken.close()  # first, as in `_write_anew`: closing removes the log of that name
        aside = _move_aside(self.path)
        copy.replace(self.path)
        self.notices.append(
            f"the database {self.path} was broken ({reason}); it is now {aside}, and a new one was begun; {rescued}"
        )
        return self._open_sound()

    def _anew(self) -> Path:
        """The path at which a new file is written before it replaces the old one."""
        copy = self.path.with_name(f"{self.path.name}.anew")
        copy.unlink(missing_ok=True)
        return copy

    def _write_anew(self) -> None:
        """Write the file again after somebody removed or replaced it: its content is readable while it is open."""
        copy, what = self._anew(), f"somebody removed the database {self.path}"
        self._connection.execute("VACUUM INTO ?", (str(copy),))
        self._connection.close()  # before the new file is in place: closing removes the log of that name
        for ending in ("-wal", "-shm"):
            Path(f"{self.path}{ending}").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            aside = self.path.replace(self.path.with_name(f"{self.path.name}.replaced"))
            what = (
                f"somebody put {aside} in the place of the database {self.path}: stop penstockd before that"
            )
        copy.replace(self.path)
        self._connection = self._open_sound()
        if not _lock_path(self.path).exists():  # without it, another daemon could start beside this one
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
    """The interface of `Database` for a file that is only read."""

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
    """The id of the process that uses this database, `"unknown"` if it has not written one; None if none does."""
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
    """A connection that changes nothing, usable beside a running daemon. Raises StoreError.

    For a file of an older version it is a connection to a migrated copy.
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
            copy = sqlite3.connect("", isolation_level=None)  # a temporary file where it is large
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
    """Turn UnicodeDecodeError into SQLite's error for a broken file, whose messages may contain arbitrary bytes."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise _broken("the names in it are no text") from error


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date, each step in a transaction."""
    for number, sql in migrations().items():
        if number > version_of(connection):
            try:
                connection.executescript(f"BEGIN IMMEDIATE;\n{sql}\nPRAGMA user_version={number};\nCOMMIT;")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def migrations() -> dict[int, str]:
    """The SQL of each migration, in order, by the version that it brings a file to."""
    files = resources.files("penstock.daemon.memory").joinpath("schema").iterdir()
    return {
        int(file.name[:4]): file.read_text(encoding="utf-8")
        for file in sorted(files, key=lambda f: f.name)
        if file.name.endswith(".sql")
    }


def _locked(path: Path) -> int:
    """Take the lock beside the file; returns its descriptor. The kernel releases it however this process ends.

    Raises DiskTrouble and StoreInUse.
    """
    lock_path = _lock_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Follow no link: what it points to would be truncated, and root may run this in the daemon user's folder.
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
    with contextlib.suppress(OSError):  # the process id is a courtesy: a full disk must not prevent the start
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _inode_of(path: Path, *, unknown: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """Device and inode of the file; None where there is none, and `unknown` where this user may not look."""
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
    # One thread at a time uses the connection, but not always the one that opened it.
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=uri
    )
    connection.text_factory = _as_text
    return connection


def _as_text(data: bytes) -> str:
    """Decode leniently: a damaged row must not keep others from being read; its reader leaves it out."""
    return data.decode("utf-8", "replace")


def connect_read_only(path: Path, *, is_damaged: bool = False) -> sqlite3.Connection:
    """A read-only connection to a file of any version, as it is.

    Where the log's shared-memory index cannot be made, the file is read without its log. A file that `is_damaged` may
    be shorter than its header says.
    """
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        connection = _connect(f"file:{quote(str(path))}?{mode}", uri=True)
        try:
            if is_damaged:  # otherwise SQLite does not read a truncated file
                connection.execute("PRAGMA writable_schema=ON")
            version_of(connection)
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            # Closed here, because the traceback would keep it open.
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
            with contextlib.suppress(sqlite3.DatabaseError):  # the first error is the one to report
                connection.execute("ROLLBACK")
        raise
    return result


def _move_aside(path: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")  # only for the name: nothing depends on it
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    for ending in ("-wal", ""):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{ending}").replace(f"{aside}{ending}")
    Path(f"{path}-shm").unlink(missing_ok=True)  # only an index of the log, which SQLite makes again
    older = sorted(path.parent.glob(f"{path.name}.corrupt-*Z"))[:-BROKEN_FILE_COUNT_MAX]
    for file in older:
        file.unlink(missing_ok=True)
        Path(f"{file}-wal").unlink(missing_ok=True)
        Path(f"{file}-shm").unlink(missing_ok=True)
    return aside


def version_of(connection: sqlite3.Connection) -> int:
    """The number of the last migration that the file has had; 0 for none."""
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
    """Refuse a file that has tables but no version: our first migration sets one, so another program wrote it."""
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
    """Refuse a file that lacks tables or columns: SQLite accepts damaged names, but queries would fail."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        migrate(model)
        if missing := _shape(model) - _shape(connection):
            raise _broken(f"it has no {', '.join(sorted(missing))}")


def _shape(connection: sqlite3.Connection) -> set[str]:
    found = columns_by_table(connection).items()
    return {f"{table}.{column}" for table, columns in found for column in columns}


def columns_by_table(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The names of all columns, by table."""
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
    """The DiskTrouble for an error of SQLite, with what to do about it."""
    advice = _DISK.get(_code(error))
    return DiskTrouble(f"the database {path} cannot be used ({error}){f'; {advice}' if advice else ''}")
