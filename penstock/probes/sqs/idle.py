"""Knows how to time single requests, one after another on a warm connection, at several batch sizes, and one delivery.

Each run makes few of them; many runs together tell the time of a request and of each message in it. The delivery is
that of a message from a sender whose connection is not open yet to a receiver that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from itertools import count

from penstock.models.sqs.observed import IDLE_BATCHES
from penstock.models.sqs.queue_class import billed_count
from penstock.probes.outside import RequestError
from penstock.probes.sqs.run import Bodies, Run

TIME_FRACTION = 0.1  # of the plan's time and requests
ROUND_COUNT_MAX = 4


async def cold_delivery_seconds(run: Run) -> float | None:
    """The time of one delivery; None if the message did not arrive. The receiver waits on the only open connection."""
    purse = run.purse
    if not purse.claim(sent_bytes=run.body_bytes, reserve_request_count=2) or not purse.claim(
        received_bytes=run.body_bytes
    ):
        return None
    seconds = None
    receiving = asyncio.create_task(run.queue.receive(1))
    try:
        await asyncio.sleep(0)
        began_seconds = run.stopwatch.elapsed_seconds()
        body = Bodies(run.body_bytes).body(0)
        await run.queue.send([body])
        messages = await receiving
        if [message.body for message in messages] == [body]:
            seconds = run.stopwatch.elapsed_seconds() - began_seconds
        if messages and purse.claim():
            await run.queue.delete([message.receipt_handle for message in messages])
    except RequestError as error:
        await run.patience.bear(error)
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
    return seconds


async def idle_seconds(run: Run) -> Mapping[tuple[str, int], list[float]]:
    """Request times by action and batch size, for sizes no dearer than the plan's; each run begins with another one."""
    idle = _Idle(run)
    batches = _batches(run)
    first = run.plan.seed % len(batches)
    requests_max = run.purse.request_count + TIME_FRACTION * run.plan.cost_max.request_count
    round_seconds = run.stopwatch.elapsed_seconds()  # of the cold delivery, when there was one
    until_seconds = round_seconds + TIME_FRACTION * run.seconds_max
    for batch in ROUND_COUNT_MAX * (batches[first:] + batches[:first]):
        began_seconds = run.stopwatch.elapsed_seconds()
        is_affordable = run.purse.request_count + 3 <= requests_max
        if not is_affordable or began_seconds + round_seconds > until_seconds:
            break
        if not await idle.measure(batch):
            break
        round_seconds = run.stopwatch.elapsed_seconds() - began_seconds
    return idle.seconds


def _batches(run: Run) -> list[int]:
    setting, size = run.plan.setting, run.body_bytes
    windows = (setting.send_window_message_count, setting.receive_window_message_count)
    window = min((count for count in windows if count), default=max(IDLE_BATCHES))
    batch_max, chunks_max = setting.batch_message_count, billed_count(setting.batch_message_count * size)
    batches = [b for b in IDLE_BATCHES if b <= batch_max or billed_count(b * size) <= chunks_max]
    return [b for b in batches if b <= window] or [1]


class _Idle:
    """Makes requests while nothing else happens, and times them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._bodies = Bodies(run.body_bytes)  # a later phase deletes such messages without counting them
        self._sequences = count()  # distinct bodies, because a FIFO queue accepts each body once
        self.seconds: dict[tuple[str, int], list[float]] = {}

    async def measure(self, batch: int) -> bool:
        """One send, as many receives as it takes, one delete; returns whether all messages came back."""
        purse, queue, batch_bytes = self._run.purse, self._run.queue, batch * self._bodies.size_bytes
        if not purse.claim(sent_bytes=batch_bytes, reserve_request_count=batch + 1):
            return False
        handles: list[str] = []
        try:
            bodies = [self._bodies.body(next(self._sequences)) for _ in range(batch)]
            await self._timed("send", batch, queue.send(bodies))
            while len(handles) < batch and purse.claim(received_bytes=batch_bytes):
                began_seconds = self._run.stopwatch.elapsed_seconds()
                messages = await queue.receive(batch - len(handles))
                if len(messages) == batch:
                    self._note("receive", batch, began_seconds)
                handles += [message.receipt_handle for message in messages]
                if not messages:
                    break
            if handles and purse.claim():
                await self._timed("delete", len(handles), queue.delete(handles))
        except RequestError as error:
            await self._run.patience.bear(error)
            return False
        return len(handles) == batch

    async def _timed(self, action: str, batch: int, request: Awaitable[object]) -> None:
        began_seconds = self._run.stopwatch.elapsed_seconds()
        await request
        self._note(action, batch, began_seconds)

    def _note(self, action: str, batch: int, began_seconds: float) -> None:
        if batch in IDLE_BATCHES:
            seconds = self._run.stopwatch.elapsed_seconds() - began_seconds
            self.seconds.setdefault((action, batch), []).append(seconds)
