"""The simulated outside keeps to the seams of the probes."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from penstock.lab.s3 import S3Service
from penstock.lab.sqs import SqsService
from penstock.lab.virtual_time import VirtualClock
from penstock.lab.worlds import DEMO
from penstock.probes.outside import Throttled
from penstock.trial.simulated_aws import SimulatedMessageQueues, SimulatedObjectStore
from tests.seams import messages_come_and_go, objects_come_and_go


def a_store(clock: VirtualClock, **changes: float) -> SimulatedObjectStore:
    """One that has the bucket `b`."""
    link = dataclasses.replace(DEMO.link, **changes)  # type: ignore[arg-type]  # only numbers are changed
    service = S3Service(link, clock=clock, seed=0)
    service.shelf.create_bucket("b")
    return SimulatedObjectStore(service)


def some_queues(clock: VirtualClock) -> SimulatedMessageQueues:
    """Those of the demo."""
    return SimulatedMessageQueues(SqsService(DEMO.queue, clock=clock, seed=0))


async def test_objects_come_and_go(clock: VirtualClock) -> None:
    """The whole life of a probe's object goes through the seam."""
    await objects_come_and_go(a_store(clock), "b")


async def test_a_store_that_is_asked_too_much_says_so(clock: VirtualClock) -> None:
    """As the real one."""
    store = a_store(clock, prefix_request_rate_per_second=8.0)
    for _ in range(2):
        await store.put_object("b", "k", b"x")
    with pytest.raises(Throttled):
        await store.put_object("b", "k", b"x")


async def test_messages_come_and_go(clock: VirtualClock) -> None:
    """Send, receive and delete singly and in batches; the queue is found by name and gone after its deletion."""
    await messages_come_and_go(some_queues(clock))


async def test_too_many_sends_are_throttled(clock: VirtualClock) -> None:
    """The demo's queue takes 60 sends a second and says so."""
    queues = some_queues(clock)
    url = await queues.create_queue("q", {})
    with pytest.raises(Throttled):
        await asyncio.gather(*(queues.send(url, ["x"]) for _ in range(30)))
