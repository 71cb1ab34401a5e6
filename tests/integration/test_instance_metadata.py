"""The instance metadata, from a real HTTP server on the loopback that speaks IMDSv2 or misbehaves."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from penstock.daemon import instance
from penstock.daemon.config import HostSection

DOCUMENT = {"region": "eu-central-1", "instanceType": "c6in.large", "accountId": "1"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def _token(request: web.Request) -> web.Response:
    assert int(request.headers["X-aws-ec2-metadata-token-ttl-seconds"]) > 0
    return web.Response(text="a-token")


async def _document(request: web.Request) -> web.Response:
    if request.headers.get("X-aws-ec2-metadata-token") != "a-token":
        return web.Response(status=401)
    return web.Response(text=json.dumps(DOCUMENT))


@asynccontextmanager
async def _metadata(token: Handler = _token, document: Handler = _document) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_put("/latest/api/token", token)
    application.router.add_get("/latest/dynamic/instance-identity/document", document)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_region_and_type_are_asked_for() -> None:
    """With a token, as IMDSv2 demands."""
    async with _metadata() as url:
        identity = await instance.identify(HostSection(imds_endpoint_url=url), {})
    assert (identity.region, identity.instance_type) == ("eu-central-1", "c6in.large")
    assert identity.sentence == "told by the instance metadata"


async def test_the_configuration_comes_first() -> None:
    """What the operator states is not asked for; what he leaves open is."""
    async with _metadata() as url:
        half = await instance.identify(HostSection(imds_endpoint_url=url, region="us-east-1"), {})
    whole = await instance.identify(
        HostSection(imds_endpoint_url=url, region="us-east-1", instance_type="x"), {}
    )
    assert (half.region, half.instance_type) == ("us-east-1", "c6in.large")
    assert (whole.region, whole.instance_type, whole.sentence) == ("us-east-1", "x", "configured")


async def _refuse(request: web.Request) -> web.Response:
    return web.Response(status=403)


async def _redirect(request: web.Request) -> web.Response:
    if "again" in request.query:
        return await _document(request)
    raise web.HTTPFound(f"{request.path}?again")


async def _nonsense(request: web.Request) -> web.Response:
    return web.Response(body=b"\xff\xfe not json")


async def _strange(request: web.Request) -> web.Response:
    return web.Response(text=json.dumps({"region": "x'; DROP TABLE fits; --", "instanceType": 3.5e300}))


async def _list(request: web.Request) -> web.Response:
    return web.Response(text="[1]")


async def _deep(request: web.Request) -> web.Response:
    return web.Response(text="[" * 9000)


async def _endless(request: web.Request) -> web.Response:
    return web.Response(body=b"x" * (instance.IMDS_BYTES_MAX * 3))


@pytest.mark.parametrize("handler", [_refuse, _redirect, _nonsense, _strange, _list, _deep, _endless])
async def test_trouble_means_unknown(handler: Handler) -> None:
    """Whatever answers, the daemon starts; the environment may still know the region."""
    async with _metadata(document=handler) as url:
        section = HostSection(imds_endpoint_url=url)
        assert (await instance.identify(section, {})).region == "unknown"
        identity = await instance.identify(section, {"AWS_REGION": "eu-west-3"})
    assert (identity.region, identity.instance_type) == ("eu-west-3", "unknown")


async def test_nobody_answers() -> None:
    """A closed port is told at once, with what to set."""
    identity = await instance.identify(HostSection(imds_endpoint_url="http://127.0.0.1:1"), {})
    assert "set host.region and host.instance_type" in identity.sentence


async def test_an_answer_that_never_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the hop limit swallows answers; the limit of time ends that."""
    monkeypatch.setattr(instance, "IMDS_SECONDS_MAX", 0.05)
    gone = asyncio.Event()

    async def never(request: web.Request) -> web.Response:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        raise AssertionError

    async with _metadata(token=never) as url:
        identity = await instance.identify(HostSection(imds_endpoint_url=url), {})
    assert identity.instance_type == "unknown"
    assert "no answer within a second" in identity.sentence


async def test_metadata_can_be_disabled() -> None:
    """The SDK's switch is honoured."""
    async with _metadata() as url:
        identity = await instance.identify(
            HostSection(imds_endpoint_url=url), {"AWS_EC2_METADATA_DISABLED": "true"}
        )
    assert identity.region == "unknown"
