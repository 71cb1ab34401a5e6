"""Knows what the instance metadata, S3 and SQS answer, and that nothing they might answer ends in more than a sentence.

The answers come over a real connection of the loopback, bent, to the clients that probes use.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from penstock.daemon import instance
from penstock.daemon.config import HostSection
from penstock.probes.aws.access import Access, Credentials
from penstock.probes.aws.objects import AwsObjectStore, open_object_store
from penstock.probes.aws.queues import AwsMessageQueues, open_message_queues
from penstock.probes.outside import RequestError
from penstock.vocabulary import UNKNOWN
from tests.fuzz.mutation import Mutator

SECONDS_MAX = 20.0  # of one request, whose own limits are below
_BUCKET, _KEY, _UPLOAD, _TAG = "bucket", "penstock-probe/a", "an-upload", '"0123456789abcdef0123456789abcdef"'
_QUEUE = "http://127.0.0.1/1/penstock-probe-a"
_BODY = b"0123456789abcdef"
_DATE = "Sun, 01 Mar 2026 12:00:00 GMT"
_XMLNS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


class Answer(NamedTuple):
    """Of a service that is well."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    def written(self, mutator: Mutator) -> bytes:
        """As it goes over the wire: bent in its body, its head, its length or nowhere."""
        body = mutator.bent_bytes(self.body) if mutator.happens(0.4) else self.body
        length = mutator.one_of((len(body),) * 8 + (len(body) - 1, len(body) + 1, -1, 0, 10**30))
        status = mutator.one_of(
            (self.status,) * 8 + (100, 200, 204, 206, 301, 304, 307, 404, 429, 500, 503, 999)
        )
        headers = {"Date": _DATE, "Content-Length": str(length), "Connection": "close", **self.headers}
        if mutator.happens(0.2):
            del headers[mutator.one_of(list(headers))]
        if mutator.happens(0.1):
            headers["Transfer-Encoding"] = "chunked"
        lines = [
            f"HTTP/1.1 {status} Reason",
            *(f"{name}: {value}" for name, value in headers.items()),
            "",
            "",
        ]
        head = "\r\n".join(lines).encode()
        return (mutator.bent_bytes(head) if mutator.happens(0.2) else head) + body


class _FalseServer:
    """Answers whatever it is asked with what was put there last, and hangs up."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []  # in the order of requests; the last one stays
        self.url = ""
        self._server: asyncio.Server

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
            await writer.drain()
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()

    async def stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()


class MetadataReader:
    """A start on a host whose metadata answer anything: it knows where it is, or says why not, within its second."""

    def __init__(self, _folder: Path) -> None:
        self._runner = asyncio.Runner()
        self._server = _FalseServer()
        self._runner.run(self._server.start())

    def close(self) -> None:
        """Answer nobody any more."""
        self._runner.run(self._server.stop())
        self._runner.close()

    def feed(self, mutator: Mutator) -> None:
        """A token, a document and an address, each of them bent or not."""
        document = mutator.bent_json(
            {"region": "eu-central-1", "instanceType": "c6in.large", "accountId": "1"}
        )
        bodies = (b"a-token", document, b"198.51.100.7")
        self._server.answers = [Answer(200, {}, body).written(mutator) for body in bodies]
        section = HostSection(imds_endpoint_url=self._server.url)
        found = self._runner.run(asyncio.wait_for(instance.identify(section, {}), SECONDS_MAX))
        assert found.sentence
        for name in (found.region, found.instance_type):
            assert name == UNKNOWN or (name.isprintable() and len(name) < 100)


# --- S3 and SQS


def _xml(name: str, inner: str) -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} {_XMLNS}>{inner}</{name}>'
    return Answer(200, {"Content-Type": "application/xml"}, body.encode())


def _json(document: Any) -> Answer:
    return Answer(200, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps(document).encode())


_DONE = Answer(204, {})
_PUT = Answer(200, {"ETag": _TAG})
_READ = Answer(200, {"ETag": _TAG, "Content-Type": "binary/octet-stream"}, _BODY)
_PART = Answer(206, {"ETag": _TAG, "Content-Range": "bytes 0-15/64"}, _BODY)
_LISTED = _xml(
    "ListBucketResult",
    f"<Contents><Key>{_KEY}</Key><LastModified>2026-03-01T11:59:00.000Z</LastModified><ETag>{_TAG}</ETag>"
    "<Size>16</Size><StorageClass>STANDARD</StorageClass></Contents><IsTruncated>false</IsTruncated>",
)
_CREATED = f"<Bucket>{_BUCKET}</Bucket><Key>{_KEY}</Key><UploadId>{_UPLOAD}</UploadId>"
_BATCH = {
    "Successful": [{"Id": "0", "MessageId": "m", "MD5OfMessageBody": "d"}],
    "Failed": [{"Id": "1", "Code": "x"}],
}
_MESSAGE = {
    "MessageId": "m",
    "ReceiptHandle": "h",
    "Body": "{}",
    "Attributes": {"ApproximateReceiveCount": "1"},
}
Request = Callable[[Any], Awaitable[Any]]  # Any: of either client

S3: tuple[tuple[Request, Answer], ...] = (
    (lambda s3: s3.put_object(_BUCKET, _KEY, _BODY), _PUT),
    (lambda s3: s3.create_multipart_upload(_BUCKET, _KEY), _xml("InitiateMultipartUploadResult", _CREATED)),
    (lambda s3: s3.upload_part(_BUCKET, _KEY, _UPLOAD, 1, _BODY), _PUT),
    (
        lambda s3: s3.complete_multipart_upload(_BUCKET, _KEY, _UPLOAD, [_TAG]),
        _xml("CompleteMultipartUploadResult", f"<Key>{_KEY}</Key><ETag>{_TAG}</ETag>"),
    ),
    (lambda s3: s3.read_range(_BUCKET, _KEY, 0, 16, object_size_bytes=64), _PART),
    (lambda s3: s3.read_range(_BUCKET, _KEY, 0, 16, object_size_bytes=16), _READ),
    (lambda s3: s3.look_at(_BUCKET, _KEY, 16), _PART),
    (lambda s3: s3.get_unless(_BUCKET, _KEY, _TAG, size_bytes_max=1024), _READ),
    (lambda s3: s3.put_if(_BUCKET, _KEY, _BODY, _TAG), _PUT),
    (lambda s3: s3.list_shared(_BUCKET, "penstock-probe/"), _LISTED),
    (lambda s3: s3.abort_multipart_upload(_BUCKET, _KEY, _UPLOAD), _DONE),
    (
        lambda s3: s3.list_multipart_uploads(_BUCKET, "penstock-probe/"),
        _xml("ListMultipartUploadsResult", f"<IsTruncated>false</IsTruncated><Upload>{_CREATED}</Upload>"),
    ),
    (lambda s3: s3.list_objects(_BUCKET, "penstock-probe/"), _LISTED),
    (lambda s3: s3.delete_object(_BUCKET, _KEY), _DONE),
    (
        lambda s3: s3.delete_objects(_BUCKET, [_KEY]),
        _xml("DeleteResult", f"<Error><Key>{_KEY}</Key><Code>NoSuchKey</Code><Message>m</Message></Error>"),
    ),
)
SQS: tuple[tuple[Request, Answer], ...] = (
    (lambda sqs: sqs.create_queue("penstock-probe-a", {}), _json({"QueueUrl": _QUEUE})),
    (lambda sqs: sqs.find_queue("penstock-probe-a"), _json({"QueueUrl": _QUEUE})),
    (lambda sqs: sqs.list_queues("penstock-probe-"), _json({"QueueUrls": [_QUEUE]})),
    (lambda sqs: sqs.delete_queue(_QUEUE), _json({})),
    (lambda sqs: sqs.queue_attributes(_QUEUE), _json({"Attributes": {"VisibilityTimeout": "30"}})),
    (lambda sqs: sqs.send(_QUEUE, ["a"]), _json({"MessageId": "m", "MD5OfMessageBody": "d"})),
    (lambda sqs: sqs.send(_QUEUE, ["a", "b"]), _json(_BATCH)),
    (lambda sqs: sqs.receive(_QUEUE, message_count_max=10, wait_seconds=0), _json({"Messages": [_MESSAGE]})),
    (lambda sqs: sqs.delete(_QUEUE, ["h"]), _json({})),
    (lambda sqs: sqs.delete(_QUEUE, ["h", "i"]), _json(_BATCH)),
)
_ERRORS = (
    Answer(
        503, {"Content-Type": "application/xml"}, b"<Error><Code>SlowDown</Code><Message>m</Message></Error>"
    ),
    Answer(404, {"Content-Type": "application/xml"}, b"<Error><Code>NoSuchUpload</Code></Error>"),
    Answer(200, {"Content-Type": "application/xml"}, b"<Error><Code>InternalError</Code></Error>"),
    Answer(301, {"x-amz-bucket-region": "eu-west-1"}, b"<Error><Code>PermanentRedirect</Code></Error>"),
    Answer(
        400,
        {"Content-Type": "application/x-amz-json-1.0"},
        b'{"__type": "x#QueueDoesNotExist", "message": "m"}',
    ),
)


class ResponsesReader:
    """A probe or a sweep whose service answers anything: it gets what it can work with, or a RequestError."""

    def __init__(self, _folder: Path) -> None:
        self._runner = asyncio.Runner()
        self._server = _FalseServer()
        self._clients = AsyncExitStack()
        self._s3, self._sqs = self._runner.run(self._open())

    async def _open(self) -> tuple[AwsObjectStore, AwsMessageQueues]:
        await self._server.start()
        access = Access(
            region="eu-west-1",
            endpoint_url=self._server.url,
            credentials=Credentials(access_key="a", secret_key="b"),  # noqa: S106 - of nobody
            read_timeout_seconds=2.0,
        )
        enter = self._clients.enter_async_context
        return await enter(open_object_store(access)), await enter(open_message_queues(access))

    def close(self) -> None:
        """Ask and answer nobody any more."""
        self._runner.run(self._clients.aclose())
        self._runner.run(self._server.stop())
        self._runner.close()

    def feed(self, mutator: Mutator) -> None:
        """One request, and an answer that is bent."""
        client, requests = mutator.one_of(((self._s3, S3), (self._sqs, SQS)))
        request, answer = mutator.one_of(requests)
        if mutator.happens(0.1):
            answer = mutator.one_of(_ERRORS)
        elif answer.body.startswith(b"{"):
            answer = answer._replace(body=mutator.bent_json(json.loads(answer.body)))
        # A page that names another is followed; the next one is the last.
        self._server.answers = [answer.written(mutator), _json({}).written(Mutator("still", 0))]
        with suppress(RequestError):
            found = self._runner.run(asyncio.wait_for(request(client), SECONDS_MAX))
            assert _is_sound(found), found


def _is_sound(found: Any) -> bool:
    """Whether each piece is of the type that the seam names."""
    if isinstance(found, list | tuple):
        return all(map(_is_sound, found))
    if isinstance(found, dict):
        return all(isinstance(piece, str) for pair in found.items() for piece in pair)
    if dataclasses.is_dataclass(found):
        return all(isinstance(getattr(found, n), kind) for n, kind in get_type_hints(type(found)).items())
    return found is None or isinstance(found, str | bytes | int)
