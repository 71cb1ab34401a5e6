"""Knows the measurement application of the published collapse, for real queues and for simulated ones.

A sender, a receiver and a deleter (or more of each) share two things: the message map of what was sent and not
received, which also tells duplicates, and the delete queue, first in first out, of what was received and not deleted.
Unbounded that is the "blast" mode, which collapses as soon as the deleter is a little slower than the sender. The
rules of the rate-controlled mode are four: send only while fewer than ten messages are in the server; receive only
when there are some; delete whatever there is; send only while the oldest message in the delete queue is younger than
half of the visibility timeout. How it is driven is a `Conduct`, the same as for simulated campaigns.

Times are measured here; a message's body only identifies it. A delete counts when its handle is the newest that was
received for the message, and once for each message.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from datetime import datetime

from penstock.clock import Clock
from penstock.probes.outside import Denied, Messages, Missing, ReceivedMessage, Refused, RequestError
from penstock.probes.sqs.conduct import Conduct

LONG_POLL_SECONDS = 20
SESSION_LENGTH = 11
BODY_BYTES = 37
TROUBLE_COUNT_MAX = 50  # in a row, of all threads together
TROUBLE_PAUSE_SECONDS = 0.1
ARRIVAL_COUNT_MAX = 1000  # whose order is kept
HELD_COUNT_MAX = 2_000_000  # messages and copies that the application remembers: some 300 MB
_SEQUENCE_LENGTH = 8
_BUCKETS_PER_DECADE = 40
_PUNCTUAL_SECONDS = 1e-6  # a message this early is due


class MeasurementError(RuntimeError):
    """The queue cannot be measured; the message says why."""


class DrivenEnoughError(Exception):
    """Raised by whoever hears of the seconds, or within: the run ends here, and what was counted stands."""


@dataclass(slots=True)
class Counts:
    """What happened, since the sample before or since the start."""

    sent_count: int = 0
    received_count: int = 0  # each message once
    duplicate_count: int = 0  # further copies
    deleted_count: int = 0  # each message once, with its newest handle
    # With a handle that a later copy had replaced, or of a message gone already.
    deleted_in_vain_count: int = 0
    request_count: int = 0
    failed_count: int = 0  # throttled, refused or unanswered requests
    latency_seconds_total: float = 0.0  # of the messages received

    @property
    def latency_seconds_mean(self) -> float:
        """From the start of the send to the receive; 0 when nothing was received."""
        return self.latency_seconds_total / self.received_count if self.received_count else 0.0

    def document(self) -> dict[str, float]:
        document = asdict(self) | {"latency_seconds_mean": self.latency_seconds_mean}
        del document["latency_seconds_total"]
        return document

    def add(self, more: Counts) -> None:
        for name in Counts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(more, name))


@dataclass(slots=True)
class Answered:
    """The requests of one kind that were answered, but for the first of each thread, which opened its connection."""

    request_count: int = 0
    message_count: int = 0
    seconds_total: float = 0.0
    cold_count: int = 0  # that are still to come

    def note(self, message_count: int, seconds: float) -> None:
        """One more."""
        if self.cold_count:
            self.cold_count -= 1
            return
        self.request_count += 1
        self.message_count += message_count
        self.seconds_total += seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The application once a second."""

    at_seconds: float
    counts: Counts  # since the sample before
    unreceived_count: int  # in the message map
    undeleted_count: int  # in the delete queue and being deleted
    oldest_undeleted_seconds: float


@dataclass(slots=True, kw_only=True)
class Tally:
    """All that one run came to."""

    duration_seconds: float = 0.0
    total: Counts = field(default_factory=Counts)
    samples: list[Sample] = field(default_factory=list)
    oldest_undeleted_seconds_max: float = 0.0
    # When the oldest undeleted message was as old as the visibility timeout.
    overdue_at_seconds: float = math.inf
    sent_after_seconds: float = math.inf  # all that were to be sent
    first_arrivals: list[int] = field(default_factory=list)  # their places among the sent
    latency_counts: dict[int, int] = field(default_factory=dict)  # by a fortieth of a decade above 0.1 ms
    sends: Answered = field(default_factory=Answered)
    # That brought something, and were not to wait for it.
    receives: Answered = field(default_factory=Answered)
    deletes: Answered = field(default_factory=Answered)

    def latency_seconds_quantile(self, fraction: float) -> float:
        """The latency that this fraction of messages did not exceed, within 6 %; 0 when none was received."""
        wanted = fraction * sum(self.latency_counts.values())
        for bucket in sorted(self.latency_counts):
            wanted -= self.latency_counts[bucket]
            if wanted <= 0:
                return float(1e-4 * 10 ** ((bucket + 1) / _BUCKETS_PER_DECADE))
        return 0.0

    def rate_between(self, name: str, start_seconds: float, end_seconds: float) -> float:
        """One of the counts per second, over the samples of a span; 0 when there are none."""
        samples = [s for s in self.samples if start_seconds < s.at_seconds <= end_seconds]
        counted = float(sum(getattr(sample.counts, name) for sample in samples))
        return counted / (end_seconds - start_seconds) if samples else 0.0


class DeleteBrake:
    """Makes deletes slow, so that a collapse can be seen within minutes: each one, or all together."""

    def __init__(
        self, clock: Clock, *, delay_seconds: float = 0.0, requests_per_second_max: float = 0.0
    ) -> None:
        self._clock = clock
        self._delay_seconds = delay_seconds
        self._spacing_seconds = 1.0 / requests_per_second_max if requests_per_second_max > 0 else 0.0
        self._next_at_seconds = 0.0

    @property
    def is_shared(self) -> bool:
        """Whether more deleters would not delete more."""
        return self._spacing_seconds > 0

    async def hold(self) -> None:
        """Wait before a request."""
        now = self._clock.monotonic_seconds()
        at_seconds = max(now, self._next_at_seconds) if self.is_shared else now
        self._next_at_seconds = at_seconds + self._spacing_seconds
        if at_seconds + self._delay_seconds > now:
            await asyncio.sleep(at_seconds + self._delay_seconds - now)


@dataclass(frozen=True, slots=True)
class _Receipt:
    """A copy in the delete queue."""

    sequence: int
    handle: str
    received_seconds: float


@dataclass(eq=False)
class MeasurementApplication:
    """One run against one queue, which should be its own."""

    messages: Messages
    clock: Clock
    url: str
    conduct: Conduct
    _: KW_ONLY
    session: str
    visibility_timeout_seconds: float
    brake: DeleteBrake
    # With these the run ends when one is met, before one too many is made.
    request_count_max: int | None = None
    message_count_max: int | None = None

    def __post_init__(self) -> None:
        assert len(self.session) == SESSION_LENGTH
        self.tally = Tally()
        self._requests_left = math.inf if self.request_count_max is None else self.request_count_max
        self._messages_left = math.inf if self.message_count_max is None else self.message_count_max
        self._began_seconds = self.clock.monotonic_seconds()
        self._unreceived: dict[int, float] = {}  # the message map: when each was sent
        # The same for sends that failed: they may be there all the same.
        self._uncertain: dict[int, float] = {}
        self._undeleted: deque[_Receipt] = deque()  # the delete queue
        self._newest_handles: dict[int, str] = {}
        self._is_deleted = bytearray()  # by sequence
        self._sent_count = self._deleted_count = 0
        self._sending_count = 0  # requests under way
        self._deleting_count = 0
        self._deleting_since_seconds: list[float] = []  # when the oldest of each delete request was received
        self._requested_count = 0  # asked for by receives under way
        self._send_allowed_seconds = 0.0
        self._troubles_in_a_row = 0
        self._since = Counts()
        self._changed = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._thread_counts: dict[str, int] = {}

    async def drive(self, seconds: float, tell: Callable[[Sample], None]) -> None:
        """Send, receive and delete for so long; `tell` hears of each second. Raises MeasurementError."""
        self._began_seconds = self.clock.monotonic_seconds()
        trouble: BaseException | None = None
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._sample_on(tell))
                self.adopt(self.conduct)
        except* (TimeoutError, DrivenEnoughError):
            pass
        except* RequestError as hopeless:
            trouble = hopeless.exceptions[0]
        finally:
            self._note_age()
            self.tally.total.add(self._since)
            self.tally.duration_seconds = self._elapsed_seconds()
        if trouble is not None:
            raise MeasurementError(str(trouble)) from trouble

    def adopt(self, conduct: Conduct) -> None:
        """Go on like this: threads that are missing start at once, surplus senders rest; none is ended."""
        self.conduct = conduct
        assert self._group is not None
        for act, count, answered in (
            (self._send_on, conduct.sender_count, self.tally.sends),
            (self._receive_on, conduct.receiver_count, self.tally.receives),
            (self._delete_on, conduct.deleter_count, self.tally.deletes),
        ):
            missing_count = max(0, count - self._thread_counts.get(act.__name__, 0))
            for _ in range(missing_count):
                self._group.create_task(act())
            self._thread_counts[act.__name__] = self._thread_counts.get(act.__name__, 0) + missing_count
            answered.cold_count += missing_count
        self._note_change()

    # Senders

    async def _send_on(self) -> None:
        while True:
            await self._until(self._may_send)
            await self._await_slot()
            if self._may_send():  # others sent meanwhile
                await self._send_batch()

    def _may_send(self) -> bool:
        conduct = self.conduct
        if self._sending_count >= conduct.sender_count or self._messages_left < 1:
            return False
        if conduct.send_window and len(self._unreceived) + conduct.send_batch > conduct.send_window:
            return False
        oldest = conduct.oldest_undeleted_seconds_max
        return not oldest or self._oldest_undeleted_seconds() <= oldest

    async def _await_slot(self) -> None:
        """Until the rate limit allows a batch and there are enough messages for one."""
        conduct, due_seconds, now = self.conduct, 0.0, self._elapsed_seconds()
        if conduct.send_rate_limit_per_second > 0:
            spacing = conduct.send_batch / conduct.send_rate_limit_per_second
            # A short delay is caught up with.
            due_seconds = max(self._send_allowed_seconds, now - 10 * spacing)
            self._send_allowed_seconds = due_seconds + spacing
        if due_seconds > now:
            await asyncio.sleep(due_seconds - now)
        while True:  # other senders take their share meanwhile
            wait_seconds = self._seconds_until_offered()
            if wait_seconds < _PUNCTUAL_SECONDS:
                return
            await asyncio.sleep(wait_seconds)

    def _seconds_until_offered(self) -> float:
        """Until there is a batch of messages to send; negative when there has been one."""
        conduct = self.conduct
        if conduct.offered_per_second <= 0:
            return 0.0
        due_seconds = (len(self._is_deleted) + conduct.send_batch) / conduct.offered_per_second
        return due_seconds - self._elapsed_seconds()

    async def _send_batch(self) -> None:
        """As many messages as go at a time; what a batch did not take is sent again, one by one."""
        size = int(min(self.conduct.send_batch, self._messages_left))
        missing = size - await self._send(size)
        for _ in range(missing if size > 1 else 0):
            await self._send(1)

    async def _send(self, size: int) -> int:
        """How many of so many messages were accepted."""
        first, now = len(self._is_deleted), self._elapsed_seconds()
        sequences = range(first, first + size)
        self._messages_left -= size
        self._is_deleted.extend(bytes(len(sequences)))
        self._unreceived.update(dict.fromkeys(sequences, now))
        bodies = [body_of(self.session, sequence, self.clock.now()) for sequence in sequences]
        accepted_count = 0
        self._sending_count += 1
        try:
            self._pay()
            asked_seconds = self._elapsed_seconds()
            accepted_count = await self.messages.send(self.url, bodies)
            self.tally.sends.note(accepted_count, self._elapsed_seconds() - asked_seconds)
            self._troubles_in_a_row = 0
        except RequestError as trouble:
            await self._bear(trouble)
        finally:
            self._sending_count -= 1
            self._messages_left += len(bodies) - accepted_count
            if accepted_count < len(bodies):  # which of them were accepted is not told
                for sequence in sequences:
                    if sequence in self._unreceived:
                        self._uncertain[sequence] = self._unreceived.pop(sequence)
        self._since.sent_count += accepted_count
        self._sent_count += accepted_count
        if self._sent_count == self.message_count_max:
            self.tally.sent_after_seconds = self._elapsed_seconds()
        self._note_change()
        return accepted_count

    # Receivers

    async def _receive_on(self) -> None:
        while True:
            await self._until(lambda: self._wanted_count() > 0)
            wait_seconds = LONG_POLL_SECONDS if self.conduct.long_polls else 0
            wanted = self._wanted_count()
            self._requested_count += wanted
            try:
                self._pay()
                asked_seconds = self._elapsed_seconds()
                messages = await self.messages.receive(
                    self.url, message_count_max=wanted, wait_seconds=wait_seconds
                )
                if messages and not wait_seconds:
                    self.tally.receives.note(len(messages), self._elapsed_seconds() - asked_seconds)
                self._troubles_in_a_row = 0
                self._take(messages)
            except RequestError as trouble:
                await self._bear(trouble)
            finally:
                self._requested_count -= wanted
            self._note_change()

    def _wanted_count(self) -> int:
        """How many messages the next receive may bring; 0 when there should be none."""
        conduct = self.conduct
        if conduct.polls_only_when_sent and not self._unreceived:
            return 0
        if conduct.fills_first and self._sent_count < (self.message_count_max or 0):
            return 0
        pause = conduct.receive_pause_seconds
        if pause and self._elapsed_seconds() - self._oldest_received_seconds() > pause:
            return 0
        if not conduct.receive_window:
            return conduct.receive_batch
        held = 0 if conduct.receive_window_ends_at_handover else len(self._undeleted) + self._deleting_count
        return max(0, min(conduct.receive_batch, conduct.receive_window - held - self._requested_count))

    def _take(self, messages: Sequence[ReceivedMessage]) -> None:
        """Count the copies and put them into the delete queue."""
        now = self._elapsed_seconds()
        for message in messages:
            sequence = sequence_of(self.session, message.body)
            if sequence is None:
                continue
            sent_seconds = self._unreceived.pop(sequence, None)
            if sent_seconds is None:
                sent_seconds = self._uncertain.pop(sequence, None)
            if sent_seconds is None:
                self._since.duplicate_count += 1
            else:
                self._note_latency(now - sent_seconds)
                if len(self.tally.first_arrivals) < ARRIVAL_COUNT_MAX:
                    self.tally.first_arrivals.append(sequence)
            self._newest_handles[sequence] = message.receipt_handle
            self._undeleted.append(_Receipt(sequence, message.receipt_handle, now))

    def _note_latency(self, seconds: float) -> None:
        self._since.received_count += 1
        self._since.latency_seconds_total += seconds
        bucket = int(_BUCKETS_PER_DECADE * math.log10(max(seconds, 1e-4) * 1e4))
        self.tally.latency_counts[bucket] = self.tally.latency_counts.get(bucket, 0) + 1

    # Deleters

    async def _delete_on(self) -> None:
        while True:
            await self._until(lambda: bool(self._undeleted))
            self._note_age()
            size = min(self.conduct.delete_batch, len(self._undeleted))
            receipts = [self._undeleted.popleft() for _ in range(size)]
            self._deleting_count += size
            self._deleting_since_seconds.append(receipts[0].received_seconds)
            try:
                await self._delete_batch(receipts)
            finally:
                self._deleting_count -= size
                self._deleting_since_seconds.remove(receipts[0].received_seconds)
            self._note_change()

    async def _delete_batch(self, receipts: Sequence[_Receipt]) -> None:
        """Delete them; one by one where the batch did not take all of them."""
        await self.brake.hold()
        self._pay()
        asked_seconds = self._elapsed_seconds()
        try:
            accepted_count = await self.messages.delete(self.url, [receipt.handle for receipt in receipts])
        except Refused as trouble:  # an old handle, mostly; the message comes back if it is still there
            self._since.deleted_in_vain_count += len(receipts)
            await self._bear(trouble)
            return
        except RequestError as trouble:
            self._undeleted.extendleft(reversed(receipts))
            await self._bear(trouble)
            return
        self.tally.deletes.note(accepted_count, self._elapsed_seconds() - asked_seconds)
        self._troubles_in_a_row = 0
        if accepted_count < len(receipts) and len(receipts) > 1:
            # Which of them were is not told, and deleting again what is deleted does nothing.
            for receipt in receipts:
                await self._delete_batch([receipt])
            return
        newest = [r for r in receipts if self._newest_handles.get(r.sequence) == r.handle]
        before_count = self._since.deleted_count
        for receipt in newest:
            del self._newest_handles[receipt.sequence]
            self._since.deleted_count += 1 - self._is_deleted[receipt.sequence]
            self._deleted_count += 1 - self._is_deleted[receipt.sequence]
            self._is_deleted[receipt.sequence] = 1
        self._since.deleted_in_vain_count += len(receipts) - (self._since.deleted_count - before_count)
        if self.message_count_max is not None and self._deleted_count >= self.message_count_max:
            raise DrivenEnoughError

    # What is common

    def _pay(self) -> None:
        """Count a request that is about to be made. Raises DrivenEnoughError when there may be no more."""
        if self._requests_left < 1 or len(self._newest_handles) + len(self._undeleted) > HELD_COUNT_MAX:
            raise DrivenEnoughError
        self._requests_left -= 1
        self._since.request_count += 1

    async def _until(self, is_allowed: Callable[[], bool]) -> None:
        while not is_allowed():
            await self._changed.wait()

    def _note_change(self) -> None:
        """Let everybody look again whether they may act."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _bear(self, trouble: RequestError) -> None:
        """Count the trouble and pause; raise it when going on would be of no use."""
        self._since.failed_count += 1
        self._troubles_in_a_row += 1
        if isinstance(trouble, (Denied, Missing)) or self._troubles_in_a_row >= TROUBLE_COUNT_MAX:
            raise trouble
        if not isinstance(trouble, Refused):
            await asyncio.sleep(TROUBLE_PAUSE_SECONDS)

    async def _sample_on(self, tell: Callable[[Sample], None]) -> None:
        for second in range(1, 10**9):
            await asyncio.sleep(max(0.0, second - self._elapsed_seconds()))
            self._note_age()
            sample = Sample(
                at_seconds=self._elapsed_seconds(),
                counts=self._since,
                unreceived_count=len(self._unreceived),
                undeleted_count=len(self._undeleted) + self._deleting_count,
                oldest_undeleted_seconds=self._oldest_undeleted_seconds(),
            )
            self.tally.total.add(self._since)
            self.tally.samples.append(sample)
            self._since = Counts()
            tell(sample)

    def _oldest_undeleted_seconds(self) -> float:
        return self._elapsed_seconds() - self._undeleted[0].received_seconds if self._undeleted else 0.0

    def _oldest_received_seconds(self) -> float:
        """When the oldest message was received that is not deleted yet, or being deleted: it may still come back."""
        waiting = [self._undeleted[0].received_seconds] if self._undeleted else []
        return min([*waiting, *self._deleting_since_seconds], default=math.inf)

    def _note_age(self) -> None:
        tally, age_seconds = self.tally, self._oldest_undeleted_seconds()
        tally.oldest_undeleted_seconds_max = max(tally.oldest_undeleted_seconds_max, age_seconds)
        if age_seconds >= self.visibility_timeout_seconds:
            tally.overdue_at_seconds = min(tally.overdue_at_seconds, self._elapsed_seconds())

    def _elapsed_seconds(self) -> float:
        return self.clock.monotonic_seconds() - self._began_seconds


def body_of(session: str, sequence: int, now: datetime) -> str:
    """37 bytes: session (11), sequence (8), date and time (15), milliseconds (3)."""
    date = f"{now.year:04}{now.month:02}{now.day:02}T{now.hour:02}{now.minute:02}{now.second:02}"
    return f"{session}{sequence:0{_SEQUENCE_LENGTH}x}{date}{now.microsecond // 1000:03}"


def sequence_of(session: str, body: str) -> int | None:
    """Which message of this session it is; None for one of another."""
    if len(body) != BODY_BYTES or not body.startswith(session):
        return None
    return int(body[SESSION_LENGTH : SESSION_LENGTH + _SEQUENCE_LENGTH], 16)
