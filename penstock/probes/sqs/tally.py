"""Knows what was counted and timed in a run, and what that amounts to.

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
  another on a warm connection, before the threads start.
- `cold_delivery_seconds`: one message from a sender whose connection has yet to be opened to a receiver that waits.
- `goodput_messages_per_second`: unique messages deleted a second, between the first deletion and the last send.
- `oldest_undeleted_seconds_max`: the longest that a copy was received and not deleted.
- `visibility_timeout_seconds`: the queue's own.

Latency, as an observation states it, is that on warm connections: from the start of the send to the return of the
receive that brought the message first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.models.inference.histogram import histogram_of
from penstock.probes.measurement import summarize
from penstock.vocabulary import Histogram

GOODPUT_DELETION_COUNT_MIN = 8  # requests; fewer say nothing about a rate


@dataclass(slots=True)
class Timings:
    """The requests of one kind that succeeded: how many, and how long those on a warm connection took."""

    request_count: int = 0
    seconds: list[float] = field(default_factory=list)

    def note(self, seconds: float | None) -> None:
        """One more request; None when its time says nothing."""
        self.request_count += 1
        if seconds is not None:
            self.seconds.append(seconds)

    def measures(self, action: str) -> dict[str, float]:
        """In the words of an observation."""
        measures: dict[str, float] = {f"{action}_request_count": self.request_count}
        if self.seconds:
            summary = summarize(self.seconds)
            measures[f"{action}_seconds_mean"] = summary.mean_seconds
            measures[f"{action}_seconds_variation"] = summary.variation
        return measures


@dataclass(slots=True)
class Sent:
    """What the senders did."""

    timings: Timings = field(default_factory=Timings)
    tried_count: int = 0  # messages; the sequence of the next one
    accepted_count: int = 0
    uncertain_count: int = 0  # messages whose send had no answer: they may be there
    waiting_since_seconds: dict[int, float] = field(default_factory=dict)  # not yet received, by sequence
    ended_seconds: float | None = None  # when all sending did


@dataclass(slots=True)
class Received:
    """What the receivers brought."""

    timings: Timings = field(default_factory=Timings)
    sequences: set[int] = field(default_factory=set)  # of the messages of this run
    latencies: list[float] = field(default_factory=list)
    copy_count: int = 0
    foreign_count: int = 0
    empty_count: int = 0
    is_empty_since_sending: bool = False


@dataclass(slots=True)
class Deleted:
    """What the deleters did."""

    timings: Timings = field(default_factory=Timings)
    requests: list[tuple[float, int]] = field(default_factory=list)  # (end, unique messages) of each
    accepted_count: int = 0
    age_seconds_max: float = 0.0  # of a copy received, also of one that was not deleted in the end

    @property
    def unique_count(self) -> int:
        """Messages of this run, once each."""
        return sum(count for _, count in self.requests)


@dataclass(slots=True)
class Tally:
    """One run, counted."""

    cold_delivery_seconds: float | None = None
    # By action and batch.
    idle_seconds: Mapping[tuple[str, int], Sequence[float]] = field(default_factory=dict)
    sent: Sent = field(default_factory=Sent)
    received: Received = field(default_factory=Received)
    deleted: Deleted = field(default_factory=Deleted)

    def count_copy(self, sequence: int, latency_seconds: float) -> bool:
        """Whether it is the first copy of a message of this run."""
        received = self.received
        if sequence < 0:
            received.foreign_count += 1
            return False
        received.copy_count += 1
        if sequence in received.sequences:
            return False
        received.sequences.add(sequence)
        received.latencies.append(latency_seconds)
        self.sent.waiting_since_seconds.pop(sequence, None)
        return True

    @property
    def is_all_received(self) -> bool:
        """Whether nothing that was sent can still be in the queue."""
        is_certain = self.sent.uncertain_count == 0 or self.received.is_empty_since_sending
        return len(self.received.sequences) >= self.sent.accepted_count and is_certain

    @property
    def left_count(self) -> int:
        """Messages that were sent and not deleted."""
        return max(0, self.sent.accepted_count - self.deleted.unique_count)

    @property
    def is_all_deleted(self) -> bool:
        """Whether nothing of this run can still be in the queue."""
        return self.is_all_received and not self.left_count

    def measures(self) -> dict[str, float]:
        """In the words of an observation."""
        sent, received, deleted = self.sent, self.received, self.deleted
        measures: dict[str, float] = {
            "sent_count": sent.accepted_count,
            "received_count": received.copy_count,
            "deleted_count": deleted.accepted_count,
            "duplicate_count": received.copy_count - len(received.sequences),
            "foreign_count": received.foreign_count,
            "left_count": self.left_count,
            "empty_receive_count": received.empty_count,
            "oldest_undeleted_seconds_max": deleted.age_seconds_max,
        }
        measures |= sent.timings.measures("send")
        measures |= received.timings.measures("receive")
        measures |= deleted.timings.measures("delete")
        for (action, batch), seconds in self.idle_seconds.items():
            measures[f"idle_{action}_seconds_batch_{batch}"] = sum(seconds) / len(seconds)
        if self.cold_delivery_seconds is not None:
            measures["cold_delivery_seconds"] = self.cold_delivery_seconds
        goodput = steady_goodput(deleted.requests, sent.ended_seconds)
        if goodput is not None:
            measures["goodput_messages_per_second"] = goodput
        return measures


def histograms(tally: Tally) -> dict[str, Histogram]:
    """The times of deliveries and of each kind of request, where there were any."""
    times = {
        "delivery_seconds": tally.received.latencies,
        "send_seconds": tally.sent.timings.seconds,
        "receive_seconds": tally.received.timings.seconds,
        "delete_seconds": tally.deleted.timings.seconds,
    }
    return {name: histogram_of(seconds) for name, seconds in times.items() if seconds}


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
