"""Knows how the conditions of a queue are measured for a plan: request by request, with little else in flight."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from statistics import median
from typing import Any

from penstock.clock import Clock
from penstock.models.sqs.plan import Conditions
from penstock.models.sqs.setting import PROBED_BYTES_MIN
from penstock.probes.measurement import summarize
from penstock.probes.outside import ReceivedMessage
from penstock.probes.sqs.run import Bodies, BoundQueue, DeleteBrake, HopelessError

SINGLE_COUNT = 12
BATCH_COUNT = 4
BATCH = 10
RECEIVE_TRY_COUNT_MAX = 5
REQUEST_COUNT_MAX = RECEIVE_TRY_COUNT_MAX * (3 * SINGLE_COUNT + 2 * BATCH_COUNT) + 6 * SINGLE_COUNT
_WARM_UP_COUNT = 2  # first requests, on cold connections, are not counted
_RECEIVE_WAIT_SECONDS = 2
# Of the median. With a coefficient of variation of 0.6, one ordinary request in 160 is left out as well.
_STRAGGLER_FACTOR = 4.0


class RoundTrips:
    """Measures what a plan needs to know of a queue: one request at a time, beside a waiting poll at most."""

    def __init__(self, queue: BoundQueue, clock: Clock, brake: DeleteBrake) -> None:
        self._queue, self._clock, self._brake = queue, clock, brake
        self._bodies, self._sequences = Bodies(), count()
        self._seconds: defaultdict[tuple[str, int], list[float]] = defaultdict(list)  # by action and batch

    async def conditions(
        self, message_rate_per_second: float, *, visibility_timeout_seconds: float
    ) -> Conditions:
        """The conditions for a plan at this rate; 0 means as much as one sender can send.

        Raises RequestError, and HopelessError if messages do not come back.
        """
        latencies = _ordinary([await self._round_trip() for _ in range(SINGLE_COUNT)][_WARM_UP_COUNT:])
        batches = [1] * SINGLE_COUNT + [BATCH] * BATCH_COUNT
        for batch in batches:
            await self._send(batch)
        handles = list[str]()
        for batch in batches:
            began_seconds = self._clock.monotonic_seconds()
            messages = await self._receive(batch)
            if len(messages) == batch:
                self._note("receive", batch, began_seconds)
            handles += [message.receipt_handle for message in messages]
        for handle in handles[:SINGLE_COUNT]:  # without pauses, so that the brake has its effect
            await self._delete([handle])
        for start in range(SINGLE_COUNT, len(handles), BATCH):
            await self._delete(handles[start : start + BATCH])
        values = self._request_times()
        return Conditions(
            message_rate_per_second=message_rate_per_second or 1.0 / values["send_seconds"],
            delivery_latency_seconds=sum(latencies) / len(latencies),
            visibility_timeout_seconds=visibility_timeout_seconds,
            deleter_count_max=1 if self._brake.is_shared else None,
            payload_size_bytes=PROBED_BYTES_MIN,
            **values,
        )

    def _request_times(self) -> dict[str, Any]:
        """Means, slopes and variations of request times, by the names of `Conditions` (Any: some may be None)."""
        values: dict[str, Any] = {}
        for action in ("send", "receive", "delete"):
            single = summarize(_ordinary(self._seconds[action, 1][_WARM_UP_COUNT:]))
            batch = summarize(_ordinary(self._seconds[action, BATCH][1:]))
            slope = (batch.mean_seconds - single.mean_seconds) / (BATCH - 1) if batch.count else None
            values[f"{action}_seconds"] = single.mean_seconds
            values[f"{action}_seconds_per_message"] = (
                None if slope is None else min(max(slope, 0.0), single.mean_seconds)
            )
            values[f"{action}_seconds_variation"] = single.variation
        return values

    async def _round_trip(self) -> float:
        """Seconds from the start of a send to its receive by a poll that already waits, as under the plan."""
        poll = asyncio.create_task(self._poll())
        try:
            # Until the poll has reached the queue.
            await asyncio.sleep(max(self._seconds["send", 1], default=0.0))
            began_seconds = self._clock.monotonic_seconds()
            await self._send(1)
            messages, came_seconds = await poll
        finally:
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
        for message in messages:
            await self._queue.delete([message.receipt_handle])
        return came_seconds - began_seconds

    async def _poll(self) -> tuple[Sequence[ReceivedMessage], float]:
        """The received messages, and when they came: often before the send was answered."""
        return await self._receive(1), self._clock.monotonic_seconds()

    async def _send(self, batch: int) -> None:
        bodies = [self._bodies.body(next(self._sequences)) for _ in range(batch)]
        began_seconds = self._clock.monotonic_seconds()
        await self._queue.send(bodies)
        self._note("send", batch, began_seconds)

    async def _receive(self, batch: int) -> Sequence[ReceivedMessage]:
        for _ in range(RECEIVE_TRY_COUNT_MAX):
            if messages := await self._queue.receive(batch, _RECEIVE_WAIT_SECONDS):
                return messages
        raise HopelessError("sent messages do not come back: another receiver may be taking them")

    async def _delete(self, handles: Sequence[str]) -> None:
        began_seconds = self._clock.monotonic_seconds()
        await self._brake.hold()
        await self._queue.delete(handles)
        self._note("delete", len(handles), began_seconds)

    def _note(self, action: str, batch: int, began_seconds: float) -> None:
        self._seconds[action, batch].append(self._clock.monotonic_seconds() - began_seconds)


def _ordinary(seconds: Sequence[float]) -> list[float]:
    """The times without stragglers: among ten, one of a quarter of a second would dominate the mean."""
    most = _STRAGGLER_FACTOR * median(seconds) if seconds else 0.0
    return [each for each in seconds if each <= most]
