"""Knows how AWS is reached as configured: one client for each service and region, opened when first needed.

aiobotocore is imported only then: it takes half a second, and as much memory as a quarter of the daemon's. A thread
imports it, so that the event loop goes on meanwhile.
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

_SMALL_CONNECTION_COUNT = 8  # beside those of threads, to create, complete, delete and read attributes

ClientT = TypeVar("ClientT")


class AwsOutside:
    """`penstock.operations.operation.Outside` on AWS, or on whatever endpoints the configuration names.

    A context manager: leaving it closes all clients; everything that uses them must have ended before.
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
        """The access, with as many connections as the service's most demanding operation: one probe runs at a time."""
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
        """The client for this access, opened if it is not yet."""
        async with self._opening:
            if access not in known:
                known[access] = await self._resources.enter_async_context(open_client(access))
            return known[access]


def access_to(configuration: Configuration, service: Service, region: str, thread_count_max: int) -> Access:
    """The configured access to a service, with a connection for each thread and some more."""
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
