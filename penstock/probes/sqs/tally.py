"""Knows what is counted and timed in a run, and the measures that follow from it.

An observation's `measures` have (a number that was not measured is absent):

- `sent_count`, `received_count`, `deleted_count`: messages accepted by SQS; copies received; deletions accepted.
  `duplicate_count`: copies received beyond the first; `foreign_count`: messages of former runs;
  `left_count`: messages sent and not deleted in the end. `attempted_bytes`: bytes of bodies sent and to be received.
- `send_request_count`, `receive_request_count`, `delete_request_count`: requests that carried those messages;
  `empty_receive_count`: receives that brought none.
- `send_seconds_mean`, `receive_seconds_mean`, `delete_seconds_mean` and `*_seconds_variation` (standard deviation
  over mean): one request on a warm connection, at the batch it carried. Of the receives only those for which a
  message was waiting: the others measure the senders.
- `idle_send_seconds_batch_10` and the like, for each action at 1, 2, 5 and 10 messages: the mean of requests one after
  another on a warm connection, before the threads start.
- `cold_delivery_seconds`: one message from a sender whose connection is not open yet to a receiver that waits.
- `goodput_messages_per_second`: unique messages deleted per second, between the first deletion and the last send.
- `oldest_undeleted_seconds_max`: the longest time between the receive of a copy and its deletion.
- `visibility_timeout_seconds`: the queue's own.

The latency of an observation is that on warm connections: from the start of the send to the return of the receive that
first brought the message.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from penstock.models.inference.histogram import class_of, histogram_of, packed, quantile
from penstock.probes.measurement import summarize
from penstock.vocabulary import Histogram

ARRIVAL_COUNT_MAX = 1000  # arrivals whose order is kept
TIME_COUNT_MAX = 10_000  # times that are kept one by one
GOODPUT_DELETION_COUNT_MIN = 8  # requests: fewer do not give a rate


@dataclass(slots=True)
class Timings:
    """The requests of one kind that carried messages, and the times of those that are meaningful."""

    request_count: int = 0
    message_count: int = 0
    timed_count: int = 0
    timed_message_count: int = 0
    seconds_total: float = 0.0
    seconds: list[float] = field(default_factory=list)  # of each, up to TIME_COUNT_MAX

    def note(self, message_count: int, seconds: float | None) -> None:
        """Count a request; `seconds` is None if its time is not meaningful."""
        self.request_count += 1
        self.message_count += message_count
        if seconds is not None:
            self.timed_count += 1
            self.timed_message_count += message_count
            self.seconds_total += seconds
            if len(self.seconds) < TIME_COUNT_MAX:
                self.seconds.append(seconds)

    def measures(self, action: str) -> dict[str, float]:
        """The measures of an observation about this kind of request."""
        measures: dict[str, float] = {f"{action}_request_count": self.request_count}
        if self.seconds:
            summary = summarize(self.seconds)
            measures[f"{action}_seconds_mean"] = summary.mean_seconds
            measures[f"{action}_seconds_variation"] = summary.variation
        return measures


@dataclass(slots=True)
class Counts:
    """Counts since the previous sample, or since the start."""

    sent_count: int = 0
    received_count: int = 0  # each message once
    duplicate_count: int = 0  # further copies
    deleted_count: int = 0  # each message once, with its newest handle
    # With an old handle, which a later copy has replaced, or for a message that is gone already.
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

    def less(self, before: Counts) -> Counts:
        """The difference to earlier counts."""
        return Counts(*(getattr(self, name) - getattr(before, name) for name in Counts.__slots__))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The state of the application, taken once a second."""

    at_seconds: float
    counts: Counts  # since the previous sample
    unreceived_count: int  # in the message map
    undeleted_count: int  # in the delete queue and being deleted
    oldest_undeleted_seconds: float


@dataclass(slots=True, kw_only=True)
class Tally:
    """Everything counted and timed in one run."""

    visibility_timeout_seconds: float = math.inf
    duration_seconds: float = 0.0
    total: Counts = field(default_factory=Counts)
    samples: list[Sample] = field(default_factory=list)
    # The longest time from a copy's receive to its deletion, or until now if it is not deleted.
    oldest_undeleted_seconds_max: float = 0.0
    overdue_at_seconds: float = math.inf  # when that first reached the visibility timeout
    sent_after_seconds: float = math.inf  # when everything was sent
    first_arrivals: list[int] = field(default_factory=list)  # sequence numbers, in the order of arrival
    latency_classes: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)  # of each message, up to TIME_COUNT_MAX
    sends: Timings = field(default_factory=Timings)
    receives: Timings = field(default_factory=Timings)
    deletes: Timings = field(default_factory=Timings)
    foreign_count: int = 0
    empty_receive_count: int = 0
    uncertain_count: int = 0  # messages whose send had no answer: they may be in the queue
    is_empty_since_sending: bool = False
    deletions: list[tuple[float, int]] = field(default_factory=list)  # (end, unique messages) of each request
    cold_delivery_seconds: float | None = None
    # By action and batch.
    idle_seconds: Mapping[tuple[str, int], Sequence[float]] = field(default_factory=dict)

    def note_arrival(self, sequence: int, latency_seconds: float) -> None:
        """Count the first copy of a message."""
        self.total.received_count += 1
        self.total.latency_seconds_total += latency_seconds
        self.latency_classes[class_of(latency_seconds)] += 1
        if len(self.latencies) < TIME_COUNT_MAX:
            self.latencies.append(latency_seconds)
        if len(self.first_arrivals) < ARRIVAL_COUNT_MAX:
            self.first_arrivals.append(sequence)

    def note_age(self, age_seconds: float, at_seconds: float) -> None:
        """Note the age of the oldest copy that was received and not deleted."""
        self.oldest_undeleted_seconds_max = max(self.oldest_undeleted_seconds_max, age_seconds)
        if age_seconds >= self.visibility_timeout_seconds:
            self.overdue_at_seconds = min(self.overdue_at_seconds, at_seconds)

    @property
    def is_all_received(self) -> bool:
        """Whether everything that was sent has certainly been received."""
        is_certain = self.uncertain_count == 0 or self.is_empty_since_sending
        return self.total.received_count >= self.total.sent_count and is_certain

    @property
    def left_count(self) -> int:
        """The count of messages that were sent and not deleted."""
        return max(0, self.total.sent_count - self.total.deleted_count)

    @property
    def is_all_deleted(self) -> bool:
        """Whether nothing of this run can still be in the queue."""
        return self.is_all_received and not self.left_count

    def latency_seconds_quantile(self, fraction: float) -> float:
        """The quantile of latencies, within 2.2 %; 0 if no message was received."""
        return quantile(packed(self.latency_classes), fraction)

    def rate_between(self, name: str, start_seconds: float, end_seconds: float) -> float:
        """One of the counts per second, over the samples in a span; 0 without samples."""
        samples = [s for s in self.samples if start_seconds < s.at_seconds <= end_seconds]
        counted = float(sum(getattr(sample.counts, name) for sample in samples))
        return counted / (end_seconds - start_seconds) if samples else 0.0

    def measures(self) -> dict[str, float]:
        """The measures of an observation."""
        total = self.total
        measures: dict[str, float] = {
            "sent_count": total.sent_count,
            "received_count": total.received_count + total.duplicate_count,
            "deleted_count": self.deletes.message_count,
            "duplicate_count": total.duplicate_count,
            "foreign_count": self.foreign_count,
            "left_count": self.left_count,
            "empty_receive_count": self.empty_receive_count,
            "oldest_undeleted_seconds_max": self.oldest_undeleted_seconds_max,
            **self.sends.measures("send"),
            **self.receives.measures("receive"),
            **self.deletes.measures("delete"),
        }
        for (action, batch), seconds in self.idle_seconds.items():
            measures[f"idle_{action}_seconds_batch_{batch}"] = sum(seconds) / len(seconds)
        if self.cold_delivery_seconds is not None:
            measures["cold_delivery_seconds"] = self.cold_delivery_seconds
        goodput = steady_goodput(self.deletions, self.sent_after_seconds)
        if goodput is not None:
            measures["goodput_messages_per_second"] = goodput
        return measures


def histograms(tally: Tally) -> dict[str, Histogram]:
    """The histograms of delivery times and of each kind of request, where there were any."""
    times = {
        "delivery_seconds": tally.latencies,
        "send_seconds": tally.sends.seconds,
        "receive_seconds": tally.receives.seconds,
        "delete_seconds": tally.deletes.seconds,
    }
    return {name: histogram_of(seconds) for name, seconds in times.items() if seconds}


def steady_goodput(deletions: Sequence[tuple[float, int]], sent_after_seconds: float) -> float | None:
    """Messages per second from the first deletion until sending ended; None if there are too few requests for a rate.

    `deletions` are (end in seconds, count) for each request, in order.
    """
    if len(deletions) < 2:
        return None
    begins = deletions[0][0]
    steady = [(ended, count) for ended, count in deletions[1:] if ended <= sent_after_seconds]
    if len(steady) < GOODPUT_DELETION_COUNT_MIN:
        steady = list(deletions[1:])
    span_seconds = steady[-1][0] - begins
    return sum(count for _, count in steady) / span_seconds if span_seconds > 0 else None
