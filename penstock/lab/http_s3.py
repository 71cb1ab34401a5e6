"""Knows how S3 speaks HTTP: serves the lab's S3 to unmodified clients, path style, without checking signatures.

Bodies cross the link as they are read from the socket, at most one chunk ahead, so that TCP slows the client to the
link's rate. Bodies may be plain or aws-chunked, with checksums in headers or trailers. CRC-32 is verified, other
checksums are not; all are returned as S3 does.
"""

from __future__ import annotations

import asyncio
import base64
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import aiohttp
from aiohttp import HttpVersion11, web
from aiohttp.typedefs import Handler

from penstock.lab.link import Link, Stream
from penstock.lab.s3 import Body, S3Error, S3Service, StoredObject
from penstock.units import KiB, MiB

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_KEPT_BODY_BYTES_MAX = 1 * MiB
_WRITE_CHUNK_BYTES = 256 * KiB
_DOCUMENT_BYTES_MAX = 4 * MiB  # of a request's XML, enough for ten thousand parts
_CHECKSUM = "x-amz-checksum-"
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")
_HEXADECIMAL = re.compile(rb"[0-9A-Fa-f]+")
# Subresources that are served. Other parameters without a value ask for one that is not, such as tagging or an ACL.
_SERVED = frozenset({"uploads", "delete", "location", "versioning"})
_LISTING = frozenset({"prefix", "delimiter", "encoding-type", "fetch-owner"}) | frozenset(
    {"marker", "start-after", "continuation-token", "key-marker", "upload-id-marker"}
)
_NOT_CHECKSUMS = frozenset({"x-amz-checksum-algorithm", "x-amz-checksum-type", "x-amz-checksum-mode"})


def s3_application(service: S3Service) -> web.Application:
    """The web application that serves this S3."""
    return one_way(_Face(service).answer, service)


def one_way(answer: Handler, path: S3Service) -> web.Application:
    """A web application that passes all requests to `answer`; `Expect: 100-continue` costs another round trip."""

    async def say_continue(request: web.Request) -> None:
        if request.version == HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue":
            await asyncio.sleep(path.truth.round_trip_seconds)
            if request.transport is not None:  # the client is still connected
                request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer, expect_handler=say_continue)
    return application


@dataclass(frozen=True, slots=True)
class _Call:
    """One request, with the bucket and key of its URL."""

    request: web.Request
    bucket: str
    key: str

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query

    @property
    def headers(self) -> Mapping[str, str]:
        return self.request.headers

    def has(self, *names: str) -> bool:
        return all(name in self.request.query for name in names)


class _Face:
    def __init__(self, service: S3Service) -> None:
        self._service = service
        self._shelf = service.shelf

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = unquote(request.rel_url.raw_path).lstrip("/")
        bucket, _, key = path.partition("/")
        call = _Call(request, bucket, key)
        try:
            return await self._action(call)(call)
        except S3Error as error:
            return _error_response(call, error)

    def _action(self, call: _Call) -> Callable[[_Call], Awaitable[web.StreamResponse]]:
        if any(not value and name not in _SERVED | _LISTING for name, value in call.query.items()):
            return self._not_implemented
        if call.key:
            return self._object_action(call)
        if call.bucket:
            return self._bucket_action(call)
        return self._list_buckets

    def _object_action(self, call: _Call) -> Callable[[_Call], Awaitable[web.StreamResponse]]:
        is_part = call.has("uploadId")
        by_method = {
            "PUT": self._put_part if is_part else self._put_object,
            "GET": self._list_parts if is_part else self._get_object,
            "HEAD": self._head_object,
            "DELETE": self._abort_upload if is_part else self._delete_object,
            "POST": self._complete_upload if is_part else self._create_upload,
        }
        return by_method.get(call.request.method, self._not_implemented)

    def _bucket_action(self, call: _Call) -> Callable[[_Call], Awaitable[web.StreamResponse]]:
        method = call.request.method
        if method == "GET":
            by_query = {
                "uploads": self._list_uploads,
                "location": self._empty("LocationConstraint"),
                "versioning": self._empty("VersioningConfiguration"),
            }
            known = next((action for name, action in by_query.items() if call.has(name)), None)
            return known or self._list_objects
        by_method = {
            "PUT": self._create_bucket,
            "HEAD": self._head_bucket,
            "DELETE": self._delete_bucket,
            "POST": self._delete_objects if call.has("delete") else self._not_implemented,
        }
        return by_method.get(method, self._not_implemented)

    # Buckets

    async def _list_buckets(self, _call: _Call) -> web.Response:
        await self._service.answer_delay()
        found = "".join(
            f"<Bucket>{_elements(Name=name, CreationDate=_iso(created_at))}</Bucket>"
            for name, created_at in self._shelf.buckets()
        )
        return _xml("ListAllMyBucketsResult", f"<Buckets>{found}</Buckets>")

    async def _create_bucket(self, call: _Call) -> web.Response:
        await self._service.answer_delay()
        self._shelf.create_bucket(call.bucket)
        return web.Response(headers={"Location": f"/{call.bucket}"})

    async def _head_bucket(self, call: _Call) -> web.Response:
        await self._service.small_request(call.bucket)
        self._shelf.check_bucket(call.bucket)
        return web.Response(headers={"x-amz-bucket-region": "us-east-1"})

    async def _delete_bucket(self, call: _Call) -> web.Response:
        await self._service.small_request(call.bucket)
        self._shelf.delete_bucket(call.bucket)
        return web.Response(status=204)

    async def _list_objects(self, call: _Call) -> web.Response:
        await self._service.small_request(call.bucket)
        return _listing(call, self._shelf.objects(call.bucket, call.query.get("prefix", "")))

    async def _list_uploads(self, call: _Call) -> web.Response:
        await self._service.small_request(call.bucket)
        prefix = call.query.get("prefix", "")
        found = "".join(
            f"<Upload>{_elements(Key=key, UploadId=upload_id, Initiated=_iso(started_at))}</Upload>"
            for key, upload_id, started_at in self._shelf.uploads(call.bucket, prefix)
        )
        head = _elements(Bucket=call.bucket, Prefix=prefix, IsTruncated="false")
        return _xml("ListMultipartUploadsResult", head + found)

    async def _delete_objects(self, call: _Call) -> web.Response:
        if "Content-MD5" not in call.headers and not _checksums(call.headers):
            raise S3Error("InvalidRequest", "Missing required header for this request: Content-MD5")
        document = await _document(call)
        await self._service.small_request(call.bucket)
        keys = [entry.findtext("{*}Key", "") for entry in document.iterfind("{*}Object")]
        self._shelf.delete_all(call.bucket, keys)
        is_quiet = document.findtext("{*}Quiet", "false") == "true"
        deleted = (f"<Deleted>{_elements(Key=key)}</Deleted>" for key in keys)
        return _xml("DeleteResult", "" if is_quiet else "".join(deleted))

    def _empty(self, name: str) -> Callable[[_Call], Awaitable[web.StreamResponse]]:
        async def answer(call: _Call) -> web.StreamResponse:
            await self._service.small_request(call.bucket)
            self._shelf.check_bucket(call.bucket)
            return _xml(name, "")

        return answer

    # Objects

    async def _put_object(self, call: _Call) -> web.Response:
        source = call.headers.get("x-amz-copy-source")
        if source is not None:
            return await self._copy_object(call, unquote(source))
        body = await self._receive(call)
        self._check_write(call)
        self._shelf.put(call.bucket, call.key, body)
        return web.Response(headers=_body_headers(body, is_checked=True))

    async def _copy_object(self, call: _Call, source: str) -> web.Response:
        await self._service.small_request(call.bucket)
        from_bucket, _, from_key = source.lstrip("/").partition("/")
        body = self._shelf.get(from_bucket, from_key).body
        copied = self._shelf.body(body.size_bytes, body.content)
        stored = self._shelf.put(call.bucket, call.key, copied)
        inner = _elements(ETag=_quoted(copied), LastModified=_iso(stored.modified_at))
        return _xml("CopyObjectResult", inner)

    async def _head_object(self, call: _Call) -> web.Response:
        stored = await self._service.find(call.bucket, call.key)
        _check_read(call, stored)
        await self._service.first_byte(stored, 0, 0)
        headers = _object_headers(call, stored, is_whole=True)
        return web.Response(headers={**headers, "Content-Length": str(stored.body.size_bytes)})

    async def _get_object(self, call: _Call) -> web.StreamResponse:
        stored = await self._service.find(call.bucket, call.key)
        _check_read(call, stored)
        size_bytes = stored.body.size_bytes
        wanted = _byte_range(call.headers.get("Range"), size_bytes)
        start, stop = wanted or (0, size_bytes)
        await self._service.first_byte(stored, start, stop)
        response = web.StreamResponse(status=206 if wanted else 200)
        response.headers.update(_object_headers(call, stored, is_whole=wanted is None))
        if wanted:
            response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size_bytes}"
        response.content_length = stop - start
        await response.prepare(call.request)
        async for piece in _paced_out(self._service.downlink, stored.body, start, stop):
            await response.write(piece)
        await response.write_eof()
        return response

    def _check_write(self, call: _Call) -> None:
        """Check the conditions of a write (If-Match, If-None-Match). Raises S3Error."""
        tag, none = call.headers.get("If-Match"), call.headers.get("If-None-Match")
        if none is not None and self._shelf.holds(call.bucket, call.key):
            raise _unmet("If-None-Match")
        if tag is not None and not _names(tag, self._shelf.get(call.bucket, call.key)):
            raise _unmet("If-Match")

    async def _delete_object(self, call: _Call) -> web.Response:
        await self._service.small_request(call.bucket)
        self._shelf.delete(call.bucket, call.key)
        return web.Response(status=204)

    # Multipart uploads

    async def _create_upload(self, call: _Call) -> web.Response:
        await self._service.small_request(call.bucket)
        upload_id = self._shelf.create_upload(call.bucket, call.key)
        inner = _elements(Bucket=call.bucket, Key=call.key, UploadId=upload_id)
        response = _xml("InitiateMultipartUploadResult", inner)
        for name in ("x-amz-checksum-algorithm", "x-amz-checksum-type"):
            if name in call.headers:
                response.headers[name] = call.headers[name]
        return response

    async def _put_part(self, call: _Call) -> web.Response:
        if "x-amz-copy-source" in call.headers:
            raise S3Error("NotImplemented", "parts cannot be copied here")
        body = await self._receive(call)
        number = _number(call.query.get("partNumber", "0"), "partNumber")
        self._shelf.put_part(call.bucket, call.key, call.query["uploadId"], number, body)
        return web.Response(headers=_body_headers(body, is_checked=True))

    async def _list_parts(self, call: _Call) -> web.Response:
        await self._service.small_request(call.bucket)
        parts = self._shelf.parts(call.bucket, call.key, call.query["uploadId"])
        found = "".join(
            f"<Part>{_elements(PartNumber=str(number), ETag=_quoted(body), Size=str(body.size_bytes))}</Part>"
            for number, body in parts.items()
        )
        head = _elements(Bucket=call.bucket, Key=call.key, IsTruncated="false")
        return _xml("ListPartsResult", head + found)

    async def _complete_upload(self, call: _Call) -> web.Response:
        document = await _document(call)
        named = [
            (_number(part.findtext("{*}PartNumber", "0"), "PartNumber"), part.findtext("{*}ETag", ""))
            for part in document.iterfind("{*}Part")
        ]
        self._check_write(call)
        stored = await self._service.complete_upload(call.bucket, call.key, call.query["uploadId"], named)
        inner = _elements(Bucket=call.bucket, Key=call.key, ETag=_quoted(stored.body))
        return _xml("CompleteMultipartUploadResult", inner)

    async def _abort_upload(self, call: _Call) -> web.Response:
        await self._service.small_request(call.bucket)
        self._shelf.abort_upload(call.bucket, call.key, call.query["uploadId"])
        return web.Response(status=204)

    async def _not_implemented(self, call: _Call) -> web.Response:
        raise S3Error("NotImplemented", f"{call.request.method} {call.request.path_qs} is not served here")

    async def _receive(self, call: _Call) -> Body:
        """Receive a body at the link's rate, verify it, and wait as long as S3 takes to answer. Raises S3Error."""
        await self._service.admit(call.bucket)
        self._shelf.check_bucket(call.bucket)
        intake = _Intake(is_chunked=_is_aws_chunked(call.headers))
        async with aclosing(carried(self._service.uplink, call.request.content)) as body:
            async for piece in body:
                intake.feed(piece)
        checksums = _checksums({**call.headers, **intake.finish()})
        intake.verify(checksums, call.headers)
        await self._service.answer_delay()
        is_later_part = call.query.get("partNumber", "1") != "1"
        is_whole = intake.size_bytes == len(intake.content)
        content = bytes(intake.content) if is_whole or not is_later_part else None
        return self._shelf.body(intake.size_bytes, content, tuple(checksums.items()))


@dataclass(slots=True)
class _Intake:
    """The part of a body received so far, without the framing of aws-chunked."""

    is_chunked: bool
    size_bytes: int = 0
    crc32: int = 0
    content: bytearray = field(default_factory=bytearray)  # the first bytes, as far as they may be kept
    _rest: bytes = b""  # incomplete framing
    _missing_bytes: int = 0  # of the current chunk
    _is_last: bool = False

    def feed(self, raw: bytes) -> None:
        if not self.is_chunked:
            self._take(raw)
            return
        view = self._rest + raw if self._rest else raw
        at = 0
        while at < len(view) and not self._is_last:
            if self._missing_bytes:
                piece = view[at : at + self._missing_bytes]
                self._missing_bytes -= len(piece)
                at += len(piece)
                self._take(piece)
                continue
            line_end = view.find(b"\r\n", at)
            if line_end < 0:
                break
            size_text = view[at:line_end].partition(b";")[0]
            at = line_end + 2
            if size_text:  # an empty line ends the previous chunk
                self._missing_bytes = _chunk_size(size_text)
                self._is_last = self._missing_bytes == 0
        self._rest = view[at:]

    def finish(self) -> dict[str, str]:
        """The trailers, by lower-case name. Raises S3Error if the body is incomplete."""
        if self.is_chunked and not self._is_last:
            raise S3Error("IncompleteBody", "the body ended before its last chunk")
        lines = self._rest.decode("latin-1").split("\r\n")
        return {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
            if value
        }

    def verify(self, checksums: Mapping[str, str], headers: Mapping[str, str]) -> None:
        """Compare the stated length and CRC-32 with the received body. Raises S3Error."""
        promised = headers.get("x-amz-decoded-content-length") if self.is_chunked else None
        if promised is not None and _number(promised, "x-amz-decoded-content-length") != self.size_bytes:
            raise S3Error("IncompleteBody", f"{promised} bytes were promised, {self.size_bytes} came")
        crc32 = checksums.get(f"{_CHECKSUM}crc32")
        if crc32 is not None and crc32 != base64.b64encode(self.crc32.to_bytes(4, "big")).decode():
            raise S3Error("BadDigest", "the CRC32 you specified did not match what was received")

    def _take(self, piece: bytes) -> None:
        self.size_bytes += len(piece)
        self.crc32 = zlib.crc32(piece, self.crc32)
        if len(self.content) <= _KEPT_BODY_BYTES_MAX:
            self.content += piece


def _chunk_size(text: bytes) -> int:
    if not _HEXADECIMAL.fullmatch(text):
        raise S3Error("InvalidRequest", "the aws-chunked body has a chunk without a size")
    return int(text, 16)


async def carried(link: Link, content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """The body in pieces as they cross the link; one more piece is always queued, so that the stream never idles."""
    stream = Stream(link)
    under_way: tuple[asyncio.Future[None], bytes] | None = None
    try:
        async for raw in content.iter_any():
            before, under_way = under_way, (stream.push(len(raw)), raw)
            if before is not None:
                await before[0]
                yield before[1]
        if under_way is not None:
            await under_way[0]
            yield under_way[1]
    finally:
        stream.close()


async def _paced_out(link: Link, body: Body, start: int, stop: int) -> AsyncIterator[bytes]:
    stream = Stream(link)
    try:
        before = stream.push(min(_WRITE_CHUNK_BYTES, stop - start))
        for at in range(start, stop, _WRITE_CHUNK_BYTES):
            following = at + _WRITE_CHUNK_BYTES
            after = stream.push(max(0, min(_WRITE_CHUNK_BYTES, stop - following)))
            await before
            before = after
            yield body.read(at, min(following, stop))
    finally:
        stream.close()


def _is_aws_chunked(headers: Mapping[str, str]) -> bool:
    return "aws-chunked" in headers.get("Content-Encoding", "") or headers.get(
        "x-amz-content-sha256", ""
    ).startswith("STREAMING-")


def _checksums(headers: Mapping[str, str]) -> dict[str, str]:
    lowered = {name.lower(): value for name, value in headers.items()}
    return {n: v for n, v in lowered.items() if n.startswith(_CHECKSUM) and n not in _NOT_CHECKSUMS}


async def _document(call: _Call) -> ET.Element:
    intake = _Intake(is_chunked=_is_aws_chunked(call.headers))
    text = bytearray()
    async for raw in call.request.content.iter_any():
        text += raw
        if len(text) > _DOCUMENT_BYTES_MAX:
            raise S3Error("MalformedXML", "the document is too long")
    intake.feed(bytes(text))
    try:
        return ET.fromstring(bytes(intake.content) if intake.is_chunked else bytes(text))  # noqa: S314  # loopback
    except ET.ParseError:
        raise S3Error("MalformedXML", "the document cannot be read") from None


def _number(text: str, name: str) -> int:
    """A count in a URL or document. Raises S3Error."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise S3Error("InvalidArgument", f"{name} is no whole number from 0 on")
    return int(text)


def _names(tags: str, stored: StoredObject) -> bool:
    """Whether one of these ETags is that of the object."""
    return tags.strip() == "*" or stored.body.etag in {tag.strip().strip('"') for tag in tags.split(",")}


def _check_read(call: _Call, stored: StoredObject) -> None:
    """Check the conditions of a read (If-Match, If-None-Match). Raises S3Error."""
    if not _names(call.headers.get("If-Match", "*"), stored):
        raise _unmet("If-Match")
    if _names(call.headers.get("If-None-Match", ""), stored):
        raise S3Error("NotModified", "it is as it was")


def _unmet(condition: str) -> S3Error:
    return S3Error("PreconditionFailed", f"the condition {condition} does not hold")


def _byte_range(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """Start and stop of a range; None for the whole object, also if the header is malformed. Raises S3Error."""
    match = _RANGE.fullmatch(header or "")
    if match is None:
        return None
    first, last = match.groups()
    if not first:
        start, stop = max(0, size_bytes - int(last or 0)), size_bytes
    elif last and int(last) < int(first):
        return None
    else:
        start, stop = int(first), min(size_bytes, int(last) + 1) if last else size_bytes
    if start >= stop:
        raise S3Error("InvalidRange", f"the object has {size_bytes} bytes")
    return start, stop


def _body_headers(body: Body, *, is_checked: bool) -> dict[str, str]:
    return {"ETag": _quoted(body), **(dict(body.checksums) if is_checked else {})}


def _quoted(body: Body) -> str:
    return f'"{body.etag}"'


def _object_headers(call: _Call, stored: StoredObject, *, is_whole: bool) -> dict[str, str]:
    asks = call.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED"
    is_checked = asks and is_whole and stored.body.content is not None
    return {
        **_body_headers(stored.body, is_checked=is_checked),
        "Accept-Ranges": "bytes",
        "Content-Type": "binary/octet-stream",
        "Last-Modified": format_datetime(stored.modified_at.astimezone(UTC), usegmt=True),
    }


def _listing(call: _Call, objects: Iterable[StoredObject]) -> web.Response:
    """One page of ListObjects, version 1 or 2."""
    query = call.query
    is_new = query.get("list-type") == "2"
    after = (
        query.get("continuation-token") or query.get("start-after", "") if is_new else query.get("marker", "")
    )
    count_max = min(1000, _number(query.get("max-keys", "1000"), "max-keys"))
    encodes = query.get("encoding-type") == "url"
    text = (lambda value: quote(value, safe="/")) if encodes else str
    rows, next_key, count = [], "", 0
    for name, stored in _entries(objects, query.get("prefix", ""), query.get("delimiter", ""), after):
        if count == count_max:
            break
        next_key, count = name, count + 1
        rows.append(_row(text(name), stored))
    else:
        next_key = ""
    said = {
        "MaxKeys": str(count_max),
        "IsTruncated": "true" if next_key else "false",
        "Delimiter": text(query.get("delimiter", "")),
        "EncodingType": "url" if encodes else "",
        "KeyCount": str(count) if is_new else "",
        "NextContinuationToken": next_key if is_new else "",
        "NextMarker": "" if is_new else text(next_key),
    }
    head = _elements(Name=call.bucket, Prefix=text(query.get("prefix", "")))
    head += _elements(**{name: value for name, value in said.items() if value})
    return _xml("ListBucketResult", head + "".join(rows))


def _entries(
    objects: Iterable[StoredObject], prefix: str, delimiter: str, after: str
) -> Iterator[tuple[str, StoredObject | None]]:
    """Keys with their objects, and common prefixes with None, in order, after `after`."""
    last_common = ""
    for stored in objects:
        head, found, _ = stored.key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        common = prefix + head + found if found else ""
        name = common or stored.key
        if name <= after or (common and common == last_common):
            continue
        last_common = common
        yield name, None if common else stored


def _row(name: str, stored: StoredObject | None) -> str:
    if stored is None:
        return f"<CommonPrefixes>{_elements(Prefix=name)}</CommonPrefixes>"
    body, modified_at = stored.body, _iso(stored.modified_at)
    said = _elements(Key=name, LastModified=modified_at, ETag=_quoted(body), Size=str(body.size_bytes))
    return f"<Contents>{said}<StorageClass>STANDARD</StorageClass></Contents>"


def _error_response(call: _Call, error: S3Error) -> web.Response:
    if call.request.method == "HEAD" or error.status == HTTPStatus.NOT_MODIFIED:
        return web.Response(status=error.status)
    inner = _elements(Code=error.code, Message=error.message, Resource=call.request.path)
    document = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{inner}</Error>'
    return web.Response(status=error.status, text=document, content_type="application/xml")


def _xml(name: str, inner: str) -> web.Response:
    document = f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} xmlns="{_NAMESPACE}">{inner}</{name}>'
    return web.Response(text=document, content_type="application/xml")


def _elements(**texts: str) -> str:
    return "".join(f"<{name}>{escape(text)}</{name}>" for name, text in texts.items())


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
