"""Knows which user's socket a datagram came from, by looking up its port in the kernel's table of sockets.

The table is read at most ten times a second, however many ports datagrams come from. Nobody can send from the port of
another user's socket; a port that two users have, on two addresses, counts as nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

# Programs that support IPv6 may send to 127.0.0.1 from a socket in the second table.
_TABLES = (Path("/proc/net/udp"), Path("/proc/net/udp6"))
_TABLE_BYTES_MAX = 1 << 18  # about two thousand sockets, read in a few milliseconds
_FRESH_SECONDS = 1.0  # a port may get another owner, who is noticed within this time
_AGAIN_SECONDS = 0.1  # for a port that is not in the tables
_LOCAL_ADDRESS, _USER_ID = 1, 7  # columns


class Senders:
    """Looks up users by their ports."""

    def __init__(self, tables: Iterable[Path] = _TABLES) -> None:
        self._tables = tuple(tables)
        self._users: Mapping[int, int | None] = {}
        self._before: Mapping[int, int | None] = {}  # for senders that have ended since
        self._read_seconds = float("-inf")

    def user_id(self, port: int, now_seconds: float) -> int | None:
        """The id of the user who has the port; None where it is unknown. `now_seconds` is of a monotonic clock."""
        age_seconds = now_seconds - self._read_seconds
        if age_seconds > _FRESH_SECONDS or (age_seconds > _AGAIN_SECONDS and port not in self._users):
            self._before, self._users, self._read_seconds = self._users, self._read(), now_seconds
        return self._users[port] if port in self._users else self._before.get(port)

    def _read(self) -> dict[int, int | None]:
        found: dict[int, int | None] = {}
        for table in self._tables:
            for port, user_id in _sockets(table):
                found[port] = user_id if found.get(port, user_id) == user_id else None
        return found


def _sockets(table: Path) -> Iterator[tuple[int, int]]:
    """Port and user id of each socket; nothing where there is no such table."""
    try:
        with table.open(encoding="ascii") as file:
            lines = file.read(_TABLE_BYTES_MAX).splitlines()[1:]
    except (OSError, ValueError):
        return
    for line in lines:
        columns = line.split()
        if len(columns) > _USER_ID:
            yield int(columns[_LOCAL_ADDRESS].rpartition(":")[2], 16), int(columns[_USER_ID])
