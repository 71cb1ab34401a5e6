"""Knows the modes of the measurement application and how one after another is run, each on a queue of its own.

Blast: nothing bounded. Rate-controlled: the published rules, with half of the queue's own visibility timeout. Advised:
what penstock plans for the conditions that are measured first, on the same queue, with some fifty messages. Rescued:
blast, until copies have come back for two visibility timeouts; then what penstock plans for that, with the sender
going on.

A queue is made for each mode and removed after it, also when the run is interrupted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from penstock.clock import Clock
from penstock.lab.queue_campaign import BLAST, RATE_CONTROLLED, Conduct
from penstock.models.backlog_warning import WARN_FRACTION
from penstock.models.duplicate_loop import RECEIVE_PAUSE_FRACTION
from penstock.models.sqs_plan import Conditions, SqsPlan, plan, plan_rescue
from penstock.probes.cleaning import clean_up_shielded
from penstock.probes.measurement import summarize
from penstock.probes.outside import MessageQueues, Missing, ReceivedMessage, RequestError
from penstock.trial.measurement_application import (
    BODY_BYTES,
    SESSION_LENGTH,
    DeleteBrake,
    MeasurementApplication,
    MeasurementError,
    Sample,
    Tally,
    body_of,
)

QUEUE_PREFIX_LENGTH_MAX = 50  # of the 80 that a name may have
RETENTION_SECONDS = 3600  # what a killed run left in its queue is gone after an hour in any case
RESCUE_AFTER_TIMEOUTS = 2.0
CLEANING_SECONDS_MAX = 30.0
USD_PER_REQUEST = 0.40e-6  # of a standard queue, at list price
_SINGLE_COUNT = 12
_BATCH_COUNT = 4
_BATCH = 10
_WARM_UP_COUNT = 2  # requests on a cold connection say nothing
_RECEIVE_WAIT_SECONDS = 2
_LAST_FRACTION = 0.25  # of a run: what it has come to

ResultT = TypeVar("ResultT")
Tell = Callable[["Mode", Sample], None]


class Mode(StrEnum):
    """How the queue is driven."""

    BLAST = "blast"
    RATE_CONTROLLED = "rate-controlled"
    ADVISED = "advised"
    RESCUED = "rescued"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be measured."""

    queue_prefix: str
    seconds: float
    visibility_timeout_seconds: int
    message_rate_per_second: float | None = None  # what there is to send; None: as much as a sender can
    delete_delay_seconds: float = 0.0
    delete_requests_per_second_max: float = 0.0  # of all deleters together; 0 is no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeResult:
    """One mode's run."""

    mode: Mode
    conduct: Conduct
    tally: Tally
    visibility_timeout_seconds: float
    conditions: Conditions | None  # those that were measured for the advice
    rescued_at_seconds: float | None = None

    @property
    def recovered_after_seconds(self) -> float | None:
        """From the rescue until no copy came back any more and the backlog was calm for good; None for never."""
        if self.rescued_at_seconds is None:
            return None
        calm_seconds = WARN_FRACTION * self.visibility_timeout_seconds
        after = [s for s in self.tally.samples if s.at_seconds > self.rescued_at_seconds]
        bad = [s for s in after if s.counts.duplicate_count or s.oldest_undeleted_seconds > calm_seconds]
        if not after or (bad and bad[-1] is after[-1]):
            return None
        return (bad[-1].at_seconds if bad else after[0].at_seconds) - self.rescued_at_seconds

    def document(self) -> dict[str, Any]:
        """As JSON; names say units."""
        tally, total = self.tally, self.tally.total
        seconds = max(tally.duration_seconds, 1e-9)
        last = (1.0 - _LAST_FRACTION) * seconds, seconds
        return {
            "mode": self.mode.value,
            "duration_seconds": tally.duration_seconds,
            "goodput_messages_per_second": total.deleted_count / seconds,
            "last_goodput_messages_per_second": tally.rate_between("deleted_count", *last),
            "last_duplicates_per_second": tally.rate_between("duplicate_count", *last),
            "latency_seconds_mean": total.latency_seconds_mean,
            "latency_seconds_p50": tally.latency_seconds_quantile(0.50),
            "latency_seconds_p99": tally.latency_seconds_quantile(0.99),
            "sent_count": total.sent_count,
            "received_count": total.received_count,
            "duplicate_count": total.duplicate_count,
            "deleted_count": total.deleted_count,
            "deleted_in_vain_count": total.deleted_in_vain_count,
            "failed_count": total.failed_count,
            "request_count": total.request_count,
            "usd": total.request_count * USD_PER_REQUEST,
            "oldest_undeleted_seconds_max": tally.oldest_undeleted_seconds_max,
            "collapsed_after_seconds": None
            if math.isinf(tally.overdue_at_seconds)
            else tally.overdue_at_seconds,
            "rescued_at_seconds": self.rescued_at_seconds,
            "recovered_after_seconds": self.recovered_after_seconds,
            "conduct": dataclasses.asdict(self.conduct),
            "conditions": None if self.conditions is None else dataclasses.asdict(self.conditions),
            "samples": [sample_document(sample) for sample in tally.samples],
        }


def sample_document(sample: Sample) -> dict[str, float]:
    """One second as JSON."""
    counts = sample.counts
    return {
        "at_seconds": sample.at_seconds,
        "sent_count": counts.sent_count,
        "received_count": counts.received_count,
        "duplicate_count": counts.duplicate_count,
        "deleted_count": counts.deleted_count,
        "deleted_in_vain_count": counts.deleted_in_vain_count,
        "unreceived_message_count": sample.unreceived_count,
        "undeleted_message_count": sample.undeleted_count,
        "oldest_undeleted_seconds": sample.oldest_undeleted_seconds,
        "latency_seconds_mean": counts.latency_seconds_mean,
    }


class MeasurementSeries:
    """Modes, one after another; what is finished, or was interrupted, is in `results`."""

    def __init__(self, queues: MessageQueues, clock: Clock, task: Task, tell: Tell) -> None:
        self.results: list[ModeResult] = []
        self._queues = queues
        self._clock = clock
        self._task = task
        self._tell = tell

    async def run(self, modes: Sequence[Mode]) -> None:
        """Measure each. Raises MeasurementError."""
        for mode in modes:
            try:
                async with own_queue(self._queues, self._task, mode) as url:
                    await self._measure(mode, url)
            except RequestError as trouble:
                raise MeasurementError(str(trouble)) from trouble

    async def _measure(self, mode: Mode, url: str) -> None:
        task = self._task
        brake = DeleteBrake(
            self._clock,
            delay_seconds=task.delete_delay_seconds,
            requests_per_second_max=task.delete_requests_per_second_max,
        )
        conditions = None
        if mode in {Mode.ADVISED, Mode.RESCUED}:
            conditions = await Calibration(self._queues, self._clock, url, brake).conditions(task)
        conduct = conduct_of(mode, task, conditions)
        application = MeasurementApplication(
            self._queues,
            self._clock,
            url,
            conduct,
            session=uuid.uuid4().hex[:SESSION_LENGTH],
            visibility_timeout_seconds=task.visibility_timeout_seconds,
            brake=brake,
        )
        rescuer = _Rescuer(application, conditions) if mode is Mode.RESCUED and conditions else None

        def tell(sample: Sample) -> None:
            if rescuer is not None:
                rescuer.look(sample)
            self._tell(mode, sample)

        try:
            await application.drive(task.seconds, tell)
        finally:
            self.results.append(
                ModeResult(
                    mode=mode,
                    conduct=conduct,
                    tally=application.tally,
                    visibility_timeout_seconds=task.visibility_timeout_seconds,
                    conditions=conditions,
                    rescued_at_seconds=rescuer.rescued_at_seconds if rescuer is not None else None,
                )
            )


class _Rescuer:
    """Applies the rescue to an application in the loop, once."""

    def __init__(self, application: MeasurementApplication, conditions: Conditions) -> None:
        self.rescued_at_seconds: float | None = None
        self._application = application
        self._conditions = conditions

    def look(self, sample: Sample) -> None:
        """Act when copies have come back for long enough."""
        timeout_seconds = self._conditions.visibility_timeout_seconds
        due_seconds = self._application.tally.overdue_at_seconds + RESCUE_AFTER_TIMEOUTS * timeout_seconds
        if self.rescued_at_seconds is None and sample.at_seconds >= due_seconds:
            self.rescued_at_seconds = sample.at_seconds
            self._application.adopt(rescue_conduct(self._conditions, sample))


def rescue_conduct(conditions: Conditions, sample: Sample) -> Conduct:
    """Blast, behind the receive window of the rescue, with its deleters and batches; the sender goes on."""
    found = plan_rescue(
        conditions,
        undeleted_message_count=sample.undeleted_count,
        visible_message_count=sample.unreceived_count,
    )
    return dataclasses.replace(
        BLAST,
        offered_per_second=conditions.message_rate_per_second,
        deleter_count=found.deleter_thread_count,
        delete_batch=found.batch_message_count,
        receive_window=found.receive_window_message_count,
        receive_pause_seconds=RECEIVE_PAUSE_FRACTION * conditions.visibility_timeout_seconds,
        long_polls=True,
    )


def conduct_of(mode: Mode, task: Task, conditions: Conditions | None) -> Conduct:
    """How this mode drives the queue; the advised one follows from the conditions."""
    offered = task.message_rate_per_second or 0.0
    if mode in {Mode.BLAST, Mode.RESCUED}:
        return dataclasses.replace(BLAST, offered_per_second=offered)
    if mode is Mode.RATE_CONTROLLED:
        oldest = task.visibility_timeout_seconds / 2.0
        return dataclasses.replace(
            RATE_CONTROLLED, oldest_undeleted_seconds_max=oldest, offered_per_second=offered
        )
    assert conditions is not None
    return advised_conduct(plan(conditions), conditions.message_rate_per_second)


def advised_conduct(found: SqsPlan, offered_per_second: float) -> Conduct:
    """The application that heeds a plan."""
    setting = found.setting
    return Conduct(
        sender_count=setting.sender_thread_count,
        receiver_count=setting.receiver_thread_count,
        deleter_count=setting.deleter_thread_count,
        send_batch=setting.batch_message_count,
        delete_batch=setting.batch_message_count,
        offered_per_second=offered_per_second,
        send_rate_limit_per_second=setting.send_rate_limit_messages_per_second,
        send_window=setting.send_window_message_count,
        receive_window=setting.receive_window_message_count,
        receive_pause_seconds=found.receive_pause_at_oldest_undeleted_seconds,
        long_polls=True,
    )


@contextlib.asynccontextmanager
async def own_queue(queues: MessageQueues, task: Task, label: str) -> AsyncIterator[str]:
    """A queue for one run; it is removed whatever happens. Raises RequestError."""
    # A name cannot be used again for a minute, so each has a part of its own.
    name = f"{task.queue_prefix}-{label}-{uuid.uuid4().hex[:8]}"
    attributes = {
        "VisibilityTimeout": str(task.visibility_timeout_seconds),
        "MessageRetentionPeriod": str(RETENTION_SECONDS),
    }
    try:
        yield await queues.create_queue(name, attributes)
    finally:
        await clean_up_shielded(_remove(queues, name), seconds_max=CLEANING_SECONDS_MAX)


async def _remove(queues: MessageQueues, name: str) -> None:
    """By its name: an interrupted creation has no URL, and may have made it all the same."""
    with contextlib.suppress(Missing):
        await queues.delete_queue(await queues.find_queue(name))


class Calibration:
    """Measures what a plan must know of a queue: request by request, with nothing else under way."""

    def __init__(self, queues: MessageQueues, clock: Clock, url: str, brake: DeleteBrake) -> None:
        self._queues = queues
        self._clock = clock
        self._url = url
        self._brake = brake
        self._session = uuid.uuid4().hex[:SESSION_LENGTH]
        self._sequence = 0
        self._single_seconds: dict[str, list[float]] = {"send": [], "receive": [], "delete": []}
        self._batch_seconds: dict[str, list[float]] = {"send": [], "receive": [], "delete": []}

    async def conditions(self, task: Task) -> Conditions:
        """Means, slopes and variations. Raises RequestError, and MeasurementError when nothing comes back."""
        latencies = [await self._round_trip() for _ in range(_SINGLE_COUNT)][_WARM_UP_COUNT:]
        handles: list[str] = []
        for _ in range(_SINGLE_COUNT):
            await self._send(1)
        for _ in range(_BATCH_COUNT):
            await self._send(_BATCH)
        handles += await self._received(1, _SINGLE_COUNT)
        handles += await self._received(_BATCH, _BATCH_COUNT)
        singles, rest = handles[:_SINGLE_COUNT], handles[_SINGLE_COUNT:]
        for handle in singles:  # one right after the other, so that the brake is felt
            await self._delete([handle])
        for start in range(0, len(rest), _BATCH):
            await self._delete(rest[start : start + _BATCH])
        return self._summary(task, sum(latencies) / len(latencies))

    def _summary(self, task: Task, latency_seconds: float) -> Conditions:
        values: dict[str, Any] = {}
        for action in ("send", "receive", "delete"):
            single = summarize(self._single_seconds[action][_WARM_UP_COUNT:])
            batch = summarize(self._batch_seconds[action][1:])
            slope = (batch.mean_seconds - single.mean_seconds) / (_BATCH - 1) if batch.count else None
            values[f"{action}_seconds"] = single.mean_seconds
            values[f"{action}_seconds_per_message"] = (
                None if slope is None else min(max(slope, 0.0), single.mean_seconds)
            )
            values[f"{action}_seconds_variation"] = single.variation
        return Conditions(
            message_rate_per_second=task.message_rate_per_second or 1.0 / values["send_seconds"],
            delivery_latency_seconds=latency_seconds,
            visibility_timeout_seconds=task.visibility_timeout_seconds,
            deleter_count_max=1 if self._brake.is_shared else None,
            payload_size_bytes=BODY_BYTES,
            **values,
        )

    async def _round_trip(self) -> float:
        began_seconds = self._clock.monotonic_seconds()
        await self._send(1)
        messages = await self._receive(1)
        seconds = self._clock.monotonic_seconds() - began_seconds
        for message in messages:
            await self._queues.delete(self._url, [message.receipt_handle])
        return seconds

    async def _send(self, count: int) -> None:
        await self._timed("send", count, self._queues.send(self._url, self._bodies(count)))

    async def _received(self, count: int, request_count: int) -> list[str]:
        """Handles of so many receives; those that came back half empty are not timed."""
        handles: list[str] = []
        for _ in range(request_count):
            began_seconds = self._clock.monotonic_seconds()
            messages = await self._receive(count)
            if len(messages) == count:
                self._seconds(count)["receive"].append(self._clock.monotonic_seconds() - began_seconds)
            handles += [message.receipt_handle for message in messages]
        return handles

    async def _receive(self, count: int) -> list[ReceivedMessage]:
        for _ in range(5):
            messages = await self._queues.receive(
                self._url, message_count_max=count, wait_seconds=_RECEIVE_WAIT_SECONDS
            )
            if messages:
                return messages
        raise MeasurementError("messages that were sent do not come back: there may be another receiver")

    async def _delete(self, handles: Sequence[str]) -> None:
        async def braked() -> int:
            await self._brake.hold()
            return await self._queues.delete(self._url, handles)

        await self._timed("delete", len(handles), braked())

    async def _timed(self, action: str, count: int, request: Awaitable[ResultT]) -> ResultT:
        began_seconds = self._clock.monotonic_seconds()
        result = await request
        if count in {1, _BATCH}:
            self._seconds(count)[action].append(self._clock.monotonic_seconds() - began_seconds)
        return result

    def _seconds(self, count: int) -> Mapping[str, list[float]]:
        return self._single_seconds if count == 1 else self._batch_seconds

    def _bodies(self, count: int) -> list[str]:
        self._sequence += count
        now = self._clock.now()
        return [body_of(self._session, self._sequence - index, now) for index in range(count)]
