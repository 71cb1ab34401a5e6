"""Knows the datagrams in which AWS SDKs tell what they do ("SDK metrics", once "client-side monitoring"), version 1.

An SDK sends one JSON object for each attempt, and one for each call, which is all attempts together. An attempt also
holds the access key and the session token that signed it. They have no field here, so they are skipped while the text
is read and are never a value of this process; neither are the host, which names a bucket, and the ids of requests.

Anybody on the host can send anything: what is no such object, or is out of bounds, is None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

DATAGRAM_BYTES_MAX = 8192  # botocore and the other SDKs send nothing larger
LATENCY_SECONDS_MAX = 3600.0
_ATTEMPT_COUNT_MAX = 100
_TEXT_LENGTH_MAX = 256  # botocore cuts a user agent there
_REFUSED_STATUSES = frozenset({429, 503})
_REFUSED_ERROR = re.compile("Throttl|SlowDown|OverLimit|LimitExceeded|TooManyRequests")
_FAILED_STATUS_MIN = 500
_PRODUCT = re.compile(r"([A-Za-z][A-Za-z0-9._-]{0,39})/([A-Za-z0-9][A-Za-z0-9._+-]{0,31})(?= |$)")
_NAMED = re.compile(r"(?<= )app/([A-Za-z0-9._-]{1,50})(?= |$)")  # what AWS_SDK_UA_APP_ID adds
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """Whoever sends: the name that somebody gave it, if any, and the product and version of its user agent."""

    name: str
    product: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One attempt, or one call with all its attempts."""

    application: Application
    service: str  # as botocore spells it: "S3", "SQS"
    api: str  # "UploadPart"
    region: str  # empty where it was not told
    latency_seconds: float
    is_call: bool
    attempt_count: int  # of a call
    is_refused: bool  # of an attempt: the service asked for less
    is_failed: bool  # of an attempt: the service or the way to it broke


_Word = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9 ._-]{1,64}\Z")]
_Text = Annotated[str, Meta(max_length=_TEXT_LENGTH_MAX)]
_Milliseconds = Annotated[float, Meta(ge=0, le=1000 * LATENCY_SECONDS_MAX)]
_Status = Annotated[int, Meta(ge=0, le=999)]


class _Said(Struct, frozen=True, kw_only=True, tag_field="Type"):
    Version: Literal[1]
    Service: _Word
    Api: _Word
    ClientId: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9 ._@:-]{0,64}\Z")] = ""
    Region: Annotated[str, Meta(pattern=r"\A[a-z0-9-]{0,32}\Z")] = ""
    UserAgent: _Text = ""


class _Attempt(_Said, frozen=True, kw_only=True, tag="ApiCallAttempt"):
    AttemptLatency: _Milliseconds
    HttpStatusCode: _Status = 0
    AwsException: _Text = ""
    SdkException: _Text = ""


class _Call(_Said, frozen=True, kw_only=True, tag="ApiCall"):
    Latency: _Milliseconds
    AttemptCount: Annotated[int, Meta(ge=0, le=_ATTEMPT_COUNT_MAX)]


_DECODER = msgspec.json.Decoder(_Attempt | _Call)


def heard(datagram: bytes) -> Heard | None:
    """What it says; None where it says nothing that can be used."""
    if len(datagram) > DATAGRAM_BYTES_MAX:
        return None
    try:
        said = _DECODER.decode(datagram)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    application = _application(said.ClientId, said.UserAgent)
    if isinstance(said, _Call):
        return _heard(application, said, said.Latency, attempt_count=said.AttemptCount)
    is_refused = said.HttpStatusCode in _REFUSED_STATUSES or bool(_REFUSED_ERROR.search(said.AwsException))
    is_failed = said.HttpStatusCode >= _FAILED_STATUS_MIN or bool(said.SdkException)
    return _heard(
        application, said, said.AttemptLatency, is_refused=is_refused, is_failed=is_failed and not is_refused
    )


def _heard(
    application: Application,
    said: _Said,
    milliseconds: float,
    *,
    attempt_count: int = 0,
    is_refused: bool = False,
    is_failed: bool = False,
) -> Heard:
    return Heard(
        application=application,
        service=said.Service,
        api=said.Api,
        region=said.Region,
        latency_seconds=milliseconds / 1000,
        is_call=isinstance(said, _Call),
        attempt_count=attempt_count,
        is_refused=is_refused,
        is_failed=is_failed,
    )


def _application(client_id: str, user_agent: str) -> Application:
    product = _PRODUCT.match(user_agent)
    named = _NAMED.search(user_agent)
    return Application(
        name=client_id or (named.group(1) if named else ""),
        product=product.group(1) if product else UNKNOWN,
        version=product.group(2) if product else "",
    )
