"""Knows the duplicate loop of a queue with a visibility timeout: how it starts, why it lasts, and how to end it.

A message that waits longer than the visibility timeout V for its delete is delivered again, and the copy joins the
same backlog. Messages arrive at a rate of lambda and can be deleted at mu; rho = lambda / mu.

Start. If rho > 1, a message received at t waits (rho - 1) t for its delete, and one received at V / (rho - 1) waits V:

    T  = V rho / (rho - 1)                              the oldest is V old, and the first copy arrives
    sd = sqrt(lambda (cs^2 + cd^2) T) / (lambda - mu)   of T, because the backlog is a random walk with that drift

From then on every copy comes back, receives grow by lambda every V, and effective deletes fall to nothing.

Why it lasts. The loop is metastable [Bronson et al. 2021]: if rho < 1, a stop of the deleters for D seconds may heal by
itself or not.

    heals if  D < D* = V (1 + (1 - rho)^2 / rho)        for rho >= 1/2; below, at least if D < V (2 - rho)
    heals if  at most V (mu - lambda)                   messages are received and not deleted

The guard, and the way out. At most theta V mu messages received and not yet deleted, theta < 1, keep every wait below
theta V. Then no load and no stop of the receiver's own deletes can start the loop, and within a loop there are no new
copies. For a rescue with N copies in the application and Q messages in the queue, c deleters, each with a rate of
b / (l0 + l1 b), need

    N / (c rate) + (Q + lambda N / (c rate)) / (min(c rate, receive rate) - lambda)

seconds, receiving nothing at first. The receive rate is that of all receivers, which are as many as keep up with the
deleters.

Sources: Yoon et al., Interactive Use of Cloud Services: Amazon SQS and S3, CCGrid 2012, saw the collapse after 35
minutes at 50 messages per second. D* was derived, and agrees with a discrete-event simulation within 5 % for
rho >= 0.6. Bronson et al., Metastable Failures in Distributed Systems, HotOS 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.models.sqs.queueing import WINDOW_MAX
from penstock.vocabulary import NORMAL_90, Estimate

RECEIVE_PAUSE_FRACTION = 0.6  # of V; more than messages of a full window wait, so that pauses need trouble
RECEIVE_WINDOW_THETA = 0.5  # in simulated outages of 60 s, 0.9 still allowed 68 copies, and 0.5 none
RECOVERY_SECONDS_MAX = 240.0  # in which a rescue should clear the backlog
_THREAD_COUNT_MAX = 256  # of deleters, and of receivers
# Of the recovery's time: if one more deleter gains less, none is added.
_GAIN_FRACTION_MIN = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteLoop:
    """The rate of messages to be deleted, the capacity for deletes, and how long SQS waits for one."""

    arrival_rate_per_second: float
    delete_rate_per_second: float  # capacity of all deleters together
    visibility_timeout_seconds: float

    @property
    def load(self) -> float:
        """rho: arrivals over capacity."""
        return self.arrival_rate_per_second / self.delete_rate_per_second

    def collapse_after_seconds(self) -> float:
        """T: mean time from an empty backlog until the oldest undeleted message is V old; inf if never."""
        excess = self.load - 1.0
        return self.visibility_timeout_seconds * self.load / excess if excess > 1e-9 else math.inf

    def collapse_after_interval(self, *, variation: float) -> Estimate:
        """T with its 90 % interval; `variation` (deviation over mean) is that of one send and of one delete."""
        mean = self.collapse_after_seconds()
        if math.isinf(mean):
            return Estimate(math.inf, math.inf, math.inf)
        drift = self.arrival_rate_per_second - self.delete_rate_per_second
        scatter = NORMAL_90 * math.sqrt(2.0 * variation**2 * self.arrival_rate_per_second * mean) / drift
        return Estimate(max(mean - scatter, self.visibility_timeout_seconds), mean, mean + scatter)

    def outage_seconds_max(self) -> float:
        """D*: the longest stop of the deleters after which the queue heals by itself; 0 if it never does."""
        rho, timeout = self.load, self.visibility_timeout_seconds
        if rho >= 1.0:
            return 0.0
        if rho >= 0.5:
            return timeout * (1.0 + (1.0 - rho) ** 2 / rho)
        return timeout * (2.0 - rho)

    def receive_window_message_count(self) -> int:
        """The most messages received and not deleted that prevent the loop at any load, and end it: theta V mu."""
        held_seconds = RECEIVE_WINDOW_THETA * self.visibility_timeout_seconds
        return max(1, min(math.floor(held_seconds * self.delete_rate_per_second), WINDOW_MAX))

    def receive_pause_seconds(self) -> float:
        """Receivers pause while the oldest undeleted message is older than this.

        After a stop of the deleters for longer than V, the messages of a full window are visible again and first in
        line: those for which the newest handle is still held must be deleted before anything is received.
        """
        return RECEIVE_PAUSE_FRACTION * self.visibility_timeout_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescue:
    """What to apply, all at once, to a queue in the loop; the senders need not stop."""

    receive_window_message_count: int
    batch_message_count: int
    receiver_thread_count: int
    deleter_thread_count: int
    receive_rate_per_second: float  # of all receivers together, the consumer's work included
    delete_rate_per_second: float  # of all deleters together
    recovered_after_seconds: float  # until the backlog is gone


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
    """The fewest deleters that clear the backlog in time, deleting in full batches behind a receive window.

    They are joined by as many receivers, each of `receiver_rate_per_second`, as keep them busy.

    Full batches come first, because they multiply capacity without more threads. Copies in the application count as
    backlog, because deleting them costs requests though it achieves nothing. Nothing is received until they are
    deleted; what is sent in that time is received afterwards.
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
        # Messages in work are held, too.
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
