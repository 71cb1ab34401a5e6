"""Knows how to speak HTTP over the daemon's unix socket, and where that socket is."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    import http.client
    from collections.abc import Iterator, Mapping

SOCKET_PATH = "/run/penstock/penstock.sock"
SNAPSHOT_PATH = "/run/penstock/recommendations.json"


class NoDaemonError(Exception):
    """Nobody answers on the socket; the message says what to do."""


class Answer:
    """What the daemon said: the status, the type and the bytes of the body."""

    __slots__ = ("body", "content_type", "status")

    def __init__(self, status: int, content_type: str, body: bytes) -> None:
        self.status = status
        self.content_type = content_type
        self.body = body


def socket_path() -> str:
    """Where the daemon listens: PENSTOCK_SOCKET, or the usual place."""
    return os.environ.get("PENSTOCK_SOCKET") or SOCKET_PATH


def snapshot_path() -> str:
    """Where the daemon publishes its advice: PENSTOCK_SNAPSHOT, or the usual place."""
    return os.environ.get("PENSTOCK_SNAPSHOT") or SNAPSHOT_PATH


def ask(
    path: str,
    method: str,
    target: str,
    *,
    parameters: Mapping[str, str] | None = None,
    body: bytes | None = None,
    timeout_seconds: float = 5.0,
) -> Answer:
    """One question, one answer. Raises NoDaemonError."""
    connection = _connect(path, timeout_seconds)
    try:
        response = _request(connection, path, method, _with_parameters(target, parameters), body)
        return Answer(response.status, response.headers.get_content_type(), _read(response, path))
    finally:
        connection.close()


def stream(path: str, target: str, *, timeout_seconds: float = 5.0) -> Iterator[bytes]:
    """The lines of an answer that does not end, for as long as the daemon lives. Raises NoDaemonError."""
    connection = _connect(path, timeout_seconds)
    try:
        response = _request(connection, path, "GET", target, None)
        connection.sock.settimeout(None)  # between two changes lie hours
        yield from iter(response.readline, b"")
    except (OSError, ValueError) as trouble:
        raise NoDaemonError(f"the daemon on {path} went away: {trouble}") from trouble
    finally:
        connection.close()


def _connect(path: str, timeout_seconds: float) -> http.client.HTTPConnection:
    import http.client
    import socket

    connection = http.client.HTTPConnection("localhost", timeout=timeout_seconds)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.settimeout(timeout_seconds)
    try:
        connection.sock.connect(path)
    except OSError as trouble:
        connection.close()
        reason = trouble.strerror or str(trouble)
        raise NoDaemonError(
            f"no daemon answers on {path} ({reason}): start it with `systemctl start penstock` or "
            "`penstockd`, or name its socket with --socket or PENSTOCK_SOCKET"
        ) from trouble
    return connection


def _request(
    connection: http.client.HTTPConnection, path: str, method: str, target: str, body: bytes | None
) -> http.client.HTTPResponse:
    import http.client

    headers = {} if body is None else {"Content-Type": "application/json"}
    try:
        connection.request(method, target, body, headers)
        return connection.getresponse()
    except (OSError, http.client.HTTPException) as trouble:
        raise NoDaemonError(
            f"the daemon on {path} accepts connections but does not answer ({trouble}): see its log"
        ) from trouble


def _read(response: http.client.HTTPResponse, path: str) -> bytes:
    import http.client

    try:
        return response.read()
    except (OSError, http.client.HTTPException) as trouble:
        raise NoDaemonError(f"the daemon on {path} stopped within its answer: {trouble}") from trouble


def _with_parameters(target: str, parameters: Mapping[str, str] | None) -> str:
    if not parameters:
        return target
    from urllib.parse import urlencode

    return f"{target}?{urlencode(parameters)}"
