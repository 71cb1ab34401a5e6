"""Knows the client's side of a simulated queue: an application that slows down as its heap fills.

The service is the lab's; this adds the effect of the host on its own requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.clock import Clock
from penstock.lab.sqs import QueueTruth, SqsService
from penstock.probes.outside import ReceivedMessage
from penstock.trial.simulated_aws import SimulatedMessageQueues

UNRESPONSIVE_SLOWDOWN = 4.0  # an application that is slower than this counts as unresponsive

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The truth about a queue and the host that uses it."""

    queue: QueueTruth
    heap_entry_count_max: int = 350_000  # of 1.2 KB each, which fill a micro instance
    collection_slowdown: float = 0.15  # times r/(1-r) with a heap filled to r


class Host(SimulatedMessageQueues):
    """The lab's queues, as one host reaches them."""

    def __init__(self, world: World, clock: Clock, *, seed: int) -> None:
        super().__init__(SqsService(world.queue, clock=clock, seed=seed))
        self.slowdown = 1.0
        self._world = world
        self._clock = clock

    async def send(self, url: str, bodies: Sequence[str], *, group_ids: Sequence[str] = ()) -> int:
        """As in the lab, slowed down by the host."""
        return await self._made(lambda: super(Host, self).send(url, bodies, group_ids=group_ids))

    async def receive(self, url: str, *, message_count_max: int, wait_seconds: int) -> list[ReceivedMessage]:
        """As in the lab, slowed down by the host."""
        return await self._made(
            lambda: super(Host, self).receive(
                url, message_count_max=message_count_max, wait_seconds=wait_seconds
            )
        )

    async def delete(self, url: str, receipt_handles: Sequence[str]) -> int:
        """As in the lab, slowed down by the host."""
        return await self._made(lambda: super(Host, self).delete(url, receipt_handles))

    async def _made(self, request: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Make the request, and wait longer the fuller the heap is."""
        began_seconds = self._clock.monotonic_seconds()
        result = await request()
        if self.slowdown > 1.0:
            await asyncio.sleep((self.slowdown - 1.0) * (self._clock.monotonic_seconds() - began_seconds))
        return result

    def collect(self, held_count: int) -> None:
        """Set the slowdown for an application that holds so many messages."""
        filled = held_count / self._world.heap_entry_count_max
        self.slowdown = 1.0 + self._world.collection_slowdown * filled / max(1.0 - filled, 1e-6)
