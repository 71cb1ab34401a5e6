"""Knows how one of several processes moves what it is told, line by line, and ends with the process that tells it.

One event loop moves a few hundred MB/s, which on a large host measures the loop. So a probe may have its bodies
moved by several processes: `workers.py` starts each as `python -m penstock.probes.s3.worker` and speaks with it as
`penstock.probes.apart` says.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Literal, Protocol

import msgspec

from penstock.clock import SystemClock
from penstock.probes import apart
from penstock.probes.measurement import Effort, effort_of_block
from penstock.probes.outside import ANSWERED_BY, BodySender, RangeReader, RequestError
from penstock.probes.s3.payload import incompressible_payload


class Assignment(apart.Assignment, frozen=True, kw_only=True):
    """Where a worker moves bodies, and which. The body is made from its seed: no pipe is that fast."""

    bucket: str
    body_bytes: int
    body_seed: int
    loop_tick_seconds: float


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do."""

    action: Literal["part", "put", "read", "cancel", "begin", "end"]  # the last two: of measuring the effort
    number: int = 0  # of its answer; with "cancel", of the order that is not wanted any more
    key: str = ""
    upload_id: str = ""
    part_number: int = 0
    size_bytes: int = 0
    start: int = 0  # of a range
    object_size_bytes: int = 0


class Answer(apart.Answer, frozen=True, kw_only=True):
    """What came of an order."""

    etag: str = ""
    first_byte_seconds: float = 0.0
    effort: Effort | None = None


class BodyMover(BodySender, RangeReader, Protocol):
    """What takes a worker's time."""


class Worker:
    """Carries out orders side by side; `answer` is called for each that ended."""

    def __init__(self, store: BodyMover, assignment: Assignment, answer: asyncio.Queue[Answer]) -> None:
        self._store = store
        self._bucket = assignment.bucket
        self._body = incompressible_payload(assignment.body_bytes, assignment.body_seed)
        self._tick_seconds = assignment.loop_tick_seconds
        self._answers = answer
        self._moving: dict[int, asyncio.Task[None]] = {}
        self._measuring: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    def take(self, order: Order) -> None:
        """Begin with it."""
        if order.action == "begin":
            self._measuring = asyncio.create_task(self._measure(order.number))
        elif order.action == "end":
            self._ending.set()
        elif order.action == "cancel":
            if (task := self._moving.get(order.number)) is not None:
                task.cancel()
        else:
            task = asyncio.create_task(self._move(order))
            self._moving[order.number] = task
            task.add_done_callback(lambda _: self._moving.pop(order.number))

    async def _move(self, order: Order) -> None:
        addresses: Counter[str] = Counter()
        ANSWERED_BY.set(addresses)  # of this task alone
        try:
            answer = await self._moved(order)
        except RequestError as trouble:
            answer = Answer(number=order.number, trouble=type(trouble).__name__, sentence=str(trouble))
        self._answers.put_nowait(msgspec.structs.replace(answer, answered_by=addresses))

    async def _moved(self, order: Order) -> Answer:
        size, number = order.size_bytes, order.number
        if order.action == "read":
            reading = await self._store.read_range(
                self._bucket,
                order.key,
                order.start,
                order.start + size,
                object_size_bytes=order.object_size_bytes,
            )
            return Answer(number=number, first_byte_seconds=reading.first_byte_seconds)
        body = self._body if size == len(self._body) else self._body[:size]
        if order.action == "put":
            etag = await self._store.put_object(self._bucket, order.key, body)
            return Answer(number=number, etag=etag)
        etag = await self._store.upload_part(
            self._bucket, order.key, order.upload_id, order.part_number, body
        )
        return Answer(number=number, etag=etag)

    async def _measure(self, number: int) -> None:
        async with effort_of_block(SystemClock(), tick_seconds=self._tick_seconds) as effort:
            await self._ending.wait()
        self._answers.put_nowait(Answer(number=number, effort=effort))


async def work() -> None:
    """Until standard input ends."""
    # Half a second, of which the parent has no need.
    from penstock.probes.aws import Access, open_object_store

    assignment, reader = await apart.assigned(Assignment)
    answers: asyncio.Queue[Answer] = asyncio.Queue()
    telling = asyncio.create_task(_tell(answers))
    async with contextlib.AsyncExitStack() as resources:
        try:
            access = msgspec.json.decode(assignment.access, type=Access)
            store = await resources.enter_async_context(open_object_store(access))
        except RequestError as trouble:
            answers.put_nowait(
                Answer(number=apart.READY, trouble=type(trouble).__name__, sentence=str(trouble))
            )
            await reader.readline()
            return
        worker = Worker(store, assignment, answers)
        answers.put_nowait(Answer(number=apart.READY))
        while line := await reader.readline():
            worker.take(msgspec.json.decode(line, type=Order))
    telling.cancel()


async def _tell(answers: asyncio.Queue[Answer]) -> None:
    while True:
        apart.answer_with(await answers.get())


if __name__ == "__main__":
    import uvloop  # as in the daemon: the kernel counts what it sends for the process that sent it

    uvloop.run(work())
