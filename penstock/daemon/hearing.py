"""Knows how applications' own SDKs are heard: a socket on loopback that is read at a bounded rate.

Any user of the host can send to it. So it is read in turns: after so many datagrams the kernel keeps what comes until
the next turn, and drops and counts what it has no room for, which costs nothing here. What was read moves no advice: it
is counted, and shown to people.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

from penstock.clock import Clock
from penstock.daemon.config import ListenSection
from penstock.daemon.troubles import Troubles
from penstock.listening.datagram import DATAGRAM_BYTES_MAX, heard
from penstock.listening.tally import Series, Tally

TURN_SECONDS = 0.05
DATAGRAM_COUNT_MAX_PER_TURN = 500  # 10,000 a second: 5,000 calls, each with an attempt
_AT_ONCE = 50  # then others have the event loop
_RECEIVE_BUFFER_BYTES = 1 << 20  # the kernel gives what net.core.rmem_max allows
_AGAIN_SECONDS = 60.0
_SO_MEMINFO = 55  # linux/socket.h: nine counters of 32 bits, of which the last is what was dropped
_MEMINFO = struct.Struct("=9I")

log = logging.getLogger(__name__)


class Hearing:
    """What was heard, and how much of it was not."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tally = Tally()
        self._socket: socket.socket | None = None
        self._left = 0  # to read in this turn
        self._turn_ends = 0.0  # on the loop's clock
        self._next_turn: asyncio.TimerHandle | None = None
        self._dropped_before = 0  # by sockets that are closed
        self.heard_count = 0
        self.unreadable_count = 0

    @property
    def is_listening(self) -> bool:
        """Whether anybody can be heard."""
        return self._socket is not None

    @property
    def dropped_count(self) -> int:
        """What the kernel had no room for, because it came faster than it is read."""
        return self._dropped_before + _dropped_count(self._socket)

    @property
    def unplaced_count(self) -> int:
        """What was read and not counted, because there are more applications and APIs than there is room for."""
        return self._tally.unplaced_count

    def series(self) -> list[Series]:
        """What was heard in the last minutes."""
        return self._tally.series(self._clock.monotonic_seconds())

    def hear(self, datagram: bytes) -> None:
        """Count what it says."""
        said = heard(datagram)
        if said is None:
            self.unreadable_count += 1
        else:
            self.heard_count += 1
            self._tally.hear(said, self._clock.monotonic_seconds())

    async def listen(self, section: ListenSection, troubles: Troubles) -> None:
        """Until it is cancelled. Another listener on the port is a trouble, and is looked for again."""
        if not section.is_enabled:
            return
        while (opened := _opened(section, troubles)) is None:  # noqa: ASYNC110 - nobody tells when a port is free
            await asyncio.sleep(_AGAIN_SECONDS)
        log.info("hearing applications on %s port %d, UDP", section.address, section.port)
        self._socket = opened
        loop = asyncio.get_running_loop()
        loop.add_reader(opened, self._read, opened)
        try:
            await loop.create_future()  # for ever
        finally:
            if self._next_turn is not None:
                self._next_turn.cancel()
            loop.remove_reader(opened)
            self._dropped_before = self.dropped_count
            self._socket = None
            opened.close()

    def _read(self, opened: socket.socket) -> None:
        """Some of what came; after the last of this turn, nothing until the next."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._turn_ends:
            self._turn_ends, self._left = loop.time() + TURN_SECONDS, DATAGRAM_COUNT_MAX_PER_TURN
        for _ in range(_AT_ONCE):
            try:
                datagram = opened.recv(DATAGRAM_BYTES_MAX + 1)
            except (BlockingIOError, InterruptedError):
                return
            self._left -= 1
            self.hear(datagram)
        if self._left <= 0:
            loop.remove_reader(opened)
            self._next_turn = loop.call_at(self._turn_ends, loop.add_reader, opened, self._read, opened)


def _opened(section: ListenSection, troubles: Troubles) -> socket.socket | None:
    family = socket.AF_INET6 if ":" in section.address else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    opened.setblocking(False)  # noqa: FBT003 - the method takes no other
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    try:
        opened.bind((section.address, section.port))
    except OSError as trouble:
        opened.close()
        troubles.note(
            "listen",
            f"cannot hear applications on {section.address} port {section.port}, UDP: {trouble.strerror}; end what "
            "listens there (the CloudWatch agent can), or set another listen.port and AWS_CSM_PORT",
        )
        return None
    troubles.note("listen", None)
    return opened


def _dropped_count(opened: socket.socket | None) -> int:
    if opened is None:
        return 0
    *_, dropped = _MEMINFO.unpack(opened.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))
    return int(dropped)
