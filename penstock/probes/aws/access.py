"""Knows how a service is accessed: where it is, with which credentials, and how long an answer may take."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.units import KiB

# aiohttp opens connections when they are needed and closes them when idle, so a large pool costs nothing. In a small
# one requests would wait inside the client, and that would be measured as S3's latency.
CONNECTION_COUNT_MAX = 4096
CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 60.0  # above the longest poll of SQS, 20 s
BODY_RATE_BYTES_PER_SECOND_MIN = 64 * KiB  # a slower connection counts as dead


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Explicit credentials, instead of the SDK's chain (environment, profile, instance role)."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where a service is, which credentials are used, and the limits on connections and waiting."""

    region: str | None  # None: as the environment says
    endpoint_url: str | None = None  # None: as the environment and the SDK's files say; empty: AWS's own
    profile: str | None = None
    credentials: Credentials | None = None
    requester_pays_buckets: frozenset[str] = frozenset()  # they answer only requesters that agree to pay
    follows_bucket: bool = False  # by redirects to another region, which would then be measured
    connection_count_max: int = CONNECTION_COUNT_MAX
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS
