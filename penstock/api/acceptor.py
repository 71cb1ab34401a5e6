"""Knows how connections are accepted: all waiting ones at once; each is refused or gets a place, and users take turns.

The kernel queues connections in the order of their arrival, and an event loop accepts one at a time. Behind two
thousand connections of a user who only connects and leaves, everybody else would wait for that many iterations of the
loop. So the queue is emptied at once, which costs a few microseconds for each connection, and the order in which they
are served is decided here.
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

_LOOKED_AT_COUNT_MAX = 512  # connections, in one iteration of the loop
_REST_SECONDS = 1.0  # when accepting fails, as without free file descriptors

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Acceptor:
    """Accepts the connections of one listening socket. `protocol_of` makes the protocol that serves a peer.

    An accepted connection holds a place until `leave` is called for its peer.
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
        """Accept connections from now on."""
        self.listening.setblocking(False)  # noqa: FBT003  # the method takes no other
        self._loop.add_reader(self.listening, self._look)

    def listen_on(self, listening: socket.socket) -> None:
        """Accept connections from another socket from now on; existing connections stay."""
        self.stop()
        self.listening = listening
        self.start()

    def stop(self) -> None:
        """Accept no more: new connections wait in the kernel until somebody listens again."""
        if self._rest is not None:
            self._rest.cancel()
        self._loop.remove_reader(self.listening)
        self.listening.close()

    @property
    def is_bringing_in(self) -> bool:
        """Whether an accepted connection still waits for its turn to be served."""
        return bool(self._newcomers)

    def close(self) -> None:
        """Close the connections that were accepted and still wait for their turn."""
        for task in self._newcomers:
            task.cancel()

    def leave(self, peer: Peer) -> None:
        """Free the peer's place."""
        self.places.give_back(peer.uid, is_in_control=peer.is_in_control(self.control_gid))

    def _look(self) -> None:
        for _ in range(_LOOKED_AT_COUNT_MAX):
            try:
                connection, _ = self.listening.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue  # the client has left already
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
    """Send the refusal, if the socket's buffer has room, and close the connection."""
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
