"""Knows how several worker processes move a probe's bodies: how many are needed, how they are started and ended.

The probe still decides which request goes when, counts what it costs and removes what it wrote; the processes only move
bodies. Each request goes to the process with the fewest in flight, so that they share the threads evenly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from math import ceil, inf
from typing import Any, Protocol

from penstock.clock import Clock
from penstock.probes.apart import Apart, several
from penstock.probes.aws.access import Access
from penstock.probes.measurement import Effort, busiest, effort_of_block
from penstock.probes.outside import BodySender, RangeReader, Reading, RequestError
from penstock.probes.s3.worker import Held
from penstock.processes.companion import STOP_SECONDS_MAX, Companion
from penstock.processes.dialogue import GoneError
from penstock.units import MiB

START_SECONDS_MAX = 20.0  # importing the SDK takes a second on an idle processor
BODIES_BYTES_MAX = 512 * MiB  # each process holds the body of a part
_MODULE = "penstock.probes.s3.worker"
_GONE = "a process of the probe ended unexpectedly: was it killed for lack of memory?"
# Of a processor, by the process itself: where other programs crowd it, more processes would not help.
_FULL_FRACTION = 0.8
_COMFORTABLE_FRACTION = 0.6  # a busier loop adds to every latency
_log = logging.getLogger(__name__)


class WorkerError(RuntimeError):
    """A process did not start; the message says why."""


@dataclass(slots=True)
class Staffing:
    """How many processes a number of threads needs, learned from how busy they were: one, until that is too slow."""

    worker_count_max: int
    _threads_per_worker: dict[int, float] = field(default_factory=dict)  # by octave of the body's size

    def worker_count(self, thread_count: int, body_bytes: int) -> int:
        """As many as keep each below a comfortable load, within the bounds on processes, threads and memory."""
        share = self._threads_per_worker.get(body_bytes.bit_length(), inf)
        affordable = max(1, BODIES_BYTES_MAX // max(body_bytes, 1))
        return max(1, min(ceil(thread_count / share), thread_count, self.worker_count_max, affordable))

    def learn(self, effort: Effort, *, thread_count: int, worker_count: int, body_bytes: int) -> None:
        """Halve the threads per process after one was full; allow more per process after they were idle."""
        size, busy = body_bytes.bit_length(), effort.client_cpu_fraction
        share, known = thread_count / worker_count, self._threads_per_worker.get(size, inf)
        if busy >= _FULL_FRACTION:
            self._threads_per_worker[size] = max(1.0, min(known, share) / 2)
        elif known < inf and busy > 0:
            self._threads_per_worker[size] = max(known, share * _COMFORTABLE_FRACTION / busy)


def processor_count() -> int:
    """The count of processors that this process may run on."""
    return len(os.sched_getaffinity(0))


class Workers(BodySender, RangeReader, Protocol):
    """Several processes that together act as one mover of bodies."""

    def measured(self) -> AbstractAsyncContextManager[list[Effort]]:
        """Measure each process's effort during the block; filled in at its end, without processes that died."""
        ...


Hire = Callable[[int, int, int], AbstractAsyncContextManager[Workers]]
"""Starts workers, by their count, the size of the body in bytes and its seed. Raises WorkerError."""


class Staff:
    """Provides who moves the bodies of a probe: its own process, until that is too slow, then workers."""

    def __init__(
        self,
        clock: Clock,
        *,
        hire: Hire | None,
        worker_count_max: int,
        loop_tick_seconds: float,
        is_apart: bool = False,
    ) -> None:
        """`is_apart`: use other processes even where this one would suffice."""
        self._is_apart = is_apart
        self._hire = hire
        self._effort = partial(effort_of_block, clock, tick_seconds=loop_tick_seconds)
        self.staffing = Staffing(worker_count_max if hire is not None else 1)

    @contextlib.asynccontextmanager
    async def on_duty(
        self, thread_count: int, body_bytes: int, *, held_bytes: int, body_seed: int = 0
    ) -> AsyncIterator[Duty]:
        """Provide the movers that these threads and bodies need; each worker makes and holds `held_bytes` of a body."""
        worker_count = self.staffing.worker_count(thread_count, body_bytes)
        async with contextlib.AsyncExitStack() as hired:
            workers = None
            if (worker_count > 1 or self._is_apart) and self._hire is not None:
                try:
                    workers = await hired.enter_async_context(self._hire(worker_count, held_bytes, body_seed))
                except WorkerError as error:
                    _log.warning("this probe runs in one process, because others did not start: %s", error)
            yield Duty(self.staffing, self._effort, workers, worker_count if workers else 1, body_bytes)


@dataclass(frozen=True, slots=True)
class Duty:
    """Who moves the bodies of one run; `workers` is None where the probe's own process does."""

    _staffing: Staffing
    _own_effort: Callable[[], AbstractAsyncContextManager[Effort]]  # of a block
    workers: Workers | None
    worker_count: int
    _body_bytes: int

    async def measured(self, work: Coroutine[Any, Any, None]) -> Effort:
        """Do the work; returns the effort of the busiest process."""
        efforts: list[Effort] = []
        async with contextlib.AsyncExitStack() as measuring:
            own = await measuring.enter_async_context(self._own_effort())
            if self.workers is not None:
                efforts = await measuring.enter_async_context(self.workers.measured())
            await work
        return busiest([own, *efforts], own.duration_seconds)

    def learn(self, effort: Effort, *, thread_count: int) -> None:
        """Learn from how busy this many threads kept the processes."""
        self._staffing.learn(
            effort, thread_count=thread_count, worker_count=self.worker_count, body_bytes=self._body_bytes
        )


@contextlib.asynccontextmanager
async def hired(
    worker_count: int, body_bytes: int, body_seed: int, *, access: Access, loop_tick_seconds: float
) -> AsyncIterator[Workers]:
    """`worker_count` processes, ready for requests; leaving ends all of them, whatever happens. Raises WorkerError."""
    held = Held(body_bytes=body_bytes, body_seed=body_seed, loop_tick_seconds=loop_tick_seconds)
    starting = several(worker_count, _MODULE, (access, held), gone=_GONE, start_seconds_max=START_SECONDS_MAX)
    async with contextlib.AsyncExitStack() as working:
        try:
            workers = await working.enter_async_context(starting)
        except (OSError, RequestError) as trouble:
            raise WorkerError(str(trouble)) from trouble
        yield StoreWorkers(workers)


class StoreWorkers:
    """`Workers` in real processes. They are told only the size of a body, since each has made its own."""

    def __init__(self, workers: Apart) -> None:
        self._workers = workers

    @contextlib.asynccontextmanager
    async def measured(self) -> AsyncIterator[list[Effort]]:
        efforts: list[Effort] = []
        measuring = [asyncio.create_task(_measured(worker)) for worker in self._workers.processes]
        await asyncio.sleep(0)  # so that they are asked before any other request
        try:
            yield efforts
        finally:
            for worker in self._workers.processes:
                worker.tell("tell", "end")
            done, _ = await asyncio.wait(measuring, timeout=STOP_SECONDS_MAX)
            efforts += [effort for answer in done for effort in answer.result()]

    async def put_object(self, bucket: str, key: str, body: bytes) -> str:
        etag: str = await self._workers.request("put_object", (bucket, key, len(body)), {})
        return etag

    async def upload_part(self, bucket: str, key: str, upload_id: str, part_number: int, body: bytes) -> str:
        arguments = bucket, key, upload_id, part_number, len(body)
        etag: str = await self._workers.request("upload_part", arguments, {})
        return etag

    async def read_range(
        self, bucket: str, key: str, start: int, stop: int, *, object_size_bytes: int
    ) -> Reading:
        named = {"object_size_bytes": object_size_bytes}
        reading: Reading = await self._workers.request("read_range", (bucket, key, start, stop), named)
        return reading


async def _measured(worker: Companion) -> list[Effort]:
    """The worker's effort; empty if it died."""
    try:
        return [(await worker.ask("request", "measured", (), {})).result]
    except GoneError:
        return []
