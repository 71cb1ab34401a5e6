"""Knows how to measure an SQS queue for real: senders, receivers and deleters on a queue of the probe's own.

The queue is made when it is first needed, used by all probes of this process, and removed by `close`. Messages carry
the run they belong to: one that a former run left behind is deleted and not counted. After the sending, the queue
is drained.

What an observation's `measures` say (a number that was not measured is absent):

- `sent_count`, `received_count`, `deleted_count`: messages accepted by SQS; copies received; deletions accepted.
  `duplicate_count`: copies received beyond the first; `foreign_count`: messages of former runs;
  `left_count`: messages sent and not deleted in the end. `attempted_bytes`: bodies sent and to be received, in sum.
- `send_request_count`, `receive_request_count`, `delete_request_count`: requests that carried those messages;
  `empty_receive_count`: receives that brought none.
- `send_seconds_mean`, `receive_seconds_mean`, `delete_seconds_mean` and `*_seconds_variation` (standard deviation
  over mean): one request on a warm connection, at the batch it carried. Of the receives only those for which a
  message was waiting: the others measure the senders.
- `idle_send_seconds_batch_10` and the like, for each action at 1, 2, 5 and 10 messages: the mean of requests one after
  another on a warm connection, before the threads start. Few of each, so that many runs together tell the slope.
- `cold_delivery_seconds`: one message from a sender whose connection has yet to be opened to a receiver that waits.
- `goodput_messages_per_second`: unique messages deleted a second, between the first deletion and the last send.
- `oldest_undeleted_seconds_max`: the longest that a copy was received and not deleted.
- `visibility_timeout_seconds`: the queue's own.

Latency, as an observation states it, is that on warm connections: from the start of the send to the return of the
receive that brought the message first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import uuid
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from penstock.clock import Clock
from penstock.models.sqs_delivery import SqsDeliverySetting
from penstock.models.sqs_learning import IDLE_BATCHES
from penstock.models.sqs_queue_class import BILLED_CHUNK_BYTES, queue_class
from penstock.probes.cleaning import clean_up_shielded
from penstock.probes.measurement import LOOP_TICK_SECONDS, Effort, LatencySummary, effort_of_block, summarize
from penstock.probes.outside import (
    CONNECTION_IDLE_SECONDS_MAX,
    Denied,
    MessageQueues,
    Missing,
    ReceivedMessage,
    Refused,
    RequestError,
    Throttled,
    Unreachable,
)
from penstock.probes.probe import Journal, Leftover, LeftoverKind, inconclusive
from penstock.units import format_bytes
from penstock.vocabulary import Cost, Observation, Outcome, ProbePlan

OPERATION = "sqs_delivery"
VISIBILITY_TIMEOUT_SECONDS = 30  # SQS's default, which applications mostly keep
RETENTION_SECONDS = 3600  # what a killed probe left in the queue is gone after an hour in any case
WAIT_SECONDS = 1  # of a receive: long enough to be cheap while idle, short enough to end soon
SEND_SECONDS_ENOUGH = 10.0
MESSAGE_COUNT_ENOUGH = 3000  # at a coefficient of variation of 0.6 the means are good to 1 %
SENDING_FRACTION = 0.7  # of the plan's time; the rest is for draining
REQUEST_COUNT_MIN = 10  # to make the queue under a second name, and to move one message
IDLE_TIME_FRACTION = 0.1  # of the plan's time and requests: for requests one after another
IDLE_ROUND_COUNT_MAX = 4
GROUP_COUNT = 4096  # of a FIFO queue: more than are ever in flight; what fewer cost is known from theory
WARM_UP_COUNT_MAX = 64
WARM_UP_FRACTION = 0.1  # of the plan's requests
FAILURE_COUNT_MAX = 8
THROTTLE_PAUSE_SECONDS = 0.1  # after the first trouble in a row; doubles
THROTTLE_PAUSE_SECONDS_MAX = 2.0
CLOSE_SECONDS_MAX = 10.0  # for removing the queue: whoever stops or reloads the daemon waits for it
GOODPUT_DELETION_COUNT_MIN = 8  # requests; fewer say nothing about a rate
_BODY_FIELDS_BYTES = 37  # run (12), sequence (8), microseconds (15) and two colons

ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)


class SqsDeliveryProbe:
    """Drives a queue of its own and measures every request. One instance for each host and region."""

    def __init__(
        self,
        queues: MessageQueues,
        clock: Clock,
        journal: Journal,
        *,
        queue_name: str,
        service_class: str = "standard",
        visibility_timeout_seconds: int = VISIBILITY_TIMEOUT_SECONDS,
        loop_tick_seconds: float = LOOP_TICK_SECONDS,
    ) -> None:
        self._clock = clock
        self._queues = queues
        self._class = queue_class(service_class)
        self._own_queue = _OwnQueue(
            queues,
            journal,
            queue_name,
            suffix=self._class.name_suffix,
            attributes={**_attributes(visibility_timeout_seconds), **self._class.attributes},
        )
        self._loop_tick_seconds = loop_tick_seconds
        self._ended_seconds = -math.inf  # of the last run: its connections are open for a while
        self.used = Cost()

    async def run(self, plan: ProbePlan[SqsDeliverySetting]) -> Outcome[SqsDeliverySetting]:
        """Carry out the plan within its cost. The queue stays for the next run."""
        started_at, self.used = self._clock.now(), Cost()
        if plan.cost_max.request_count < REQUEST_COUNT_MIN:
            return inconclusive(plan, started_at, _too_little(plan.cost_max))
        if plan.cost_max.duration_seconds <= 0:
            return inconclusive(
                plan, started_at, "the plan allows no time: raise the time that a probe may take"
            )
        deadline_seconds = self._clock.monotonic_seconds() + plan.cost_max.duration_seconds
        asked = Cost()
        try:
            async with asyncio.timeout(plan.cost_max.duration_seconds):
                url, attributes = await self._own_queue.open(plan.context.place.region)
        except RequestError as error:
            self._own_queue.forget(error)
            return inconclusive(plan, started_at, f"no queue to measure with; {error}", self._own_queue.used)
        except TimeoutError:
            reason = "the queue could not be made ready in time: allow more time"
            return inconclusive(plan, started_at, reason, self._own_queue.used)
        finally:
            asked = self.used = self._own_queue.used
        delivery = _Delivery(
            self._queues,
            self._clock,
            url,
            plan,
            attributes,
            group_count=GROUP_COUNT if self._class.keeps_order else 0,
            asked_count=asked.request_count,
            seconds_max=deadline_seconds - self._clock.monotonic_seconds(),
            is_cold=self._clock.monotonic_seconds() - self._ended_seconds > CONNECTION_IDLE_SECONDS_MAX,
        )
        try:
            async with effort_of_block(self._clock, tick_seconds=self._loop_tick_seconds) as effort:
                await delivery.drive()
        finally:
            self.used, self._ended_seconds = delivery.used, self._clock.monotonic_seconds()
        if delivery.trouble is not None:
            self._own_queue.forget(delivery.trouble)
        return delivery.outcome(started_at, effort)

    async def close(self) -> None:
        """Remove the queue, when it is ours. What could not be removed stays in the journal."""
        await clean_up_shielded(self._own_queue.remove(), seconds_max=CLOSE_SECONDS_MAX)


class _OwnQueue:
    """The probe's queue: found or made once, and removed only when the journal knows it as ours."""

    def __init__(
        self,
        queues: MessageQueues,
        journal: Journal,
        name: str,
        *,
        suffix: str,
        attributes: Mapping[str, str],
    ) -> None:
        self._queues = queues
        self._journal = journal
        self._name = name
        self._suffix = suffix
        self._attributes = attributes
        self._url: str | None = None
        self._leftover: Leftover | None = None
        self._making: asyncio.Task[str] | None = None
        self._request_count = 0

    @property
    def used(self) -> Cost:
        """Of the last opening."""
        return Cost(request_count=self._request_count)

    async def open(self, region: str) -> tuple[str, Mapping[str, str]]:
        """The queue's URL, made when it is not there, and its attributes. Raises RequestError."""
        self._request_count = 0
        url = await self._find_or_create_any(region)
        self._request_count += 1
        return url, await self._queues.queue_attributes(url)

    def forget(self, trouble: RequestError) -> None:
        """Look for the queue again next time, when somebody deleted it."""
        if isinstance(trouble, Missing):
            self._url = None

    async def remove(self) -> None:
        """Delete the queue and strike it; a queue that was there before us stays."""
        await self._await_making()
        if self._leftover is None:
            return
        try:
            with contextlib.suppress(Missing):
                await self._queues.delete_queue(
                    self._url or await self._queues.find_queue(self._leftover.name)
                )
        except RequestError as error:
            _log.warning("the queue %s is left behind until the next sweep: %s", self._leftover.name, error)
            return
        await self._journal.strike(self._leftover)
        self._url, self._leftover = None, None

    async def _find_or_create_any(self, region: str) -> str:
        if self._url is None:
            try:
                self._url = await self._find_or_create(self._name + self._suffix, region)
            except Refused:
                # A name cannot be used again for 60 s after its deletion.
                unused_name = f"{self._name}-{uuid.uuid4().hex[:8]}{self._suffix}"
                self._url = await self._find_or_create(unused_name, region)
        return self._url

    async def _find_or_create(self, name: str, region: str) -> str:
        leftover = Leftover(kind=LeftoverKind.SQS_QUEUE, service=OPERATION, container=region, name=name)
        self._request_count += 1
        with contextlib.suppress(Missing):
            url = await self._queues.find_queue(name)
            if leftover in await self._journal.open_entries():
                self._leftover = leftover
            return url
        await self._journal.record(leftover)
        self._request_count += 1
        self._leftover = leftover  # before the request: its answer may be lost
        # A cancellation ends the waiting, not the request: the service would carry it out all the same.
        self._making = asyncio.create_task(self._make(name))
        try:
            return await asyncio.shield(self._making)
        except RequestError as error:
            if not isinstance(error, Unreachable):  # then it may have been made all the same
                self._leftover = None
                await self._journal.strike(leftover)
            raise

    async def _make(self, name: str) -> str:
        self._url = await self._queues.create_queue(name, self._attributes)
        return self._url

    async def _await_making(self) -> None:
        """Only a queue whose creation was answered can be removed for certain."""
        if self._making is None:
            return
        try:
            await asyncio.wait({self._making})
        finally:
            self._making.cancel()


def _attributes(visibility_timeout_seconds: int) -> dict[str, str]:
    return {
        "VisibilityTimeout": str(visibility_timeout_seconds),
        "MessageRetentionPeriod": str(RETENTION_SECONDS),
    }


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


@dataclass(slots=True)
class _Timings:
    """The requests of one kind that succeeded: how many, and how long those on a warm connection took."""

    request_count: int = 0
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Receipt:
    """A copy that waits for its deletion."""

    handle: str
    received_seconds: float
    is_first: bool
    is_foreign: bool


class _Delivery:
    """One run: what was sent, received and deleted, and when."""

    def __init__(
        self,
        queues: MessageQueues,
        clock: Clock,
        url: str,
        plan: ProbePlan[SqsDeliverySetting],
        attributes: Mapping[str, str],
        *,
        group_count: int,
        asked_count: int,
        seconds_max: float,
        is_cold: bool,
    ) -> None:
        self._queues = queues
        self._clock = clock
        self._url = url
        self._plan = plan
        self._attributes = attributes
        self._group_count = group_count  # of a FIFO queue; 0 for one without order
        self._seconds_max = seconds_max  # what is left of the plan's time
        self._is_cold = is_cold
        self._setting = plan.setting
        self._run_id = uuid.uuid4().hex[:12]
        self._idle_run_id = uuid.uuid4().hex[:12]  # whoever receives such a message late deletes it uncounted
        self._began_seconds = clock.monotonic_seconds()
        self._send_window = _Window(plan.setting.send_window_message_count)
        self._receive_window = _Window(plan.setting.receive_window_message_count)
        self._timings = {"send": _Timings(), "receive": _Timings(), "delete": _Timings()}
        self._idle_seconds: dict[tuple[str, int], list[float]] = {}  # by action and batch
        self._cold_delivery_seconds: float | None = None
        self._latencies: list[float] = []
        self._deletions: list[tuple[float, int]] = []  # (end, unique messages) of each request
        self._receipts: deque[_Receipt] = deque()
        self._receipt_came = asyncio.Event()
        self._something_sent = asyncio.Event()
        self._finished = asyncio.Event()  # drained, or nothing more may be spent
        self._send_ended_seconds: dict[int, float] = {}  # of messages not yet received, by sequence
        self._received: set[int] = set()
        self._next_slot_seconds = 0.0
        self._next_sequence = 0
        self._next_group = 0
        self._request_count = asked_count
        self._moved_bytes = 0
        self._sending_ended_seconds: float | None = None
        self._last_deletion_seconds = 0.0
        self._deleting_count = 0
        self._sent_count = self._received_count = self._deleted_count = 0
        self._duplicate_count = self._foreign_count = self._empty_receive_count = 0
        self._uncertain_count = 0  # messages whose send had no answer: they may be there
        self._empty_since_sending = False
        self._age_seconds_max = 0.0
        self._throttled_count = self._failed_count = 0
        self._troubles_in_a_row = 0
        self.trouble: RequestError | None = None  # the last one

    async def drive(self) -> None:
        """All that is measured, and the draining, within the plan's time."""
        with contextlib.suppress(TimeoutError, _HopelessError):
            async with asyncio.timeout(self._seconds_max):
                if self._is_cold:
                    await self._deliver_cold()
                await self._measure_idle()
                await self._warm_up()
                self._seconds_max -= self._elapsed_seconds()
                self._began_seconds = self._clock.monotonic_seconds()
                try:
                    await self._drive_threads()
                except* _HopelessError as group:
                    raise _HopelessError from group

    async def _deliver_cold(self) -> None:
        """One message to a receiver that waits on the one connection there is: the send opens another."""
        if not self._claim(2 * self._body_bytes, reserve_request_count=2) or not self._claim():
            return
        receiving = asyncio.create_task(
            self._queues.receive(self._url, message_count_max=1, wait_seconds=WAIT_SECONDS)
        )
        try:
            await asyncio.sleep(0)
            body = self._body(self._idle_run_id, 0, self._elapsed_seconds())
            began_seconds = self._elapsed_seconds()
            await self._send([body])
            messages = await receiving
            if [message.body for message in messages] == [body]:
                self._cold_delivery_seconds = self._elapsed_seconds() - began_seconds
            if messages and self._claim():
                await self._queues.delete(self._url, [message.receipt_handle for message in messages])
        except RequestError as error:
            await self._bear(error)
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    async def _measure_idle(self) -> None:
        """Requests one after another, at every batch that costs no more than the plan's; another first in each run."""
        setting, size, batch_max = self._setting, self._body_bytes, self._setting.batch_message_count
        windows = (setting.send_window_message_count, setting.receive_window_message_count)
        window = min((count for count in windows if count), default=max(IDLE_BATCHES))
        chunks_max = _chunk_count(batch_max * size)
        batches = [b for b in IDLE_BATCHES if b <= batch_max or _chunk_count(b * size) <= chunks_max]
        batches = [b for b in batches if b <= window] or [1]
        first = self._plan.seed % len(batches)
        requests_max = self._request_count + IDLE_TIME_FRACTION * self._plan.cost_max.request_count
        round_seconds = self._elapsed_seconds()  # of the cold delivery, when there was one
        until_seconds = round_seconds + IDLE_TIME_FRACTION * self._seconds_max
        for batch in IDLE_ROUND_COUNT_MAX * (batches[first:] + batches[:first]):
            began_seconds = self._elapsed_seconds()
            is_affordable = self._request_count + 3 <= requests_max
            if not is_affordable or began_seconds + round_seconds > until_seconds:
                return
            if not await self._measure_idle_batch(batch):
                return
            round_seconds = self._elapsed_seconds() - began_seconds

    async def _measure_idle_batch(self, batch: int) -> bool:
        """One send, what receives it takes, one delete; whether that went well."""
        if not self._claim(2 * batch * self._body_bytes, reserve_request_count=batch + 1):
            return False
        bodies = [self._body(self._idle_run_id, index, self._elapsed_seconds()) for index in range(batch)]
        handles: list[str] = []
        try:
            await self._timed_idle("send", batch, self._send(bodies))
            while len(handles) < batch and self._claim():
                began_seconds = self._elapsed_seconds()
                messages = await self._queues.receive(
                    self._url, message_count_max=batch - len(handles), wait_seconds=WAIT_SECONDS
                )
                if len(messages) == batch:
                    self._note_idle("receive", batch, began_seconds)
                handles += [message.receipt_handle for message in messages]
                if not messages:
                    break
            if handles and self._claim():
                await self._timed_idle("delete", len(handles), self._queues.delete(self._url, handles))
        except RequestError as error:
            await self._bear(error)
            return False
        return len(handles) == batch

    async def _timed_idle(self, action: str, batch: int, request: Awaitable[object]) -> None:
        began_seconds = self._elapsed_seconds()
        await request
        self._note_idle(action, batch, began_seconds)

    def _note_idle(self, action: str, batch: int, began_seconds: float) -> None:
        if batch in IDLE_BATCHES:
            self._idle_seconds.setdefault((action, batch), []).append(self._elapsed_seconds() - began_seconds)

    async def _warm_up(self) -> None:
        """Open the connections that the threads will use: handshakes would begin the run with a backlog."""
        setting = self._setting
        threads = setting.sender_thread_count + setting.receiver_thread_count + setting.deleter_thread_count
        count = min(threads, WARM_UP_COUNT_MAX, int(WARM_UP_FRACTION * self._plan.cost_max.request_count))
        self._request_count += count
        asking = [self._queues.queue_attributes(self._url) for _ in range(count)]
        for answer in await asyncio.gather(*asking, return_exceptions=True):
            if isinstance(answer, Exception) and not isinstance(answer, RequestError):
                raise answer  # trouble with the service is told by the requests that are measured

    async def _drive_threads(self) -> None:
        setting = self._setting
        async with asyncio.TaskGroup() as group:
            senders = [group.create_task(self._send_messages()) for _ in range(setting.sender_thread_count)]
            others = [
                group.create_task(self._receive_messages()) for _ in range(setting.receiver_thread_count)
            ]
            others += [
                group.create_task(self._delete_messages()) for _ in range(setting.deleter_thread_count)
            ]
            await asyncio.wait(senders)
            self._sending_ended_seconds = self._elapsed_seconds()
            self._something_sent.set()
            self._finish_when_drained()
            await self._finished.wait()
            for task in others:
                task.cancel()

    async def _send_messages(self) -> None:
        """One sender: batch after batch at the rate, while the plan pays for sending and draining."""
        batch, is_warm = self._setting.batch_message_count, False
        while not self._is_enough_sent():
            await self._send_window.enter(batch)
            await self._await_slot(batch)
            if self._is_enough_sent() or not self._claim(
                2 * batch * self._body_bytes, self._drain_reserve(batch)
            ):
                self._send_window.leave(batch)
                return
            accepted_count = await self._send_batch(batch, is_warm=is_warm)
            self._send_window.leave(batch - accepted_count)
            is_warm = True

    async def _send_batch(self, batch: int, *, is_warm: bool) -> int:
        """How many were accepted."""
        started_seconds = self._elapsed_seconds()
        sequences = range(self._next_sequence, self._next_sequence + batch)
        self._next_sequence += batch
        bodies = [self._body(self._run_id, sequence, started_seconds) for sequence in sequences]
        try:
            accepted_count = await self._timed("send", self._send(bodies), is_warm=is_warm)
        except RequestError as error:
            self._uncertain_count += batch if isinstance(error, Unreachable) else 0
            await self._bear(error)
            return 0
        self._sent_count += accepted_count
        self._failed_count += int(accepted_count < batch)
        ended_seconds = self._elapsed_seconds()
        for sequence in sequences:
            if sequence not in self._received:
                self._send_ended_seconds[sequence] = ended_seconds
        self._something_sent.set()
        return accepted_count

    async def _send(self, bodies: Sequence[str]) -> int:
        """Each message in the next group, so that the order within groups holds up nothing."""
        group_ids: list[str] = []
        if self._group_count:
            group_ids = [f"{(self._next_group + index) % self._group_count}" for index in range(len(bodies))]
            self._next_group += len(bodies)
        return await self._queues.send(self._url, bodies, group_ids=group_ids)

    async def _receive_messages(self) -> None:
        """One receiver. It lets the senders go first, so that the first receives find something."""
        await self._something_sent.wait()
        batch, is_warm = self._setting.batch_message_count, False
        while True:
            await self._receive_window.enter(batch)
            if not self._claim():
                self._finished.set()
                return
            started_seconds = self._elapsed_seconds()
            messages: list[ReceivedMessage] = []
            try:
                messages = await self._queues.receive(
                    self._url, message_count_max=batch, wait_seconds=WAIT_SECONDS
                )
            except RequestError as error:
                await self._bear(error)
            self._receive_window.leave(batch - len(messages))
            self._take(messages, started_seconds, is_warm=is_warm)
            is_warm = True

    def _take(self, messages: Sequence[ReceivedMessage], started_seconds: float, *, is_warm: bool) -> None:
        """Count what a receive brought and hand it to the deleters."""
        ended_seconds = self._elapsed_seconds()
        if not messages:
            self._empty_receive_count += 1
            self._empty_since_sending = self._sending_ended_seconds is not None
            self._finish_when_drained()
            return
        was_waiting = False
        for message in messages:
            sequence, sent_seconds = self._parsed(message.body)
            was_waiting = was_waiting or self._send_ended_seconds.get(sequence, math.inf) <= started_seconds
            is_first = self._count_copy(sequence, ended_seconds - sent_seconds)
            self._receipts.append(_Receipt(message.receipt_handle, ended_seconds, is_first, sequence < 0))
        timings = self._timings["receive"]
        timings.request_count += 1
        self._troubles_in_a_row = 0
        if is_warm and was_waiting:
            timings.seconds.append(ended_seconds - started_seconds)
        self._receipt_came.set()

    def _count_copy(self, sequence: int, latency_seconds: float) -> bool:
        """Whether it is the first copy of a message of this run."""
        if sequence < 0:
            self._foreign_count += 1
            return False
        self._received_count += 1
        if sequence in self._received:
            self._duplicate_count += 1
            return False
        self._received.add(sequence)
        self._send_ended_seconds.pop(sequence, None)
        self._latencies.append(latency_seconds)
        self._send_window.leave(1)
        return True

    async def _delete_messages(self) -> None:
        """One deleter: as full a batch as there is, at once."""
        is_warm = False
        while True:
            while not self._receipts:
                self._receipt_came.clear()
                await self._receipt_came.wait()
            if not self._claim():
                self._finished.set()
                return
            size = min(self._setting.batch_message_count, len(self._receipts))
            receipts = [self._receipts.popleft() for _ in range(size)]
            self._deleting_count += size
            try:
                await self._delete_batch(receipts, is_warm=is_warm)
            finally:
                self._deleting_count -= size
            is_warm = True
            self._finish_when_drained()

    async def _delete_batch(self, receipts: Sequence[_Receipt], *, is_warm: bool) -> None:
        handles = [receipt.handle for receipt in receipts]
        try:
            accepted_count = await self._timed(
                "delete", self._queues.delete(self._url, handles), is_warm=is_warm
            )
        except RequestError as error:
            is_expired = self._group_count and isinstance(error, Refused)  # its message comes back
            if is_expired:
                self._receive_window.leave(len(receipts))
            else:
                self._receipts.extendleft(reversed(receipts))
            await self._bear(error)
            return
        ended_seconds = self._last_deletion_seconds = self._elapsed_seconds()
        self._receive_window.leave(len(receipts))
        self._age_seconds_max = max(self._age_seconds_max, ended_seconds - receipts[0].received_seconds)
        # Which entries of a batch were refused is not told; they come back after the visibility timeout.
        refused_count = len(receipts) - accepted_count
        self._failed_count += int(refused_count > 0)
        self._deleted_count += max(0, sum(not r.is_foreign for r in receipts) - refused_count)
        self._deletions.append((ended_seconds, max(0, sum(r.is_first for r in receipts) - refused_count)))

    async def _timed(self, action: str, request: Awaitable[ResultT], *, is_warm: bool) -> ResultT:
        started_seconds = self._elapsed_seconds()
        result = await request
        timings = self._timings[action]
        timings.request_count += 1
        self._troubles_in_a_row = 0
        if is_warm:
            timings.seconds.append(self._elapsed_seconds() - started_seconds)
        return result

    async def _bear(self, error: RequestError) -> None:
        """Count the trouble and pause; raise when going on would be of no use."""
        self.trouble = error
        if isinstance(error, Throttled):
            self._throttled_count += 1
        else:
            self._failed_count += 1
        threads = self._setting.sender_thread_count + self._setting.receiver_thread_count
        troubles_max = FAILURE_COUNT_MAX + 2 * (threads + self._setting.deleter_thread_count)
        self._troubles_in_a_row += 1
        if isinstance(error, (Denied, Missing)) or self._troubles_in_a_row >= troubles_max:
            raise _HopelessError
        doublings = min(self._troubles_in_a_row - 1, 5)
        await asyncio.sleep(min(THROTTLE_PAUSE_SECONDS * 2**doublings, THROTTLE_PAUSE_SECONDS_MAX))

    def _is_enough_sent(self) -> bool:
        sending_seconds = min(SEND_SECONDS_ENOUGH, SENDING_FRACTION * self._seconds_max)
        return self._elapsed_seconds() >= sending_seconds or self._sent_count >= MESSAGE_COUNT_ENOUGH

    async def _await_slot(self, count: int) -> None:
        """Evenly spaced sends at the rate limit, shared by all senders; lost time is not made up for."""
        rate = self._setting.send_rate_limit_messages_per_second
        if rate <= 0:
            return
        slot_seconds = max(self._next_slot_seconds, self._elapsed_seconds())
        self._next_slot_seconds = slot_seconds + count / rate
        await asyncio.sleep(max(0.0, slot_seconds - self._elapsed_seconds()))

    def _claim(self, moved_bytes: int = 0, reserve_request_count: int = 0) -> bool:
        """Whether one more request, and the reserve after it, is within the plan's cost; counts it when so."""
        cost_max = self._plan.cost_max
        if self._request_count + 1 + reserve_request_count > cost_max.request_count:
            return False
        if self._moved_bytes + moved_bytes > cost_max.transferred_bytes:
            return False
        self._request_count += 1
        self._moved_bytes += moved_bytes
        return True

    def _drain_reserve(self, batch: int) -> int:
        """Requests that it takes to receive and delete what is outstanding, once this batch is sent too."""
        receives = self._timings["receive"].request_count
        received_per_request = max(1.0, self._received_count / receives) if receives else float(batch)
        unreceived_count = self._next_sequence - len(self._received) + batch
        undeleted_count = unreceived_count + len(self._receipts) + self._deleting_count
        needed = unreceived_count / received_per_request + undeleted_count / min(batch, received_per_request)
        return math.ceil(needed) + 2 * self._setting.receiver_thread_count

    def _finish_when_drained(self) -> None:
        is_received = len(self._received) >= self._sent_count
        is_certain = self._uncertain_count == 0 or self._empty_since_sending
        is_deleted = not self._receipts and not self._deleting_count
        if self._sending_ended_seconds is not None and is_received and is_certain and is_deleted:
            self._finished.set()

    @property
    def _body_bytes(self) -> int:
        return max(_BODY_FIELDS_BYTES, self._plan.context.payload_size_bytes)

    def _body(self, run_id: str, sequence: int, sent_seconds: float) -> str:
        fields = f"{run_id}:{sequence:08x}:{round(sent_seconds * 1e6):015d}"
        return fields.ljust(self._body_bytes, ".")

    def _parsed(self, body: str) -> tuple[int, float]:
        """Sequence and moment of the send; sequence -1 for a message of a former run, or of somebody else."""
        run_id, _, rest = body[:_BODY_FIELDS_BYTES].partition(":")
        if run_id != self._run_id:
            return -1, 0.0
        return int(rest[:8], 16), int(rest[9:]) / 1e6

    def _elapsed_seconds(self) -> float:
        return self._clock.monotonic_seconds() - self._began_seconds

    @property
    def used(self) -> Cost:
        """Bytes and requests so far."""
        return Cost(transferred_bytes=self._moved_bytes, request_count=self._request_count)

    def outcome(self, started_at: datetime, effort: Effort) -> Outcome[SqsDeliverySetting]:
        """What the run amounts to."""
        latencies = summarize(self._latencies)
        reason = self._why_nothing() if not self._deletions else effort.disturbance(latencies.p50_seconds)
        if reason is not None:
            return inconclusive(self._plan, started_at, reason, self.used)
        return Observation(
            context=self._plan.context,
            setting=self._setting,
            started_at=started_at,
            duration_seconds=self._last_deletion_seconds,  # what follows is the last poll, of an empty queue
            transferred_bytes=len(self._received) * self._body_bytes,
            request_count=self._request_count,
            throttled_count=self._throttled_count,
            failed_count=self._failed_count,
            latency_seconds_mean=latencies.mean_seconds,
            latency_seconds_p50=latencies.p50_seconds,
            latency_seconds_p99=latencies.p99_seconds,
            client_cpu_fraction=effort.client_cpu_fraction,
            loop_lag_seconds_max=effort.loop_lag_seconds_max,
            measures=self._measures(),
        )

    def _why_nothing(self) -> str:
        if self.trouble is not None:
            return f"no message went all the way; {self.trouble}"
        if not self._sent_count:
            return _too_little(self._plan.cost_max)
        return "no message went all the way in time: allow more time, or more receivers and deleters"

    def _measures(self) -> Mapping[str, float]:
        measures: dict[str, float] = {
            "sent_count": self._sent_count,
            "received_count": self._received_count,
            "deleted_count": self._deleted_count,
            "duplicate_count": self._duplicate_count,
            "foreign_count": self._foreign_count,
            "attempted_bytes": self._moved_bytes,
            "left_count": max(0, self._sent_count - sum(count for _, count in self._deletions)),
            "empty_receive_count": self._empty_receive_count,
            "oldest_undeleted_seconds_max": self._oldest_undeleted_seconds_max(),
        }
        for action, timings in self._timings.items():
            measures |= _request_measures(action, timings.request_count, summarize(timings.seconds))
        for (action, batch), seconds in self._idle_seconds.items():
            measures[f"idle_{action}_seconds_batch_{batch}"] = sum(seconds) / len(seconds)
        if self._cold_delivery_seconds is not None:
            measures["cold_delivery_seconds"] = self._cold_delivery_seconds
        goodput = steady_goodput(self._deletions, self._sending_ended_seconds)
        if goodput is not None:
            measures["goodput_messages_per_second"] = goodput
        if "VisibilityTimeout" in self._attributes:
            measures["visibility_timeout_seconds"] = float(self._attributes["VisibilityTimeout"])
        return measures

    def _oldest_undeleted_seconds_max(self) -> float:
        """Also of copies that were not deleted in the end."""
        waiting = [self._elapsed_seconds() - receipt.received_seconds for receipt in self._receipts]
        return max([self._age_seconds_max, *waiting])


class _HopelessError(Exception):
    """Going on with this run would be of no use; the trouble says why."""


def steady_goodput(
    deletions: Sequence[tuple[float, int]], sending_ended_seconds: float | None
) -> float | None:
    """Messages a second after the first deletion until the sending ended; (end, count) for each request, in order.

    None when there are too few requests to tell a rate.
    """
    if len(deletions) < 2:
        return None
    begins = deletions[0][0]
    ends = math.inf if sending_ended_seconds is None else sending_ended_seconds
    steady = [(ended, count) for ended, count in deletions[1:] if ended <= ends]
    if len(steady) < GOODPUT_DELETION_COUNT_MIN:
        steady = list(deletions[1:])
    span_seconds = steady[-1][0] - begins
    return sum(count for _, count in steady) / span_seconds if span_seconds > 0 else None


def _chunk_count(size_bytes: int) -> int:
    return math.ceil(max(size_bytes, 1) / BILLED_CHUNK_BYTES)


def _too_little(cost_max: Cost) -> str:
    return (
        f"the plan allows {cost_max.request_count} requests and {format_bytes(cost_max.transferred_bytes)}, too "
        "little to send a batch and take it out again: raise the budget of a probe"
    )


def _request_measures(action: str, request_count: int, summary: LatencySummary) -> dict[str, float]:
    measures: dict[str, float] = {f"{action}_request_count": request_count}
    if summary.count:
        measures[f"{action}_seconds_mean"] = summary.mean_seconds
        measures[f"{action}_seconds_variation"] = summary.variation
    return measures
