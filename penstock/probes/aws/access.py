"""Knows where a service is, whose credentials are used, and how long it is waited for."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.units import KiB

# aiohttp opens connections as they are needed and closes them when idle, so that a large pool costs nothing;
# a small one would make requests wait inside the client, and the wait would be read as S3's latency.
CONNECTION_COUNT_MAX = 4096
CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 60.0  # above the longest poll of SQS, 20 s
BODY_RATE_BYTES_PER_SECOND_MIN = 64 * KiB  # a connection slower than this is called dead


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Explicit credentials; without them the usual chain is asked (environment, profile, instance role)."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where a service is, whose credentials are used, and how long it is waited for."""

    region: str | None  # None: as the environment says
    endpoint_url: str | None = None  # None: as the environment and the SDK's files say; empty: AWS's own
    profile: str | None = None
    credentials: Credentials | None = None
    requester_pays_buckets: frozenset[str] = frozenset()  # they answer nobody who does not say that he pays
    follows_bucket: bool = False  # into another region, which would be measured in place of this one
    connection_count_max: int = CONNECTION_COUNT_MAX
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS
