"""The relay before a real socket: what passes is unchanged, what is refused never arrives, and clients may leave."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from bench.relay import Relay
from penstock.clock import SystemClock
from penstock.lab.link import LinkTruth
from penstock.lab.s3 import S3Service
from penstock.lab.server import serving
from penstock.units import KiB, MiB
from tests.waiting import comes

SHORT = LinkTruth(
    round_trip_seconds=0.0,
    connection_rate_bytes_per_second=200e6,
    host_rate_bytes_per_second=400e6,
    service_latency_seconds_median=0.0,
)
REFUSING = replace(SHORT, prefix_request_rate_per_second=1e-6)


class Server:
    """Keeps what arrives and answers the same to everything."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.has_begun = asyncio.Event()
        self.has_ended = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        self.has_begun.set()
        try:
            body = await request.read()
        finally:
            self.has_ended.set()
        self.requests.append((request.method, request.raw_path, dict(request.headers), body))
        return web.Response(status=201, body=b"answer", headers={"ETag": '"tag"', "x-amz-one": "1"})


@contextlib.asynccontextmanager
async def relayed(truth: LinkTruth) -> AsyncIterator[tuple[Server, str, S3Service]]:
    server, path = Server(), S3Service(truth, clock=SystemClock(), seed=1)
    application = web.Application(client_max_size=64 * MiB)
    application.router.add_route("*", "/{path:.*}", server.answer)
    async with (
        serving(application) as target,
        aiohttp.ClientSession(auto_decompress=False) as upstream,
        serving(Relay(target, path, upstream).application()) as url,
    ):
        yield server, url, path


async def test_a_request_and_its_answer_pass_unchanged() -> None:
    """Method, raw path, query, signed headers and body: a signature over them stays valid."""
    body = bytes(range(256)) * (4 * KiB)
    async with relayed(SHORT) as (server, url, path), aiohttp.ClientSession() as client:
        signed = {
            "Authorization": "AWS4-HMAC-SHA256 x",
            "x-amz-date": "20260101T000000Z",
            "Host": "bucket.test",
        }
        target = URL(f"{url}/bucket/a%2Fkey%20?partNumber=1&uploadId=a%2Bb", encoded=True)
        async with client.put(target, data=body, headers=signed, expect100=True) as answer:
            assert (answer.status, await answer.read()) == (201, b"answer")
            assert (answer.headers["ETag"], answer.headers["x-amz-one"]) == ('"tag"', "1")

    method, raw_path, headers, arrived = server.requests[0]
    assert (method, raw_path) == ("PUT", "/bucket/a%2Fkey%20?partNumber=1&uploadId=a%2Bb")
    assert {name: headers[name] for name in signed} == signed
    assert headers["Content-Length"] == str(len(body))
    assert arrived == body
    assert path.uplink.carried_bytes == pytest.approx(len(body))


async def test_what_is_above_the_request_rate_never_arrives() -> None:
    """The first is let in; the second is answered with SlowDown by the path."""
    async with relayed(REFUSING) as (server, url, _), aiohttp.ClientSession() as client:
        async with client.put(f"{url}/bucket/key", data=b"x") as answer:
            assert answer.status == 201
        async with client.put(f"{url}/bucket/key", data=b"x") as answer:
            assert answer.status == 503
            assert "<Code>SlowDown</Code>" in await answer.text()

    assert len(server.requests) == 1


async def test_a_client_that_leaves_takes_its_stream_along() -> None:
    """A body that is broken off holds no share of the link, and is broken off at the server as well."""
    slow = replace(SHORT, connection_rate_bytes_per_second=1e6, host_rate_bytes_per_second=1e6)
    async with relayed(slow) as (server, url, path), aiohttp.ClientSession() as client:
        sending = asyncio.ensure_future(client.put(f"{url}/bucket/key", data=bytes(MiB)))
        await server.has_begun.wait()
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
        await server.has_ended.wait()
        await comes(lambda: not path.uplink.stream_count)

    assert server.requests == []


async def test_an_answer_comes_back_over_a_link_of_its_own() -> None:
    """What is read takes the way in and leaves the way out alone; a listing or an object, its length is as sent."""
    async with relayed(SHORT) as (_, url, path), aiohttp.ClientSession() as client:
        async with client.get(f"{url}/bucket/key") as answer:
            assert (answer.status, await answer.read()) == (201, b"answer")
            assert answer.headers["Content-Length"] == str(len(b"answer"))
        assert path.downlink.carried_bytes == pytest.approx(len(b"answer"), abs=0.5)
        assert path.uplink.carried_bytes == 0.0
        assert path.read_count == 1
