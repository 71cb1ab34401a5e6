"""Knows how an application drives a queue and what it measures: the published study's application, and the probe's.

One or more senders, receivers and deleters share the messages sent and not received, which also tell duplicates, and
those received and not deleted (`message_map.py`). Without bounds that is the study's "blast" mode, which collapses as
soon as the deleter is a little slower than the sender. The rate-controlled mode has four rules: send only while fewer
than ten messages are in the queue; receive only while there are some; delete whatever there is; send only while the
oldest message in the delete queue is younger than half of the visibility timeout. A `Conduct` says how the queue is
driven, real or simulated.

Times are measured here; a message's body only identifies it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from penstock.clock import Clock, Stopwatch
from penstock.probes.outside import Failed, Refused, RequestError, Unreachable
from penstock.probes.sqs.conduct import Conduct
from penstock.probes.sqs.message_map import MessageMap, Receipt
from penstock.probes.sqs.run import (
    WAIT_SECONDS,
    Bodies,
    BoundQueue,
    DeleteBrake,
    HopelessError,
    Patience,
    Purse,
)
from penstock.probes.sqs.tally import Counts, Sample, Tally, Timings

LONG_POLL_SECONDS = 20
TROUBLE_COUNT_MAX = 50  # in a row, of all threads together
TROUBLE_PAUSE_SECONDS = 0.1
HELD_COUNT_MAX = 2_000_000  # messages and copies that the application remembers: about 300 MB
_CAUGHT_UP_BATCH_COUNT = 10  # batches by which a delay at the rate limit is caught up
_PUNCTUAL_SECONDS = 1e-6  # a message that is this early is due


class DrivenEnoughError(Exception):
    """Ends the run with what was counted so far; raised here, or by the function that is told the samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stint:
    """How much is sent. The run ends when all of it is deleted, or the purse is empty."""

    message_count_max: float = math.inf
    seconds_max: float = math.inf
    # Whether to keep enough in the purse to receive and delete what was sent; else the run ends when it is empty.
    drains: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a run has beside its queue: its budget, its tolerance for errors, its message bodies, and a brake."""

    purse: Purse = field(default_factory=Purse)
    patience: Patience = field(
        default_factory=lambda: Patience(
            in_a_row_max=TROUBLE_COUNT_MAX, pause_seconds_max=TROUBLE_PAUSE_SECONDS
        )
    )
    bodies: Bodies = field(default_factory=Bodies)
    brake: DeleteBrake | None = None


class MeasurementApplication:
    """One run on one queue, which no other application should use."""

    def __init__(
        self,
        queue: BoundQueue,
        clock: Clock,
        conduct: Conduct,
        *,
        tally: Tally | None = None,
        stint: Stint | None = None,
        means: Means | None = None,
    ) -> None:
        self.tally = tally or Tally()
        self.conduct = conduct
        self._queue, self._clock = queue, clock
        self._stint, self._means = stint or Stint(), means or Means()
        self._messages_left = self._stint.message_count_max
        self._map = MessageMap(self.tally)
        self._is_spent = False
        self._stopwatch = Stopwatch(clock)  # since it was last driven
        self._sending_count = 0  # sends in flight
        self._requested_count = 0  # messages requested by receives in flight
        self._send_allowed_seconds = 0.0
        self._changed, self._came = asyncio.Event(), asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._thread_counts: dict[str, int] = {}

    async def drive(self, seconds: float, tell: Callable[[Sample], None] | None = None) -> None:
        """Send, receive and delete for `seconds`; `tell` gets a sample each second. Raises HopelessError."""
        # A task of its own: until Python 3.13, a task group that ended by an error leaves a cancellation request in its
        # task, which a surrounding timeout takes for one from outside.
        await asyncio.create_task(self._drive(seconds, tell))

    async def _drive(self, seconds: float, tell: Callable[[Sample], None] | None) -> None:
        self._stopwatch = Stopwatch(self._clock)
        hopeless: BaseException | None = None
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                self._group = group
                if tell is not None:
                    group.create_task(self._sample_on(tell))
                self.adopt(self.conduct)
        except* (TimeoutError, DrivenEnoughError):
            pass
        except* HopelessError as troubles:
            hopeless = troubles  # raised below: in Python 3.11.2 it would become a group here
        finally:
            self._note_age()
            self.tally.duration_seconds = self._stopwatch.elapsed_seconds()
        if hopeless is not None:
            raise HopelessError(str(self._means.patience.trouble)) from hopeless

    def adopt(self, conduct: Conduct) -> None:
        """Change the conduct: missing threads start at once, surplus senders pause; none is ended."""
        self.conduct = conduct
        assert self._group is not None
        for act, count in (
            (self._send_on, conduct.sender_count),
            (self._receive_on, conduct.receiver_count),
            (self._delete_on, conduct.deleter_count),
        ):
            there_count = self._thread_counts.get(act.__name__, 0)
            for _ in range(there_count, count):
                self._group.create_task(act())
            self._thread_counts[act.__name__] = max(there_count, count)
        self._note_change()

    # Senders

    async def _send_on(self) -> None:
        is_warm = False
        while not self._is_spent:
            await self._until(lambda: self._may_send() or self._is_late())
            await self._await_slot()
            if self._is_late():
                return
            if self._may_send():  # checked again, because others have sent meanwhile
                await self._send_batch(is_warm=is_warm)
                is_warm = True

    def _is_late(self) -> bool:
        return self._is_spent or self._stopwatch.elapsed_seconds() >= self._stint.seconds_max

    def _may_send(self) -> bool:
        conduct = self.conduct
        if self._sending_count >= conduct.sender_count or self._messages_left < 1:
            return False
        sent = len(self._map.unreceived)  # an empty window takes a batch of any size
        if conduct.send_window and sent and sent + conduct.send_batch > conduct.send_window:
            return False
        oldest = conduct.oldest_undeleted_seconds_max
        return not oldest or self._oldest_undeleted_seconds() <= oldest

    async def _await_slot(self) -> None:
        """Wait until the rate limit allows a batch and there are enough messages for one."""
        conduct, due_seconds, now = self.conduct, 0.0, self._stopwatch.elapsed_seconds()
        if conduct.send_rate_limit_per_second > 0:
            spacing = conduct.send_batch / conduct.send_rate_limit_per_second
            # A short delay is caught up.
            due_seconds = max(self._send_allowed_seconds, now - _CAUGHT_UP_BATCH_COUNT * spacing)
            self._send_allowed_seconds = due_seconds + spacing
        if due_seconds > now:
            await asyncio.sleep(due_seconds - now)
        while True:  # other senders take their share meanwhile
            wait_seconds = self._seconds_until_offered()
            if wait_seconds < _PUNCTUAL_SECONDS:
                return
            await asyncio.sleep(wait_seconds)

    def _seconds_until_offered(self) -> float:
        """Seconds until there is a batch of messages to send; negative if there already is."""
        conduct = self.conduct
        if conduct.offered_per_second <= 0:
            return 0.0
        due_seconds = (self._map.tried_count + conduct.send_batch) / conduct.offered_per_second
        return due_seconds - self._stopwatch.elapsed_seconds()

    async def _send_batch(self, *, is_warm: bool) -> None:
        """Send one batch; messages of it that were not accepted are sent again, one by one."""
        size = int(min(self.conduct.send_batch, self._messages_left))
        accepted_count = await self._send(size, is_warm=is_warm)
        for _ in range(size - accepted_count if accepted_count else 0):
            await self._send(1, is_warm=True)

    async def _send(self, size: int, *, is_warm: bool) -> int:
        """Send `size` messages; returns how many were accepted."""
        if not self._can_pay_for_send(size):
            return 0
        self._messages_left -= size
        asked_seconds, accepted_count = self._stopwatch.elapsed_seconds(), 0
        sequences = self._map.begin_send(size, asked_seconds)
        self._sending_count += 1
        try:
            accepted_count = await self._queue.send(list(map(self._means.bodies.body, sequences)))
            self._note_answer(self.tally.sends, accepted_count, asked_seconds if is_warm else None)
            self._means.patience.failed_count += int(accepted_count < size)
        except RequestError as trouble:
            self.tally.uncertain_count += size if isinstance(trouble, Unreachable) else 0
            await self._bear(trouble)
        finally:
            self._sending_count -= 1
            self._messages_left += size - accepted_count
            waits_from = self._stopwatch.elapsed_seconds() if self._stint.drains and accepted_count else None
            self._map.end_send(sequences, is_accepted=accepted_count == size, waits_from=waits_from)
        self.tally.total.sent_count += accepted_count
        self._note_change()
        return accepted_count

    def _can_pay_for_send(self, message_count: int) -> bool:
        """Whether the purse pays for a send; if not, DrivenEnoughError ends a run that does not drain its queue."""
        reserve = self._drain_reserve(message_count) if self._stint.drains else 0
        sent_bytes = message_count * self._means.bodies.size_bytes
        if self._means.purse.claim(sent_bytes=sent_bytes, reserve_request_count=reserve):
            self.tally.total.request_count += 1
            return True
        if not self._stint.drains:
            raise DrivenEnoughError
        self._is_spent = True
        self._note_change()
        return False

    def _drain_reserve(self, batch: int) -> int:
        """The count of requests needed to receive and delete everything outstanding, including this batch."""
        total, receives = self.tally.total, self.tally.receives.request_count
        copy_count = total.received_count + total.duplicate_count
        received_per_request = max(1.0, copy_count / receives) if receives else float(batch)
        unreceived_count = self._map.tried_count - total.received_count + batch
        undeleted_count = unreceived_count + self._map.undeleted_count
        needed = unreceived_count / received_per_request + undeleted_count / min(batch, received_per_request)
        return math.ceil(needed) + 2 * self.conduct.receiver_count

    # Receivers

    async def _receive_on(self) -> None:
        is_warm = False
        while True:
            await self._until(lambda: self._wanted_count() > 0)
            wanted = self._wanted_count()
            self._requested_count += wanted
            try:
                self._pay(received_bytes=wanted * self._means.bodies.size_bytes)
                await self._receive(wanted, is_warm=is_warm)
            except RequestError as trouble:
                await self._bear(trouble)
            finally:
                self._requested_count -= wanted
            is_warm = True
            self._note_change()

    def _wanted_count(self) -> int:
        """How many messages the next receive may request; 0 if there should be no receive now."""
        conduct, sent_count = self.conduct, self.tally.total.sent_count
        if conduct.polls_only_when_sent and not self._map.unreceived:
            return 0
        if self._stint.drains and not sent_count and not self._is_late():
            return 0  # so that the first receives find something
        if conduct.fills_first and sent_count < self._stint.message_count_max:
            return 0
        pause = conduct.receive_pause_seconds
        if pause and self._stopwatch.elapsed_seconds() - self._map.oldest_received_at > pause:
            return 0
        if not conduct.receive_window:
            return conduct.receive_batch
        held = 0 if conduct.receive_window_ends_at_handover else self._map.undeleted_count
        return max(0, min(conduct.receive_batch, conduct.receive_window - held - self._requested_count))

    async def _receive(self, count_max: int, *, is_warm: bool) -> None:
        wait_seconds = LONG_POLL_SECONDS if self.conduct.long_polls else 0
        wait_seconds = WAIT_SECONDS if self._stint.drains else wait_seconds
        asked_seconds = self._stopwatch.elapsed_seconds()
        messages = await self._queue.receive(count_max, wait_seconds)
        if not messages:
            self.tally.empty_receive_count += 1
            self.tally.is_empty_since_sending = self.tally.sent_after_seconds < math.inf
            return
        sequences = [self._means.bodies.sequence_of(message.body) for message in messages]
        is_waiting = self._map.waited_from(sequences) <= asked_seconds
        is_timed = is_warm and (is_waiting if self._stint.drains else not wait_seconds)
        self._note_answer(self.tally.receives, len(messages), asked_seconds if is_timed else None)
        now = self._stopwatch.elapsed_seconds()
        for sequence, message in zip(sequences, messages, strict=True):
            self._map.take(sequence, message, now)
        self._came.set()

    # Deleters

    async def _delete_on(self) -> None:
        """Work as one deleter: delete whatever there is at once, in batches as full as possible."""
        is_warm = False
        while True:
            while not self._map.undeleted:
                self._came.clear()
                await self._came.wait()
            self._pay()
            receipts = self._map.begin_delete(self.conduct.delete_batch)
            try:
                await self._delete_batch(receipts, is_warm=is_warm)
            finally:
                self._map.end_delete(receipts)
            is_warm = True
            self._note_change()

    async def _delete_batch(self, receipts: Sequence[Receipt], *, is_warm: bool) -> None:
        """Delete a batch; one by one if it was accepted only in part."""
        if self._means.brake is not None:
            await self._means.brake.hold()
        asked_seconds = self._stopwatch.elapsed_seconds()
        try:
            accepted_count = await self._queue.delete([receipt.handle for receipt in receipts])
        except RequestError as trouble:
            if isinstance(trouble, Refused) and not isinstance(trouble, Failed):
                # Mostly because of an old handle; the message comes back if it still exists.
                self.tally.total.deleted_in_vain_count += len(receipts)
                await self._bear(trouble, pauses=False)
                return
            self._map.put_back(receipts)
            self._came.set()
            await self._bear(trouble)
            return
        ours = [receipt for receipt in receipts if receipt.sequence >= 0]
        own_count = min(accepted_count, len(ours))
        self._note_answer(self.tally.deletes, own_count, asked_seconds if is_warm else None)
        if accepted_count < len(receipts) and len(receipts) > 1:
            # It is not known which were accepted; to delete a message twice does no harm.
            self._means.patience.failed_count += 1
            for receipt in receipts:
                self._pay()
                await self._delete_batch([receipt], is_warm=True)
            return
        self._note_age()
        count = self._map.note_deleted(ours)
        if self._stint.drains:
            self.tally.deletions.append((self._stopwatch.elapsed_seconds(), count))

    # Common to all threads

    def _pay(self, *, received_bytes: int = 0) -> None:
        """Count a request that is about to be made. Raises DrivenEnoughError if there must be no more."""
        if self._map.held_count > HELD_COUNT_MAX or not self._means.purse.claim(
            received_bytes=received_bytes
        ):
            raise DrivenEnoughError
        self.tally.total.request_count += 1

    async def _until(self, is_allowed: Callable[[], bool]) -> None:
        while not is_allowed():
            await self._changed.wait()

    def _note_change(self) -> None:
        """Let all threads check again whether they may act. Raises DrivenEnoughError if nothing is left to do."""
        self._changed.set()
        self._changed = asyncio.Event()
        tally = self.tally
        is_over = not self._sending_count and (
            self._is_late() or tally.total.sent_count >= self._stint.message_count_max
        )
        if is_over and tally.sent_after_seconds == math.inf:
            tally.sent_after_seconds = self._stopwatch.elapsed_seconds()
        if is_over and tally.is_all_received and not self._map.undeleted_count:
            raise DrivenEnoughError

    def _note_answer(self, timings: Timings, message_count: int, asked_seconds: float | None) -> None:
        """Count an answer. `asked_seconds` is None for a thread's first request, which opened its connection."""
        self._means.patience.recover()
        timings.note(
            message_count,
            None if asked_seconds is None else self._stopwatch.elapsed_seconds() - asked_seconds,
        )

    async def _bear(self, trouble: RequestError, *, pauses: bool = True) -> None:
        self.tally.total.failed_count += 1
        await self._means.patience.bear(trouble, pauses=pauses)

    async def _sample_on(self, tell: Callable[[Sample], None]) -> None:
        before = Counts()
        for second in range(1, 10**9):
            await asyncio.sleep(max(0.0, second - self._stopwatch.elapsed_seconds()))
            self._note_age()
            now = replace(self.tally.total)
            sample = Sample(
                at_seconds=self._stopwatch.elapsed_seconds(),
                counts=now.less(before),
                unreceived_count=len(self._map.unreceived),
                undeleted_count=self._map.undeleted_count,
                oldest_undeleted_seconds=self._oldest_undeleted_seconds(),
            )
            before = now
            self.tally.samples.append(sample)
            tell(sample)

    def _oldest_undeleted_seconds(self) -> float:
        return max(0.0, self._stopwatch.elapsed_seconds() - self._map.oldest_in_queue_at)

    def _note_age(self) -> None:
        now = self._stopwatch.elapsed_seconds()
        self.tally.note_age(now - self._map.oldest_received_at, now)
