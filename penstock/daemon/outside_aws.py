"""Knows how AWS is reached as configured: one client for each service and region, opened when first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Self, TypeVar

from penstock.daemon.config import Configuration
from penstock.operations.operation import Service
from penstock.probes.aws import (
    Access,
    AwsMessageQueues,
    AwsObjectStore,
    open_message_queues,
    open_object_store,
)
from penstock.probes.outside import MessageQueues, ObjectStore

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
        self._stores: dict[str, AwsObjectStore] = {}
        self._queues: dict[str, AwsMessageQueues] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._resources.aclose()

    async def object_store(self, region: str) -> ObjectStore:
        """S3 in this region. Raises Denied when there are no usable credentials."""
        access = self._access(Service.S3, region, self._configuration.aws.s3_endpoint_url)
        return await self._opened(self._stores, access, open_object_store)

    async def message_queues(self, region: str) -> MessageQueues:
        """SQS in this region. Raises Denied when there are no usable credentials."""
        access = self._access(Service.SQS, region, self._configuration.aws.sqs_endpoint_url)
        return await self._opened(self._queues, access, open_message_queues)

    def _access(self, service: Service, region: str, endpoint_url: str) -> Access:
        """With as many connections as the hungriest operation of the service needs: probes take turns."""
        aws = self._configuration.aws
        enabled = self._configuration.enabled()
        needed = (section.connection_count_max for row, section in enabled if row.service is service)
        return Access(
            region=region,
            endpoint_url=endpoint_url or None,
            profile=aws.profile or None,
            connection_count_max=max(needed, default=0) + _SMALL_CONNECTION_COUNT,
            connect_timeout_seconds=aws.connect_timeout_seconds,
            read_timeout_seconds=aws.read_timeout_seconds,
        )

    async def _opened(
        self,
        known: dict[str, ClientT],
        access: Access,
        open_client: Callable[[Access], AbstractAsyncContextManager[ClientT]],
    ) -> ClientT:
        """The client of the region, opened when it is not there yet."""
        async with self._opening:
            assert access.region is not None
            if access.region not in known:
                known[access.region] = await self._resources.enter_async_context(open_client(access))
            return known[access.region]
