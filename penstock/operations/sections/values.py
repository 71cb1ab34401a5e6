"""Knows the types of values in the configuration: their bounds, and how they are described to the operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from penstock.models.s3.parts import OBJECT_SIZE_BYTES_MAX
from penstock.units import MiB, format_bytes, parse_bytes, parse_seconds


@dataclass(frozen=True, slots=True)
class Kind:
    """How a type of value is read from text and described to the operator."""

    expected: str
    parse: Callable[[str], float] | None = None


def bounds(expected: str, *, parse: Callable[[str], float] | None = None, **limits: Any) -> Meta:
    r"""Bounds for msgspec (Any: numbers, lengths or patterns), together with words for people.

    Patterns end with \Z, because "$" would allow a line feed at the end, which templates and secrets often have.
    """
    return Meta(extra={"kind": Kind(expected, parse)}, **limits)


# A hundred years, so that dates stay below the year 9999: the longest gap between probes is forty mean intervals.
SECONDS_MAX = 36500 * 86400.0

Bytes: TypeAlias = Annotated[
    int, bounds('a size of at least 1 byte, such as "8MiB"', parse=parse_bytes, ge=1)
]
Seconds: TypeAlias = Annotated[
    float,
    bounds('a duration above 0 and up to 36500d, such as "15m"', parse=parse_seconds, gt=0, le=SECONDS_MAX),
]
Fraction: TypeAlias = Annotated[float, bounds("a fraction between 0 and 1", ge=0, le=1)]
Count: TypeAlias = Annotated[int, bounds("a whole number of at least 1", ge=1)]
Name: TypeAlias = Annotated[str, bounds("a name that is not empty", min_length=1)]
Directory: TypeAlias = Annotated[
    str, bounds('an absolute path, such as "/var/lib/penstock"', pattern=r"^/[^\0]*\Z")
]
Region: TypeAlias = Annotated[
    str, bounds('a region, such as "eu-central-1"', pattern=r"^[a-z0-9][a-z0-9-]*\Z")
]
Regions: TypeAlias = tuple[Region, ...]
EndpointUrl: TypeAlias = Annotated[
    str,
    bounds(
        'a URL without a user name, such as "http://127.0.0.1:9000"',
        pattern=r"^(https?://[^/@\s]+[^@\s]*)?\Z",
    ),
]
ThreadCount: TypeAlias = Annotated[int, bounds("a whole number from 1 to 1024", ge=1, le=1024)]
WorkerCount: TypeAlias = Annotated[int, bounds("a whole number from 1 to 64", ge=1, le=64)]
PayloadBytes: TypeAlias = Annotated[
    int,
    bounds(
        f'a size from 1 byte to {format_bytes(OBJECT_SIZE_BYTES_MAX)}, such as "64MiB"',
        parse=parse_bytes,
        ge=1,
        le=OBJECT_SIZE_BYTES_MAX,
    ),
]
PayloadSizes: TypeAlias = Annotated[
    tuple[PayloadBytes, ...], bounds("a list with at least one size", min_length=1)
]
MessageBytes: TypeAlias = Annotated[
    int, bounds('a size from 1 byte to 1MiB, such as "1KiB"', parse=parse_bytes, ge=1, le=MiB)
]
MessageSizes: TypeAlias = Annotated[
    tuple[MessageBytes, ...], bounds("a list with at least one size", min_length=1)
]
BucketName: TypeAlias = Annotated[
    str,
    bounds(
        'the name of a bucket, or the alias of an access point in one region, such as "my-bucket" or "probe-{region}", '
        'without "s3://"',
        pattern=r"^([a-z0-9{][a-z0-9.{}-]{1,80}[a-z0-9}](?<!\.mrap))?\Z",
    ),
]
KeyPrefix: TypeAlias = Annotated[
    str,
    bounds(
        'a prefix of keys that is not empty and ends with "/"',
        pattern=r"^(?!/)[^\0-\x1f\x7f]+/\Z",
        max_length=512,
    ),
]
ObjectKey: TypeAlias = Annotated[
    str,
    bounds('the key of an object, such as "data/part-0.parquet"', pattern=r"^([^/].*)?\Z", max_length=1024),
]
QueueNamePrefix: TypeAlias = Annotated[
    str, bounds("1 to 40 letters, digits, - or _", pattern=r"^[A-Za-z0-9_-]{1,40}\Z")
]
QueueName: TypeAlias = Annotated[
    str,
    bounds(
        "the name of a queue, not its URL", pattern=r"^([A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo)?\Z"
    ),
]
WatchInterval: TypeAlias = Annotated[
    float, bounds('a duration from 1s to 36500d, such as "15s"', parse=parse_seconds, ge=1, le=SECONDS_MAX)
]
MessageRate: TypeAlias = Annotated[float, bounds("messages a second, at least 0", ge=0)]
VisibilityTimeout: TypeAlias = Annotated[
    float,
    bounds(
        'whole seconds from 1 to 43200, such as "30s"', parse=parse_seconds, ge=1, le=43200, multiple_of=1
    ),
]
QueuePath: TypeAlias = Literal[
    "auto", "public-address", "interface-endpoint", "nat-gateway", "internet", "outside", "private"
]
ObjectPath: TypeAlias = Literal[
    "auto",
    "gateway-endpoint",
    "public-address",
    "interface-endpoint",
    "nat-gateway",
    "internet",
    "outside",
    "private",
]
SocketMode: TypeAlias = Annotated[
    str, bounds('octal permissions in quotes, such as "0666"', pattern=r"^0?[0-7]{3}\Z")
]
Port: TypeAlias = Annotated[int, bounds("a port from 1 to 65535", ge=1, le=65535)]
Usd: TypeAlias = Annotated[float, bounds("an amount in US dollars of at least 0", ge=0)]
Seed: TypeAlias = Annotated[int, bounds("a whole number from 0 to 2^63 - 1", ge=0, le=2**63 - 1)]
