"""Knows how connections come in: all that wait are looked at, each is refused or has a place, and users take turns.

The kernel queues connections in the order in which they came, whoever made them, and an event loop takes one at a time.
Behind two thousand of a user who only comes and goes, everybody else would wait for that many turns of the loop. So
the queue is emptied at once, which costs a few microseconds each, and who is brought in first is decided here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from penstock.api.peer import Peer, peer_behind
from penstock.api.places import Places
from penstock.api.turns import Turns

_LOOKED_AT_COUNT_MAX = 512  # in one turn of the loop
_REST_SECONDS = 1.0  # when there are no files left

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Acceptor:
    """Brings connections of one listening socket in. `protocol_of` makes what serves a peer.

    Whoever has been brought in holds a place until `leave` is called for it.
    """

    listening: socket.socket
    places: Places
    turns: Turns
    _: KW_ONLY
    control_gid: int | None
    protocol_of: Callable[[Peer], asyncio.Protocol]

    def __post_init__(self) -> None:
        self._newcomers: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._rest: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """From now on, let connections in."""
        self.listening.setblocking(False)  # noqa: FBT003  # the method takes no other
        self._loop.add_reader(self.listening, self._look)

    def listen_on(self, listening: socket.socket) -> None:
        """Let connections in by another socket from now on; those that are in stay."""
        self.stop()
        self.listening = listening
        self.start()

    def stop(self) -> None:
        """Let nobody in any more: who comes now waits in the kernel for the next one that listens."""
        if self._rest is not None:
            self._rest.cancel()
        self._loop.remove_reader(self.listening)
        self.listening.close()

    @property
    def is_bringing_in(self) -> bool:
        """Whether somebody was accepted who waits to be brought in."""
        return bool(self._newcomers)

    def close(self) -> None:
        """Send away those who were accepted and wait still."""
        for task in self._newcomers:
            task.cancel()

    def leave(self, peer: Peer) -> None:
        """Its place is free."""
        self.places.give_back(peer.uid, is_in_control=peer.is_in_control(self.control_gid))

    def _look(self) -> None:
        for _ in range(_LOOKED_AT_COUNT_MAX):
            try:
                connection, _ = self.listening.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue  # it has left already
            except OSError as trouble:
                _log.warning("no connection can be accepted for a second: %s", trouble.strerror)
                self._loop.remove_reader(self.listening)
                self._rest = self._loop.call_later(_REST_SECONDS, self.start)
                return
            self._receive(connection)

    def _receive(self, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003  # as above
        peer = peer_behind(connection)
        refusal = self.places.take(peer.uid, is_in_control=peer.is_in_control(self.control_gid))
        if refusal is not None:
            _refuse(connection, refusal)
            return
        task = self._loop.create_task(self._bring_in(connection, peer))
        self._newcomers.add(task)
        task.add_done_callback(self._newcomers.discard)

    async def _bring_in(self, connection: socket.socket, peer: Peer) -> None:
        is_in = False
        try:
            await self.turns.mine(peer.uid, is_in_control=peer.is_in_control(self.control_gid))
            await self._loop.connect_accepted_socket(lambda: self.protocol_of(peer), connection)
            is_in = True
        except OSError:
            pass  # it has left already
        finally:
            if not is_in:
                connection.close()
                self.leave(peer)


def _refuse(connection: socket.socket, refusal: str) -> None:
    """Say so, as far as there is room to say it, and hang up."""
    detail = f"there is no connection for this one: {refusal}; close some and try again"
    body = b'{"title":"Too many connections","status":503,"detail":"%s"}\n' % detail.encode("ascii")
    head = (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    try:
        connection.send(head + body)
    except OSError:
        pass  # it has left already
    finally:
        connection.close()
