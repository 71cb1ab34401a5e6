"""Knows how the unix socket is served: its file, the limits of connections, and what is answered at the gate.

A request that was answered before in the same bytes is answered at the gate, before aiohttp (see `api.answers`). A
connection is refused when there are too many, overall or of one user (see `api.places`), and closed when it sends no
whole request for a while. Between two requests it costs a timer and a few kilobytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from penstock.api.acceptor import Acceptor
from penstock.api.answers import WHOLE_REQUEST, RememberedAnswers, is_whole_get
from penstock.api.places import Places
from penstock.api.turns import Turns

LAST_REQUEST: web.RequestKey[Callable[[], None]] = web.RequestKey("last_request")
"""To be called for an answer that goes on until one side closes: see `_Gate.await_leaving`."""

_PATH_LENGTH_MAX = 107  # of sockaddr_un, without its NUL
_NEVER_SECONDS = 7 * 86400.0
_BACKLOG = 2048  # a unix socket refuses at once what it cannot queue
_FILE_COUNT_BESIDE_CONNECTIONS = 256
_HEAR_OUT_STEP_COUNT_MAX, _HEAR_OUT_STEP_SECONDS = 100, 0.005  # clients send requests right after connecting


class SocketPathError(RuntimeError):
    """The socket cannot be made at this path; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits on connections and requests of clients."""

    connection_count_max: int = 2048
    connection_count_max_per_uid: int = 1280
    idle_seconds_max: float = 60.0  # without sending a whole request, or without taking the answer
    request_line_bytes_max: int = 8192
    header_field_bytes_max: int = 4096
    header_field_count_max: int = 32  # times their bytes: held, twice, for each head that does not end
    body_bytes_max: int = 256 * 1024


def open_socket(path: Path, *, mode: int = 0o666, gid: int | None = None) -> socket.socket:
    """A listening socket at this path, which has its mode from the first moment. Raises SocketPathError.

    It is bound under another name and then renamed, which also replaces a killed daemon's file. A socket on which
    somebody listens is never touched.
    """
    if len(os.fsencode(path)) + len(".new") > _PATH_LENGTH_MAX:
        raise SocketPathError(
            f"{path} is too long for a socket ({_PATH_LENGTH_MAX - 4} bytes at most): choose a shorter path"
        )
    _check_nobody_listens(path)
    temporary = path.with_name(path.name + ".new")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        for folder in [each for each in reversed(path.parents) if not each.exists()]:
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)  # whatever the umask: the socket's own mode says who may connect
        temporary.unlink(missing_ok=True)
        listening.bind(os.fspath(temporary))
        if gid is not None:
            os.chown(temporary, -1, gid)
        temporary.chmod(mode)
        listening.listen(_BACKLOG)
        temporary.replace(path)
    except OSError as trouble:
        listening.close()
        raise SocketPathError(
            f"cannot make the socket {path}: {trouble.strerror}; "
            f"create {path.parent} for the daemon's user, or choose another path"
        ) from trouble
    listening.settimeout(0)
    return listening


def remove_socket(path: Path) -> None:
    """Remove the file of a closed socket, unless another daemon listens there by now."""
    with contextlib.suppress(OSError):
        if not _somebody_listens(path):
            path.unlink()


@contextlib.asynccontextmanager
async def serving(
    application: web.Application,
    listening: socket.socket,
    limits: ConnectionLimits,
    answers: RememberedAnswers | None = None,
    turns: Turns | None = None,
    *,
    control_gid: int | None = None,
) -> AsyncIterator[Acceptor]:
    """Serve the application on a listening socket, from `open_socket` or inherited from systemd.

    Some connections are reserved for root, the daemon's own user and `control_gid`.
    """
    _allow_open_files(limits.connection_count_max + _FILE_COUNT_BESIDE_CONNECTIONS)
    gatekeeper = _Gatekeeper(limits, answers or RememberedAnswers())
    application.middlewares.insert(0, gatekeeper.middleware())
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=_quiet_log(),
        handler_cancellation=True,  # the handler of a watcher that leaves ends at once
        keepalive_timeout=_NEVER_SECONDS,  # the gate closes idle connections
        max_line_size=limits.request_line_bytes_max,
        max_field_size=limits.header_field_bytes_max,
        max_headers=limits.header_field_count_max,
        auto_decompress=False,  # compressed bodies are refused as they are: they are not JSON
        shutdown_timeout=1.0,
    )
    await runner.setup()
    make_handler = runner.server
    assert make_handler is not None
    make_handler.request_handler = _refuse_unreadable_expectations(make_handler.request_handler)
    acceptor = Acceptor(
        listening,
        Places(limits.connection_count_max, limits.connection_count_max_per_uid),
        turns or Turns(),
        control_gid=control_gid,
        protocol_of=lambda peer: gatekeeper.admit(make_handler(), lambda: acceptor.leave(peer)),
    )
    acceptor.start()
    try:
        yield acceptor
    finally:
        acceptor.stop()
        await _hear_out(acceptor, gatekeeper)
        acceptor.close()
        await runner.cleanup()


async def _hear_out(acceptor: Acceptor, gatekeeper: _Gatekeeper) -> None:
    """Wait until accepted connections are answered, as no other daemon will; but not long for those that are silent."""
    for _ in range(_HEAR_OUT_STEP_COUNT_MAX):
        if not (acceptor.is_bringing_in or gatekeeper.is_unheard()):
            return
        await asyncio.sleep(_HEAR_OUT_STEP_SECONDS)


def _refuse_unreadable_expectations(
    handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """Refuse `Expect` headers that are not UTF-8: aiohttp would repeat them in its refusal, and fail."""

    async def handle_readable(request: web.BaseRequest) -> web.StreamResponse:
        expected = request.headers.get("Expect", "")
        if any("\udc80" <= character <= "\udcff" for character in expected):  # bytes that are not UTF-8
            raise web.HTTPExpectationFailed
        return await handle(request)

    return handle_readable


class _Gatekeeper:
    """Makes a gate for each connection, and finds it for each request."""

    def __init__(self, limits: ConnectionLimits, answers: RememberedAnswers) -> None:
        self.limits = limits
        self.answers = answers
        self._gates: dict[asyncio.BaseProtocol, _Gate] = {}

    def admit(self, handler: asyncio.Protocol, on_leaving: Callable[[], None]) -> _Gate:
        """A gate before aiohttp's handler of a connection, known until the connection is lost."""

        def leave() -> None:
            del self._gates[handler]
            on_leaving()

        gate = self._gates[handler] = _Gate(self, handler, leave)
        return gate

    def is_unheard(self) -> bool:
        """Whether there is a connection whose first request has not come, or is not worked on yet."""
        return any(gate.is_unheard for gate in self._gates.values())

    def middleware(self) -> Middleware:
        @web.middleware
        async def pass_gate(request: web.Request, handler: Handler) -> web.StreamResponse:
            gate = self._gates.get(request.protocol)
            if gate is None:  # the connection was lost before its request was looked at
                return await handler(request)
            gate.stop_waiting()
            gate.is_unheard = False
            request[LAST_REQUEST] = gate.await_leaving
            if gate.whole_request is not None:
                request[WHOLE_REQUEST] = gate.whole_request
            try:
                return await handler(request)
            finally:
                gate.wait()

        return pass_gate


class _Gate(asyncio.Protocol):
    """Stands before aiohttp's handler of one connection: answers remembered requests, and passes everything else on."""

    def __init__(
        self, keeper: _Gatekeeper, handler: asyncio.Protocol, on_leaving: Callable[[], None]
    ) -> None:
        self.handler = handler
        self._keeper = keeper
        self._on_leaving = on_leaving
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting_since = 0.0  # on the loop's clock
        # Requests are answered here only if the client sends them one by one, whole, and waits for each answer: then
        # aiohttp has read all bytes that came, and written its whole answer.
        self._is_between_requests = True
        self._is_sending = False  # the client has not taken everything yet
        self.is_unheard = True
        self._is_last_request = False
        self.whole_request: bytes | None = None  # the one being answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's, but have the same methods.
        self._transport = cast("asyncio.Transport", transport)
        self.handler.connection_made(self._transport)
        self.wait()

    def wait(self) -> None:
        """Start the idle timer: a whole request must come, and the last answer be taken, before it ends."""
        if self._transport is None:
            return
        loop = asyncio.get_running_loop()
        self._waiting_since = loop.time()
        self._timer = loop.call_later(self._keeper.limits.idle_seconds_max, self._on_timer)
        self._is_between_requests = self._is_between_requests or self.whole_request is not None

    def _on_timer(self) -> None:
        """Close the connection if it is idle, or wait on if it was answered at the gate meanwhile."""
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        ends_at = self._waiting_since + self._keeper.limits.idle_seconds_max
        if loop.time() < ends_at:
            self._timer = loop.call_at(ends_at, self._on_timer)
        else:
            self._transport.abort()

    def stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def await_leaving(self) -> None:
        """Drop further bytes of the client: buffered, they would stop the reading, and hide that the client left."""
        self._is_last_request = True
        if self._transport is not None and not self._transport.is_reading():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._is_last_request:
            return
        self.whole_request = None
        if self._is_between_requests and not self._is_sending:
            answer = self._keeper.answers.get(data)
            if answer is not None:
                self._waiting_since = asyncio.get_running_loop().time()
                self._transport.write(answer)
                self.is_unheard = False
                return
            self.whole_request = data if is_whole_get(data) else None
        self._is_between_requests = False
        self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self.handler.eof_received()

    def pause_writing(self) -> None:
        self._is_sending = True
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self._is_sending = False
        self.handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_waiting()
        self._transport = None
        self._on_leaving()
        self.handler.connection_lost(exc)


def _quiet_log() -> logging.Logger:
    """A silenced log for aiohttp, which would log a traceback for any client's random bytes."""
    log = logging.getLogger(f"{__name__}.requests")
    log.setLevel(logging.CRITICAL)
    return log


def _check_nobody_listens(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as trouble:
        raise SocketPathError(f"cannot look at {path}: {trouble.strerror}; choose another path") from trouble
    if not stat.S_ISSOCK(mode):
        raise SocketPathError(f"{path} is there and is not a socket: remove it, or choose another path")
    if _somebody_listens(path):
        raise SocketPathError(
            f"socket path already in use: another daemon listens on {path}; stop it, or choose another path"
        )


def _somebody_listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(0)
        try:
            caller.connect(os.fspath(path))
        except OSError as trouble:
            return trouble.errno not in {errno.ECONNREFUSED, errno.ENOENT}
    return True


def _allow_open_files(count: int) -> None:
    """Raise the soft limit on open files to `count`, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
