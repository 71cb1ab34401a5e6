"""Knows how a host of its own makes an application's requests to a queue: a process for each, told line by line.

An application in one event loop is one processor of one host. For what a study did with two, `queue_hosts` starts as
many processes as `python -m penstock.experiments.queue_host`, and each request goes to the one that has fewest in
flight (`penstock.probes.apart`). What is sent, received and deleted stays with the application; queues are made and
removed by its own process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from penstock.probes import apart
from penstock.probes.apart import Apart
from penstock.probes.aws import Access, open_message_queues
from penstock.probes.outside import (
    ANSWERED_BY,
    Messages,
    ReceivedMessage,
    RequestError,
    Unreachable,
)

START_SECONDS_MAX = 60.0
_LINE_BYTES_MAX = 1 << 24
_GONE = "a process that made the requests ended by itself: was it killed for want of memory?"


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request."""

    number: int  # of its answer
    action: Literal["send", "receive", "delete"]
    url: str
    texts: Sequence[str] = ()  # bodies, or receipt handles
    message_count_max: int = 0
    wait_seconds: int = 0


class Answer(apart.Answer, frozen=True, kw_only=True, omit_defaults=True):
    """What came of it."""

    accepted_count: int = 0
    messages: Sequence[ReceivedMessage] = ()


@contextlib.asynccontextmanager
async def queue_hosts(count: int, access: Access) -> AsyncIterator[QueueHosts]:
    """So many processes, ready; on leaving none of them is left. Raises RequestError."""
    assignment = apart.Assignment(
        parent_process_id=os.getpid(), access=msgspec.Raw(msgspec.json.encode(access))
    )
    async with contextlib.AsyncExitStack() as working:
        try:
            hosts = await working.enter_async_context(
                apart.several(count, partial(_started, assignment), start_seconds_max=START_SECONDS_MAX)
            )
        except TimeoutError:
            raise Unreachable(f"{count} processes were not ready within {START_SECONDS_MAX:g} s") from None
        yield QueueHosts(hosts)


async def _started(assignment: apart.Assignment) -> Apart[Answer]:
    return await Apart.started(
        "penstock.experiments.queue_host", assignment, Answer, gone=_GONE, line_bytes_max=_LINE_BYTES_MAX
    )


class QueueHosts:
    """`Messages` by the hosts."""

    def __init__(self, hosts: Sequence[Apart[Answer]]) -> None:
        self._hosts = hosts

    async def send(self, url: str, bodies: Sequence[str], *, group_ids: Sequence[str] = ()) -> int:
        """See the seam; no host sends to a FIFO queue."""
        assert not group_ids
        return (await self._answered("send", url, texts=bodies)).accepted_count

    async def receive(self, url: str, *, message_count_max: int, wait_seconds: int) -> list[ReceivedMessage]:
        """See the seam."""
        answer = await self._answered(
            "receive", url, message_count_max=message_count_max, wait_seconds=wait_seconds
        )
        return list(answer.messages)

    async def delete(self, url: str, receipt_handles: Sequence[str]) -> int:
        """See the seam."""
        return (await self._answered("delete", url, texts=receipt_handles)).accepted_count

    async def _answered(self, action: str, url: str, **order: Any) -> Answer:  # Any: fields of an `Order`
        make = partial(_order, action=action, url=url, **order)
        return await apart.idlest(self._hosts).answered(make)


def _order(number: int, **fields: Any) -> Order:
    return Order(number=number, **fields)


async def work() -> None:
    """As a host, until standard input ends."""
    assignment, reader = await apart.assigned(apart.Assignment, line_bytes_max=_LINE_BYTES_MAX)
    async with contextlib.AsyncExitStack() as resources:
        try:
            access = msgspec.json.decode(assignment.access, type=Access)
            queues = await resources.enter_async_context(open_message_queues(access))
        except RequestError as trouble:
            apart.answer_with(
                Answer(number=apart.READY, trouble=type(trouble).__name__, sentence=str(trouble))
            )
            await reader.readline()
            return
        apart.answer_with(Answer(number=apart.READY))
        requests: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            task = asyncio.create_task(_carry_out(queues, msgspec.json.decode(line, type=Order)))
            requests.add(task)
            task.add_done_callback(requests.discard)
        for task in requests:
            task.cancel()


async def _carry_out(queues: Messages, order: Order) -> None:
    addresses: Counter[str] = Counter()
    ANSWERED_BY.set(addresses)  # of this task alone
    count, messages, trouble, sentence = 0, [], "", ""
    try:
        if order.action == "send":
            count = await queues.send(order.url, order.texts)
        elif order.action == "delete":
            count = await queues.delete(order.url, order.texts)
        else:
            messages = await queues.receive(
                order.url, message_count_max=order.message_count_max, wait_seconds=order.wait_seconds
            )
    except RequestError as error:
        trouble, sentence = type(error).__name__, str(error)
    apart.answer_with(
        Answer(
            number=order.number,
            accepted_count=count,
            messages=messages,
            answered_by=addresses,
            trouble=trouble,
            sentence=sentence,
        )
    )


if __name__ == "__main__":
    import uvloop

    uvloop.run(work())
