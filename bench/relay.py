"""Knows how to put a server that others wrote behind a path of known physics: a relay for HTTP, body by body.

    python -m bench.relay --target http://127.0.0.1:7070 --truth truth.json [--seed 0]

prints one JSON line, `{"endpoint_url": "http://127.0.0.1:PORT"}`, when it is ready, and ends on SIGTERM and SIGINT.
Requests pass unchanged, so that signatures stay valid; a request over the path's rate gets 503 SlowDown and never
reaches the server. Bodies pass through the path's links, one for each direction and one chunk ahead, and TCP carries
the delay to the other end; answers begin after the round trip and the service's latency.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from penstock.clock import SystemClock
from penstock.lab.http_s3 import carried, one_way
from penstock.lab.link import LinkTruth
from penstock.lab.s3 import S3Error, S3Service
from penstock.lab.server import serve_until_stopped

# Hop-by-hop headers (RFC 9110, 7.6.1), and those that are handled here.
_NOT_RELAYED = frozenset({"connection", "expect", "keep-alive", "te", "transfer-encoding", "upgrade"})
_READS = frozenset({"GET", "HEAD"})
_SLOW_DOWN = "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Relay:
    """One path to one server."""

    def __init__(self, target: str, path: S3Service, upstream: aiohttp.ClientSession) -> None:
        self._target = target
        self._path = path
        self._upstream = upstream

    def application(self) -> web.Application:
        """Handles every request in the same way."""
        return one_way(self.answer, self._path)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Relay one request and its answer, in the path's time."""
        bucket = request.rel_url.raw_path.lstrip("/").partition("/")[0]
        try:
            await self._path.admit(bucket, is_read=request.method in _READS)
        except S3Error:
            return web.Response(status=503, text=_SLOW_DOWN, content_type="application/xml")
        return await self._relayed(request)

    def ask(self, request: web.Request, body: Any) -> Any:  # aiohttp has no public names for either
        """The server's answer to the request, with this body."""
        return self._upstream.request(
            request.method,
            URL(self._target + request.rel_url.raw_path_qs, encoded=True),
            headers=relayed_headers(request.headers),
            data=body,
            allow_redirects=False,
        )

    async def _relayed(self, request: web.Request) -> web.StreamResponse:
        body = carried(self._path.uplink, request.content) if request.can_read_body else None
        async with self.ask(request, body) as answered:
            await self._path.answer_delay(is_read=request.method in _READS)
            response = web.StreamResponse(status=answered.status, headers=relayed_headers(answered.headers))
            await response.prepare(request)
            async with contextlib.aclosing(carried(self._path.downlink, answered.content)) as body:
                async for piece in body:
                    await response.write(piece)
            await response.write_eof()
            return response


def relayed_headers(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """The end-to-end headers."""
    return CIMultiDict((n, v) for n, v in headers.items() if n.lower() not in _NOT_RELAYED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Relay until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m bench.relay", description="A path of known physics.")
    parser.add_argument("--target", required=True, help="the server's URL, without a path")
    parser.add_argument("--truth", type=Path, required=True, help="JSON: the fields of LinkTruth")
    parser.add_argument("--port", type=int, default=0, help="0 is any that is free")
    parser.add_argument("--seed", type=int, default=0)
    parsed = parser.parse_args(arguments)
    truth = msgspec.json.decode(parsed.truth.read_bytes(), type=LinkTruth)
    asyncio.run(_serve(parsed.target, truth, port=parsed.port, seed=parsed.seed))
    return 0


async def _serve(target: str, truth: LinkTruth, *, port: int, seed: int) -> None:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0)  # no limit, so no queue of our own
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as upstream:
        relay = Relay(target, S3Service(truth, clock=SystemClock(), seed=seed), upstream)
        await serve_until_stopped(relay.application(), port)


if __name__ == "__main__":
    raise SystemExit(main())
