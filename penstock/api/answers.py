"""Knows requests that were answered since the advice last changed, byte for byte, and their responses.

Applications send the same bytes again and again. Then there is nothing to parse, look up or encode: the connection's
gate finds the whole request here and sends the whole response.
"""

from __future__ import annotations

from aiohttp import HttpVersion11, web

WHOLE_REQUEST = web.RequestKey("whole_request", bytes)
_ANSWER_COUNT_MAX = 1024
_REQUEST_BYTES_MAX = 2048
_UNFIT = (b"content-length:", b"transfer-encoding:", b"upgrade:", b"expect:")


class RememberedAnswers:
    """A bounded cache from whole requests to whole responses, valid until the advice changes."""

    def __init__(self) -> None:
        self._responses: dict[bytes, bytes] = {}

    def get(self, request: bytes) -> bytes | None:
        """The remembered response to these bytes; None if there is none."""
        return self._responses.get(request)

    def keep(self, request: web.Request, response: web.Response) -> None:
        """Remember this response for the same bytes; only for responses that depend on nothing but the advice."""
        whole = request.get(WHOLE_REQUEST)
        if (
            whole is None
            or response.status != 200
            or request.version != HttpVersion11
            or not request.keep_alive
        ):
            return
        while len(self._responses) >= _ANSWER_COUNT_MAX:
            del self._responses[next(iter(self._responses))]
        assert isinstance(response.body, bytes)
        headers = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
        head = f"HTTP/1.1 200 OK\r\n{headers}Content-Length: {len(response.body)}\r\n\r\n"
        self._responses[whole] = head.encode("latin-1") + response.body

    def forget(self) -> None:
        """Forget all responses: the advice has changed."""
        self._responses.clear()


def is_whole_get(data: bytes) -> bool:
    """Whether these bytes are exactly one GET request without a body."""
    return (
        data.startswith(b"GET /v1/")
        and len(data) <= _REQUEST_BYTES_MAX
        and data.find(b"\r\n\r\n") == len(data) - 4
        and not any(name in data.lower() for name in _UNFIT)
    )
