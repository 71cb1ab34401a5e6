"""Knows whose socket a datagram came from, as far as the kernel tells it cheaply: by its port, in a table of sockets.

The table is read at most ten times a second, however many ports are sent from. Nobody can send from the port of a
socket of another user, but a port in use by two users, on two addresses, is nobody's here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

# Programs that know of IPv6 send to 127.0.0.1 from a socket of the second table.
_TABLES = (Path("/proc/net/udp"), Path("/proc/net/udp6"))
_TABLE_BYTES_MAX = 1 << 18  # some two thousand sockets, a few milliseconds
_FRESH_SECONDS = 1.0  # a port may change hands; the next who has it is found out within that
_AGAIN_SECONDS = 0.1  # for a port that is in no table
_LOCAL_ADDRESS, _USER_ID = 1, 7  # columns


class Senders:
    """Users by their ports."""

    def __init__(self, tables: Iterable[Path] = _TABLES) -> None:
        self._tables = tuple(tables)
        self._users: Mapping[int, int | None] = {}
        self._before: Mapping[int, int | None] = {}  # whoever ended since he sent is in no table any more
        self._read_seconds = float("-inf")

    def user_id(self, port: int, now_seconds: float) -> int | None:
        """Whose port it is; None where nobody can say."""
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
    """Port and user of each; none where there is no such table."""
    try:
        with table.open(encoding="ascii") as file:
            lines = file.read(_TABLE_BYTES_MAX).splitlines()[1:]
    except (OSError, ValueError):
        return
    for line in lines:
        columns = line.split()
        if len(columns) > _USER_ID:
            yield int(columns[_LOCAL_ADDRESS].rpartition(":")[2], 16), int(columns[_USER_ID])
