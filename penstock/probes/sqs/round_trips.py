"""Knows how the conditions of a queue are measured for a plan: request by request, with little else under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from statistics import median
from typing import Any, TypeVar

from penstock.clock import Clock
from penstock.models.sqs.plan import Conditions
from penstock.probes.measurement import summarize
from penstock.probes.outside import Messages, ReceivedMessage
from penstock.probes.sqs.run import BODY_BYTES, Bodies, DeleteBrake, HopelessError

SINGLE_COUNT = 12
BATCH_COUNT = 4
BATCH = 10
RECEIVE_TRY_COUNT_MAX = 5
REQUEST_COUNT_MAX = RECEIVE_TRY_COUNT_MAX * (3 * SINGLE_COUNT + 2 * BATCH_COUNT) + 6 * SINGLE_COUNT
_WARM_UP_COUNT = 2  # requests on a cold connection say nothing
_RECEIVE_WAIT_SECONDS = 2
# Of the median; with a variation of 0.6, one request in 160 is no straggler and is left out.
_STRAGGLER_FACTOR = 4.0

ResultT = TypeVar("ResultT")


class RoundTrips:
    """Measures what a plan must know of a queue: request by request, beside each other only where a poll waits."""

    def __init__(self, messages: Messages, clock: Clock, url: str, brake: DeleteBrake) -> None:
        self._messages = messages
        self._clock = clock
        self._url = url
        self._brake = brake
        self._bodies = Bodies()
        self._sequence = 0
        self._single_seconds: dict[str, list[float]] = {"send": [], "receive": [], "delete": []}
        self._batch_seconds: dict[str, list[float]] = {"send": [], "receive": [], "delete": []}

    async def conditions(
        self, message_rate_per_second: float, *, visibility_timeout_seconds: float
    ) -> Conditions:
        """Means, slopes and variations; a rate of 0 is as much as one sender can send.

        Raises RequestError, and HopelessError when nothing comes back.
        """
        latencies = _ordinary([await self._round_trip() for _ in range(SINGLE_COUNT)][_WARM_UP_COUNT:])
        handles: list[str] = []
        for _ in range(SINGLE_COUNT):
            await self._send(1)
        for _ in range(BATCH_COUNT):
            await self._send(BATCH)
        handles += await self._received(1, SINGLE_COUNT)
        handles += await self._received(BATCH, BATCH_COUNT)
        singles, rest = handles[:SINGLE_COUNT], handles[SINGLE_COUNT:]
        for handle in singles:  # one right after the other, so that the brake is felt
            await self._delete([handle])
        for start in range(0, len(rest), BATCH):
            await self._delete(rest[start : start + BATCH])
        values = self._request_times()
        return Conditions(
            message_rate_per_second=message_rate_per_second or 1.0 / values["send_seconds"],
            delivery_latency_seconds=sum(latencies) / len(latencies),
            visibility_timeout_seconds=visibility_timeout_seconds,
            deleter_count_max=1 if self._brake.is_shared else None,
            payload_size_bytes=BODY_BYTES,
            **values,
        )

    def _request_times(self) -> dict[str, Any]:
        """By the names of the conditions (Any: some of them may be None)."""
        values: dict[str, Any] = {}
        for action in ("send", "receive", "delete"):
            single = summarize(_ordinary(self._single_seconds[action][_WARM_UP_COUNT:]))
            batch = summarize(_ordinary(self._batch_seconds[action][1:]))
            slope = (batch.mean_seconds - single.mean_seconds) / (BATCH - 1) if batch.count else None
            values[f"{action}_seconds"] = single.mean_seconds
            values[f"{action}_seconds_per_message"] = (
                None if slope is None else min(max(slope, 0.0), single.mean_seconds)
            )
            values[f"{action}_seconds_variation"] = single.variation
        return values

    async def _round_trip(self) -> float:
        """From the start of a send to the receive by a poll that waits already, as those of the plan do."""
        poll = asyncio.create_task(self._poll())
        try:
            # Until the queue has the poll.
            await asyncio.sleep(max(self._single_seconds["send"], default=0.0))
            began_seconds = self._clock.monotonic_seconds()
            await self._send(1)
            messages, came_seconds = await poll
        finally:
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
        for message in messages:
            await self._messages.delete(self._url, [message.receipt_handle])
        return came_seconds - began_seconds

    async def _poll(self) -> tuple[list[ReceivedMessage], float]:
        """What comes, and when: often before the sender hears that it was accepted."""
        return await self._receive(1), self._clock.monotonic_seconds()

    async def _send(self, count: int) -> None:
        self._sequence += count
        bodies = [self._bodies.body(self._sequence - index) for index in range(count)]
        await self._timed("send", count, self._messages.send(self._url, bodies))

    async def _received(self, count: int, request_count: int) -> list[str]:
        """Handles of so many receives; those that came back half empty are not timed."""
        handles: list[str] = []
        for _ in range(request_count):
            began_seconds = self._clock.monotonic_seconds()
            messages = await self._receive(count)
            if len(messages) == count:
                self._seconds(count)["receive"].append(self._clock.monotonic_seconds() - began_seconds)
            handles += [message.receipt_handle for message in messages]
        return handles

    async def _receive(self, count: int) -> list[ReceivedMessage]:
        for _ in range(RECEIVE_TRY_COUNT_MAX):
            messages = await self._messages.receive(
                self._url, message_count_max=count, wait_seconds=_RECEIVE_WAIT_SECONDS
            )
            if messages:
                return messages
        raise HopelessError("messages that were sent do not come back: there may be another receiver")

    async def _delete(self, handles: Sequence[str]) -> None:
        async def braked() -> int:
            await self._brake.hold()
            return await self._messages.delete(self._url, handles)

        await self._timed("delete", len(handles), braked())

    async def _timed(self, action: str, count: int, request: Awaitable[ResultT]) -> ResultT:
        began_seconds = self._clock.monotonic_seconds()
        result = await request
        if count in {1, BATCH}:
            self._seconds(count)[action].append(self._clock.monotonic_seconds() - began_seconds)
        return result

    def _seconds(self, count: int) -> Mapping[str, list[float]]:
        return self._single_seconds if count == 1 else self._batch_seconds


def _ordinary(seconds: Sequence[float]) -> list[float]:
    """All but stragglers: of ten, one that takes a quarter of a second would be most of the mean."""
    most = _STRAGGLER_FACTOR * median(seconds) if seconds else 0.0
    return [each for each in seconds if each <= most]
