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
from penstock.probes.outside import (
    MessageQueues,
    Missing,
    ObjectStore,
    ReceivedMessage,
    Refused,
    Throttled,
)
from penstock.trial.simulated_aws import SimulatedMessageQueues, SimulatedObjectStore
from penstock.units import MiB

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


def test_an_upload_can_be_made_listed_and_removed() -> None:
    """The whole life of a probe's object goes through the seam."""

    async def life(store: ObjectStore) -> list[list[str]]:
        upload_id = await store.create_multipart_upload("b", "p/k")
        etags = [await store.upload_part("b", "p/k", upload_id, n, bytes(5 * MiB)) for n in (1, 2)]
        assert await store.list_multipart_uploads("b", "p/") == [("p/k", upload_id)]
        await store.complete_multipart_upload("b", "p/k", upload_id, etags)
        await store.put_object("b", "other", b"x")
        seen = [await store.list_objects("b", "p/"), await store.list_objects("b", "")]
        await store.delete_object("b", "p/k")
        await store.delete_object("b", "p/k")
        return [*seen, await store.list_objects("b", "p/")]

    assert with_store(life) == [["p/k"], ["other", "p/k"], []]


def test_an_aborted_upload_leaves_nothing() -> None:
    """After the abort the upload is missing."""

    async def life(store: ObjectStore) -> list[tuple[str, str]]:
        upload_id = await store.create_multipart_upload("b", "k")
        await store.abort_multipart_upload("b", "k", upload_id)
        with pytest.raises(Missing):
            await store.upload_part("b", "k", upload_id, 1, b"x")
        return await store.list_multipart_uploads("b", "")

    assert with_store(life) == []


def test_errors_are_those_of_the_seam() -> None:
    """Missing, throttled and refused are told apart."""

    async def ask(store: ObjectStore) -> None:
        with pytest.raises(Missing):
            await store.put_object("nobody", "k", b"x")
        upload_id = await store.create_multipart_upload("b", "k")
        with pytest.raises(Refused):
            await store.complete_multipart_upload("b", "k", upload_id, ["wrong"])
        with pytest.raises(Throttled):
            await store.put_object("b", "k", b"x")

    with_store(ask, prefix_request_rate_per_second=8.0)


def test_messages_go_through_the_seam() -> None:
    """Send, receive and delete singly and in batches; the queue is found by name and gone after its deletion."""

    async def life(queues: MessageQueues) -> list[object]:
        url = await queues.create_queue("probe-1", {"VisibilityTimeout": "8"})
        assert await queues.find_queue("probe-1") == url
        seen: list[object] = [await queues.list_queues("probe"), await queues.send(url, ["a"])]
        seen.append(await queues.send(url, ["b"] * 9))
        received: list[ReceivedMessage] = []
        while len(received) < 10:
            received += await queues.receive(url, message_count_max=10, wait_seconds=1)
        seen.append((await queues.queue_attributes(url))["ApproximateNumberOfMessagesNotVisible"])
        handles = [message.receipt_handle for message in received]
        seen += [await queues.delete(url, handles[:1]), await queues.delete(url, [*handles[1:], "bad"])]
        await queues.delete_queue(url)
        with pytest.raises(Missing):
            await queues.find_queue("probe-1")
        return seen

    assert with_queues(life) == [["probe-1"], 1, 9, "10", 1, 9]


def test_too_many_sends_are_throttled() -> None:
    """The demo's queue takes 60 sends a second and says so."""

    async def hammer(queues: MessageQueues) -> None:
        url = await queues.create_queue("q", {})
        with pytest.raises(Throttled):
            await asyncio.gather(*(queues.send(url, ["x"]) for _ in range(30)))

    with_queues(hammer)
