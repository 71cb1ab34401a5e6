"""Knows how AWS is reached as configured: one client for each service and region, opened when first needed.

aiobotocore is imported no earlier: a quarter of the daemon's memory, and half a second of its start. It is read in a
thread, so that the socket answers meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Self, TypeVar

from penstock.daemon.config import Configuration
from penstock.operations.operation import Service
from penstock.operations.sections.objects import ObjectSection
from penstock.probes.aws.access import Access
from penstock.probes.outside import MessageQueues, ObjectStore

if TYPE_CHECKING:
    from penstock.probes.aws.objects import AwsObjectStore
    from penstock.probes.aws.queues import AwsMessageQueues

_SMALL_CONNECTION_COUNT = 8  # beside those of the threads: creating, completing, deleting, attributes

ClientT = TypeVar("ClientT")


class AwsOutside:
    """`penstock.operations.operation.Outside` on AWS, or on whatever endpoints the configuration names.

    A context manager: on leaving it, all clients are closed. Whoever uses them must have ended before.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._resources = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._stores: dict[Access, AwsObjectStore] = {}
        self._queues: dict[Access, AwsMessageQueues] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._resources.aclose()

    async def object_store(self, region: str, endpoint_url: str | None = None) -> ObjectStore:
        """S3 in this region. Raises Denied when there are no usable credentials."""
        await _read_aws()
        from penstock.probes.aws.objects import open_object_store

        access = self._access(Service.S3, region, endpoint_url)
        return await self._opened(self._stores, access, open_object_store)

    async def message_queues(self, region: str, endpoint_url: str | None = None) -> MessageQueues:
        """SQS in this region. Raises Denied when there are no usable credentials."""
        await _read_aws()
        from penstock.probes.aws.queues import open_message_queues

        access = self._access(Service.SQS, region, endpoint_url)
        return await self._opened(self._queues, access, open_message_queues)

    def _access(self, service: Service, region: str, endpoint_url: str | None) -> Access:
        """With as many connections as the hungriest operation of the service needs: probes take turns."""
        enabled = self._configuration.enabled()
        needed = (section.connection_count_max for row, section in enabled if row.service is service)
        access = access_to(self._configuration, service, region, max(needed, default=0))
        return access if endpoint_url is None else replace(access, endpoint_url=endpoint_url)

    async def _opened(
        self,
        known: dict[Access, ClientT],
        access: Access,
        open_client: Callable[[Access], AbstractAsyncContextManager[ClientT]],
    ) -> ClientT:
        """The client of the place, opened when it is not there yet."""
        async with self._opening:
            if access not in known:
                known[access] = await self._resources.enter_async_context(open_client(access))
            return known[access]


def access_to(configuration: Configuration, service: Service, region: str, thread_count_max: int) -> Access:
    """As it is configured, with a connection for each of so many threads, and some beside."""
    aws = configuration.aws
    sections = (section for _, section in configuration.sections() if isinstance(section, ObjectSection))
    return Access(
        region=region,
        endpoint_url=aws.endpoint_urls[service],
        profile=aws.profile or None,
        connection_count_max=thread_count_max + _SMALL_CONNECTION_COUNT,
        connect_timeout_seconds=aws.connect_timeout_seconds,
        read_timeout_seconds=aws.read_timeout_seconds,
        requester_pays_buckets=frozenset(x.bucket_in(region) for x in sections if x.requester_pays),
    )


async def _read_aws() -> None:
    await asyncio.to_thread(import_module, "penstock.probes.aws.client")
