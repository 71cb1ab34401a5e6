"""Knows how to drive the queue as a setting says: senders, receivers and deleters at once, until it is empty again."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.models.sqs.delivery import SqsDeliverySetting
from penstock.probes.outside import ReceivedMessage, Refused, RequestError, Unreachable
from penstock.probes.sqs.run import Bodies, HopelessError, Run, Stopwatch
from penstock.probes.sqs.tally import Tally, Timings

SEND_SECONDS_ENOUGH = 10.0
MESSAGE_COUNT_ENOUGH = 3000  # at a coefficient of variation of 0.6 the means are good to 1 %
SENDING_FRACTION = 0.7  # of the plan's time; the rest is for draining
CONNECTION_COUNT_MAX = 64  # that are opened beforehand
CONNECTION_REQUEST_FRACTION = 0.1  # of the plan's requests

ResultT = TypeVar("ResultT")


async def drive(run: Run, tally: Tally) -> None:
    """Count everything in the tally, which holds what there was also when this is cut short."""
    await _open_connections(run)
    await _Drive(run, tally).run()


async def _open_connections(run: Run) -> None:
    """Those that the threads will use: handshakes would begin the run with a backlog."""
    request_count = int(CONNECTION_REQUEST_FRACTION * run.plan.cost_max.request_count)
    count = min(thread_count(run.plan.setting), CONNECTION_COUNT_MAX, request_count)
    run.purse.spend(count)
    await run.queue.open_connections(count)


def thread_count(setting: SqsDeliverySetting) -> int:
    """Of all roles."""
    return setting.sender_thread_count + setting.receiver_thread_count + setting.deleter_thread_count


class _Window:
    """Bounds how many messages are between two points; a limit of 0 is none."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside = 0
        self._room = asyncio.Event()

    async def enter(self, count: int) -> None:
        """Wait until so many fit; an empty window takes a batch of any size."""
        while self._limit and self._inside and self._inside + count > self._limit:
            self._room.clear()
            await self._room.wait()
        self._inside += count

    def leave(self, count: int) -> None:
        """Make room."""
        self._inside -= count
        self._room.set()


class _Pace:
    """Evenly spaced sends at a rate limit, shared by all senders; lost time is not made up for. 0 is no limit."""

    def __init__(self, messages_per_second: float, stopwatch: Stopwatch) -> None:
        self._messages_per_second = messages_per_second
        self._stopwatch = stopwatch
        self._next_slot_seconds = 0.0

    async def wait(self, count: int) -> None:
        """Until so many may go."""
        if self._messages_per_second <= 0:
            return
        slot_seconds = max(self._next_slot_seconds, self._stopwatch.elapsed_seconds())
        self._next_slot_seconds = slot_seconds + count / self._messages_per_second
        await asyncio.sleep(max(0.0, slot_seconds - self._stopwatch.elapsed_seconds()))


@dataclass(frozen=True, slots=True)
class _Receipt:
    """A copy that waits for its deletion."""

    handle: str
    received_seconds: float
    is_first: bool
    is_foreign: bool


@dataclass(slots=True)
class _Undeleted:
    """Copies between receivers and deleters."""

    receipts: deque[_Receipt] = field(default_factory=deque)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    in_deletion_count: int = 0

    def __len__(self) -> int:
        return len(self.receipts) + self.in_deletion_count

    async def wait(self) -> None:
        """Until there is something to delete."""
        while not self.receipts:
            self.came.clear()
            await self.came.wait()


class _Drive:
    """The threads, and what is between them."""

    def __init__(self, run: Run, tally: Tally) -> None:
        setting = run.plan.setting
        self._run = run
        self._tally = tally
        self._stopwatch = Stopwatch(run.clock)
        seconds_left = run.seconds_max - run.stopwatch.elapsed_seconds()
        self._sending_seconds_max = min(SEND_SECONDS_ENOUGH, SENDING_FRACTION * seconds_left)
        self._bodies = Bodies(run.body_bytes)
        self._pace = _Pace(setting.send_rate_limit_messages_per_second, self._stopwatch)
        self._send_window = _Window(setting.send_window_message_count)
        self._receive_window = _Window(setting.receive_window_message_count)
        self._undeleted = _Undeleted()
        self._something_sent = asyncio.Event()
        self._finished = asyncio.Event()  # drained, or nothing more may be spent

    async def run(self) -> None:
        """All threads, until everything that was sent is deleted, or nothing more may be spent."""
        hopeless: BaseException | None = None
        try:
            await self._run_threads(self._run.plan.setting)
        except* HopelessError as group:
            hopeless = group  # what is raised here is a group in Python 3.11.2
        finally:
            now_seconds, deleted = self._stopwatch.elapsed_seconds(), self._tally.deleted
            for receipt in self._undeleted.receipts:
                deleted.age_seconds_max = max(deleted.age_seconds_max, now_seconds - receipt.received_seconds)
        if hopeless is not None:
            raise HopelessError from hopeless

    async def _run_threads(self, setting: SqsDeliverySetting) -> None:
        async with asyncio.TaskGroup() as group:
            senders = [group.create_task(self._send()) for _ in range(setting.sender_thread_count)]
            others = [group.create_task(self._receive()) for _ in range(setting.receiver_thread_count)]
            others += [group.create_task(self._delete()) for _ in range(setting.deleter_thread_count)]
            await asyncio.wait(senders)
            self._tally.sent.ended_seconds = self._stopwatch.elapsed_seconds()
            self._something_sent.set()
            self._finish_when_drained()
            await self._finished.wait()
            for task in others:
                task.cancel()

    def _finish_when_drained(self) -> None:
        has_ended = self._tally.sent.ended_seconds is not None
        if has_ended and self._tally.is_all_received and not len(self._undeleted):
            self._finished.set()

    # --- Senders

    async def _send(self) -> None:
        """One sender: batch after batch at the rate, while the plan pays for sending and draining."""
        batch, is_warm = self._run.plan.setting.batch_message_count, False
        while not self._is_enough_sent():
            await self._send_window.enter(batch)
            await self._pace.wait(batch)
            batch_bytes, reserve = batch * self._bodies.size_bytes, self._drain_reserve(batch)
            if self._is_enough_sent() or not self._run.purse.claim(
                sent_bytes=batch_bytes, reserve_request_count=reserve
            ):
                self._send_window.leave(batch)
                return
            accepted_count = await self._send_batch(batch, is_warm=is_warm)
            self._send_window.leave(batch - accepted_count)
            is_warm = True

    async def _send_batch(self, batch: int, *, is_warm: bool) -> int:
        """How many were accepted."""
        sent, started_seconds = self._tally.sent, self._stopwatch.elapsed_seconds()
        sequences = range(sent.tried_count, sent.tried_count + batch)
        sent.tried_count += batch
        bodies = [self._bodies.body(sequence, started_seconds) for sequence in sequences]
        try:
            accepted_count = await self._timed(sent.timings, self._run.queue.send(bodies), is_warm=is_warm)
        except RequestError as error:
            sent.uncertain_count += batch if isinstance(error, Unreachable) else 0
            await self._run.patience.bear(error)
            return 0
        sent.accepted_count += accepted_count
        self._run.patience.failed_count += int(accepted_count < batch)
        ended_seconds = self._stopwatch.elapsed_seconds()
        for sequence in sequences:
            if sequence not in self._tally.received.sequences:
                sent.waiting_since_seconds[sequence] = ended_seconds
        self._something_sent.set()
        return accepted_count

    def _is_enough_sent(self) -> bool:
        is_late = self._stopwatch.elapsed_seconds() >= self._sending_seconds_max
        return is_late or self._tally.sent.accepted_count >= MESSAGE_COUNT_ENOUGH

    def _drain_reserve(self, batch: int) -> int:
        """Requests that it takes to receive and delete what is outstanding, once this batch is sent too."""
        received = self._tally.received
        receives = received.timings.request_count
        received_per_request = max(1.0, received.copy_count / receives) if receives else float(batch)
        unreceived_count = self._tally.sent.tried_count - len(received.sequences) + batch
        undeleted_count = unreceived_count + len(self._undeleted)
        needed = unreceived_count / received_per_request + undeleted_count / min(batch, received_per_request)
        return math.ceil(needed) + 2 * self._run.plan.setting.receiver_thread_count

    # --- Receivers

    async def _receive(self) -> None:
        """One receiver. It lets the senders go first, so that the first receives find something."""
        await self._something_sent.wait()
        batch, is_warm = self._run.plan.setting.batch_message_count, False
        while True:
            await self._receive_window.enter(batch)
            if not self._run.purse.claim(received_bytes=batch * self._bodies.size_bytes):
                self._finished.set()
                return
            started_seconds = self._stopwatch.elapsed_seconds()
            messages: Sequence[ReceivedMessage] = []
            try:
                messages = await self._run.queue.receive(batch)
            except RequestError as error:
                await self._run.patience.bear(error)
            self._receive_window.leave(batch - len(messages))
            self._take(messages, started_seconds, is_warm=is_warm)
            is_warm = True

    def _take(self, messages: Sequence[ReceivedMessage], started_seconds: float, *, is_warm: bool) -> None:
        """Count what a receive brought and hand it to the deleters."""
        ended_seconds, sent, received = (
            self._stopwatch.elapsed_seconds(),
            self._tally.sent,
            self._tally.received,
        )
        if not messages:
            received.empty_count += 1
            received.is_empty_since_sending = sent.ended_seconds is not None
            self._finish_when_drained()
            return
        was_waiting = False
        for message in messages:
            sequence, sent_seconds = self._bodies.parsed(message.body)
            waiting_since_seconds = sent.waiting_since_seconds.get(sequence, math.inf)
            was_waiting = was_waiting or waiting_since_seconds <= started_seconds
            is_first = self._tally.count_copy(sequence, ended_seconds - sent_seconds)
            if is_first:
                self._send_window.leave(1)
            self._undeleted.receipts.append(
                _Receipt(message.receipt_handle, ended_seconds, is_first, is_foreign=sequence < 0)
            )
        received.timings.note(ended_seconds - started_seconds if is_warm and was_waiting else None)
        self._run.patience.recover()
        self._undeleted.came.set()

    # --- Deleters

    async def _delete(self) -> None:
        """One deleter: as full a batch as there is, at once."""
        undeleted, is_warm = self._undeleted, False
        while True:
            await undeleted.wait()
            if not self._run.purse.claim():
                self._finished.set()
                return
            size = min(self._run.plan.setting.batch_message_count, len(undeleted.receipts))
            receipts = [undeleted.receipts.popleft() for _ in range(size)]
            undeleted.in_deletion_count += size
            try:
                await self._delete_batch(receipts, is_warm=is_warm)
            finally:
                undeleted.in_deletion_count -= size
            is_warm = True
            self._finish_when_drained()

    async def _delete_batch(self, receipts: Sequence[_Receipt], *, is_warm: bool) -> None:
        queue, deleted = self._run.queue, self._tally.deleted
        request = queue.delete([receipt.handle for receipt in receipts])
        try:
            accepted_count = await self._timed(deleted.timings, request, is_warm=is_warm)
        except RequestError as error:
            is_expired = queue.keeps_order and isinstance(error, Refused)  # its message comes back
            if is_expired:
                self._receive_window.leave(len(receipts))
            else:
                self._undeleted.receipts.extendleft(reversed(receipts))
            await self._run.patience.bear(error)
            return
        ended_seconds = self._stopwatch.elapsed_seconds()
        self._receive_window.leave(len(receipts))
        age_seconds = ended_seconds - receipts[0].received_seconds
        deleted.age_seconds_max = max(deleted.age_seconds_max, age_seconds)
        # Which entries of a batch were refused is not told; they come back after the visibility timeout.
        refused_count = len(receipts) - accepted_count
        self._run.patience.failed_count += int(refused_count > 0)
        deleted.accepted_count += max(0, sum(not r.is_foreign for r in receipts) - refused_count)
        deleted.requests.append((ended_seconds, max(0, sum(r.is_first for r in receipts) - refused_count)))

    async def _timed(self, timings: Timings, request: Awaitable[ResultT], *, is_warm: bool) -> ResultT:
        started_seconds = self._stopwatch.elapsed_seconds()
        result = await request
        timings.note(self._stopwatch.elapsed_seconds() - started_seconds if is_warm else None)
        self._run.patience.recover()
        return result
