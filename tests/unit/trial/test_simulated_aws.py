"""The simulated outside keeps to the seams of the probes."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from penstock.lab.s3 import S3Service
from penstock.lab.sqs import SqsService
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.lab.worlds import DEMO
from penstock.probes.outside import MessageQueues, ObjectStore, Throttled
from penstock.trial.simulated_aws import SimulatedMessageQueues, SimulatedObjectStore
from tests.seams import messages_come_and_go, objects_come_and_go

ResultT = TypeVar("ResultT")


def with_store(story: Callable[[ObjectStore], Awaitable[ResultT]], **changes: float) -> ResultT:
    """Tell the story with a store that has the bucket `b`."""

    async def tell(clock: VirtualClock) -> ResultT:
        link = dataclasses.replace(DEMO.link, **changes)  # type: ignore[arg-type]  # only numbers are changed
        service = S3Service(link, clock=clock, seed=0)
        service.shelf.create_bucket("b")
        return await story(SimulatedObjectStore(service))

    return run_virtually(tell, start_at=datetime(2026, 1, 1, tzinfo=UTC))


def with_queues(story: Callable[[MessageQueues], Awaitable[ResultT]]) -> ResultT:
    """Tell the story with queues."""

    async def tell(clock: VirtualClock) -> ResultT:
        return await story(SimulatedMessageQueues(SqsService(DEMO.queue, clock=clock, seed=0)))

    return run_virtually(tell, start_at=datetime(2026, 1, 1, tzinfo=UTC))


def test_objects_come_and_go() -> None:
    """The whole life of a probe's object goes through the seam."""
    with_store(lambda store: objects_come_and_go(store, "b"))


def test_a_store_that_is_asked_too_much_says_so() -> None:
    """As the real one."""

    async def ask(store: ObjectStore) -> None:
        for _ in range(2):
            await store.put_object("b", "k", b"x")
        with pytest.raises(Throttled):
            await store.put_object("b", "k", b"x")

    with_store(ask, prefix_request_rate_per_second=8.0)


def test_messages_come_and_go() -> None:
    """Send, receive and delete singly and in batches; the queue is found by name and gone after its deletion."""
    with_queues(messages_come_and_go)


def test_too_many_sends_are_throttled() -> None:
    """The demo's queue takes 60 sends a second and says so."""

    async def hammer(queues: MessageQueues) -> None:
        url = await queues.create_queue("q", {})
        with pytest.raises(Throttled):
            await asyncio.gather(*(queues.send(url, ["x"]) for _ in range(30)))

    with_queues(hammer)
