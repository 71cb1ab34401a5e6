"""Knows how AWS is reached as configured: one client for each service and region, opened when first needed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Self

from penstock.daemon.config import Configuration
from penstock.probes.aws import open_message_queues, open_object_store
from penstock.probes.outside import MessageQueues, ObjectStore

_PING_CONNECTION_COUNT = 8  # beside those of the threads: creating, completing, deleting, long polls


class AwsOutside:
    """`penstock.daemon.services.Outside` on AWS, or on whatever endpoints the configuration names.

    A context manager: on leaving it, all clients are closed. Whoever uses them must have ended before.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._resources = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._stores: dict[str, ObjectStore] = {}
        self._queues: dict[str, MessageQueues] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._resources.aclose()

    async def object_store(self, region: str) -> ObjectStore:
        """S3 in this region. Raises Denied when there are no usable credentials."""
        async with self._opening:
            if region not in self._stores:
                aws = self._configuration.aws
                threads = self._configuration.probes.s3_upload.thread_count_max
                opened = open_object_store(
                    region=region,
                    endpoint_url=aws.s3_endpoint_url or None,
                    profile=aws.profile or None,
                    connection_count_max=threads + _PING_CONNECTION_COUNT,
                    connect_timeout_seconds=aws.connect_timeout_seconds,
                    read_timeout_seconds=aws.read_timeout_seconds,
                )
                self._stores[region] = await self._resources.enter_async_context(opened)
            return self._stores[region]

    async def message_queues(self, region: str) -> MessageQueues:
        """SQS in this region. Raises Denied when there are no usable credentials."""
        async with self._opening:
            if region not in self._queues:
                aws = self._configuration.aws
                threads = 3 * self._configuration.probes.sqs_delivery.thread_count_max
                opened = open_message_queues(
                    region=region,
                    endpoint_url=aws.sqs_endpoint_url or None,
                    profile=aws.profile or None,
                    connection_count_max=threads + _PING_CONNECTION_COUNT,
                    connect_timeout_seconds=aws.connect_timeout_seconds,
                    read_timeout_seconds=aws.read_timeout_seconds,
                )
                self._queues[region] = await self._resources.enter_async_context(opened)
            return self._queues[region]
