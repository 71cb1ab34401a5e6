"""Knows the duplicate loop of a queue with a visibility timeout: its start, what holds it, the way out.

A message that waits longer than the visibility timeout V for its delete is delivered again, and the copy joins the
same backlog. Messages arrive at lambda a second and can be deleted at mu; rho = lambda / mu.

Start. At rho > 1 what is received at t waits (rho - 1) t for its delete, so what is received at V / (rho - 1) waits V:

    T  = V rho / (rho - 1)                              the oldest is V old, and the first copy is there
    sd = sqrt(lambda (cs^2 + cd^2) T) / (lambda - mu)   of T: the backlog is a random walk with that drift

From then on every copy comes back, receives climb by lambda every V, and effective deletes fall to nothing.

What holds it. At rho < 1 a stop of the deleters for D seconds heals by itself, or does not: the loop is metastable
[Bronson et al. 2021].

    heals while  D < D* = V (1 + (1 - rho)^2 / rho)     for rho >= 1/2; at least V (2 - rho) below
    heals from   V (mu - lambda)                        messages received and not deleted, and no more

The way out, and the guard. At most theta V mu messages received and not yet deleted, theta < 1, keep every wait below
theta V: no load and no stop of the receiver's own deletes can start the loop, and in a loop it stops new copies. In a
rescue N copies wait in the application and Q messages in the queue; c deleters, each of rate b / (l0 + l1 b), take

    N / (c rate) + (Q + lambda N / (c rate)) / (min(c rate, receive rate) - lambda)   seconds: nothing is received first

where the receive rate is that of all receivers together, of which there are as many as keep up with the deleters.

Sources: the collapse is that of Yoon et al., Interactive Use of Cloud Services: Amazon SQS and S3, CCGrid 2012, after
35 minutes at 50 messages a second. D* was derived, and held against a simulation event by event: within 5 % for
rho >= 0.6. Bronson et al., Metastable Failures in Distributed Systems, HotOS 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.models.sqs.queueing import WINDOW_MAX
from penstock.vocabulary import NORMAL_90, Estimate

RECEIVE_PAUSE_FRACTION = 0.6  # of V; above what a full window waits, so that it rests in trouble only
RECEIVE_WINDOW_THETA = 0.5  # simulated: 0.9 still let 68 copies through an outage of 60 s, 0.5 let none
RECOVERY_SECONDS_MAX = 240.0  # within which a rescue should have cleared the backlog
_THREAD_COUNT_MAX = 256  # of deleters, and of receivers
# Of the recovery's time: past it one more deleter gains nothing.
_GAIN_FRACTION_MIN = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteLoop:
    """What arrives to be deleted, what can be deleted, and how long SQS waits for it."""

    arrival_rate_per_second: float
    delete_rate_per_second: float  # capacity of all deleters together
    visibility_timeout_seconds: float

    @property
    def load(self) -> float:
        """rho: arrivals over capacity."""
        return self.arrival_rate_per_second / self.delete_rate_per_second

    def collapse_after_seconds(self) -> float:
        """T: mean time until the oldest undeleted message is V old, from an empty backlog; inf for never."""
        excess = self.load - 1.0
        return self.visibility_timeout_seconds * self.load / excess if excess > 1e-9 else math.inf

    def collapse_after_interval(self, *, variation: float) -> Estimate:
        """The same with its scatter; `variation` (deviation over mean) is that of one send and of one delete."""
        mean = self.collapse_after_seconds()
        if math.isinf(mean):
            return Estimate(math.inf, math.inf, math.inf)
        drift = self.arrival_rate_per_second - self.delete_rate_per_second
        scatter = NORMAL_90 * math.sqrt(2.0 * variation**2 * self.arrival_rate_per_second * mean) / drift
        return Estimate(max(mean - scatter, self.visibility_timeout_seconds), mean, mean + scatter)

    def outage_seconds_max(self) -> float:
        """D*: the longest stop of the deleter after which the queue heals by itself; 0 when it never does."""
        rho, timeout = self.load, self.visibility_timeout_seconds
        if rho >= 1.0:
            return 0.0
        if rho >= 0.5:
            return timeout * (1.0 + (1.0 - rho) ** 2 / rho)
        return timeout * (2.0 - rho)

    def receive_window_message_count(self) -> int:
        """What prevents the loop at any load and ends it in any state: theta V mu, counted to the delete."""
        held_seconds = RECEIVE_WINDOW_THETA * self.visibility_timeout_seconds
        return max(1, min(math.floor(held_seconds * self.delete_rate_per_second), WINDOW_MAX))

    def receive_pause_seconds(self) -> float:
        """Receivers rest while the oldest undeleted message is older than this.

        After a stop of the deleters that outlasts V, the messages in a full window are visible again and first in
        line: those whose newest handle is still held must be deleted before anything is received.
        """
        return RECEIVE_PAUSE_FRACTION * self.visibility_timeout_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescue:
    """What to apply, all at once, to a queue in the loop; the sender need not stop."""

    receive_window_message_count: int
    batch_message_count: int
    receiver_thread_count: int
    deleter_thread_count: int
    receive_rate_per_second: float  # of all receivers together, the consumer's work included
    delete_rate_per_second: float  # of all deleters together
    recovered_after_seconds: float  # until the backlog that had piled up is gone


def rescue(
    loop: DeleteLoop,
    *,
    undeleted_message_count: float,
    visible_message_count: float,
    delete_request_seconds: float,
    delete_message_seconds: float,
    receiver_rate_per_second: float,
    batch_message_count_max: int = 10,
    deleter_count_max: int | None = None,
) -> Rescue:
    """The fewest deleters that, deleting in full batches behind a receive window, clear the backlog in time.

    As many receivers, each of `receiver_rate_per_second`, go with them as give them enough to do.

    Batches come first: they multiply capacity at no cost in threads. Copies that wait in the application are deleted
    too (they cost a delete and achieve nothing), so they count as backlog. Nothing is received meanwhile, and what
    was sent meanwhile is received after it.
    """
    batch_seconds = delete_request_seconds + batch_message_count_max * delete_message_seconds
    rate_of_one = batch_message_count_max / batch_seconds
    arrival_rate = loop.arrival_rate_per_second

    def receivers_for(count: int) -> int:
        return min(math.ceil(count * rate_of_one / receiver_rate_per_second), _THREAD_COUNT_MAX)

    def recovered_after(count: int) -> float:
        paused_seconds = undeleted_message_count / (count * rate_of_one)
        spare = min(count * rate_of_one, receivers_for(count) * receiver_rate_per_second) - arrival_rate
        waiting = visible_message_count + arrival_rate * paused_seconds
        return paused_seconds + waiting / spare if spare > 0 else math.inf

    def gains_from_one_more(count: int) -> bool:
        seconds = recovered_after(count)
        return math.isinf(seconds) or recovered_after(count + 1) < (1.0 - _GAIN_FRACTION_MIN) * seconds

    count, count_max = 1, deleter_count_max or _THREAD_COUNT_MAX
    while count < count_max and recovered_after(count) > RECOVERY_SECONDS_MAX and gains_from_one_more(count):
        count += 1
    healed = DeleteLoop(
        arrival_rate_per_second=arrival_rate,
        # What is worked on is held as well.
        delete_rate_per_second=min(count * rate_of_one, receivers_for(count) * receiver_rate_per_second),
        visibility_timeout_seconds=loop.visibility_timeout_seconds,
    )
    return Rescue(
        receive_window_message_count=healed.receive_window_message_count(),
        batch_message_count=batch_message_count_max,
        receiver_thread_count=receivers_for(count),
        deleter_thread_count=count,
        receive_rate_per_second=receivers_for(count) * receiver_rate_per_second,
        delete_rate_per_second=count * rate_of_one,
        recovered_after_seconds=recovered_after(count),
    )
