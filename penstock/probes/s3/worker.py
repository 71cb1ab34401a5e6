"""Knows what one of several worker processes does: it moves bodies for the probe's process, and ends with it.

One event loop moves a few hundred MB/s, so on a large host a probe would measure its loop. Therefore a probe may have
its bodies moved by several processes: `workers.py` starts each as `python -m penstock.probes.s3.worker`, and talks to
it as in `penstock.probes.apart`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from penstock.clock import SystemClock
from penstock.probes import apart
from penstock.probes.measurement import Effort, effort_of_block
from penstock.probes.outside import BodySender, RangeReader
from penstock.probes.s3.payload import incompressible_payload
from penstock.processes import companion


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The body that a worker sends. The worker makes it from its seed, because no pipe is that fast."""

    body_bytes: int
    body_seed: int
    loop_tick_seconds: float


class BodyMover(BodySender, RangeReader, Protocol):
    """The requests that workers make: those that send or receive bodies."""


class Worker:
    """Makes the requests it is asked for, in parallel; of a body it is told only the size."""

    def __init__(self, store: BodyMover, held: Held) -> None:
        self._store = store
        self.read_range = store.read_range
        self._body = incompressible_payload(held.body_bytes, held.body_seed)
        self._tick_seconds = held.loop_tick_seconds
        self._ending = asyncio.Event()

    async def put_object(self, bucket: str, key: str, size_bytes: int) -> str:
        return await self._store.put_object(bucket, key, self._of(size_bytes))

    async def upload_part(
        self, bucket: str, key: str, upload_id: str, part_number: int, size_bytes: int
    ) -> str:
        body = self._of(size_bytes)
        return await self._store.upload_part(bucket, key, upload_id, part_number, body)

    async def measured(self) -> Effort:
        """Measure the effort of everything from now on, until `end`."""
        async with effort_of_block(SystemClock(), tick_seconds=self._tick_seconds) as effort:
            await self._ending.wait()
        return effort

    def end(self) -> None:
        """End the measurement."""
        self._ending.set()

    def _of(self, size_bytes: int) -> bytes:
        return self._body if size_bytes == len(self._body) else self._body[:size_bytes]


if __name__ == "__main__":
    import uvloop  # it sends with write(2), which the kernel counts for each process

    companion.settled()
    # Late: takes half a second, which the parent's import of this file does not need.
    from penstock.probes.aws.objects import open_object_store

    uvloop.run(apart.work(open_object_store, Worker))
