"""Knows the measurement campaign of an application that sends, receives and deletes on a queue, event by event.

The queue is made of shards: a short poll looks into some of them, a message received is hidden for the visibility
timeout and then visible again unless it was deleted, and a handle that a later receive replaced deletes nothing. The
application has sender, receiver and deleter threads around a map of messages sent and not received and a first-in
first-out queue of messages to delete; its heap is finite, and a fuller heap collects garbage more slowly. With
nothing bounded that is the "blast" mode; the bounds of a `Conduct` make it rate-controlled or advised.

Virtual time only, deterministic by seed. None of the formulas that models use is used here.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

RECEIVE_MESSAGE_COUNT_MAX = 10
_LONG_POLL_LOOK_SECONDS = 0.5  # how often a parked long poll notices messages that came back


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTime:
    """Mean seconds of a request: for itself and for each message that it carries."""

    fixed_seconds: float
    message_seconds: float = 0.0

    def mean_seconds(self, message_count: int) -> float:
        """For so many messages."""
        return self.fixed_seconds + self.message_seconds * message_count


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWorld:
    """The truth about a queue and the host that uses it. The defaults are the seed's, as far as they are known."""

    send: RequestTime = RequestTime(fixed_seconds=0.020)
    receive: RequestTime = RequestTime(fixed_seconds=0.020, message_seconds=0.004)
    delete: RequestTime = RequestTime(fixed_seconds=0.020286)
    variation: float = 0.8  # standard deviation of a request's time over its mean (gamma)
    visibility_timeout_seconds: float = 30.0
    shard_count: int = 16
    sampled_shard_count: int = 5  # by one short poll
    propagation_seconds: tuple[float, float] = (0.043, 0.051)
    redelivered_fraction: float = 8e-7  # of messages, for no reason: at least once is not exactly once
    old_handle_deletes: bool = False
    in_flight_message_count_max: int = 120_000
    client_seconds_per_request: float = 0.0  # one core makes all requests, one after the other
    heap_entry_count_max: int = 350_000  # 1.2 KB each fill a micro instance
    collection_slowdown: float = 0.15  # r/(1-r) times this, at a heap filled to r
    deleter_outages: tuple[tuple[float, float], ...] = ()  # (start, end) in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How the application drives the queue; 0 is "no bound". As it is: blast."""

    sender_count: int = 1
    receiver_count: int = 1
    deleter_count: int = 1
    send_batch: int = 1
    delete_batch: int = 1
    receive_batch: int = RECEIVE_MESSAGE_COUNT_MAX
    offered_per_second: float = (
        0.0  # what there is to send; it piles up while the senders may not. 0: always more
    )
    send_rate_limit_per_second: float = 0.0
    send_window: int = 0  # sent, or being sent, and not received
    receive_window: int = 0  # received and not deleted
    receive_window_ends_at_handover: bool = False  # counted until the deleter has it, as some frameworks do
    oldest_undeleted_seconds_max: float = 0.0  # the senders pause above it
    receive_pause_seconds: float = 0.0  # the receivers pause while the oldest undeleted message is older
    polls_only_when_sent: bool = False
    long_polls: bool = False


BLAST = Conduct()
RATE_CONTROLLED = Conduct(send_window=10, oldest_undeleted_seconds_max=15.0, polls_only_when_sent=True)


@dataclass(slots=True)
class Counts:
    """What happened since the last sample, or since the start."""

    sent: int = 0
    received_unique: int = 0
    received_again: int = 0
    deleted: int = 0  # for good
    deleted_in_vain: int = 0  # with an old handle
    send_requests: int = 0
    receive_requests: int = 0
    empty_receives: int = 0
    delete_requests: int = 0
    send_seconds: float = 0.0
    receive_seconds: float = 0.0  # of receives that brought something
    delete_seconds: float = 0.0
    latency_seconds: float = 0.0  # summed over unique messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The application once every few seconds."""

    at_seconds: float
    counts: Counts  # since the sample before
    oldest_undeleted_seconds: float
    undeleted_count: int
    slowdown: float


@dataclass(slots=True, kw_only=True)
class CampaignResult:
    """A campaign from its start to its end."""

    duration_seconds: float
    sample_seconds: float
    total: Counts = field(default_factory=Counts)
    samples: list[Sample] = field(default_factory=list)
    first_overdue_at_seconds: float = math.inf  # when the oldest undeleted message was as old as V
    unresponsive_at_seconds: float = math.inf  # when collecting garbage made everything four times as slow
    oldest_undeleted_seconds_max: float = 0.0
    latency_counts: dict[int, int] = field(default_factory=dict)  # by a fortieth of a decade above 1 ms

    @property
    def goodput_per_second(self) -> float:
        """Unique messages received per second."""
        return self.total.received_unique / self.duration_seconds

    @property
    def latency_seconds_mean(self) -> float:
        """From the start of the send to the receive."""
        return self.total.latency_seconds / max(self.total.received_unique, 1)

    def latency_seconds_quantile(self, fraction: float) -> float:
        """The latency that this fraction of unique messages did not exceed, within 6 %."""
        wanted = fraction * self.total.received_unique
        for bucket in sorted(self.latency_counts):
            wanted -= self.latency_counts[bucket]
            if wanted <= 0:
                return float(1e-3 * 10 ** ((bucket + 1) / 40.0))
        return 0.0

    def between(self, start_seconds: float, end_seconds: float) -> list[Sample]:
        """The samples taken after the start, up to the end."""
        return [s for s in self.samples if start_seconds < s.at_seconds <= end_seconds + 1e-9]

    def rate_between(self, name: str, start_seconds: float, end_seconds: float) -> float:
        """One of the counts per second, over a span."""
        counted = float(sum(getattr(s.counts, name) for s in self.between(start_seconds, end_seconds)))
        return counted / (end_seconds - start_seconds)


Controller: TypeAlias = Callable[[Sample, Conduct], Conduct]
"""An adaptive application: the conduct that follows from the last sample and the conduct so far."""


class _Queue:
    """The service: shards of visible messages, and those hidden until their timeout ends."""

    def __init__(self, world: QueueWorld, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._receipts: dict[
            int, int
        ] = {}  # of every message that exists: the newest handle, 0 before a receive
        self._fresh: list[deque[tuple[float, int]]] = [deque() for _ in range(world.shard_count)]
        self._visible: list[deque[int]] = [deque() for _ in range(world.shard_count)]
        self._hidden: list[deque[tuple[float, int, int]]] = [deque() for _ in range(world.shard_count)]
        self._hidden_count = 0
        self._receipt = 0

    def accept(self, now: float, message: int) -> float:
        """Take a message; when it will be visible."""
        low, high = self._world.propagation_seconds
        visible_at = now + low + (high - low) * self._rng.random()
        self._receipts[message] = 0
        self._fresh[self._rng.randrange(self._world.shard_count)].append((visible_at, message))
        if self._rng.random() < self._world.redelivered_fraction:
            self._fresh[self._rng.randrange(self._world.shard_count)].append((visible_at, message))
        return visible_at

    def poll(self, now: float, message_count_max: int, sampled_shard_count: int) -> list[tuple[int, int]]:
        """(message, handle) of visible messages in some of the shards; they are hidden from now on."""
        taken: list[tuple[int, int]] = []
        start = self._rng.randrange(self._world.shard_count)
        for offset in range(sampled_shard_count):
            shard = (start + offset) % self._world.shard_count
            self._surface(shard, now)
            visible = self._visible[shard]
            while visible and len(taken) < message_count_max:
                if self._hidden_count >= self._world.in_flight_message_count_max:
                    return taken
                message = visible.popleft()
                if message in self._receipts:
                    taken.append((message, self._hide(shard, now, message)))
        return taken

    def delete(self, message: int, receipt: int) -> bool:
        """Whether this removed the message: a handle that a later receive replaced succeeds and does nothing."""
        known = self._receipts.get(message)
        if known is None or (known != receipt and not self._world.old_handle_deletes):
            return False
        del self._receipts[message]
        self._hidden_count -= 1
        return True

    def _hide(self, shard: int, now: float, message: int) -> int:
        self._receipt += 1
        if self._receipts[message] == 0:
            self._hidden_count += 1
        self._receipts[message] = self._receipt
        self._hidden[shard].append((now + self._world.visibility_timeout_seconds, message, self._receipt))
        return self._receipt

    def _surface(self, shard: int, now: float) -> None:
        """Make visible what is due, in its order: messages that have arrived, and those whose timeout has ended."""
        hidden, fresh, visible = self._hidden[shard], self._fresh[shard], self._visible[shard]
        while hidden and hidden[0][0] <= now:
            due_at, message, receipt = hidden.popleft()
            while fresh and fresh[0][0] <= due_at:
                visible.append(fresh.popleft()[1])
            if self._receipts.get(message) == receipt:
                visible.append(message)
        while fresh and fresh[0][0] <= now:
            visible.append(fresh.popleft()[1])


class QueueCampaign:
    """One run of the application against one queue."""

    def __init__(
        self, world: QueueWorld, conduct: Conduct, *, seed: int, sample_seconds: float = 10.0
    ) -> None:
        self._world = world
        self._conduct = conduct
        self._rng = random.Random(seed)
        self._queue = _Queue(world, self._rng)
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._event_count = 0
        self._unreceived: dict[int, float] = {}  # the message map: when each was sent
        self._undeleted: deque[tuple[float, int, int]] = deque()  # received at, message, handle
        self._deleting_count = 0
        self._requested_count = 0  # asked for by receives that are under way
        self._active = {"sender": 0, "receiver": 0, "deleter": 0}
        self._idle = {"sender": 0, "receiver": 0, "deleter": 0}
        self._parked_count = 0  # long polls
        self._is_look_due = False
        self._controller: Controller | None = None
        self._message = 0
        self._send_allowed_at = 0.0
        self._core_free_at = 0.0
        self._since = Counts()
        self._result = CampaignResult(duration_seconds=0.0, sample_seconds=sample_seconds)
        self._shape = 1.0 / max(world.variation, 1e-3) ** 2  # of the gamma distribution

    def run(
        self,
        duration_seconds: float,
        *,
        changes: Sequence[tuple[float, Conduct]] = (),
        controller: Controller | None = None,
    ) -> CampaignResult:
        """Everything that happens in this time.

        `changes` are (at, conduct from then on); a controller may change the conduct after each sample.
        """
        self._controller = controller
        self._after(0.0, self._adopt, self._conduct)
        for at_seconds, conduct in changes:
            self._after(at_seconds, self._adopt, conduct)
        self._after(self._result.sample_seconds, self._sample)
        events = self._events
        while events and events[0][0] <= duration_seconds:
            self._now, _, act, arguments = heapq.heappop(events)
            act(*arguments)
            if self._result.unresponsive_at_seconds < math.inf:
                break
        self._result.duration_seconds = min(duration_seconds, self._result.unresponsive_at_seconds)
        _add(self._result.total, self._since)
        return self._result

    def _after(self, seconds: float, act: Callable[..., None], *arguments: object) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (self._now + seconds, self._event_count, act, arguments))

    def _adopt(self, conduct: Conduct) -> None:
        """Change the conduct: further threads start at once, surplus ones stop after their request."""
        self._conduct = conduct
        for role, wanted, start in (
            ("sender", conduct.sender_count, self._start_send),
            ("receiver", conduct.receiver_count, self._start_receive),
            ("deleter", conduct.deleter_count, self._start_delete),
        ):
            for _ in range(wanted - self._active[role]):
                self._active[role] += 1
                start()
        self._wake()

    def _has_retired(self, role: str, wanted: int) -> bool:
        if self._active[role] <= wanted:
            return False
        self._active[role] -= 1
        return True

    def _wake(self) -> None:
        """Let idle threads look again whether they may act."""
        for role, start in (("sender", self._start_send), ("receiver", self._start_receive)):
            for _ in range(self._idle[role]):
                self._idle[role] -= 1
                waiting = self._idle[role]
                start()
                if self._idle[role] > waiting:  # still not allowed, and so for all others
                    break

    def _pace(self) -> float:
        """What a request that starts now takes over its mean: chance, and a slow heap."""
        return self._rng.gammavariate(self._shape, 1.0 / self._shape) * self._slowdown()

    def _core_wait_seconds(self) -> float:
        """Until the client's core has made this request, behind those before it."""
        spent = self._world.client_seconds_per_request
        if spent <= 0:
            return 0.0
        self._core_free_at = max(self._core_free_at, self._now) + spent
        return self._core_free_at - self._now

    def _slowdown(self) -> float:
        filled = (len(self._undeleted) + len(self._unreceived)) / self._world.heap_entry_count_max
        return 1.0 + self._world.collection_slowdown * filled / max(1.0 - filled, 1e-6)

    # Senders

    def _start_send(self) -> None:
        conduct = self._conduct
        if self._has_retired("sender", conduct.sender_count):
            return
        if self._must_not_send(conduct):
            self._idle["sender"] += 1
            return
        wait = self._seconds_until_due(conduct)
        if wait > 1e-9:
            self._after(wait, self._start_send)
            return
        if conduct.send_rate_limit_per_second > 0:
            spacing = conduct.send_batch / conduct.send_rate_limit_per_second
            self._send_allowed_at = max(self._send_allowed_at, self._now - 10 * spacing) + spacing
        batch = range(self._message + 1, self._message + 1 + conduct.send_batch)
        self._message += conduct.send_batch
        for message in batch:
            self._unreceived[message] = self._now
        seconds = self._world.send.mean_seconds(conduct.send_batch) * self._pace() + self._core_wait_seconds()
        self._after(seconds / 2.0, self._accept, batch)  # the answer is the other half
        self._after(seconds, self._end_send, batch, seconds)

    def _seconds_until_due(self, conduct: Conduct) -> float:
        """Until the rate limit allows a batch and there are enough messages for one."""
        due_at = self._send_allowed_at if conduct.send_rate_limit_per_second > 0 else 0.0
        if conduct.offered_per_second > 0:
            due_at = max(due_at, (self._message + conduct.send_batch) / conduct.offered_per_second)
        return due_at - self._now

    def _must_not_send(self, conduct: Conduct) -> bool:
        if conduct.send_window and len(self._unreceived) + conduct.send_batch > conduct.send_window:
            return True
        oldest = conduct.oldest_undeleted_seconds_max
        return bool(oldest and self._oldest_undeleted_seconds() > oldest)

    def _accept(self, batch: range) -> None:
        for message in batch:
            visible_at = self._queue.accept(self._now, message)
            if self._conduct.long_polls:  # whether or not one is parked yet
                self._after(visible_at - self._now, self._unpark)

    def _end_send(self, batch: range, seconds: float) -> None:
        self._since.sent += len(batch)
        self._since.send_requests += 1
        self._since.send_seconds += seconds
        self._start_send()
        if self._idle["receiver"]:
            self._wake()

    # Receivers

    def _start_receive(self) -> None:
        conduct = self._conduct
        if self._has_retired("receiver", conduct.receiver_count):
            return
        wanted = min(conduct.receive_batch, self._receive_room(conduct))
        if conduct.receive_pause_seconds and self._oldest_undeleted_seconds() > conduct.receive_pause_seconds:
            wanted = 0
        if wanted < 1 or (conduct.polls_only_when_sent and not self._unreceived):
            self._idle["receiver"] += 1
            return
        sampled = self._world.shard_count if conduct.long_polls else self._world.sampled_shard_count
        pace = self._pace()
        taken = self._queue.poll(self._now + self._world.receive.fixed_seconds * pace / 2.0, wanted, sampled)
        if conduct.long_polls and not taken:
            self._park()
            return
        self._requested_count += wanted
        seconds = self._world.receive.mean_seconds(len(taken)) * pace + self._core_wait_seconds()
        self._after(seconds, self._end_receive, taken, wanted, seconds)

    def _receive_room(self, conduct: Conduct) -> int:
        if not conduct.receive_window:
            return conduct.receive_batch
        held = 0 if conduct.receive_window_ends_at_handover else len(self._undeleted) + self._deleting_count
        return conduct.receive_window - held - self._requested_count

    def _park(self) -> None:
        """Leave the long poll open; now and then it looks for messages that came back."""
        self._parked_count += 1
        if not self._is_look_due:
            self._is_look_due = True
            self._after(_LONG_POLL_LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._is_look_due = False
        self._unpark()

    def _unpark(self) -> None:
        if self._parked_count:
            self._parked_count -= 1
            self._start_receive()

    def _end_receive(self, taken: list[tuple[int, int]], wanted: int, seconds: float) -> None:
        self._requested_count -= wanted
        since = self._since
        since.receive_requests += 1
        if taken:
            since.receive_seconds += seconds
        else:
            since.empty_receives += 1
        for message, receipt in taken:
            sent_at = self._unreceived.pop(message, None)
            if sent_at is None:
                since.received_again += 1
            else:
                self._note_latency(self._now - sent_at)
            self._undeleted.append((self._now, message, receipt))
        for _ in range(min(self._idle["deleter"], len(taken))):
            self._idle["deleter"] -= 1
            self._start_delete()
        self._start_receive()
        if self._idle["sender"]:
            self._wake()

    def _note_latency(self, seconds: float) -> None:
        self._since.received_unique += 1
        self._since.latency_seconds += seconds
        bucket = int(40.0 * math.log10(max(seconds, 1e-3) * 1e3))
        counts = self._result.latency_counts
        counts[bucket] = counts.get(bucket, 0) + 1

    # Deleters

    def _start_delete(self) -> None:
        conduct = self._conduct
        if self._has_retired("deleter", conduct.deleter_count):
            return
        for start, end in self._world.deleter_outages:
            if start <= self._now < end:
                self._after(end - self._now, self._start_delete)
                return
        if not self._undeleted:
            self._idle["deleter"] += 1
            return
        count = min(conduct.delete_batch, len(self._undeleted))
        batch = [self._undeleted.popleft() for _ in range(count)]
        self._deleting_count += count
        self._note_age(self._now - batch[0][0])
        seconds = self._world.delete.mean_seconds(count) * self._pace() + self._core_wait_seconds()
        self._after(seconds, self._end_delete, batch, seconds)

    def _end_delete(self, batch: list[tuple[float, int, int]], seconds: float) -> None:
        self._deleting_count -= len(batch)
        self._since.delete_requests += 1
        self._since.delete_seconds += seconds
        for _, message, receipt in batch:
            if self._queue.delete(message, receipt):
                self._since.deleted += 1
            else:
                self._since.deleted_in_vain += 1
        self._start_delete()
        if self._idle["sender"] or self._idle["receiver"]:
            self._wake()

    # What is written down

    def _oldest_undeleted_seconds(self) -> float:
        return self._now - self._undeleted[0][0] if self._undeleted else 0.0

    def _note_age(self, age_seconds: float) -> None:
        result = self._result
        result.oldest_undeleted_seconds_max = max(result.oldest_undeleted_seconds_max, age_seconds)
        if (
            age_seconds
            >= self._world.visibility_timeout_seconds
            < result.first_overdue_at_seconds
            == math.inf
        ):
            result.first_overdue_at_seconds = self._now

    def _sample(self) -> None:
        result = self._result
        slowdown = self._slowdown()
        result.samples.append(
            Sample(
                at_seconds=self._now,
                counts=self._since,
                oldest_undeleted_seconds=self._oldest_undeleted_seconds(),
                undeleted_count=len(self._undeleted) + self._deleting_count,
                slowdown=slowdown,
            )
        )
        self._note_age(self._oldest_undeleted_seconds())
        _add(result.total, self._since)
        self._since = Counts()
        if slowdown >= 4.0:
            result.unresponsive_at_seconds = self._now
        if self._controller is not None:
            self._adopt(self._controller(result.samples[-1], self._conduct))
        self._after(result.sample_seconds, self._sample)


def _add(total: Counts, more: Counts) -> None:
    for name in Counts.__slots__:
        setattr(total, name, getattr(total, name) + getattr(more, name))
