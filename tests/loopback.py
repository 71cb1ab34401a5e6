"""Knows a server on the loopback whose answers a test writes itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answers(BaseHTTPRequestHandler):
    """What is answered, whatever the method; a test says it in `reply`."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """As the base class calls it."""
        self.reply()

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815 - likewise

    def reply(self) -> None:
        """To `self.command` for `self.path`."""
        raise NotImplementedError

    def answer(
        self, status: int, body: bytes = b"", *, size_bytes: int | None = None, **headers: str
    ) -> None:
        """A body, or what is sent of one of that size; headers that say nothing are left out."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if size_bytes is None else size_bytes))
        for name, value in headers.items():
            if value:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle(self) -> None:
        """Of a connection, until it ends."""
        with suppress(ConnectionError):  # a client that does not like an answer goes
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing."""


class Server(ThreadingHTTPServer):
    """A thread for each connection."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answers: type[Answers]) -> None:
        super().__init__(("127.0.0.1", 0), answers)
        self.closing = threading.Event()  # whoever holds an answer back gives it up

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """Its endpoint, where it answers meanwhile."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.url
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()
