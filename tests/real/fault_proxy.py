"""Knows how to stand between the daemon and a real server, and to do one thing wrong for as long as a test wants.

What is not touched passes as it is, over a path of known physics, so that signatures stay valid. Faults are of
whichever requests a predicate names. What passed is counted here, outside of the daemon: the truth that its books are
held against.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from bench.relay import Relay, relayed_headers
from penstock.clock import SystemClock
from penstock.lab.link import LinkTruth
from penstock.lab.s3 import S3Service
from penstock.lab.server import serving
from tests.daemon_house import DaemonHouse
from tests.real.far_away import A_REGION_AWAY, CONFIGURATION

_SECONDS_OF_SILENCE = 3600.0


@dataclass
class Truth:
    """What came by, as the outside saw it."""

    counts: Counter[str] = field(default_factory=Counter)  # by request, those that the server carried out
    faults: int = 0
    carried_bytes: int = 0  # of parts, objects and ranges, either way, that came to the other end
    under_way: Counter[str] = field(default_factory=Counter)  # by request
    at_once_max: Counter[str] = field(default_factory=Counter)  # the most that were under way
    connections: set[object] = field(default_factory=set)  # all that were opened for a request
    # Requests, and what each says.
    asked_of_queues: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


class FaultProxy(Relay):
    """Does what it is told to; the fields are set from the test's own thread."""

    def __init__(self, target: str, path: S3Service, upstream: aiohttp.ClientSession) -> None:
        super().__init__(target, path, upstream)
        self.truth = Truth()
        # A request, and what goes wrong with the server's own answer.
        self.spoil: tuple[str, str] | None = None
        self.refuse: tuple[str, int, str] | None = None  # a request, the status and the code of the answer
        self.expects_token: str | None = None  # of whoever signs; None: anybody's

    async def answer(self, request: web.Request) -> web.StreamResponse:
        what, truth = named(request), self.truth
        truth.connections.add(request.transport)
        truth.under_way[what] += 1
        truth.at_once_max[what] = max(truth.at_once_max[what], truth.under_way[what])
        try:
            return await self._answer(request, what)
        finally:
            truth.under_way[what] -= 1

    def ask(self, request: web.Request, body: Any) -> Any:
        if "x-amz-target" in request.headers and isinstance(body, AsyncIterator):
            body = self._heard(named(request), body)
        return super().ask(request, body)

    async def _heard(self, what: str, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        pieces = []
        async for piece in body:
            pieces.append(piece)
            yield piece
        self.truth.asked_of_queues.append((what, json.loads(b"".join(pieces))))

    async def _answer(self, request: web.Request, what: str) -> web.StreamResponse:
        self.truth.counts["asked"] += 1
        if self.expects_token is not None:
            token = request.headers.get("x-amz-security-token")
            if token != self.expects_token:
                return self._fault(_refusal(request, 400, "ExpiredToken"))
        if self.refuse is not None and _is_meant(self.refuse[0], what):
            await _whole(request)
            return self._fault(_refusal(request, *self.refuse[1:]))
        if self.spoil is not None and _is_meant(self.spoil[0], what):
            return await self._spoilt(request, self.spoil[1])
        response = await super().answer(request)
        if response.status < 300:
            self.truth.counts[what] += 1
            self._count_bytes(what, request.content_length, response.content_length)
        return response

    def _count_bytes(self, what: str, there: int | None, back: int | None) -> None:
        if what in {"UploadPart", "PutObject"}:
            self.truth.carried_bytes += there or 0
        elif what == "GetObject":
            self.truth.carried_bytes += back or 0

    def _fault(self, response: web.StreamResponse) -> web.StreamResponse:
        self.truth.faults += 1
        return response

    async def _spoilt(self, request: web.Request, how: str) -> web.StreamResponse:
        self.truth.faults += 1
        assert request.transport is not None
        if how == "reset":
            request.transport.abort()
            return web.Response()
        if how == "silence":
            with contextlib.suppress(ConnectionError):
                await _whole(request)
            await asyncio.sleep(_SECONDS_OF_SILENCE)
        body = await _whole(request)
        async with self.ask(request, io.BytesIO(body) if body else None) as answered:
            content = await answered.read()
            headers = relayed_headers(answered.headers)
            if answered.status < 300:
                self._count_bytes(named(request), len(body), len(content))
        if how == "truncated":
            response = web.StreamResponse(status=answered.status, headers=headers)
            response.content_length = len(content)
            await response.prepare(request)
            await response.write(content[: len(content) // 2])
            request.transport.abort()
            return response
        if how == "wrong tag":
            headers["ETag"] = f'"{"0" * 32}"'
        elif how == "late":
            await asyncio.sleep(2.0)
        elif how in _OF_MESSAGES:
            content = json.dumps(_OF_MESSAGES[how](json.loads(content))).encode()
            headers.pop("x-amz-crc32", None)
        headers.pop("Content-Length", None)
        return web.Response(status=answered.status, headers=headers, body=content)


def _twice(answer: dict[str, Any]) -> dict[str, Any]:
    """Each message comes again, as at-least-once delivery has it."""
    messages = answer.get("Messages", [])
    return {**answer, "Messages": (messages + messages)[:10]} if messages else answer


def _reversed(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "Messages": answer.get("Messages", [])[::-1]}


_OF_MESSAGES = {"twice": _twice, "out of order": _reversed}


def named(request: web.Request) -> str:
    """The request as the services' manuals call it."""
    if (target := request.headers.get("x-amz-target")) is not None:
        return target.partition(".")[2]
    has_key = request.rel_url.raw_path.strip("/").count("/") > 0
    query = request.query
    table = {
        ("PUT", True): "UploadPart" if "partNumber" in query else "PutObject",
        ("POST", True): "CreateMultipartUpload" if "uploads" in query else "CompleteMultipartUpload",
        ("GET", True): "GetObject",
        ("HEAD", True): "HeadObject",
        ("DELETE", True): "AbortMultipartUpload" if "uploadId" in query else "DeleteObject",
        ("POST", False): "DeleteObjects",
        ("GET", False): "List",
    }
    return table.get((request.method, has_key), "other")


def _is_meant(meant: str, what: str) -> bool:
    return meant == "*" or what.startswith(meant)


async def _whole(request: web.Request) -> bytes:
    """However large; aiohttp's own way ends at a mebibyte."""
    return b"".join([piece async for piece in request.content.iter_any()])


def _refusal(request: web.Request, status: int, code: str) -> web.Response:
    if "x-amz-target" in request.headers:
        body = json.dumps({"__type": f"com.amazonaws.sqs#{code}", "message": "wrong on purpose"})
        return web.Response(status=status, text=body, content_type="application/x-amz-json-1.0")
    body = f"<Error><Code>{code}</Code><Message>wrong on purpose</Message></Error>"
    return web.Response(status=status, text=body, content_type="application/xml")


@contextlib.contextmanager
def between(truth: LinkTruth, target_url: str) -> Iterator[tuple[str, FaultProxy]]:
    """The URL under which that server is as far away as the truth says, and what can go wrong on the way."""
    loop = asyncio.new_event_loop()
    turning = threading.Thread(target=loop.run_forever, name="fault proxy")
    turning.start()
    opened = _opened(truth, target_url)
    try:
        yield asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        turning.join()
        loop.close()


@contextlib.contextmanager
def faulty_ways(
    directory: Path,
    s3_url: str,
    sqs_url: str,
    bucket: str,
    *,
    configuration: str = CONFIGURATION,
    wait_seconds_max: float,
) -> Iterator[tuple[DaemonHouse, dict[str, FaultProxy]]]:
    """A place for a daemon a region away from its servers, and what can go wrong on the way to each."""
    with between(A_REGION_AWAY, s3_url) as (s3, to_s3), between(A_REGION_AWAY, sqs_url) as (sqs, to_sqs):
        house = DaemonHouse(
            directory,
            configuration,
            urls={"s3": s3, "sqs": sqs},
            direct_urls={"s3": s3_url, "sqs": sqs_url},
            bucket=bucket,
            wait_seconds_max=wait_seconds_max,
        )
        yield house, {"s3": to_s3, "sqs": to_sqs}


@contextlib.asynccontextmanager
async def _opened(truth: LinkTruth, target_url: str) -> AsyncIterator[tuple[str, FaultProxy]]:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as upstream:
        proxy = FaultProxy(target_url, S3Service(truth, clock=SystemClock(), seed=0), upstream)
        async with serving(proxy.application()) as url:
            yield url, proxy
