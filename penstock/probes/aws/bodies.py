"""Knows how bodies are sent over aiohttp: without a copy, after "100 Continue", and within a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import io
from typing import Any

import aiohttp
from aiobotocore.httpsession import AIOHTTPSession
from aiohttp.abc import AbstractStreamWriter
from botocore import exceptions as botocore_errors

from penstock.probes.aws.access import BODY_RATE_BYTES_PER_SECOND_MIN
from penstock.probes.aws.answers import key_requests
from penstock.probes.outside import ANSWERED_BY, KEY_REQUESTS
from penstock.units import KiB

CONTINUE_SECONDS_MAX = 1.0  # as in botocore: then the body is sent anyway, as some servers never ask for it
BODY_CHUNK_BYTES = 64 * KiB


class PacedBodySession(AIOHTTPSession):  # type: ignore[misc]  # aiobotocore has no types
    """Sends large bodies in slices that all share the caller's bytes.

    aiohttp would copy the whole body first: the memory of one part for each connection. All that botocore decided
    stays, including `Expect: 100-continue`: applications with SDKs pay that round trip as well, and it allows a service
    to throttle before the body is sent, rather than to close the connection during it. aiohttp has no time limit on
    name resolution, so every request has a limit of its own.
    """

    async def _get_session(self, proxy_url: str | None) -> Any:  # Any: aiohttp's, as aiobotocore calls it
        session = await super()._get_session(proxy_url)
        session._request_class = _Request  # noqa: SLF001 - aiobotocore makes the session, and leaves no choice
        return _Unredirected(session)

    async def send(self, request: Any) -> Any:  # Any: botocore has no types
        if isinstance(request.body, io.BytesIO):
            request.body = _SharedBytes(request.body.getvalue())  # the caller's own bytes, not a copy
        elif isinstance(request.body, (bytes, bytearray)) and len(request.body) > BODY_CHUNK_BYTES:
            # Such as a batch of large messages; aiohttp would warn about their size.
            request.body = _SharedBytes(bytes(request.body))
        try:
            async with asyncio.timeout(self._seconds_max(request.body)):
                answer = await super().send(request)
        except TimeoutError as error:
            raise botocore_errors.ReadTimeoutError(endpoint_url=request.url, error=error) from error
        if (answered_by := ANSWERED_BY.get()) is not None:
            answered_by[_address_of(answer)] += 1
        if (heard := KEY_REQUESTS.get()) is not None:
            heard.note(key_requests(answer.headers))
        return answer

    def _seconds_max(self, body: object) -> float:
        size_bytes = body.size if isinstance(body, _SharedBytes) else 0
        waiting_seconds: float = self._timeout.sock_connect + self._timeout.sock_read
        return waiting_seconds + (size_bytes or 0) / BODY_RATE_BYTES_PER_SECOND_MIN


class _Request(aiohttp.ClientRequest):
    """A request whose body waits for "100 Continue" as long as botocore would; aiohttp waits without end."""

    async def write_bytes(self, *arguments: Any) -> None:  # Any: aiohttp's own
        """Send the body. A reset connection is not raised here: it is raised where the answer is awaited."""
        if (asked := self._continue) is not None:
            self.loop.call_later(CONTINUE_SECONDS_MAX, _settle, asked)
        with contextlib.suppress(aiohttp.ClientConnectionResetError):
            await super().write_bytes(*arguments)


def _settle(asked: asyncio.Future[bool]) -> None:
    if not asked.done():
        asked.set_result(True)


class _Unredirected:
    """aiohttp's session, but without redirects: it would send a request that was signed for another host."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    def request(self, method: str, **options: Any) -> Any:
        return self._session.request(method, allow_redirects=False, **options)


def _address_of(answer: Any) -> str:  # Any: botocore has no types
    """The peer's address; "unknown" if the answer had no body, and so its connection is in the pool again."""
    transport = getattr(getattr(answer.raw, "_protocol", None), "transport", None)
    peer = transport.get_extra_info("peername") if transport is not None else None
    return str(peer[0]) if peer else "unknown"


class _SharedBytes(aiohttp.Payload):
    """A body that is written in slices without a copy."""

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self._size = len(value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The body as text; required by aiohttp's interface, but not used here."""
        return str(self._value, encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write slice by slice; each waits until the transport has room."""
        view = memoryview(self._value)
        for start in range(0, len(view), BODY_CHUNK_BYTES):
            await writer.write(view[start : start + BODY_CHUNK_BYTES])
