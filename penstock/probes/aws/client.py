"""Knows how an aiobotocore client is opened for measuring, and whose credentials sign its requests.

Every option that could distort a measurement is explicit: one attempt for each call, a pool that never queues, no
checksums and no payload hashes (both would block the event loop, measured: 83 ms for 8 MiB), no silent redirect to
another region. `answers.py` has the meaning of errors.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiobotocore.config import AioConfig
from botocore.parsers import ResponseParserError

from penstock.clock import SystemClock
from penstock.probes.aws.access import Access
from penstock.probes.aws.answers import identified, is_unidentified, translated
from penstock.probes.aws.bodies import PacedBodySession
from penstock.probes.aws.credentials import in_time, session_of
from penstock.probes.outside import CONNECTION_IDLE_SECONDS_MAX

LOOK_AGAIN_SECONDS = 5.0  # between searches for other credentials, while the present ones are rejected
DNS_CACHE_SECONDS = 10  # short, because S3 spreads its load by changing DNS answers

_CLOCK = SystemClock()


@contextlib.asynccontextmanager
async def open_client(
    service: str, access: Access, *, s3: Mapping[str, object] | None = None
) -> AsyncIterator[Any]:  # Any: aiobotocore makes its clients at run time
    """A client for `s3` or `sqs`. Raises Denied when there are no usable credentials."""
    config = AioConfig(
        connect_timeout=access.connect_timeout_seconds,
        read_timeout=access.read_timeout_seconds,
        max_pool_connections=access.connection_count_max,
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        tcp_keepalive=True,
        s3=s3,
        ignore_configured_endpoint_urls=access.endpoint_url == "",
        http_session_cls=PacedBodySession,
        connector_args={
            "keepalive_timeout": CONNECTION_IDLE_SECONDS_MAX,
            "use_dns_cache": True,
            "ttl_dns_cache": DNS_CACHE_SECONDS,
        },
        warm_up_loader_caches=True,  # reads botocore's large JSON files outside the event loop
    )
    explicit = access.credentials and {
        "aws_access_key_id": access.credentials.access_key,
        "aws_secret_access_key": access.credentials.secret_key,
        "aws_session_token": access.credentials.session_token,
    }
    async with contextlib.AsyncExitStack() as stack:
        with identified():
            session = session_of(access)
            found = None if explicit else await in_time(session.get_credentials())
        with translated(f"setting up the client for {service}"):
            opening = session.create_client(
                service,
                region_name=access.region,
                endpoint_url=access.endpoint_url or None,
                config=config,
                **(explicit or {}),
            )
            client = await stack.enter_async_context(opening)
        client.meta.events.register(f"after-call.{service}", _refuse_a_page)
        if not explicit:
            identity = _Identity(found, access)
            client.meta.events.register(f"after-call.{service}", identity.note_answer)
            client.meta.events.register(f"before-sign.{service}", identity.sign)
        yield client


class _Identity:
    """The credentials that sign: those found first, until a service rejects them; then they are searched for again.

    The SDK renews temporary credentials by itself, but would not read a file again that somebody has renewed.
    """

    def __init__(self, found: Any, access: Access) -> None:  # Any: botocore has no types
        self._found = found  # credentials, or None
        self._access = access
        self._is_wanted = found is None
        self._look_seconds = 0.0  # not before that: many requests of a probe fail at once

    def note_answer(self, parsed: Mapping[str, Any], **_: Any) -> None:
        """Search again at the next request if the service rejected these credentials."""
        self._is_wanted = self._is_wanted or is_unidentified(parsed)

    async def sign(self, request: Any, **_: Any) -> None:
        """Set the credentials that sign a request, before each request."""
        seconds = _CLOCK.monotonic_seconds()
        if self._is_wanted and seconds >= self._look_seconds:
            self._look_seconds = seconds + LOOK_AGAIN_SECONDS
            with identified():
                self._found = await in_time(session_of(self._access).get_credentials()) or self._found
            self._is_wanted = self._found is None
        if self._found is not None:
            with identified():
                await in_time(self._found.get_frozen_credentials())
            request.context.setdefault("signing", {})["request_credentials"] = self._found


def _refuse_a_page(http_response: Any, model: Any, **_: Any) -> None:  # Any: botocore has no types
    """Refuse an HTML page, as captive portals send it: an answer without content could pass for success."""
    is_page = http_response.headers.get("content-type", "").startswith("text/html")
    if is_page and http_response.status_code < 300 and model.name != "GetObject":
        raise ResponseParserError("a page in HTML")
