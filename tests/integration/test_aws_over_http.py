"""The clients of S3 and SQS over real HTTP: the lab's services, and a server that answers as it is told."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import logging
import re
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import pytest
from aiohttp import web
from aiohttp.http_writer import StreamWriter
from aiohttp.typedefs import Handler

from penstock.clock import SystemClock
from penstock.lab.http_s3 import s3_application
from penstock.lab.http_sqs import sqs_application
from penstock.lab.s3 import S3Service
from penstock.lab.server import serving
from penstock.lab.sqs import ActionTruth, QueueTruth, SqsService
from penstock.models.sqs.queue_class import QUEUE_CLASSES
from penstock.probes.aws import bodies, client
from penstock.probes.aws.access import Access, Credentials
from penstock.probes.aws.objects import AwsObjectStore, open_object_store
from penstock.probes.aws.queues import AwsMessageQueues, open_message_queues
from penstock.probes.outside import (
    LISTED_COUNT_IN_PAGE,
    LISTED_COUNT_MAX,
    Barred,
    Changed,
    Denied,
    Failed,
    Forbidden,
    Missing,
    NoBucket,
    NotOffered,
    Refused,
    RequestError,
    Throttled,
    Unidentified,
    Unreachable,
    Unsent,
    VersionRequests,
)
from penstock.probes.removal import Removal
from penstock.units import KiB, MiB
from tests.factories import a_link
from tests.seams import (
    MODEST,
    deliveries_are_measured,
    downloads_are_measured,
    messages_come_and_go,
    objects_come_and_go,
    uploads_are_measured,
    workspace_in,
)
from tests.unit.probes.fakes import a_download_plan, an_upload_plan

REGION = "eu-west-1"
SECRET = "do-not-print-this-anywhere"  # noqa: S105  # it opens nothing
CREDENTIALS = Credentials(access_key="AKIDLAB", secret_key=SECRET)
LINK = a_link(connection_rate_bytes_per_second=200e6, host_rate_bytes_per_second=400e6)
ACTION = ActionTruth(request_seconds=0.002)
QUEUE = QueueTruth(send=ACTION, receive=ACTION, delete=ACTION)


@contextlib.asynccontextmanager
async def object_store() -> AsyncIterator[tuple[AwsObjectStore, S3Service]]:
    """A client of the lab's S3 with one bucket, and that S3 itself."""
    service = S3Service(LINK, clock=SystemClock(), seed=1)
    service.shelf.create_bucket("bucket")
    async with serving(s3_application(service)) as url, store_at(url) as store:
        yield store, service


@contextlib.asynccontextmanager
async def message_queues() -> AsyncIterator[AwsMessageQueues]:
    """A client of the lab's SQS."""
    service = SqsService(QUEUE, clock=SystemClock(), seed=1)
    async with serving(sqs_application(service)) as url, queues_at(url) as queues:
        yield queues


def answering(answer: Handler) -> AbstractAsyncContextManager[str]:
    """A server of which everything is answered so; its URL."""
    application = web.Application(client_max_size=64 * MiB)
    application.router.add_route("*", "/{path:.*}", answer)
    return serving(application)


class Oracle:
    """A server that gives one answer to everything and remembers what it was asked."""

    def __init__(self, status: int, body: str, headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.body = body
        self.headers = headers or {}
        self.requests: list[web.Request] = []
        self.received_bytes = 0

    async def answer(self, request: web.Request) -> web.Response:
        """Give the answer."""
        self.requests.append(request)
        self.received_bytes += len(await request.read())
        content = self.body.encode(errors="surrogateescape")
        return web.Response(status=self.status, body=content, headers=self.headers)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """The URL of it."""
        async with answering(self.answer) as url:
            yield url


def xml(code: str) -> str:
    """An error as S3 words it."""
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>why</Message></Error>"


def store_at(url: str, *, read_timeout_seconds: float = 60.0) -> AbstractAsyncContextManager[AwsObjectStore]:
    """A client of its own."""
    access = Access(region=REGION, endpoint_url=url, credentials=CREDENTIALS)
    return open_object_store(replace(access, read_timeout_seconds=read_timeout_seconds))


def queues_at(url: str) -> AbstractAsyncContextManager[AwsMessageQueues]:
    """A client of its own."""
    return open_message_queues(Access(region=REGION, endpoint_url=url, credentials=CREDENTIALS))


async def put_at(url: str, body: bytes = b"x", *, read_timeout_seconds: float = 60.0) -> None:
    """Put one object with a client of its own."""
    async with store_at(url, read_timeout_seconds=read_timeout_seconds) as store:
        await store.put_object("bucket", "key", body)


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (503, "SlowDown", Throttled, "fewer requests"),
        (503, "Whatever", Throttled, "fewer requests"),
        (400, "KMS.ThrottlingException", Throttled, "fewer requests"),
        (400, "KMS.AccessDeniedException", Barred, "kms:Decrypt"),
        (429, "TooManyRequests", Throttled, "fewer requests"),
        (403, "AccessDenied", Denied, "IAM policy"),
        (403, "AccountProblem", Denied, "AccountProblem, why"),
        (403, "InvalidAccessKeyId", Unidentified, "access key is unknown"),
        (403, "SignatureDoesNotMatch", Unidentified, "secret key"),
        (403, "RequestTimeTooSkewed", Barred, "clock"),
        (400, "ExpiredToken", Unidentified, "renew the credentials"),
        (404, "NoSuchBucket", NoBucket, "create it in this region"),
        (412, "PreconditionFailed", Changed, "another host wrote it"),
        (409, "ConditionalRequestConflict", Changed, "another host wrote it"),
        (404, "Whatever", Missing, "not there"),
        (301, "PermanentRedirect", Refused, "another region"),
        (400, "AuthorizationHeaderMalformed", Refused, "another region"),
        (500, "InternalError", Failed, "500 InternalError: why"),
        (307, "TemporaryRedirect", Refused, "not settled yet"),
    ],
)
async def test_answers_of_s3(status: int, code: str, kind: type[RequestError], says: str) -> None:
    """Every answer becomes its kind of trouble, with a sentence that says what to do, after one attempt."""
    oracle = Oracle(status, xml(code))
    async with oracle.serving() as url:
        with pytest.raises(RequestError, match=says) as caught:
            await put_at(url)
    assert type(caught.value) is kind
    assert len(oracle.requests) == 1


_DENIAL = (
    'User: arn:aws:sts::1:assumed-role/app/i-1 is not authorized to perform: {} on resource: "arn:aws:{}" {}'
)


@pytest.mark.parametrize(
    ("service", "code", "message", "kind", "says"),
    [
        (
            "s3",
            "AccessDenied",
            _DENIAL.format(
                "kms:GenerateDataKey", "kms:::key/1", "because no identity-based policy allows it"
            ),
            Barred,
            "allow kms:GenerateDataKey and kms:Decrypt on it",
        ),
        (
            "s3",
            "AccessDenied",
            _DENIAL.format("s3:PutObject", "s3:::b/k", "with an explicit deny in a resource-based policy"),
            Forbidden,
            r"whatever others allow: .*\(AccessDenied, with an explicit deny in a resource-based policy\)",
        ),
        (
            "s3",
            "AccessDenied",
            _DENIAL.format("s3:PutObject", "s3:::b/k", "because no VPC endpoint policy allows it"),
            Denied,
            r"IAM policy \(AccessDenied, because no VPC endpoint policy allows it\)",
        ),
        ("s3", "AccessDenied", "Mfa Authentication must be used for this request", Barred, "MFA delete"),
        (
            "s3",
            "InvalidObjectState",
            "The operation is not valid for the object's storage class",
            Refused,
            "archived: restore it",
        ),
        (
            "sqs",
            "InvalidSignatureException",
            "Signature expired: 20260101T000000Z is now earlier than 20260101T001000Z (20260101T001500Z - 5 min.)",
            Barred,
            "clock is wrong by 5 minutes or more: synchronise it",
        ),
        (
            "sqs",
            "KmsAccessDenied",
            "The ciphertext refers to a key that does not exist",
            Barred,
            "kms:Decrypt",
        ),
    ],
)
async def test_what_is_in_the_way_is_told_as_the_services_tell_it(
    service: str, code: str, message: str, kind: type[RequestError], says: str
) -> None:
    """A clock or a key is no permission to grant, and a policy that denies is not mended by one that allows."""
    body = json.dumps({"__type": code, "message": message})
    if service == "s3":
        body = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    async with Oracle(403, body).serving() as url, store_at(url) as store, queues_at(url) as queues:
        asking = store.put_object("bucket", "key", b"x") if service == "s3" else queues.find_queue("queue")
        with pytest.raises(RequestError, match=says) as caught:
            await asking
    assert type(caught.value) is kind


class Later(SystemClock):
    """Some seconds have passed."""

    def monotonic_seconds(self) -> float:
        """The true ones, and a minute."""
        return super().monotonic_seconds() + 60.0


@pytest.mark.parametrize(
    "asked",
    [
        lambda store: store.put_object("bucket", "key", b"x"),
        lambda store: store.look_at("bucket", "key", 1),  # all that is asked first where an object is named
    ],
)
@pytest.mark.parametrize("before", ["", "aws_access_key_id = OLD\naws_secret_access_key = x\n"])
async def test_credentials_that_somebody_renewed_are_read_without_a_new_client(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    asked: Callable[[AwsObjectStore], Awaitable[object]],
) -> None:
    """Whoever is told to renew them has done all that was asked of him; also where there were none."""
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        if "Credential=NEW/" in request.headers["Authorization"]:
            return web.Response(headers={"ETag": "tag"}, body=b"x" if request.method == "GET" else b"")
        return web.Response(status=400, text=xml("ExpiredToken"))  # of which HEAD has no more than the 400

    file.write_text(f"[default]\n{before}")
    async with answering(answer) as url, open_object_store(Access(region=REGION, endpoint_url=url)) as store:
        for _ in range(2):
            with pytest.raises(Unidentified):
                await asked(store)
        monkeypatch.setattr(client, "_CLOCK", Later())
        file.write_text("[default]\naws_access_key_id = NEW\naws_secret_access_key = x\n")
        await asked(store)


async def test_other_region_is_named_and_not_followed() -> None:
    """A bucket elsewhere is said to be there; botocore's own redirect would measure the wrong path."""
    oracle = Oracle(301, xml("PermanentRedirect"), {"x-amz-bucket-region": "us-west-2"})
    async with oracle.serving() as url:
        with pytest.raises(Refused, match="it is in us-west-2"):
            await put_at(url)
    assert len(oracle.requests) == 1


async def test_no_profile_makes_bytes_dearer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Transfer Acceleration has a price that no budget reckons with, and a way of its own."""
    (tmp_path / "config").write_text("[default]\ns3 =\n  use_accelerate_endpoint = true\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    hosts: list[str] = []

    def stop(request: Any, **_: Any) -> None:  # Any: botocore has no types
        hosts.append(urlsplit(request.url).netloc)
        raise OSError

    async with open_object_store(Access(region=REGION, credentials=CREDENTIALS)) as store:
        store._client.meta.events.register("before-send.s3", stop)
        with pytest.raises(Unreachable):
            await store.put_object("bucket", "key", b"x")
    assert hosts == [f"bucket.s3.{REGION}.amazonaws.com"]


async def test_what_lies_at_aws_is_looked_for_there_whatever_endpoint_is_configured_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was looked for in the store that the environment names, not found there, and struck out as removed."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    async with open_object_store(Access(region=REGION, endpoint_url="", credentials=CREDENTIALS)) as store:
        assert store._client.meta.endpoint_url == f"https://s3.{REGION}.amazonaws.com"


@pytest.mark.parametrize("status", [302, 303, 307, 308])
async def test_redirects_are_not_followed(status: int) -> None:
    """What was signed for one service, with its session's token, goes to no other; nor is that one measured."""
    elsewhere = Oracle(200, "welcome")
    async with elsewhere.serving() as other:
        oracle = Oracle(status, "", {"Location": f"{other}/login"})
        async with oracle.serving() as url, store_at(url) as store:
            with pytest.raises(Refused):
                await store.put_object("bucket", "key", b"x" * 100_000)
            with pytest.raises(Refused):
                await store.list_objects("bucket", "key")
    assert (len(oracle.requests), elsewhere.requests) == (2, [])


@pytest.mark.parametrize(
    ("page", "content_type"), [("<html>Log in</html>", "text/html; charset=utf-8"), ("", "application/xml")]
)
async def test_nothing_is_done_where_a_portal_answers(page: str, content_type: str) -> None:
    """An upload by a portal is no upload, a bucket that it shows is not empty, and a message is not sent."""
    oracle = Oracle(200, page, {"Content-Type": content_type})
    async with oracle.serving() as url, store_at(url) as store, queues_at(url) as queues:
        requests: list[Awaitable[object]] = [
            store.put_object("bucket", "key", b"x"),
            store.complete_multipart_upload("bucket", "key", "id", ["etag"]),
            store.list_objects("bucket", "key"),
            store.list_multipart_uploads("bucket", "key"),
            queues.send(f"{url}/1/queue", ["body"]),
        ]
        if page:  # to a deletion nothing need be said
            requests += [
                store.delete_object("bucket", "key"),
                store.delete_objects("bucket", ["key", "other"]),
                store.abort_multipart_upload("bucket", "key", "id"),
                queues.delete(f"{url}/1/queue", ["handle"]),
                queues.delete_queue(f"{url}/1/queue"),
            ]
        for request in requests:
            with pytest.raises(Unreachable, match="check the endpoint, and the proxies on the way"):
                await request


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
)
async def test_what_is_no_http_is_said_to_come_of_somebody_else(answer: bytes) -> None:
    """What is wrong is the endpoint or a proxy, and not the library that could not read it."""

    async def answered(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answered, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(
            Unreachable, match="did not come from this service: check the endpoint, and the proxies"
        ) as said:
            await put_at(f"http://127.0.0.1:{port}")
    assert "unhandled" not in str(said.value)


async def test_an_answer_that_is_no_text_may_have_been_done() -> None:
    """A queue whose creation was answered by noise stays in the journal."""
    async with Oracle(200, "\udcff").serving() as url, queues_at(url) as queues:
        with pytest.raises(Unreachable):
            await queues.create_queue("queue", {})


@pytest.mark.parametrize("told", ["", "nan", "-1", "many"])
@pytest.mark.parametrize("name", ["VisibilityTimeout", "ApproximateNumberOfMessages"])
async def test_an_attribute_that_is_no_number_is_no_answer_of_sqs(name: str, told: str) -> None:
    """One of a watched queue ended the daemon, again after each start."""
    body = json.dumps({"Attributes": {name: told}})
    async with Oracle(200, body).serving() as url, queues_at(url) as queues:
        with pytest.raises(Unreachable, match=f"did not come from this service: .*{name}"):
            await queues.queue_attributes("http://queue/1/q")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "com.amazonaws.sqs#QueueDoesNotExist", Missing),
        (400, "com.amazonaws.sqs#QueueDeletedRecently", Refused),
        (403, "com.amazonaws.sqs#OverLimit", Throttled),
        (400, "com.amazonaws.sqs#RequestThrottled", Throttled),
        (403, "com.amazon.coral.service#InvalidClientTokenId", Unidentified),
    ],
)
@pytest.mark.parametrize("has_query_code", [True, False])
async def test_answers_of_sqs(status: int, code: str, kind: type[RequestError], has_query_code: bool) -> None:
    """SQS words its errors in JSON, or in the header that repeats its older names."""
    short = code.split("#")[1]
    old = "NonExistentQueue" if short == "QueueDoesNotExist" else short
    headers = {"x-amzn-query-error": f"AWS.SimpleQueueService.{old};Sender"} if has_query_code else {}
    oracle = Oracle(status, json.dumps({"__type": code, "message": "why"}), headers)
    async with oracle.serving() as url, queues_at(url) as queues:
        with pytest.raises(RequestError) as caught:
            await queues.send(url + "/1/queue", ["body"])
    assert type(caught.value) is kind
    assert len(oracle.requests) == 1


async def test_what_an_answer_says_moves_no_terminal() -> None:
    """Whoever answers, such as a proxy, is quoted to an operator; his terminal would obey what is no text."""
    told = {"__type": "Odd\x9b1A", "message": "\x1b]0;no root here\x07\u202e so"}
    async with Oracle(400, json.dumps(told)).serving() as url, queues_at(url) as queues:
        with pytest.raises(Refused, match="no root here") as caught:
            await queues.send(url + "/1/queue", ["body"])
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("status", [200, 503])
@pytest.mark.parametrize("page", ["<html>Log in to the network<br></html>", "{}", '["QueueUrl"]', "[" * 9000])
async def test_an_answer_of_somebody_else(status: int, page: str) -> None:
    """A portal, a proxy or a half-built store answers: it is said, and what was asked for may have been done."""
    oracle = Oracle(status, page)
    async with oracle.serving() as url, store_at(url) as store, queues_at(url) as queues:
        with pytest.raises(RequestError):
            await store.create_multipart_upload("bucket", "key")
        with pytest.raises(RequestError) as caught:
            await queues.find_queue("queue")
    if status == 200:
        assert type(caught.value) is Unreachable
        assert "check the endpoint, and the proxies on the way" in str(caught.value)


async def test_the_largest_batch_is_sent_in_slices() -> None:
    """A mebibyte of messages, which JSON makes longer still, goes out without a warning and comes back whole."""
    bodies = ["x" * 104_857] * 9 + ['"' * 104_863]
    async with message_queues() as queues:
        url = await queues.create_queue("large", {})
        assert await queues.send(url, bodies) == 10
        received: list[str] = []
        while len(received) < 10:
            messages = await queues.receive(url, message_count_max=10, wait_seconds=1)
            received += [message.body for message in messages]
    assert sorted(received) == sorted(bodies)


async def test_refused_connection() -> None:
    """A port where nobody listens is said to be one."""
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        with pytest.raises(Unsent, match="refused the connection"):
            await put_at(f"http://127.0.0.1:{unheard.getsockname()[1]}")


async def test_name_that_cannot_be_resolved() -> None:
    """A name without an address is said to be one."""
    with pytest.raises(Unsent, match=r"penstock\.invalid cannot be resolved"):
        await put_at("http://penstock.invalid")
    with pytest.raises(Unsent, match=r"cannot be resolved: .* and use_fips_endpoint"):
        await put_at("http://s3-fips.nowhere-1.invalid")


async def test_a_proxy_that_is_in_the_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the endpoint, whose name and address are as they should be."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
    with pytest.raises(Unsent, match=r"the name proxy\.invalid cannot be resolved: .* the proxy"):
        await put_at("https://penstock.invalid")
    async with Oracle(407, "").serving() as url:
        monkeypatch.setenv("HTTPS_PROXY", url)
        with pytest.raises(Unsent, match="the proxy does not answer, or refuses"):
            await put_at("https://penstock.invalid")


@pytest.mark.parametrize("name", ["", "missing.pem", "empty.pem"])
async def test_a_bundle_of_authorities_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The file that does not exist was not, and the request was taken for one that may have been carried out."""
    (tmp_path / "empty.pem").touch()
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / name))
    with pytest.raises(Unsent, match="CA bundle cannot be read: check AWS_CA_BUNDLE"):
        await put_at("https://127.0.0.1:1")


async def test_plain_server_behind_https() -> None:
    """A failing handshake points at certificate, CA bundle and clock."""
    async with Oracle(200, "", {"ETag": "e"}).serving() as url:
        with pytest.raises(Unsent, match="TLS failed"):
            await put_at(url.replace("http:", "https:"))


async def test_silence_and_a_closed_connection() -> None:
    """No answer in time, and none at all, are two sentences."""
    done = asyncio.Event()

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await close(writer)

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await close(writer)

    async def close(writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()
        done.set()

    for manner, says, seconds in (
        (stay_silent, "no answer in time", 1.0),
        (hang_up, "before the answer", 60.0),
    ):
        done.clear()
        async with await asyncio.start_server(manner, "127.0.0.1", 0) as server:
            with pytest.raises(Unreachable, match=says) as caught:
                await put_at(
                    f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", read_timeout_seconds=seconds
                )
            assert type(caught.value) is Unreachable  # it was sent: it may be carried out
            await done.wait()


async def test_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without any credentials the sentence says how to get some."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with pytest.raises(Denied, match="give the instance a role"):
        async with open_object_store(Access(region=REGION, endpoint_url="http://127.0.0.1:9")) as store:
            await store.put_object("bucket", "key", b"x")
    with pytest.raises(Denied, match="profile"):
        async with open_object_store(Access(region=REGION, profile="nobody")):
            pass


async def test_credentials_are_never_written(caplog: pytest.LogCaptureFixture) -> None:
    """Neither a log at its most talkative, nor an error, nor a repr shows the secret key."""
    caplog.set_level(logging.DEBUG)
    async with Oracle(403, xml("SignatureDoesNotMatch")).serving() as url:
        with pytest.raises(Denied) as caught:
            await put_at(url)
    assert SECRET not in caplog.text + str(caught.value) + repr(CREDENTIALS)


async def test_large_bodies_go_as_they_are() -> None:
    """No checksum, no hash of the body, a length instead of chunks; 100-continue as the SDKs have it."""
    oracle = Oracle(200, "", {"ETag": "e"})
    async with oracle.serving() as url:
        await put_at(url, bytes(5 * MiB))
    headers = oracle.requests[0].headers
    assert oracle.received_bytes == 5 * MiB == int(headers["Content-Length"])
    assert headers["X-Amz-Content-SHA256"] == "UNSIGNED-PAYLOAD"
    assert headers["Expect"] == "100-continue"
    assert not [name for name in headers if name.lower() in {"content-md5", "transfer-encoding"}]
    assert not [name for name in headers if name.lower().startswith("x-amz-checksum")]


async def test_a_body_goes_also_where_nobody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some servers and proxies never say 100 Continue: the SDKs send after a while, and so all of them work."""
    monkeypatch.setattr(bodies, "CONTINUE_SECONDS_MAX", 0.01)

    async def say_nothing(_request: web.Request) -> None:
        """Ask for no body."""

    oracle = Oracle(200, "", {"ETag": "e"})
    application = web.Application(client_max_size=64 * MiB)
    application.router.add_route("*", "/{path:.*}", oracle.answer, expect_handler=say_nothing)
    async with serving(application) as url:
        await put_at(url, bytes(5 * MiB))
    assert oracle.received_bytes == 5 * MiB


async def test_a_connection_that_closes_under_a_request_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asked is told; the log has no traceback of a task beside."""
    send_headers = StreamWriter.send_headers

    def close_first(writer: StreamWriter) -> None:
        assert writer.transport is not None
        writer.transport.abort()
        send_headers(writer)

    monkeypatch.setattr(StreamWriter, "send_headers", close_first)
    async with Oracle(200, "").serving() as url:
        with pytest.raises(Unreachable):
            await put_at(url, bytes(MiB))
        gc.collect()
    assert not caplog.records


async def test_parts_in_flight_share_their_bytes() -> None:
    """Eight parts under way take the memory of one: nothing between the caller and the socket copies them."""
    body = bytes(16 * MiB)
    async with object_store() as (store, _):
        await store.put_object("bucket", "warm", body[:MiB])
        tracemalloc.start()
        try:
            await asyncio.gather(*(store.put_object("bucket", f"key {n}", body) for n in range(8)))
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak_bytes < 3 * len(body)  # what the server buffers is in the same process; copies would be 8


async def test_connections_are_kept() -> None:
    """Consecutive requests share one connection: a handshake in each would be read as latency."""
    peers: set[object] = set()

    async def answer(request: web.Request) -> web.Response:
        peers.add(request.transport and request.transport.get_extra_info("peername"))
        await request.read()
        return web.Response(headers={"ETag": "e"})

    async with answering(answer) as url, store_at(url) as store:
        for _ in range(5):
            await store.put_object("bucket", "key", bytes(100 * KiB))
    assert len(peers) == 1


async def test_objects_come_and_go_on_the_lab() -> None:
    """The whole seam."""
    async with object_store() as (store, _):
        await objects_come_and_go(store, "bucket")


DIRECTORY = "probe--euw1-az1--x-s3"


@web.middleware
async def as_a_directory_bucket(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What such a bucket asks of whoever comes: a session of its own, and no prefix but a folder's."""
    if "session" in request.query:
        names = ("SessionToken", "SecretAccessKey", "AccessKeyId")
        told = "".join(f"<{name}>of-the-session</{name}>" for name in names)
        told += "<Expiration>2100-01-01T00:00:00Z</Expiration>"
        return web.Response(
            text=f"<CreateSessionResult><Credentials>{told}</Credentials></CreateSessionResult>"
        )
    if request.headers.get("x-amz-s3session-token") != "of-the-session":
        return web.Response(status=403, text=xml("AccessDenied"))
    if not request.query.get("prefix", "/").endswith("/"):
        return web.Response(status=400, text=xml("InvalidRequest"))
    return await handler(request)


async def test_what_a_crash_left_in_a_directory_bucket_is_found_and_removed() -> None:
    """It lists no less than a folder: unfinished uploads were sought by their key, and would have stayed for good."""
    service = S3Service(LINK, clock=SystemClock(), seed=1)
    service.shelf.create_bucket(DIRECTORY)
    application = s3_application(service)
    application.middlewares.append(as_a_directory_bucket)
    async with serving(application) as url, store_at(url) as store:
        for key in ("p/run/object", "p/run/objects-of-others", "p/other/object"):
            await store.put_object(DIRECTORY, key, b"x")
            await store.create_multipart_upload(DIRECTORY, key)
        removal = Removal(store, DIRECTORY)
        assert await removal.clear("p/run/object") == 2
        assert await removal.keys_below("p/run/") == 2 * ["p/run/objects-of-others"]


async def test_many_objects_are_deleted_by_one_request() -> None:
    """What is there goes, what is not there is no trouble, and a thousand keys take one request."""
    async with object_store() as (store, service):
        keys = [f"a/{n:04}" for n in range(1000)]
        for key in (*keys[:3], "b"):
            await store.put_object("bucket", key, b"x")
        before = service.request_count
        await store.delete_objects("bucket", keys)
        assert service.request_count - before == 1
        assert await store.list_objects("bucket", "") == ["b"]


async def test_a_batch_of_deletions_carries_both_checksums() -> None:
    """Some stores insist on an MD5, others (S3 Express among them) on a newer checksum."""
    oracle = Oracle(200, "<DeleteResult/>")
    async with oracle.serving() as url, store_at(url) as store:
        await store.delete_objects("bucket", ["a", "b"])
    assert "x-amz-checksum-crc32" in oracle.requests[0].headers
    assert len(base64.b64decode(oracle.requests[0].headers["Content-MD5"])) == 16


@pytest.mark.parametrize(
    ("status", "code"), [(501, "NotImplemented"), (400, "MalformedXML"), (405, "MethodNotAllowed"), (501, "")]
)
async def test_a_store_without_batches_is_asked_once(status: int, code: str) -> None:
    """After the first refusal of its kind no request is wasted any more."""
    oracle = Oracle(status, xml(code))
    async with oracle.serving() as url, store_at(url) as store:
        for _ in range(3):
            with pytest.raises(NotOffered, match="does not know"):
                await store.delete_objects("bucket", ["a", "b"])
    assert len(oracle.requests) == 1


def listing(name: str, entries: str) -> web.Response:
    """All of it on one page."""
    return web.Response(text=f"<{name}Result><IsTruncated>false</IsTruncated>{entries}</{name}Result>")


class Versioned:
    """A bucket that keeps versions, and may forbid to remove them."""

    def __init__(self, refused_by: int | None = None, *, is_single: bool = False) -> None:
        self._refused_by = refused_by
        self._is_single = is_single
        self.hides_versions = False  # from who has the least policy
        self.versions: dict[str, tuple[str, bool]] = {}  # by id: the key, and whether it is a marker
        self.requests: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        """As S3 does."""
        body = await request.text()
        self.requests.append(request.method)
        key, version = request.path.split("/", 2)[-1], request.query.get("versionId")
        if request.method == "GET":
            return self._listed(request)
        if version is not None and self._refused_by is not None:
            return web.Response(status=self._refused_by, text=xml("Locked"))
        if version is not None:
            del self.versions[version]
            return web.Response(status=204)
        is_marker, number = request.method != "PUT", f"v{len(self.versions)}"
        if request.method == "POST":
            return self._deleted(body)
        self.versions[number] = key, is_marker
        headers = {"x-amz-version-id": number} | (
            {"x-amz-delete-marker": "true"} if is_marker else {"ETag": "e"}
        )
        return web.Response(headers=headers)

    def _listed(self, request: web.Request) -> web.Response:
        if "uploads" in request.query:
            return listing("ListMultipartUploads", "")
        if "list-type" in request.query:
            marked = {key for key, is_marker in self.versions.values() if is_marker}
            names = {key for key, _ in self.versions.values()} - marked
            return listing("ListBucket", "".join(f"<Contents><Key>{name}</Key></Contents>" for name in names))
        if self.hides_versions:
            return web.Response(status=403, text=xml("AccessDenied"))
        entries = (
            f"<{kind}><Key>{key}</Key><VersionId>{name}</VersionId></{kind}>"
            for name, (key, is_marker) in self.versions.items()
            for kind in ["DeleteMarker" if is_marker else "Version"]
        )
        return listing("ListVersions", "".join(entries))

    def _deleted(self, body: str) -> web.Response:
        if self._is_single:
            return web.Response(status=501, text=xml("NotImplemented"))
        keys, named = (re.findall(f"<{tag}>(.*?)</{tag}>", body) for tag in ("Key", "VersionId"))
        if named and self._refused_by is not None:
            code = "AccessDenied" if self._refused_by == 403 else "Locked"
            return web.Response(text=f"<DeleteResult><Error><Code>{code}</Code></Error></DeleteResult>")
        for version in named:
            del self.versions[version]
        marked = [] if named else keys
        self.versions |= {f"marker-{key}": (key, True) for key in marked}
        deleted = (f"<Deleted><Key>{key}</Key><DeleteMarker>true</DeleteMarker></Deleted>" for key in marked)
        return web.Response(text=f"<DeleteResult>{''.join(deleted)}</DeleteResult>")

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncIterator[AwsObjectStore]:
        """A client of it."""
        async with answering(self.answer) as url, store_at(url) as store:
            yield store


@pytest.mark.parametrize(("is_single", "deletion_count"), [(False, 1), (True, 3)])
async def test_no_version_stays_of_what_was_deleted(is_single: bool, deletion_count: int) -> None:
    """A bucket that keeps versions only marks what is deleted; its neighbours by name keep theirs."""
    bucket = Versioned(is_single=is_single)
    async with bucket.store() as store:
        for key in ("key", "key", "key-of-others"):
            await store.put_object("bucket", key, b"x")
        assert await store.delete_object("bucket", "key") == VersionRequests(1, deletion_count)
    assert list(bucket.versions.values()) == [("key-of-others", False)]


async def test_versions_of_many_go_by_two_requests() -> None:
    """Each listing is billed like an upload: one for each key would double what a probe of small objects costs."""
    bucket, keys = Versioned(), [f"run/{number}" for number in range(256)]
    async with bucket.store() as store:
        for key in [*keys, "run-of-others"]:
            await store.put_object("bucket", key, b"x")
        bucket.requests.clear()
        assert await store.delete_objects("bucket", keys) == VersionRequests(1, 1)
    assert list(bucket.versions.values()) == [("run-of-others", False)]
    assert bucket.requests == ["POST", "GET", "POST"]


@pytest.mark.parametrize("status", [403, 400])
async def test_nothing_more_is_put_where_versions_must_stay(status: int) -> None:
    """By policy, or by a lock: each probe would leave all that it uploads, and it would be paid for month by month."""
    bucket = Versioned(refused_by=status)
    async with bucket.store() as store:
        await store.put_object("bucket", "key", b"x")
        with pytest.raises(Denied, match="s3:DeleteObjectVersion"):
            await store.delete_object("bucket", "key")
        for request in (
            store.put_object("bucket", "key", b"x"),
            store.create_multipart_upload("bucket", "key"),
        ):
            with pytest.raises(Denied, match="name one without versioning"):
                await request
        await store.put_object("another", "key", b"x")


@pytest.mark.parametrize("name", ["run/", "run/0000"])
async def test_what_a_deletion_hid_before_it_was_broken_off_is_removed(name: str) -> None:
    """Killed between the two steps, or not allowed the second: no listing of objects shows what is paid for."""
    bucket = Versioned()
    async with bucket.store() as store:
        for key in (f"{name}0000" if name.endswith("/") else name, "run-of-others"):
            await store.put_object("bucket", key, b"x")
        bucket.hides_versions = True
        for _ in range(2):  # it is no less there when it is hidden
            with pytest.raises(Denied, match="s3:ListBucketVersions"):
                await Removal(store, "bucket").clear(name)
        assert len(bucket.versions) > 2
        bucket.hides_versions = False
        await Removal(store, "bucket").clear(name)
    assert list(bucket.versions.values()) == [("run-of-others", False)]


async def test_a_key_that_stays_is_trouble() -> None:
    """An answer of 200 may hold refusals; what was gone before is none of them."""
    gone, denied = (
        f"<Error><Key>{key}</Key><Code>{code}</Code><Message>why</Message></Error>"
        for key, code in (("a", "NoSuchKey"), ("b", "AccessDenied"))
    )
    oracle = Oracle(200, f"<DeleteResult>{gone}</DeleteResult>")
    async with oracle.serving() as url, store_at(url) as store:
        await store.delete_objects("bucket", ["a"])
        oracle.body = f"<DeleteResult>{gone}{denied}</DeleteResult>"
        with pytest.raises(Denied, match="IAM policy"):
            await store.delete_objects("bucket", ["a", "b"])


async def test_messages_come_and_go_on_the_lab() -> None:
    """The whole seam."""
    async with message_queues() as queues:
        await messages_come_and_go(queues)


@pytest.mark.parametrize("size", [64 * KiB, 24 * MiB])
async def test_probes_of_objects_over_http(size: int) -> None:
    """Real transfers are measured, and what they made is removed."""
    async with object_store() as (store, _):
        workspace = workspace_in(store, "bucket")
        await uploads_are_measured(workspace, an_upload_plan(size=size, part=5 * MiB, cost_max=MODEST))
        await downloads_are_measured(
            workspace, a_download_plan(size=size, range_size=5 * MiB, cost_max=MODEST)
        )


async def test_ranges_on_the_lab() -> None:
    """The seam of reading: ranges, whole objects, how large one is and how it begins."""
    async with object_store() as (store, service):
        await store.put_object("bucket", "key", b"penstock" + bytes(3 * MiB))
        looked = await store.look_at("bucket", "key", 4)
        size = looked.size_bytes
        assert (size, looked.head) == (3 * MiB + 8, b"pens")
        before = service.downlink.carried_bytes
        for start, stop in ((100, MiB), (0, size), (size - 1, size)):
            reading = await store.read_range("bucket", "key", start, stop, object_size_bytes=size)
            assert reading.first_byte_seconds > 0
        assert service.downlink.carried_bytes - before == pytest.approx(MiB - 100 + size + 1)
        in_pieces = await store.look_at("bucket", "key", 2 * MiB)
        assert len(in_pieces.head) == 2 * MiB
        with pytest.raises(Refused):
            await store.read_range("bucket", "key", 0, 100, object_size_bytes=size + 1)
        for asking in (
            store.read_range("bucket", "nothing", 0, 10, object_size_bytes=20),
            store.look_at("bucket", "nothing", 4),
        ):
            with pytest.raises(Missing):
                await asking


@pytest.mark.parametrize(
    ("status", "content_range", "size"),
    [
        (200, None, 1000),  # a store that knows no ranges sends everything
        (206, "bytes 0-99/500", 100),  # the object is another one
        (206, "bytes 100-199/1000", 100),  # the range is
        (206, "bytes 0-49/1000", 50),  # it is cut short
        (206, None, 100),
    ],
)
async def test_an_answer_that_is_not_the_range_is_refused(
    status: int, content_range: str | None, size: int
) -> None:
    """Bytes that were not asked for are not counted as those that were."""
    oracle = Oracle(status, "x" * size, {"Content-Range": content_range} if content_range else {})
    async with oracle.serving() as url, store_at(url) as store:
        with pytest.raises(Refused, match="asked for bytes 0 to 99"):
            await store.read_range("bucket", "key", 0, 100, object_size_bytes=1000)
    assert len(oracle.requests) == 1


@pytest.mark.parametrize("size", [99, 100, 101])
async def test_a_range_that_comes_in_chunks_is_counted(size: int) -> None:
    """Some stores and proxies do not say how much comes, and the SDKs read them all the same."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=206, headers={"Content-Range": "bytes 0-99/1000"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"x" * size)
        await response.write_eof()
        return response

    async with answering(answer) as url, store_at(url) as store:
        reading = store.read_range("bucket", "key", 0, 100, object_size_bytes=1000)
        if size == 100:
            assert (await reading).first_byte_seconds > 0
        else:
            with pytest.raises(Refused, match=f"100 bytes were requested, but {size} arrived"):
                await reading
        assert (await store.look_at("bucket", "key", 100)).size_bytes == 1000


@pytest.mark.parametrize(
    ("bucket", "server", "encryption", "md5"),
    [
        ("bucket", "AmazonS3", "AES256", "0f-2"),
        ("bucket", "AmazonS3", "aws:kms", None),
        ("bucket", "another store", "AES256", None),  # which may write anything there
        (DIRECTORY, "AmazonS3", "AES256", None),
    ],
)
async def test_an_etag_is_a_checksum_where_s3_says_so(
    bucket: str, server: str, encryption: str, md5: str | None
) -> None:
    """Elsewhere it is any name, and nothing may be concluded from it."""
    headers = {"ETag": '"0f-2"', "Server": server, "x-amz-server-side-encryption": encryption}

    async def answer(request: web.Request) -> web.StreamResponse:
        oracle = Oracle(200, "penstock", headers)
        return await (
            as_a_directory_bucket(request, oracle.answer) if bucket == DIRECTORY else oracle.answer(request)
        )

    async with answering(answer) as url, store_at(url) as store:
        assert (await store.look_at(bucket, "key", 8)).md5 == md5


async def test_an_empty_object_is_said_to_be_too_small() -> None:
    """It has no first byte, so a range of it is refused: what helps is another object."""
    async with object_store() as (store, _):
        await store.put_object("bucket", "empty", b"")
        with pytest.raises(Refused, match="the object ends before the requested range: name a larger one"):
            await store.look_at("bucket", "empty", 1)


async def test_a_range_that_breaks_off_is_no_range() -> None:
    """A connection that ends before the body does is trouble, not a fast answer."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99/1000\r\nContent-Length: 100\r\n\r\n"
        writer.write(head.encode() + b"x" * 50)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with store_at(url) as store:
            with pytest.raises(Unreachable):
                await store.read_range("bucket", "key", 0, 100, object_size_bytes=1000)


async def test_what_is_read_is_not_kept() -> None:
    """However large a range is, no more than a few buffers of it are in memory."""

    async def zeros(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 64 * MiB
        await response.prepare(request)
        for _ in range(256):
            await response.write(piece)
        return response

    piece = bytes(256 * KiB)
    async with answering(zeros) as url, store_at(url) as store:
        tracemalloc.start()
        try:
            await store.read_range("bucket", "key", 0, 64 * MiB, object_size_bytes=64 * MiB)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak_bytes < 8 * MiB


@pytest.mark.parametrize("service_class", QUEUE_CLASSES)
async def test_delivery_probe_over_http(service_class: str) -> None:
    """Real messages go all the way, whatever the class of the queue, and the queue is removed in the end."""
    async with message_queues() as queues:
        await deliveries_are_measured(queues, 5, service_class)


async def test_a_fleet_that_does_not_fit_on_one_page_is_listed_whole() -> None:
    """S3 tells of a thousand objects at a time: hosts that are no more must not hide those that live."""
    async with object_store() as (store, service):
        for number in range(LISTED_COUNT_IN_PAGE + 3):
            service.shelf.put("bucket", f"fleet/{number:05}.json", service.shelf.body(1, b"x"))
        listed = await store.list_shared("bucket", "fleet/")
    assert [one.key for one in listed] == [f"fleet/{number:05}.json" for number in range(1003)]


async def test_a_listing_has_a_bound() -> None:
    """Each page is paid for and held in memory, and others may have put what they like below the prefix."""
    page_count = 0

    async def answer(_request: web.Request) -> web.Response:
        nonlocal page_count
        page_count += 1
        keys = "".join(
            f"<Contents><Key>p/{page_count}-{n}</Key></Contents>" for n in range(LISTED_COUNT_IN_PAGE)
        )
        has_more = str(page_count < 3 * LISTED_COUNT_MAX // LISTED_COUNT_IN_PAGE).lower()
        more = f"<IsTruncated>{has_more}</IsTruncated><NextContinuationToken>{page_count}</NextContinuationToken>"
        return web.Response(text=f"<ListBucketResult>{more}{keys}</ListBucketResult>")

    async with answering(answer) as url, store_at(url) as store:
        listed = await store.list_objects("bucket", "p/")
    assert (len(listed), page_count) == (LISTED_COUNT_MAX, LISTED_COUNT_MAX // LISTED_COUNT_IN_PAGE)
