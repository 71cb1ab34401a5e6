"""Knows how to speak HTTP over the daemon's unix socket, and where that socket is.

It implements by hand the part of HTTP/1.1 that the daemon uses: an answer has a Content-Length, or it is a stream that
ends with its connection. `http.client` takes longer to parse an answer than the daemon takes to give it.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping

SOCKET_PATH = "/run/penstock/penstock.sock"
SNAPSHOT_NAME = "recommendations.json"  # beside the socket
_IDLE_COUNT_MAX = 8  # connections kept; if more threads ask at a time, the others connect anew
_RECEIVE_BYTES = 64 * 1024
_HEAD_BYTES_MAX = 2 * _RECEIVE_BYTES
_LINE_BYTES_MAX = 16 << 20
_SEE_LOG = "see its log"
_FULL_PAUSE_SECONDS = 0.01  # before a daemon whose listen queue is full is tried again


class NoDaemonError(Exception):
    """No daemon answers on the socket; the message says what to do."""


class SilentError(NoDaemonError):
    """A daemon holds the socket but does not answer, or not this user: `sentence` says so, `remedy` what to do."""

    def __init__(self, sentence: str, remedy: str) -> None:
        super().__init__(sentence, remedy)  # pickle restores exceptions from their arguments
        self.sentence = sentence
        self.remedy = remedy

    def __str__(self) -> str:
        return ": ".join(self.args)


class RefusedError(NoDaemonError):
    """The daemon refuses the stream; the message is the daemon's own, `status` the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)  # pickle restores exceptions from their arguments
        self.status = status

    def __str__(self) -> str:
        return str(self.args[1])


class Answer:
    """The daemon's answer: status, content type and body."""

    __slots__ = ("body", "content_type", "status")

    def __init__(self, status: int, content_type: str, body: bytes) -> None:
        self.status = status
        self.content_type = content_type
        self.body = body


def socket_path() -> str:
    """Where the daemon listens: PENSTOCK_SOCKET, or the usual place."""
    return os.environ.get("PENSTOCK_SOCKET") or SOCKET_PATH


def snapshot_path(socket: str) -> str:
    """Where the daemon of this socket publishes its advice: PENSTOCK_SNAPSHOT, or beside the socket.

    Beside, because whoever names another daemon's socket must not read the usual daemon's snapshot.
    """
    beside = os.path.join(os.path.dirname(socket), SNAPSHOT_NAME)  # noqa: PTH118, PTH120 - pathlib costs an import
    return os.environ.get("PENSTOCK_SNAPSHOT") or beside


class Connections:
    """Asks one socket, and keeps its connections for later questions. Safe to share between threads.

    A question takes at most `timeout_seconds` from connecting to the last byte of the answer. A connection that the
    daemon closed meanwhile, as in a restart, is replaced silently. A forked child opens its own connections.
    """

    def __init__(self, path: str, *, timeout_seconds: float = 5.0) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds
        self._idle: list[socket.socket] = []  # append and pop are atomic
        self._process_id = os.getpid()

    def ask(self, method: str, target: str, *, body: bytes | None = None) -> Answer:
        """Send one request and return its answer. Raises NoDaemonError.

        Only a GET reuses a connection, and so may be sent twice: a request that changes something must not be.
        """
        request, end_seconds = _request(method, target, body), _end_seconds(self._timeout_seconds)
        kept = self._take() if method == "GET" else None
        try:
            if kept is not None:
                try:
                    return self._exchange(kept, request, end_seconds)
                except ConnectionError:
                    pass  # the daemon had closed it before the question arrived
            return self._exchange(_connect(self._path, end_seconds), request, end_seconds)
        except (OSError, ValueError) as trouble:
            raise _no_answer(self._path, trouble) from trouble

    def close(self) -> None:
        """Close the idle connections; the next question connects anew."""
        while (connection := self._take()) is not None:
            connection.close()

    def __del__(self) -> None:
        self.close()

    def _take(self) -> socket.socket | None:
        if self._process_id != os.getpid():  # in a forked child: the parent goes on using these connections
            inherited, self._idle, self._process_id = self._idle, [], os.getpid()
            for connection in inherited:
                connection.close()
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _exchange(self, connection: socket.socket, request: bytes, end_seconds: float) -> Answer:
        try:
            _bound(connection, end_seconds)
            connection.sendall(request)
            answer, is_open = _read_answer(connection, end_seconds)
        except BaseException:
            connection.close()
            raise
        if is_open and len(self._idle) < _IDLE_COUNT_MAX:
            self._idle.append(connection)
        else:
            connection.close()
        return answer


def ask(
    path: str,
    method: str,
    target: str,
    *,
    parameters: Mapping[str, str] | None = None,
    body: bytes | None = None,
    timeout_seconds: float = 5.0,
) -> Answer:
    """Send one request over a connection of its own. Raises NoDaemonError."""
    connections = Connections(path, timeout_seconds=timeout_seconds)
    try:
        return connections.ask(method, with_parameters(target, parameters), body=body)
    finally:
        connections.close()


class Stream:
    """An answer without an end, read line by line. `close` may be called from another thread."""

    def __init__(
        self, path: str, method: str, target: str, body: bytes | None, timeout_seconds: float
    ) -> None:
        """Send the request and wait for the head of the answer. Raises NoDaemonError, or RefusedError."""
        self._path = path
        end_seconds = _end_seconds(timeout_seconds)
        self._connection = _connect(path, end_seconds)
        try:
            self._connection.sendall(_request(method, target, body, version="1.0"))
            self._received = _begin(self._connection, end_seconds)
        except (OSError, ValueError) as trouble:
            self._connection.close()
            raise _no_answer(path, trouble) from trouble
        except BaseException:
            self._connection.close()
            raise

    def has_more(self, *, within_seconds: float) -> bool:
        """Whether there is something to read within this time; the end of the stream counts."""
        if b"\n" in self._received:
            return True
        try:
            import select  # may fail for want of a file descriptor

            poll = select.poll()
            poll.register(self._connection, select.POLLIN)
            return bool(poll.poll(max(0.0, 1000 * within_seconds)))
        except (OSError, ValueError, ImportError):  # closed meanwhile, or no descriptor: `line` shows which
            return True

    def line(self, *, timeout_seconds: float | None = None) -> bytes | None:
        """The next line, by default without a timeout; None when the daemon ended the stream. Raises NoDaemonError."""
        try:
            end_seconds = _end_seconds(timeout_seconds)
            while b"\n" not in self._received:
                received = _receive(self._connection, _RECEIVE_BYTES, end_seconds)
                if not received:
                    self._connection.close()
                    return None
                self._received = _within(_LINE_BYTES_MAX, self._received + received)
        except (OSError, ValueError) as trouble:
            self._connection.close()
            raise NoDaemonError(f"the daemon on {self._path} went away: {trouble}") from trouble
        line, _, self._received = self._received.partition(b"\n")
        return line

    def close(self) -> None:
        """End the stream, also while another thread waits for its next line."""
        import socket

        try:  # noqa: SIM105 - contextlib costs an application an import
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has already ended
        self._connection.close()

    def forget(self) -> None:
        """Close a forked child's copy; the parent's connection stays open."""
        self._connection.close()


def stream(path: str, target: str) -> Iterator[bytes]:
    """The lines of an endless answer, for as long as the daemon lives. Raises NoDaemonError."""
    answer = Stream(path, "GET", target, None, 5.0)
    try:
        while (line := answer.line()) is not None:
            yield line
    finally:
        answer.close()


def with_parameters(target: str, parameters: Mapping[str, str] | None) -> str:
    """The target with its query string."""
    if not parameters:
        return target
    from urllib.parse import urlencode

    return f"{target}?{urlencode(parameters)}"


def _connect(path: str, end_seconds: float) -> socket.socket:
    connection = None
    try:
        import socket  # may fail for want of file descriptors

        family = getattr(socket, "AF_UNIX", None)
        if family is None:
            raise NoDaemonError("no daemon can be asked here: this Python has no unix sockets")
        connection = socket.socket(family, socket.SOCK_STREAM)
        _enter(connection, path, end_seconds)
    except (OSError, ImportError, ValueError) as trouble:  # ValueError: the text cannot be a path
        if connection is not None:  # None when no descriptor was left
            connection.close()
        reason = getattr(trouble, "strerror", None) or str(trouble)
        if isinstance(trouble, PermissionError):
            raise SilentError(
                f"the socket {path} is closed to this user ({reason})",
                "ask as one who may, such as with sudo",
            ) from trouble
        if isinstance(trouble, TimeoutError):
            raise SilentError(
                f"no daemon answers on {path} ({reason}): the queue of its callers is full", _SEE_LOG
            ) from trouble
        raise NoDaemonError(
            f"no daemon answers on {path} ({reason}): start it with `systemctl start penstock` or "
            "`penstockd`, or name its socket with --socket or PENSTOCK_SOCKET"
        ) from trouble
    return connection


def _enter(connection: socket.socket, path: str, end_seconds: float) -> None:
    """Connect. A full listen queue fails at once, whatever the timeout, so it is tried again until the time is up."""
    while True:
        _bound(connection, end_seconds)
        try:
            return connection.connect(path)
        except BlockingIOError:
            time.sleep(_FULL_PAUSE_SECONDS)


def _request(method: str, target: str, body: bytes | None, *, version: str = "1.1") -> bytes:
    head = f"{method} {target} HTTP/{version}\r\nHost: localhost\r\n"
    if body is None:
        return f"{head}\r\n".encode("ascii")
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("ascii") + body


def _no_answer(path: str, trouble: Exception) -> SilentError:
    if isinstance(trouble, ConnectionError):  # a restart, not a hang
        gone = f"the daemon on {path} went away before it had answered ({trouble})"
        return SilentError(gone, f"ask again, since it may be starting anew; else {_SEE_LOG}")
    return SilentError(f"the daemon on {path} accepts connections but does not answer ({trouble})", _SEE_LOG)


def _begin(connection: socket.socket, end_seconds: float) -> bytes:
    """Read the head of a stream; return what follows it. Raises OSError, ValueError, RefusedError."""
    head, rest = _read_head(connection, end_seconds)
    if _status(head) != 200:
        body, _ = _read_body(connection, head, rest, end_seconds)
        raise RefusedError(_status(head), _sentence(body))
    return rest


def _read_answer(connection: socket.socket, end_seconds: float) -> tuple[Answer, bool]:
    """The next answer, and whether the connection can be used again. Raises OSError, ValueError."""
    head, rest = _read_head(connection, end_seconds)
    body, is_open = _read_body(connection, head, rest, end_seconds)
    content_type = _header(head, b"\r\ncontent-type:").partition(b";")[0].strip()
    return Answer(_status(head), content_type.decode("latin-1"), body), is_open


def _end_seconds(timeout_seconds: float | None) -> float:
    """When the whole answer must have arrived: an answer that trickles delays nobody longer than one that hangs."""
    return time.monotonic() + (float("inf") if timeout_seconds is None else timeout_seconds)


def _bound(connection: socket.socket, end_seconds: float) -> None:
    """Limit the next step to the time left for all of them. Raises TimeoutError."""
    left_seconds = end_seconds - time.monotonic()
    if left_seconds <= 0.0:
        raise TimeoutError("its answer takes too long")
    connection.settimeout(None if left_seconds == float("inf") else left_seconds)


def _receive(connection: socket.socket, size_bytes: int, end_seconds: float) -> bytes:
    _bound(connection, end_seconds)
    return connection.recv(size_bytes)


def _read_head(connection: socket.socket, end_seconds: float) -> tuple[bytes, bytes]:
    """The head in lower case, which is harmless for every value read from it, and the bytes after it."""
    data = b""
    while True:
        received = _receive(connection, _RECEIVE_BYTES, end_seconds)
        if not received:
            raise ConnectionResetError("it closed the connection" + (" within its answer" if data else ""))
        data = _within(_HEAD_BYTES_MAX, data + received)
        end = data.find(b"\r\n\r\n")
        if end >= 0:
            return data[: end + 2].lower(), data[end + 4 :]


def _read_body(connection: socket.socket, head: bytes, rest: bytes, end_seconds: float) -> tuple[bytes, bool]:
    """Content-Length bytes, or all bytes up to the end; and whether the connection stays open."""
    promised = _header(head, b"\r\ncontent-length:")
    length = int(promised) if promised else None
    parts, missing = [rest], (_LINE_BYTES_MAX if length is None else length) - len(rest)
    while missing > 0:
        received = _receive(connection, min(missing, _RECEIVE_BYTES), end_seconds)
        if not received:
            if length is None:
                break
            raise ConnectionResetError("it stopped within its answer")
        parts.append(received)
        missing -= len(received)
    is_open = length is not None and head.startswith(b"http/1.1") and not _header(head, b"\r\nconnection:")
    return b"".join(parts), is_open


def _within(size_bytes_max: int, data: bytes) -> bytes:
    if len(data) > size_bytes_max:
        raise ValueError("its answer does not end")
    return data


def _status(head: bytes) -> int:
    if not head.startswith(b"http/1."):
        raise ValueError("it does not speak HTTP")
    return int(head[9:12])


def _header(head: bytes, name: bytes) -> bytes:
    start = head.find(name)
    if start < 0:
        return b""
    start += len(name)
    return head[start : head.find(b"\r\n", start)].strip()


def _sentence(body: bytes) -> str:
    import json

    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return body[:200].decode("utf-8", "replace")
