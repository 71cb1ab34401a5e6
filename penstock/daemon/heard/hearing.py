"""Knows how applications' own SDKs are heard: through a UDP socket on loopback that is read at a bounded rate.

Any user of the host can send to it. So it is read in turns: after a number of datagrams, the kernel keeps what arrives
until the next turn, and drops and counts what it has no room for, which costs nothing here. What was read is counted
and shown to people; where requests are throttled, it is one of the two witnesses needed (`refusal_watch.py`).

The kernel stamps datagrams on arrival, so several can wait and be read together, since waking up costs more than
reading. They wait for as long as the kernel has room for all that would be read (`net.core.rmem_max` bounds it). They
are read into one buffer, which is wiped, because they contain keys and tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import struct
from collections.abc import Mapping

from penstock.clock import Clock
from penstock.daemon.config import ListenSection
from penstock.daemon.heard.senders import Senders
from penstock.daemon.troubles import Troubles
from penstock.listening.datagram import DATAGRAM_BYTES_MAX, heard
from penstock.listening.tally import Sender, Series, Tally, Totals

TURN_SECONDS = 0.05
DATAGRAM_COUNT_MAX_PER_TURN = 500
READ_COUNT_MAX_PER_SECOND = DATAGRAM_COUNT_MAX_PER_TURN / TURN_SECONDS  # 5,000 calls, each with an attempt
_PAUSE_SECONDS_MAX = 0.04
_TAKEN_BYTES = 2304  # of the kernel's buffer, by one datagram of botocore and the kernel's own structures
_AT_ONCE = 100  # datagrams: a millisecond, then the event loop does other work
_RECEIVE_BUFFER_BYTES = 1 << 20  # wanted; net.core.rmem_max bounds it
_AGAIN_SECONDS = 60.0
_SO_MEMINFO = 55  # linux/socket.h: nine counters of 32 bits, the last of which counts drops
_MEMINFO = struct.Struct("=9I")
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h: the time of arrival, on the kernel's wall clock
_STAMP = struct.Struct("@ll")  # seconds and nanoseconds
_STAMP_SPACE = socket.CMSG_SPACE(_STAMP.size)
# Messages in one call, at most.
_DELETED_MESSAGES_MAX = {("SQS", "DeleteMessage"): 1, ("SQS", "DeleteMessageBatch"): 10}
_RECEIVED_MESSAGES_MAX = {("SQS", "ReceiveMessage"): 10}
_NOTHING = bytes(DATAGRAM_BYTES_MAX + 1)

log = logging.getLogger(__name__)


class Hearing:
    """Listens to SDKs, and counts what was heard and what was lost."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tally = Tally()
        self._senders = Senders()
        self._memory = bytearray(_NOTHING)
        self._heard_seconds = float("-inf")  # when the last datagram arrived, on the monotonic clock
        self._socket: socket.socket | None = None
        self._pause_seconds = 0.0  # between two looks at the socket
        self._left = 0  # datagrams that may still be read in this turn
        self._turn_ends = 0.0  # on the loop's clock
        self._next_look: asyncio.TimerHandle | None = None
        self._dropped_before = 0  # by sockets that were closed since
        self.heard_count = 0
        self.unreadable_count = 0

    @property
    def is_listening(self) -> bool:
        return self._socket is not None

    @property
    def dropped_count(self) -> int:
        """The count of datagrams dropped by the kernel, because they arrived faster than they are read."""
        return self._dropped_before + _dropped_count(self._socket)

    @property
    def unplaced_count(self) -> int:
        """The count of datagrams read but not tallied, because there are too many applications and APIs."""
        return self._tally.unplaced_count

    def series(self) -> list[Series]:
        """What was heard in the last minutes."""
        return self._tally.series(self._clock.monotonic_seconds())

    def deleted_messages_per_second(self, region: str) -> float:
        """At most how many messages are deleted in a region: batches count as full, and received messages bound it."""
        of_region = [series for series in self.series() if series.key.region == region]

        def most(by_call: Mapping[tuple[str, str], int]) -> float:
            return sum(
                by_call.get((series.key.service, series.key.api), 0) * series.calls_per_second
                for series in of_region
            )

        # An application that deletes may be heard while the one that receives is not: then nothing bounds it.
        return min(most(_DELETED_MESSAGES_MAX), most(_RECEIVED_MESSAGES_MAX) or math.inf)

    def past(self, *, is_over: bool) -> list[Series]:
        """What was heard in the present hour; see `Tally.past`."""
        return self._tally.past(self._clock.monotonic_seconds(), is_over=is_over)

    def totals(self) -> Mapping[Sender, Totals]:
        """The totals of all attempts, by application and API."""
        return self._tally.totals()

    def hear(
        self, datagram: bytes | memoryview, at_seconds: float | None = None, user_id: int | None = None
    ) -> None:
        """Tally a datagram that arrived at `at_seconds` of the monotonic clock, or now."""
        said = heard(datagram)
        if said is None:
            self.unreadable_count += 1
            return
        self.heard_count += 1
        now_seconds = self._clock.monotonic_seconds() if at_seconds is None else at_seconds
        self._tally.hear(said, now_seconds, user_id)

    async def listen(self, section: ListenSection, troubles: Troubles) -> None:
        """Listen until cancelled. While another program has the port, that is a trouble, and is tried again."""
        if not section.is_enabled:
            return
        while (opened := _opened(section, troubles)) is None:  # noqa: ASYNC110 - no event tells when a port is free
            await asyncio.sleep(_AGAIN_SECONDS)
        log.info("hearing applications on %s port %d, UDP", section.address, section.port)
        self._socket = opened
        self._pause_seconds = _pause_seconds(opened)
        loop = asyncio.get_running_loop()
        loop.add_reader(opened, self._look, opened)
        try:
            await loop.create_future()  # for ever
        finally:
            if self._next_look is not None:
                self._next_look.cancel()
            loop.remove_reader(opened)
            self._dropped_before = self.dropped_count
            self._socket = None
            opened.close()

    def _look(self, opened: socket.socket) -> None:
        """Read some datagrams, and look again: at once if there are more, after a pause if there were any.

        Only if there were none does the event loop wake this up when one arrives, because waking up is expensive.
        """
        loop = asyncio.get_running_loop()
        if loop.time() >= self._turn_ends:
            self._turn_ends, self._left = loop.time() + TURN_SECONDS, DATAGRAM_COUNT_MAX_PER_TURN
        most = min(_AT_ONCE, self._left)
        count = self._read(opened, most)
        self._left -= count
        if not count and most:
            loop.add_reader(opened, self._look, opened)
            return
        loop.remove_reader(opened)
        again_seconds = loop.time() + (self._pause_seconds if count < most else 0.0)
        self._next_look = loop.call_at(again_seconds if self._left else self._turn_ends, self._look, opened)

    def _read(self, opened: socket.socket, count_max: int) -> int:
        """Read and tally up to `count_max` datagrams; returns how many there were."""
        now_seconds = self._clock.monotonic_seconds()
        stamps_began_seconds = now_seconds - self._clock.now().timestamp()
        count = 0
        with memoryview(self._memory) as memory:
            while count < count_max:
                try:
                    size, stamp, _, sender = opened.recvmsg_into([memory], _STAMP_SPACE)
                except (BlockingIOError, InterruptedError):
                    break
                count += 1
                came_seconds = stamps_began_seconds + _stamped_seconds(stamp) if stamp else now_seconds
                # If the wall clock was set meanwhile, the stamp is useless: times never go back, nor beyond now.
                if came_seconds > self._heard_seconds:
                    self._heard_seconds = min(came_seconds, now_seconds)
                user_id = self._senders.user_id(sender[1], now_seconds)
                self.hear(memory[:size], self._heard_seconds, user_id)
        self._memory[:] = _NOTHING
        return count


def _stamped_seconds(ancillary: list[tuple[int, int, bytes]]) -> float:
    """The time of arrival, as Unix time, from the only ancillary message that was asked for."""
    _, _, data = ancillary[0]
    seconds, nanoseconds = _STAMP.unpack(data)
    return float(seconds + nanoseconds * 1e-9)


def _opened(section: ListenSection, troubles: Troubles) -> socket.socket | None:
    try:
        opened = _bound(section)
    except OSError as trouble:
        troubles.note(
            "listen",
            f"cannot hear applications on {section.address} port {section.port}, UDP: {trouble.strerror}; end what "
            "listens there (the CloudWatch agent can), or set another listen.port and AWS_CSM_PORT",
        )
        return None
    troubles.note("listen", None)
    return opened


def _bound(section: ListenSection) -> socket.socket:
    """The bound socket. Raises OSError."""
    family = socket.AF_INET6 if ":" in section.address else socket.AF_INET
    with contextlib.ExitStack() as unless_bound:
        opened = unless_bound.enter_context(
            socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        )
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        opened.bind((section.address, section.port))
        unless_bound.pop_all()
    return opened


def _pause_seconds(opened: socket.socket) -> float:
    room_bytes = opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return min(_PAUSE_SECONDS_MAX, room_bytes / _TAKEN_BYTES / READ_COUNT_MAX_PER_SECOND)


def _dropped_count(opened: socket.socket | None) -> int:
    if opened is None:
        return 0
    *_, dropped = _MEMINFO.unpack(opened.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))
    return int(dropped)
