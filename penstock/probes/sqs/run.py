"""Knows what the phases of one run share: the queue, the budget, the tolerance for errors, and the time."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.clock import Clock, Stopwatch
from penstock.models.sqs.queue_class import billed_count
from penstock.models.sqs.setting import PROBED_BYTES_MIN, SqsDeliverySetting
from penstock.probes.outside import (
    PAUSE_SECONDS_MAX,
    Denied,
    MessageQueues,
    Messages,
    Missing,
    ReceivedMessage,
    RequestError,
    Throttled,
    pause_seconds,
)
from penstock.vocabulary import FREE, Cost, ProbePlan, Tariff

WAIT_SECONDS = 1  # of a receive: long enough to be cheap while idle, short enough to end soon
UNBOUNDED = Cost(transferred_bytes=10**18, request_count=10**18)


class HopelessError(RuntimeError):
    """It is useless to go on with this run; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the probe on its queue."""

    plan: ProbePlan[SqsDeliverySetting]
    queues: MessageQueues
    url: str
    queue: BoundQueue  # the queue at `url`
    purse: Purse
    patience: Patience
    clock: Clock
    stopwatch: Stopwatch  # since the run began
    seconds_max: float  # of the plan's time, left when the run began

    @property
    def body_bytes(self) -> int:
        """The size of each message: as the plan asks, and at least large enough for its fields."""
        return max(PROBED_BYTES_MIN, self.plan.context.payload_size_bytes)


class BoundQueue:
    """A queue, for the requests of one run. Every request may raise RequestError."""

    def __init__(self, messages: Messages, url: str, *, group_count: int = 0) -> None:
        self._messages = messages
        self._url = url
        self._group_count = group_count
        self._next_group = 0

    @property
    def keeps_order(self) -> bool:
        """Whether it is a FIFO queue, with message groups."""
        return self._group_count > 0

    async def send(self, bodies: Sequence[str]) -> int:
        """Send messages; returns how many were accepted. Each goes to the next group, so that order delays nothing."""
        group_ids: list[str] = []
        if self.keeps_order:
            group_ids = [f"{(self._next_group + index) % self._group_count}" for index in range(len(bodies))]
            self._next_group += len(bodies)
        return await self._messages.send(self._url, bodies, group_ids=group_ids)

    async def receive(
        self, message_count_max: int, wait_seconds: int = WAIT_SECONDS
    ) -> Sequence[ReceivedMessage]:
        """Receive messages that are there, or come within `wait_seconds`."""
        return await self._messages.receive(
            self._url, message_count_max=message_count_max, wait_seconds=wait_seconds
        )

    async def delete(self, handles: Sequence[str]) -> int:
        return await self._messages.delete(self._url, handles)


@dataclass(frozen=True, slots=True)
class Bodies:
    """Makes the bodies of messages, which contain the run they belong to and their sequence number."""

    size_bytes: int = PROBED_BYTES_MIN
    owner: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    def body(self, sequence: int) -> str:
        return f"{self.owner}:{sequence:08x}:".ljust(self.size_bytes, ".")

    def sequence_of(self, body: str) -> int:
        """The sequence number in a body; -1 for a message of another run or of anybody else."""
        owner, _, rest = body.partition(":")
        return int(rest[:8], 16) if owner == self.owner else -1


class Purse:
    """What the plan allows, and how much of it was spent."""

    def __init__(self, cost_max: Cost = UNBOUNDED, tariff: Tariff = FREE, *, request_count: int = 0) -> None:
        self._cost_max = cost_max
        self._tariff = tariff
        self.request_count = self._billed_count = request_count
        self.moved_bytes = 0

    def claim(self, *, sent_bytes: int = 0, received_bytes: int = 0, reserve_request_count: int = 0) -> bool:
        """Count one more request if the plan pays for it and for the reserve after it; returns whether it does.

        Sent bytes have to be received as well, so both directions are counted when they are sent. `received_bytes` is
        only the size by which a receive is billed.
        """
        if self.request_count + 1 + reserve_request_count > self._cost_max.request_count:
            return False
        if self.moved_bytes + 2 * sent_bytes > self._cost_max.transferred_bytes:
            return False
        self.spend(1, payload_bytes=sent_bytes + received_bytes)
        self.moved_bytes += 2 * sent_bytes
        return True

    def spend(self, request_count: int, *, payload_bytes: int = 0) -> None:
        """Count requests without checking the plan, each with this many bytes."""
        self.request_count += request_count
        self._billed_count += request_count * billed_count(payload_bytes)

    @property
    def used(self) -> Cost:
        one_way_bytes = self.moved_bytes // 2
        usd = self._tariff.usd(
            write_request_count=self._billed_count, sent_bytes=one_way_bytes, received_bytes=one_way_bytes
        )
        return Cost(transferred_bytes=self.moved_bytes, request_count=self.request_count, usd=usd)


class Patience:
    """Counts errors of the service and pauses after each, until there are too many in a row."""

    def __init__(self, *, in_a_row_max: int, pause_seconds_max: float = PAUSE_SECONDS_MAX) -> None:
        self._in_a_row_max = in_a_row_max
        self._pause_seconds_max = pause_seconds_max
        self._in_a_row = 0
        self.throttled_count = self.failed_count = 0
        self.trouble: RequestError | None = None  # the last one

    async def bear(self, error: RequestError, *, pauses: bool = True) -> None:
        """Count an error and pause. Raises HopelessError if it is useless to go on."""
        self.trouble = error
        if isinstance(error, Throttled):
            self.throttled_count += 1
        else:
            self.failed_count += 1
        self._in_a_row += 1
        if isinstance(error, (Denied, Missing)) or self._in_a_row >= self._in_a_row_max:
            raise HopelessError(str(error))
        if pauses:
            await asyncio.sleep(min(pause_seconds(self._in_a_row), self._pause_seconds_max))

    def recover(self) -> None:
        """Note that a request succeeded."""
        self._in_a_row = 0


class DeleteBrake:
    """Slows deletes down, each one or all together, so that a collapse can be seen within minutes."""

    def __init__(
        self, clock: Clock, *, delay_seconds: float = 0.0, requests_per_second_max: float = 0.0
    ) -> None:
        self._clock = clock
        self._delay_seconds = delay_seconds
        self._spacing_seconds = 1.0 / requests_per_second_max if requests_per_second_max > 0 else 0.0
        self._next_at_seconds = 0.0

    @property
    def is_shared(self) -> bool:
        """Whether it limits all deleters together, so that more deleters would not delete more."""
        return self._spacing_seconds > 0

    async def hold(self) -> None:
        now = self._clock.monotonic_seconds()
        at_seconds = max(now, self._next_at_seconds) if self.is_shared else now
        self._next_at_seconds = at_seconds + self._spacing_seconds
        if at_seconds + self._delay_seconds > now:
            await asyncio.sleep(at_seconds + self._delay_seconds - now)
