"""Knows the measuring application as a probe: it drives a queue of its own in the way that an application would.

While `delivery` measures the request times of a queue, this measures what happens to an application: for hours if the
plan says so, second by second, through a collapse and out of it. Its setting is a `QueueDrive`, with one of three
policies: drive as stated; drive as penstock plans for conditions that are measured first, on the same queue, with some
fifty messages; or drive as stated until copies have come back for two visibility timeouts, and then as penstock plans
for that situation, while the sender goes on.

The queue is created for each run, journalled, and removed after it, even if the run is interrupted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Any

from penstock.clock import Clock
from penstock.models.prices import service_price
from penstock.models.sqs.backlog_warning import WARN_FRACTION
from penstock.models.sqs.duplicate_loop import RECEIVE_PAUSE_FRACTION
from penstock.models.sqs.plan import Conditions, SqsPlan, plan_rescue
from penstock.models.sqs.plan import plan as plan_for
from penstock.models.sqs.setting import PROBED_BYTES_MIN, SqsDeliverySetting
from penstock.probes.cleaning import clean_up_shielded
from penstock.probes.measurement import LOOP_TICK_SECONDS, Effort, effort_of_block
from penstock.probes.outside import MessageQueues, Messages, RequestError
from penstock.probes.probe import Journal, inconclusive
from penstock.probes.sqs.application import Means, MeasurementApplication, Stint
from penstock.probes.sqs.conduct import BLAST, RATE_CONTROLLED, Conduct, conduct_of
from penstock.probes.sqs.own_queue import RETENTION_SECONDS, OwnQueue, attributes_of
from penstock.probes.sqs.round_trips import REQUEST_COUNT_MAX, RoundTrips
from penstock.probes.sqs.run import (
    UNBOUNDED,
    BoundQueue,
    DeleteBrake,
    HopelessError,
    Purse,
)
from penstock.probes.sqs.tally import Sample, Tally, Timings
from penstock.vocabulary import Context, Cost, Observation, Outcome, Place, ProbePlan, Reason

OPERATION = "sqs_application"
JOURNALLED_AS = "sqs_delivery"  # the operation whose client reaches leftovers
SERVICE_CLASS = "standard"  # of its queues
QUEUE_PREFIX = "penstock-measure"
RESCUE_AFTER_TIMEOUTS = 2.0
QUEUE_PREFIX_LENGTH_MAX = 50  # of the 80 that a name may have
CLEANING_SECONDS_MAX = 30.0
OVERHEAD_REQUEST_COUNT = 3  # to create, find and delete the queue
_LAST_FRACTION = 0.25  # of a run: the part that shows its final state
_SAID_BY_EVERY_OBSERVATION = frozenset({field.name for field in dataclasses.fields(Observation)} | {"usd"})

Tell = Callable[[Sample], None]


class Policy(StrEnum):
    """Where the conduct comes from; see the beginning of this file."""

    STATED = "stated"
    ADVISED = "advised"
    RESCUED = "rescued"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDrive:
    """What is measured: a way to drive a queue, the queue's attributes, and how much its deletes are slowed down."""

    label: str = "stated"  # a part of the queue's name
    conduct: Conduct = BLAST
    policy: Policy = Policy.STATED
    visibility_timeout_seconds: int = 30
    delete_delay_seconds: float = 0.0
    delete_requests_per_second_max: float = 0.0  # of all deleters together; 0 is no limit
    message_count_max: int | None = None  # the run ends when this many are sent and deleted


def drive_of(
    mode: str, *, visibility_timeout_seconds: int, offered_per_second: float = 0.0, **rest: Any
) -> QueueDrive:
    """The drive for a named mode; the published rate control adapts to the visibility timeout.

    `rest` has further fields of the drive (Any: of several types).
    """
    conduct = BLAST
    if mode == "rate-controlled":
        conduct = dataclasses.replace(
            RATE_CONTROLLED, oldest_undeleted_seconds_max=visibility_timeout_seconds / 2.0
        )
    return QueueDrive(
        label=mode,
        conduct=dataclasses.replace(conduct, offered_per_second=offered_per_second),
        policy=Policy(mode) if mode in set(Policy) else Policy.STATED,
        visibility_timeout_seconds=visibility_timeout_seconds,
        **rest,
    )


@dataclass(slots=True, kw_only=True)
class Course:
    """How a run went, even if it was cut short."""

    conduct: Conduct
    tally: Tally
    conditions: Conditions | None = None  # as measured for the advice
    rescued_at_seconds: float | None = None

    @property
    def recovered_after_seconds(self) -> float | None:
        """Seconds from the rescue until no copy came back any more and the backlog stayed calm; None if never."""
        if self.rescued_at_seconds is None:
            return None
        calm_seconds = WARN_FRACTION * self.tally.visibility_timeout_seconds
        after = [s for s in self.tally.samples if s.at_seconds > self.rescued_at_seconds]
        bad = [s for s in after if s.counts.duplicate_count or s.oldest_undeleted_seconds > calm_seconds]
        if not after or (bad and bad[-1] is after[-1]):
            return None
        return (bad[-1].at_seconds if bad else after[0].at_seconds) - self.rescued_at_seconds

    def document(self) -> dict[str, Any]:
        """The course as JSON values; names have units, and what never happened is None."""
        tally, total = self.tally, self.tally.total
        seconds = max(tally.duration_seconds, 1e-9)
        return {
            "duration_seconds": tally.duration_seconds,
            "goodput_messages_per_second": total.deleted_count / seconds,
            "last_goodput_messages_per_second": self._last_rate("deleted_count"),
            "last_duplicates_per_second": self._last_rate("duplicate_count"),
            "latency_seconds_p50": tally.latency_seconds_quantile(0.50),
            "latency_seconds_p99": tally.latency_seconds_quantile(0.99),
            **total.document(),
            "usd": total.request_count * service_price("sqs", "standard").usd_per_write_request,
            "oldest_undeleted_seconds_max": tally.oldest_undeleted_seconds_max,
            "collapsed_after_seconds": _finite(tally.overdue_at_seconds),
            "sent_after_seconds": _finite(tally.sent_after_seconds),
            "rescued_at_seconds": self.rescued_at_seconds,
            "recovered_after_seconds": self.recovered_after_seconds,
            "conduct": dataclasses.asdict(self.conduct),
            "conditions": None if self.conditions is None else dataclasses.asdict(self.conditions),
            "first_arrivals": tally.first_arrivals,
            "samples": [sample_document(sample) for sample in tally.samples],
        }

    def _last_rate(self, name: str) -> float | None:
        """A count per second, over the samples that end in the last quarter; None where none does."""
        samples = self.tally.samples
        began = [0.0, *(sample.at_seconds for sample in samples)]
        from_seconds = (1.0 - _LAST_FRACTION) * self.tally.duration_seconds
        last = [n for n, sample in enumerate(samples) if sample.at_seconds > from_seconds]
        if not last:
            return None
        return float(sum(getattr(samples[n].counts, name) for n in last) / (began[-1] - began[last[0]]))

    def measures(self) -> dict[str, float]:
        """The numbers that only this operation has; what never happened is absent."""
        return {
            name: float(value)
            for name, value in self.document().items()
            if isinstance(value, (int, float)) and name not in _SAID_BY_EVERY_OBSERVATION
        }


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


def sample_document(sample: Sample) -> dict[str, float]:
    """One sample as JSON values."""
    return {
        "at_seconds": sample.at_seconds,
        **sample.counts.document(),
        "unreceived_message_count": sample.unreceived_count,
        "undeleted_message_count": sample.undeleted_count,
        "oldest_undeleted_seconds": sample.oldest_undeleted_seconds,
    }


def as_delivery(
    measured: Observation[QueueDrive], course: Course, place: Place
) -> Observation[SqsDeliverySetting]:
    """The observation from which the model of queues learns: only how long the run's requests took.

    How many messages went through, and when, depended on the conduct, which a setting does not fully describe, so that
    is left out. So is the visibility timeout, which was the experiment's, and not that of an application's queue.
    """
    conduct, tally = course.conduct, course.tally
    measures: dict[str, float] = {}
    for action, past in (("send", "sent"), ("receive", "received"), ("delete", "deleted")):
        timings: Timings = getattr(tally, f"{action}s")
        if timings.timed_message_count:
            measures[f"{action}_request_count"] = timings.timed_count
            measures[f"{past}_count"] = timings.timed_message_count
            measures[f"{action}_seconds_mean"] = timings.seconds_total / timings.timed_count
    return Observation(
        context=Context(
            place=dataclasses.replace(place, operation=JOURNALLED_AS, service_class=SERVICE_CLASS),
            payload_size_bytes=PROBED_BYTES_MIN,
        ),
        setting=SqsDeliverySetting(
            sender_thread_count=conduct.sender_count,
            receiver_thread_count=conduct.receiver_count,
            deleter_thread_count=conduct.deleter_count,
            batch_message_count=conduct.send_batch,
            send_rate_limit_messages_per_second=conduct.send_rate_limit_per_second,
            send_window_message_count=conduct.send_window,
            receive_window_message_count=conduct.receive_window,
        ),
        started_at=measured.started_at,
        duration_seconds=measured.duration_seconds,
        transferred_bytes=0,
        request_count=measured.request_count,
        failed_count=measured.failed_count,
        client_cpu_fraction=measured.client_cpu_fraction,
        loop_lag_seconds_max=measured.loop_lag_seconds_max,
        measures=measures,
        reason=Reason.REQUESTED,
    )


@dataclass(eq=False)
class QueueApplicationProbe:
    """Runs one application on one queue. `course` is how the last run went."""

    queues: MessageQueues
    clock: Clock
    journal: Journal
    _: KW_ONLY
    messages: Messages | None = None  # sends, receives and deletes instead of `queues`, if given
    queue_prefix: str = QUEUE_PREFIX
    loop_tick_seconds: float = LOOP_TICK_SECONDS
    tell: Tell = lambda _: None  # gets each sample, and may raise DrivenEnoughError to end the run
    used: Cost = field(default_factory=Cost)
    course: Course | None = None

    async def run(self, plan: ProbePlan[QueueDrive]) -> Outcome[QueueDrive]:
        """Drive the queue for as long as the plan says, or until the plan's cost is spent."""
        started_at, drive = self.clock.now(), plan.setting
        self.used = Cost(request_count=OVERHEAD_REQUEST_COUNT)
        tally = Tally(visibility_timeout_seconds=drive.visibility_timeout_seconds)
        self.course = Course(conduct=drive.conduct, tally=tally)
        try:
            async with self._own_queue(plan) as url:
                effort = await self._drive(plan, url, self.course)
        except (RequestError, HopelessError) as trouble:
            return inconclusive(plan, started_at, str(trouble), self.used)
        finally:
            count = self.used.request_count + self.course.tally.total.request_count
            moved = self._moved_bytes()
            usd = plan.tariff.usd(write_request_count=count, sent_bytes=moved, received_bytes=moved)
            self.used = Cost(request_count=count, transferred_bytes=moved, usd=usd)
        total = tally.total
        return Observation(
            context=plan.context,
            setting=drive,
            started_at=started_at,
            duration_seconds=tally.duration_seconds,
            transferred_bytes=self._moved_bytes(),
            request_count=self.used.request_count,
            failed_count=total.failed_count,
            latency_seconds_mean=total.latency_seconds_mean,
            latency_seconds_p50=tally.latency_seconds_quantile(0.50),
            latency_seconds_p99=tally.latency_seconds_quantile(0.99),
            client_cpu_fraction=effort.client_cpu_fraction,
            loop_lag_seconds_max=effort.loop_lag_seconds_max,
            measures=self.course.measures(),
        )

    async def close(self) -> None:
        """Do nothing: nothing is kept between two runs."""

    def _moved_bytes(self) -> int:
        assert self.course is not None
        return self.course.tally.total.received_count * PROBED_BYTES_MIN

    async def _drive(self, plan: ProbePlan[QueueDrive], url: str, course: Course) -> Effort:
        drive, left = plan.setting, plan.cost_max.request_count - OVERHEAD_REQUEST_COUNT
        queue = BoundQueue(self.messages or self.queues, url)
        brake = DeleteBrake(
            self.clock,
            delay_seconds=drive.delete_delay_seconds,
            requests_per_second_max=drive.delete_requests_per_second_max,
        )
        if drive.policy is not Policy.STATED:
            left -= REQUEST_COUNT_MAX
            self.used += Cost(request_count=REQUEST_COUNT_MAX)
            course.conditions = await RoundTrips(queue, self.clock, brake).conditions(
                drive.conduct.offered_per_second, visibility_timeout_seconds=drive.visibility_timeout_seconds
            )
        if drive.policy is Policy.ADVISED and course.conditions is not None:
            found = plan_for(course.conditions)
            course.conduct = advised_conduct(found, course.conditions.message_rate_per_second)
        application = MeasurementApplication(
            queue,
            self.clock,
            course.conduct,
            tally=course.tally,
            stint=Stint(
                message_count_max=math.inf if drive.message_count_max is None else drive.message_count_max
            ),
            means=Means(purse=Purse(dataclasses.replace(UNBOUNDED, request_count=max(0, left))), brake=brake),
        )

        def tell(sample: Sample) -> None:
            if drive.policy is Policy.RESCUED and _is_to_be_rescued(course, sample):
                assert course.conditions is not None
                course.rescued_at_seconds = sample.at_seconds
                application.adopt(rescue_conduct(course.conditions, sample))
            self.tell(sample)

        async with effort_of_block(self.clock, tick_seconds=self.loop_tick_seconds) as effort:
            await application.drive(plan.cost_max.duration_seconds, tell)
        return effort

    @contextlib.asynccontextmanager
    async def _own_queue(self, plan: ProbePlan[QueueDrive]) -> AsyncIterator[str]:
        """A queue for one run, journalled and removed whatever happens. Raises RequestError."""
        # After a deletion a name cannot be used again for a minute, so each name has a unique part.
        name = f"{self.queue_prefix}-{plan.setting.label}-{uuid.uuid4().hex[:8]}"
        kept_seconds = max(RETENTION_SECONDS, round(plan.cost_max.duration_seconds))
        attributes = attributes_of(plan.setting.visibility_timeout_seconds, kept_seconds)
        queue = OwnQueue(self.queues, self.journal, name, suffix="", attributes=attributes)
        try:
            yield await queue.make(plan.context.place.region)
        finally:
            await clean_up_shielded(queue.remove(), seconds_max=CLEANING_SECONDS_MAX)


def _is_to_be_rescued(course: Course, sample: Sample) -> bool:
    """Whether to rescue now: once, when copies have come back for long enough."""
    due_seconds = (
        course.tally.overdue_at_seconds + RESCUE_AFTER_TIMEOUTS * course.tally.visibility_timeout_seconds
    )
    return course.rescued_at_seconds is None and sample.at_seconds >= due_seconds


def rescue_conduct(conditions: Conditions, sample: Sample) -> Conduct:
    """The blast conduct with the receive window, receivers, deleters and batches of the rescue; the sender goes on."""
    found = plan_rescue(
        conditions,
        undeleted_message_count=sample.undeleted_count,
        visible_message_count=sample.unreceived_count,
    )
    return dataclasses.replace(
        BLAST,
        offered_per_second=conditions.message_rate_per_second,
        receiver_count=found.receiver_thread_count,
        deleter_count=found.deleter_thread_count,
        delete_batch=found.batch_message_count,
        receive_window=found.receive_window_message_count,
        receive_pause_seconds=RECEIVE_PAUSE_FRACTION * conditions.visibility_timeout_seconds,
        long_polls=True,
    )


def advised_conduct(found: SqsPlan, offered_per_second: float) -> Conduct:
    """The conduct of an application that follows a plan."""
    return dataclasses.replace(
        conduct_of(found.setting),
        offered_per_second=offered_per_second,
        receive_pause_seconds=found.receive_pause_at_oldest_undeleted_seconds,
    )
