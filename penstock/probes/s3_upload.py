"""Knows how to measure S3 uploads for real: a share of one object in parts, or many small objects at once.

A part size at or above the object's size is a single PUT: then `thread_count` objects move at a time, so that
small objects are measured as requests a second. Otherwise one multipart upload moves `thread_count` parts
at a time; of a large object only as many parts as the plan pays for, and never more than a steady state needs.

What an observation's `measures` say (a number that was not measured is absent):

- `part_count`: requests that carried a body and succeeded; `object_part_count`: how many the whole object has
  (1 for a single PUT); `part_size_bytes_sent`: bytes of each but perhaps the last.
- `connection_count`: the most of such requests in flight, never above the thread count.
- `part_seconds_mean`, `part_seconds_p50`, `part_seconds_p90`: time of one such request.
- `create_seconds`, `complete_seconds`: the two requests around a multipart upload.
- `worker_count`: processes that sent the bodies; `client_cpu_demand_fraction`: how much of the time the busiest of
  them ran or waited for a processor. Near 1, more could not be sent from here, whatever the network bears.
- `uploaded_bytes`: bytes that arrived; `attempted_bytes`: with those of requests that did not succeed.
- `steady_throughput_bytes_per_second`, `steady_seconds`: bytes a second while every thread was busy, after
  each had finished its first part (which pays for the connection) and before the first found nothing left to do;
  the bytes of a part count evenly over its time. With a single wave it is that wave. So it knows neither the
  ramp nor the last wave, and a model adds those itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import math
import uuid
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime

from penstock.clock import Clock
from penstock.models.s3_upload import S3UploadSetting
from penstock.probes.cleaning import clean_up_shielded
from penstock.probes.leftovers import run_name
from penstock.probes.measurement import (
    LOOP_TICK_SECONDS,
    Effort,
    LatencySummary,
    busiest,
    effort_of_block,
    summarize,
)
from penstock.probes.outside import BodySender, Denied, Missing, ObjectStore, RequestError, Throttled
from penstock.probes.payload import incompressible_payload
from penstock.probes.probe import Journal, Leftover, LeftoverKind, inconclusive
from penstock.probes.upload_workers import Staffing, WorkerError, Workers
from penstock.units import format_bytes
from penstock.vocabulary import Cost, Observation, Outcome, ProbePlan

OPERATION = "s3_upload"
KEY_PREFIX = "penstock/"
WAVE_COUNT_ENOUGH = 8  # waves of parts for each thread: a steady state, and no more than it needs
PART_COUNT_ENOUGH_MIN = 16
OBJECT_COUNT_ENOUGH_MIN = 64
FAILURE_COUNT_MAX = 8  # and two for each thread: past this the service is not measured but molested
THROTTLE_PAUSE_SECONDS = 0.1  # after the first throttle in a row; doubles
THROTTLE_PAUSE_SECONDS_MAX = 2.0
MULTIPART_OVERHEAD_REQUEST_COUNT = 4  # create, complete, delete; at worst create, abort, look, abort again
CLEAN_UP_SECONDS_MAX = 30.0
_NOT_DONE = (Denied, Missing, Throttled)  # answers after which nothing was created, for certain

PayloadSource = Callable[[int, int], bytes]
Hire = Callable[[int, int, int], AbstractAsyncContextManager[Workers]]
"""So many processes, with a body of so many bytes made from a seed, ready; raises WorkerError."""

_log = logging.getLogger(__name__)


class S3UploadProbe:
    """Uploads for real, measures every request, and removes what it uploaded."""

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        journal: Journal,
        *,
        bucket: str,
        key_prefix: str = KEY_PREFIX,
        payload_source: PayloadSource = incompressible_payload,
        loop_tick_seconds: float = LOOP_TICK_SECONDS,
        hire: Hire | None = None,
        worker_count_max: int = 1,
    ) -> None:
        self._store = store
        self._clock = clock
        self._journal = journal
        self._bucket = bucket
        self._key_prefix = key_prefix
        self._payload_source = payload_source
        self._loop_tick_seconds = loop_tick_seconds
        self._hire = hire
        self._staffing = Staffing(worker_count_max if hire is not None else 1)
        self.used = Cost()

    async def run(self, plan: ProbePlan[S3UploadSetting]) -> Outcome[S3UploadSetting]:
        """Carry out the plan within its cost; the clean-up follows it, within 30 s of its own."""
        self.used = Cost()
        started_at = self._clock.now()
        allotment = Allotment.of(plan)
        if allotment.refusal:
            return inconclusive(plan, started_at, allotment.refusal)
        worker_count = self._staffing.worker_count(plan.setting.thread_count, allotment.body_bytes)
        async with AsyncExitStack() as hired:
            workers = await self._hired(hired, worker_count, plan, allotment)
            return await self._run(plan, started_at, allotment, workers, worker_count if workers else 1)

    async def _hired(
        self,
        hired: AsyncExitStack,
        worker_count: int,
        plan: ProbePlan[S3UploadSetting],
        allotment: Allotment,
    ) -> Workers | None:
        """The processes that send bodies; None when this one does."""
        if worker_count == 1 or self._hire is None:
            return None
        try:
            return await hired.enter_async_context(self._hire(worker_count, allotment.body_bytes, plan.seed))
        except WorkerError as error:
            _log.warning("this probe runs in one process, because others did not start: %s", error)
            return None

    async def _run(
        self,
        plan: ProbePlan[S3UploadSetting],
        started_at: datetime,
        allotment: Allotment,
        workers: Workers | None,
        worker_count: int,
    ) -> Outcome[S3UploadSetting]:
        key_prefix = self._key_prefix + run_name(started_at, uuid.uuid4().hex)
        upload = _Upload(
            store=self._store,
            sender=workers or self._store,
            clock=self._clock,
            bucket=self._bucket,
            key_prefix=key_prefix,
            allotment=allotment,
            plan=plan,
            body=self._payload_source(allotment.body_bytes, plan.seed),
        )
        leftover = Leftover(
            kind=LeftoverKind.S3_OBJECT, service=OPERATION, container=self._bucket, name=key_prefix
        )
        await self._journal.record(leftover)
        try:
            effort = await self._transferred(upload, workers)
        finally:
            await clean_up_shielded(self._remove(upload, leftover), seconds_max=CLEAN_UP_SECONDS_MAX)
            self.used = upload.used
        self._staffing.learn(
            effort,
            thread_count=upload.connection_count,
            worker_count=worker_count,
            body_bytes=allotment.body_bytes,
        )
        return upload.outcome(started_at, effort, worker_count)

    async def _transferred(self, upload: _Upload, workers: Workers | None) -> Effort:
        """Transfer, and say what that took the process that had most to do."""
        efforts: list[Effort] = []
        async with AsyncExitStack() as measuring:
            own = await measuring.enter_async_context(
                effort_of_block(self._clock, tick_seconds=self._loop_tick_seconds)
            )
            if workers is not None:
                efforts = await measuring.enter_async_context(workers.measured())
            await upload.transfer()
        return busiest([own, *efforts], own.duration_seconds)

    async def close(self) -> None:
        """Nothing is kept between two runs."""

    async def _remove(self, upload: _Upload, leftover: Leftover) -> None:
        """Strike the entry only when everything is gone; otherwise the next sweep finds it."""
        try:
            await upload.remove()
        except RequestError as error:
            _log.warning(
                "left behind until the next sweep: %s below %s (%s)", self._bucket, leftover.name, error
            )
        else:
            await self._journal.strike(leftover)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotment:
    """How much of a plan is carried out: pure arithmetic over its cost."""

    is_multipart: bool
    object_part_count: int
    part_count: int  # to upload; single PUTs count as one part each
    body_bytes: int
    tail_bytes: int  # of the object's last part
    attempt_count_max: int  # requests with a body, failures included
    transferred_bytes_max: int
    refusal: str | None = None

    @staticmethod
    def of(plan: ProbePlan[S3UploadSetting]) -> Allotment:
        """The most that the plan pays for, and no more than a steady state needs."""
        payload, part = plan.context.payload_size_bytes, plan.setting.part_size_bytes
        is_multipart = payload > part
        object_part_count = math.ceil(payload / part) if is_multipart else 1
        affordable = _affordable_part_count(plan, min(payload, part), is_multipart=is_multipart)
        part_count = min(affordable, _part_count_enough(plan.setting.thread_count, object_part_count))
        around = (
            MULTIPART_OVERHEAD_REQUEST_COUNT if is_multipart else min(plan.setting.thread_count, part_count)
        )
        return Allotment(
            is_multipart=is_multipart,
            object_part_count=object_part_count,
            part_count=part_count,
            body_bytes=min(payload, part),
            tail_bytes=payload - (object_part_count - 1) * part,
            attempt_count_max=plan.cost_max.request_count - around,
            transferred_bytes_max=plan.cost_max.transferred_bytes,
            refusal=_refusal(plan.cost_max, min(payload, part), part_count),
        )


def _part_count_enough(thread_count: int, object_part_count: int) -> int:
    if object_part_count == 1:
        return max(WAVE_COUNT_ENOUGH * thread_count, OBJECT_COUNT_ENOUGH_MIN)
    return min(max(WAVE_COUNT_ENOUGH * thread_count, PART_COUNT_ENOUGH_MIN), object_part_count)


def _affordable_part_count(plan: ProbePlan[S3UploadSetting], body_bytes: int, *, is_multipart: bool) -> int:
    """How many bodies the plan pays for, with the requests that create, complete and remove."""
    requests, threads = plan.cost_max.request_count, plan.setting.thread_count
    if is_multipart:
        requests -= MULTIPART_OVERHEAD_REQUEST_COUNT
    else:  # each thread has a key of its own, which takes a request to delete
        requests = max(min(requests // 2, threads), requests - threads)
    affordable = min(requests, plan.cost_max.transferred_bytes // body_bytes) if body_bytes else requests
    return max(0, affordable)


def _refusal(cost_max: Cost, body_bytes: int, part_count: int) -> str | None:
    if cost_max.duration_seconds <= 0:
        return "the plan allows no time: raise the time that a probe may take"
    if part_count < 1:
        return (
            f"the plan allows {format_bytes(cost_max.transferred_bytes)} in {cost_max.request_count} requests, too "
            f"little for one part of {format_bytes(body_bytes)}: raise the budget or probe smaller parts"
        )
    return None


@dataclass(frozen=True, slots=True)
class _Sample:
    """One request with a body that succeeded; moments are seconds since the transfer began."""

    thread: int
    started_seconds: float
    ended_seconds: float
    size_bytes: int


@dataclass(slots=True)
class _Upload:
    """One run: what is still to do, what was done, and what is outside because of it."""

    store: ObjectStore
    sender: BodySender
    clock: Clock
    bucket: str
    key_prefix: str
    allotment: Allotment
    plan: ProbePlan[S3UploadSetting]
    body: bytes
    samples: list[_Sample] = field(default_factory=list)
    request_count: int = 0
    attempt_count: int = 0
    attempted_bytes: int = 0
    throttled_count: int = 0
    failed_count: int = 0
    trouble: RequestError | None = None  # the last one
    is_hopeless: bool = False
    is_overdue: bool = False
    create_seconds: float | None = None
    complete_seconds: float | None = None
    _upload_id: str | None = None
    _may_be_unfinished: bool = False
    _etags: dict[int, str] = field(default_factory=dict)
    _keys: set[str] = field(default_factory=set)
    _unanswered: set[asyncio.Task[None]] = field(default_factory=set)  # requests that create something
    _part_numbers: list[int] = field(default_factory=list)  # a heap: failed ones come back and go first
    _in_flight_count: int = 0
    _in_flight_count_max: int = 0
    _idle_from_seconds: float | None = None
    _began_seconds: float = 0.0
    _part_seconds_max: float = 0.0

    async def transfer(self) -> None:
        """All that is measured, within the plan's time."""
        self._part_numbers = list(range(1, self.allotment.part_count + 1))
        self._began_seconds = self.clock.monotonic_seconds()
        try:
            async with asyncio.timeout(self.plan.cost_max.duration_seconds):
                if self.allotment.is_multipart:
                    await self._transfer_multipart()
                else:
                    await self._work()
        except TimeoutError:
            self.is_overdue = True
        except RequestError as error:
            self._count_trouble(error)

    async def _transfer_multipart(self) -> None:
        started_seconds = self._elapsed_seconds()
        await self._create()
        self.create_seconds = self._elapsed_seconds() - started_seconds
        await self._work()
        if etags := self._consecutive_etags():
            started_seconds = self._elapsed_seconds()
            await self._complete(etags)
            self.complete_seconds = self._elapsed_seconds() - started_seconds

    async def _create(self) -> None:
        self._may_be_unfinished = True  # before the request: its answer may be lost
        self.request_count += 1
        try:
            await self._answered(self._create_known())
        except _NOT_DONE:
            self._may_be_unfinished = False
            raise

    async def _create_known(self) -> None:
        self._upload_id = await self.store.create_multipart_upload(self.bucket, self._object_key)

    async def _complete(self, etags: Sequence[str]) -> None:
        assert self._upload_id is not None
        self._keys.add(self._object_key)
        self.request_count += 1
        await self._answered(self._complete_known(self._upload_id, etags))

    async def _complete_known(self, upload_id: str, etags: Sequence[str]) -> None:
        await self.store.complete_multipart_upload(self.bucket, self._object_key, upload_id, etags)
        self._may_be_unfinished = False

    @property
    def _object_key(self) -> str:
        return f"{self.key_prefix}object"

    def _consecutive_etags(self) -> list[str]:
        """From part 1 up to the first that is missing: an object may be completed with fewer parts."""
        numbers = itertools.takewhile(self._etags.__contains__, itertools.count(1))
        return [self._etags[number] for number in numbers]

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            for thread in range(min(self.plan.setting.thread_count, self.allotment.part_count)):
                group.create_task(self._work_as(thread))

    async def _work_as(self, thread: int) -> None:
        """One thread: part after part, until there is nothing left to do or to spend."""
        pause_seconds = THROTTLE_PAUSE_SECONDS
        while (part_number := self._claim()) is not None:
            try:
                await self._upload_one(thread, part_number)
                pause_seconds = THROTTLE_PAUSE_SECONDS
            except RequestError as error:
                heapq.heappush(self._part_numbers, part_number)
                self._count_trouble(error)
                if not self.is_hopeless:
                    await asyncio.sleep(pause_seconds)
                    pause_seconds = min(2 * pause_seconds, THROTTLE_PAUSE_SECONDS_MAX)
        if self._idle_from_seconds is None:
            self._idle_from_seconds = self._elapsed_seconds()

    def _claim(self) -> int | None:
        """The next part that the plan still pays for; None ends the thread."""
        if self.is_hopeless or not self._part_numbers or self._is_late():
            return None
        size_bytes = self._size_bytes(self._part_numbers[0])
        if self.attempt_count >= self.allotment.attempt_count_max:
            return None
        if self.attempted_bytes + size_bytes > self.allotment.transferred_bytes_max:
            return None
        self.attempt_count += 1
        self.request_count += 1
        self.attempted_bytes += size_bytes
        return heapq.heappop(self._part_numbers)

    def _is_late(self) -> bool:
        """Whether another part, and the completion, might not end in time."""
        reserve_seconds = self._part_seconds_max + 2 * (self.create_seconds or 0.0)
        return self._elapsed_seconds() + reserve_seconds >= self.plan.cost_max.duration_seconds

    async def _upload_one(self, thread: int, part_number: int) -> None:
        size_bytes = self._size_bytes(part_number)
        body = self.body if size_bytes == len(self.body) else self.body[:size_bytes]
        self._in_flight_count += 1
        self._in_flight_count_max = max(self._in_flight_count_max, self._in_flight_count)
        started_seconds = self._elapsed_seconds()
        try:
            await self._send(thread, part_number, body)
        finally:
            self._in_flight_count -= 1
        ended_seconds = self._elapsed_seconds()
        self._part_seconds_max = max(self._part_seconds_max, ended_seconds - started_seconds)
        self.samples.append(_Sample(thread, started_seconds, ended_seconds, size_bytes))

    async def _send(self, thread: int, part_number: int, body: bytes) -> None:
        if self._upload_id is not None:
            self._etags[part_number] = await self.sender.upload_part(
                self.bucket, self._object_key, self._upload_id, part_number, body
            )
            return
        key = f"{self.key_prefix}{thread:04d}"  # a thread overwrites its own: fewer objects to remove
        is_new = key not in self._keys
        self._keys.add(key)  # before the request: its answer may be lost
        try:
            await self._answered(self.sender.put_object(self.bucket, key, body))
        except _NOT_DONE:
            if is_new:
                self._keys.discard(key)
            raise

    def _size_bytes(self, part_number: int) -> int:
        is_tail = self.allotment.is_multipart and part_number == self.allotment.object_part_count
        return self.allotment.tail_bytes if is_tail else self.allotment.body_bytes

    def _count_trouble(self, error: RequestError) -> None:
        self.trouble = error
        if isinstance(error, Throttled):
            self.throttled_count += 1
        else:
            self.failed_count += 1
        failures_max = FAILURE_COUNT_MAX + 2 * self.plan.setting.thread_count
        too_many = self.throttled_count + self.failed_count >= failures_max
        self.is_hopeless = self.is_hopeless or too_many or isinstance(error, (Denied, Missing))

    def _elapsed_seconds(self) -> float:
        return self.clock.monotonic_seconds() - self._began_seconds

    async def _answered(self, request: Coroutine[object, object, None]) -> None:
        """Carry out a request that creates something; a cancellation ends the waiting for it, not the request.

        Its bytes may be in the buffers of a socket: the service would carry it out after the deletion that follows.
        """
        task = asyncio.create_task(request)
        self._unanswered.add(task)
        task.add_done_callback(self._unanswered.discard)
        await asyncio.shield(task)

    async def _await_answers(self) -> None:
        """Only what has been answered can be removed for certain; who waits too long is cancelled, and so are they."""
        unanswered = set(self._unanswered)
        try:
            if unanswered:
                await asyncio.wait(unanswered)
        finally:
            for task in unanswered:
                task.cancel()

    async def remove(self) -> None:
        """Abort what is unfinished, delete what was put. Raises RequestError when something may be left."""
        await self._await_answers()
        if self._may_be_unfinished:
            await self._abort()
        for key in sorted(self._keys):
            await self._delete(key)

    async def _abort(self) -> None:
        """Abort; look again when a part that was on its way may outlive that, or when no id is known."""
        if self._upload_id is not None:
            await self._abort_one(self._object_key, self._upload_id)
        if self._object_key in self._keys:  # it was to be completed: nothing was on its way any more
            return
        self.request_count += 1
        for key, upload_id in await self.store.list_multipart_uploads(self.bucket, self.key_prefix):
            await self._abort_one(key, upload_id)

    async def _abort_one(self, key: str, upload_id: str) -> None:
        self.request_count += 1
        with contextlib.suppress(Missing):
            await self.store.abort_multipart_upload(self.bucket, key, upload_id)

    async def _delete(self, key: str) -> None:
        self.request_count += 1
        with contextlib.suppress(Missing):
            await self.store.delete_object(self.bucket, key)

    @property
    def used(self) -> Cost:
        """Bytes and requests so far."""
        return Cost(transferred_bytes=self.attempted_bytes, request_count=self.request_count)

    @property
    def connection_count(self) -> int:
        """The most requests with a body that were in flight."""
        return self._in_flight_count_max

    def outcome(self, started_at: datetime, effort: Effort, worker_count: int) -> Outcome[S3UploadSetting]:
        """What the run amounts to."""
        latencies = summarize([sample.ended_seconds - sample.started_seconds for sample in self.samples])
        reason = (
            self._why_nothing()
            if not self.samples
            else effort.disturbance(latencies.p50_seconds, may_be_cpu_bound=True)
        )
        if reason is not None:
            return inconclusive(self.plan, started_at, reason, self.used)
        uploaded_bytes = sum(sample.size_bytes for sample in self.samples)
        return Observation(
            context=self.plan.context,
            setting=self.plan.setting,
            started_at=started_at,
            duration_seconds=effort.duration_seconds,
            transferred_bytes=uploaded_bytes,
            request_count=self.request_count,
            throttled_count=self.throttled_count,
            failed_count=self.failed_count,
            latency_seconds_mean=latencies.mean_seconds,
            latency_seconds_p50=latencies.p50_seconds,
            latency_seconds_p99=latencies.p99_seconds,
            client_cpu_fraction=effort.client_cpu_fraction,
            loop_lag_seconds_max=effort.loop_lag_seconds_max,
            measures=self._measures(latencies, uploaded_bytes)
            | {
                "worker_count": worker_count,
                "client_cpu_demand_fraction": effort.client_cpu_demand_fraction,
            },
        )

    def _why_nothing(self) -> str:
        if self.trouble is not None:
            return f"no request succeeded; {self.trouble}"
        return (
            f"no request of {format_bytes(self.allotment.body_bytes)} ended within "
            f"{self.plan.cost_max.duration_seconds:g} s: allow more time, or probe smaller parts"
        )

    def _measures(self, latencies: LatencySummary, uploaded_bytes: int) -> dict[str, float]:
        steady = steady_window(
            [(s.thread, s.started_seconds, s.ended_seconds) for s in self.samples], self._idle_from_seconds
        )
        measures: dict[str, float] = {
            "part_count": latencies.count,
            "object_part_count": self.allotment.object_part_count,
            "part_size_bytes_sent": self.allotment.body_bytes,
            "connection_count": self._in_flight_count_max,
            "part_seconds_mean": latencies.mean_seconds,
            "part_seconds_p50": latencies.p50_seconds,
            "part_seconds_p90": latencies.p90_seconds,
            "uploaded_bytes": uploaded_bytes,
            "attempted_bytes": self.attempted_bytes,
        }
        if self.create_seconds is not None:
            measures["create_seconds"] = self.create_seconds
        if self.complete_seconds is not None:
            measures["complete_seconds"] = self.complete_seconds
        if steady is not None:
            measures["steady_seconds"] = steady[1] - steady[0]
            measures["steady_throughput_bytes_per_second"] = self._bytes_within(steady) / (
                steady[1] - steady[0]
            )
        return measures

    def _bytes_within(self, window: tuple[float, float]) -> float:
        return math.fsum(
            s.size_bytes
            * max(0.0, min(s.ended_seconds, window[1]) - max(s.started_seconds, window[0]))
            / (s.ended_seconds - s.started_seconds)
            for s in self.samples
            if s.ended_seconds > s.started_seconds
        )


def steady_window(
    samples: Sequence[tuple[int, float, float]], idle_from_seconds: float | None
) -> tuple[float, float] | None:
    """When every thread was busy with a part that was not its first; (thread, start, end) for each part.

    It begins when the last thread has finished its first part; it ends when the first found nothing left.
    Where that is empty (a single wave) it is the time from the first start to the first end.
    """
    if not samples:
        return None
    first_ends: dict[int, float] = {}
    for thread, _, ended in samples:
        first_ends[thread] = min(ended, first_ends.get(thread, math.inf))
    begins = max(first_ends.values())
    ends = idle_from_seconds if idle_from_seconds is not None else max(ended for _, _, ended in samples)
    if ends <= begins:
        begins, ends = min(started for _, started, _ in samples), min(first_ends.values())
    return (begins, ends) if ends > begins else None
