"""Knows the datagrams in which AWS SDKs report their calls ("SDK metrics", once "client-side monitoring"), version 1.

An SDK sends one JSON object for each attempt, and one for each call, with all its attempts. An attempt also contains
the access key and the session token that signed it. They have no field here, so they are skipped during parsing and
never become a value in this process; the same holds for the host, which names a bucket, and for request ids.

Anybody on the host can send anything: whatever is not such an object, or is out of bounds, is None.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from penstock.vocabulary import UNKNOWN

DATAGRAM_BYTES_MAX = 8192  # botocore and the other SDKs send nothing larger
LATENCY_SECONDS_MAX = 3600.0
_ATTEMPT_COUNT_MAX = 100
_TEXT_LENGTH_MAX = 256  # botocore truncates user agents to this
_REFUSED_STATUSES = frozenset({429, 503})
_REFUSED_ERROR = re.compile("Throttl|SlowDown|OverLimit|LimitExceeded|TooManyRequests")
_FAILED_STATUS_MIN = 500
_PRODUCT = re.compile(r"([A-Za-z][A-Za-z0-9._-]{0,39})/([A-Za-z0-9][A-Za-z0-9._+-]{0,31})(?= |$)")
_NAMED = re.compile(r"(?<= )app/([A-Za-z0-9._-]{1,50})(?= |$)")  # what AWS_SDK_UA_APP_ID adds
_WORD = re.compile(r"[A-Za-z0-9 ._-]{1,64}")
_CLIENT_ID = re.compile(r"[A-Za-z0-9 ._@:-]{0,64}")
_REGION = re.compile(r"[a-z0-9-]{0,32}")
_REMEMBERED_COUNT_MAX = 1024


class Application(Struct, frozen=True, kw_only=True):
    """The sending application: the name configured for it, if any, and its user agent's product and version."""

    name: str
    product: str
    version: str


class Key(Struct, frozen=True, kw_only=True, cache_hash=True):
    """What is tallied together."""

    application: Application
    service: str  # as botocore spells it: "S3", "SQS"
    api: str  # "UploadPart"
    region: str  # empty where the datagram has none


class Heard(Struct, frozen=True, kw_only=True):
    """One attempt, or one call with all its attempts."""

    key: Key
    latency_seconds: float
    is_call: bool
    attempt_count: int = 0  # of a call
    is_refused: bool = False  # of an attempt: throttled
    is_failed: bool = False  # of an attempt: the service or the connection failed


_Text = Annotated[str, Meta(max_length=_TEXT_LENGTH_MAX)]
_Milliseconds = Annotated[float, Meta(ge=0, le=1000 * LATENCY_SECONDS_MAX)]
_Status = Annotated[int, Meta(ge=0, le=999)]


class _Said(Struct, frozen=True, kw_only=True, tag_field="Type"):
    Service: _Text
    Api: _Text
    Version: Literal[1] = 1  # Go's SDK leaves it out of calls
    ClientId: _Text = ""
    Region: _Text = ""
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


def heard(datagram: bytes | memoryview) -> Heard | None:
    """What a datagram says; None where it is invalid."""
    if len(datagram) > DATAGRAM_BYTES_MAX:
        return None
    try:
        said = _DECODER.decode(datagram)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    key = _key(said.ClientId, said.UserAgent, said.Service, said.Api, said.Region)
    if key is None:
        return None
    if isinstance(said, _Call):
        seconds = said.Latency / 1000
        return Heard(key=key, latency_seconds=seconds, is_call=True, attempt_count=said.AttemptCount)
    status, error = said.HttpStatusCode, said.AwsException
    is_refused = status in _REFUSED_STATUSES or bool(error and _REFUSED_ERROR.search(error))
    is_failed = status >= _FAILED_STATUS_MIN or bool(said.SdkException)
    return Heard(
        key=key,
        latency_seconds=said.AttemptLatency / 1000,
        is_call=False,
        is_refused=is_refused,
        is_failed=is_failed and not is_refused,
    )


@lru_cache(maxsize=_REMEMBERED_COUNT_MAX)
def _key(client_id: str, user_agent: str, service: str, api: str, region: str) -> Key | None:
    """The key; None where a word is invalid. Cached: applications repeat themselves, and patterns are slow."""
    words = (_CLIENT_ID, client_id), (_WORD, service), (_WORD, api), (_REGION, region)
    if not all(pattern.fullmatch(word) for pattern, word in words):
        return None
    product = _PRODUCT.match(user_agent)
    named = _NAMED.search(user_agent)
    application = Application(
        name=client_id or (named.group(1) if named else ""),
        product=product.group(1) if product else UNKNOWN,
        version=product.group(2) if product else "",
    )
    return Key(application=application, service=service, api=api, region=region)
