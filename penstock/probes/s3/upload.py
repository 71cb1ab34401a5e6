"""Knows how to measure S3 uploads for real: a share of one object in parts, or many small objects at once.

A part size at or above the object's size is a single PUT: then `thread_count` objects move at a time, so that
small objects are measured as requests a second. Otherwise one multipart upload moves `thread_count` parts
at a time; of a large object only as many parts as the plan pays for, and never more than a steady state needs.

What an observation's `measures` say beside those of `crew` (a number that was not measured is absent):

- `object_part_count`: how many parts the whole object has (1 for a single PUT); `part_size_bytes_sent`: bytes of each
  but perhaps the last.
- `create_seconds`, `complete_seconds`: the two requests around a multipart upload.
- `checksum_right_count`, `checksum_wrong_count`: where it was asked for, bodies whose ETag is their MD5, and others; of
  a store whose ETags are no MD5 (some encrypt) none is right.
- `uploaded_bytes`: bytes that arrived; `attempted_bytes`: with those of requests that did not succeed.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import md5
from typing import Any, TypeVar

from penstock.clock import Clock
from penstock.models.s3.upload import S3UploadSetting
from penstock.probes.cleaning import clean_up_shielded, struck_when_gone
from penstock.probes.leftovers import run_name
from penstock.probes.measurement import Effort
from penstock.probes.outside import (
    BodySender,
    Denied,
    Missing,
    ObjectStore,
    RequestError,
    Throttled,
    Unsent,
)
from penstock.probes.probe import NO_TIME, Leftover, LeftoverKind, inconclusive
from penstock.probes.removal import MULTIPART_NAME, Removal, all_tried
from penstock.probes.s3.crew import Crew, count_enough, too_little
from penstock.probes.s3.payload import incompressible_payload
from penstock.probes.s3.workers import Duty
from penstock.probes.s3.workspace import Workspace
from penstock.units import format_bytes, format_seconds
from penstock.vocabulary import Cost, Outcome, ProbePlan

OPERATION = "s3_upload"
MULTIPART_OVERHEAD_REQUEST_COUNT = 4  # create, complete, delete; at worst create, abort, look, abort again
CLEAN_UP_SECONDS_MAX = 30.0
_NOT_DONE = (Denied, Missing, Throttled, Unsent)  # after these nothing was created, for certain

ResultT = TypeVar("ResultT")
PayloadSource = Callable[[int, int], bytes]


class S3UploadProbe:
    """Uploads for real, measures every request, and removes what it uploaded."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        payload_source: PayloadSource = incompressible_payload,
        is_verified: bool = False,
    ) -> None:
        """`is_verified`: what the service says of each body is held against the body, after the transfer."""
        self._workspace = workspace
        self._payload_source = payload_source
        self._is_verified = is_verified
        self._staff = workspace.staff()
        self.used = Cost()

    async def run(self, plan: ProbePlan[S3UploadSetting]) -> Outcome[S3UploadSetting]:
        """Carry out the plan within its cost; the clean-up follows it, within 30 s of its own."""
        self.used = Cost()
        started_at = self._workspace.clock.now()
        allotment = Allotment.of(plan)
        if allotment.refusal:
            return inconclusive(plan, started_at, allotment.refusal)
        body_bytes = allotment.body_bytes
        duty = self._staff.on_duty(
            plan.setting.thread_count, body_bytes, held_bytes=body_bytes, body_seed=plan.seed
        )
        async with duty as on_duty:
            return await self._run(plan, started_at, allotment, on_duty)

    async def _run(
        self, plan: ProbePlan[S3UploadSetting], started_at: datetime, allotment: Allotment, duty: Duty
    ) -> Outcome[S3UploadSetting]:
        key_prefix = self._workspace.key_prefix + run_name(started_at)
        upload = _Upload(
            plan=plan,
            allotment=allotment,
            store=self._workspace.store,
            sender=duty.workers or self._workspace.store,
            removal=Removal(self._workspace.store, self._workspace.bucket),
            clock=self._workspace.clock,
            bucket=self._workspace.bucket,
            key_prefix=key_prefix,
            body=self._payload_source(allotment.body_bytes, plan.seed),
        )
        leftover = Leftover(
            kind=LeftoverKind.S3_OBJECT, service=OPERATION, container=self._workspace.bucket, name=key_prefix
        )
        await self._workspace.journal.record(leftover)
        try:
            effort = upload.crew.while_busy(await duty.measured(upload.transfer()))
        finally:
            removal = struck_when_gone(
                self._workspace.journal,
                leftover,
                upload.remove(),
                may_arrive_later=lambda: upload.may_arrive_later,
            )
            try:
                await clean_up_shielded(removal, seconds_max=CLEAN_UP_SECONDS_MAX)
            finally:
                self.used = upload.used
        duty.learn(effort, thread_count=upload.crew.connection_count)
        if self._is_verified:
            await asyncio.to_thread(upload.verify)
        return upload.outcome(started_at, effort, duty.worker_count)

    async def close(self) -> None:
        """Nothing is kept between two runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotment:
    """How much of a plan is carried out: pure arithmetic over its cost."""

    is_multipart: bool
    object_part_count: int
    part_count: int  # to upload; single PUTs count as one part each
    body_bytes: int
    tail_bytes: int  # of the object's last part
    cost_max: Cost  # of the requests with a body, failures included
    refusal: str | None = None

    @staticmethod
    def of(plan: ProbePlan[S3UploadSetting]) -> Allotment:
        """The most that the plan pays for, and no more than a steady state needs."""
        payload, part = plan.context.payload_size_bytes, plan.setting.part_size_bytes
        is_multipart = payload > part
        object_part_count = math.ceil(payload / part) if is_multipart else 1
        affordable = _affordable_part_count(plan, min(payload, part), is_multipart=is_multipart)
        enough = count_enough(plan.setting.thread_count, object_part_count, wanted_count=plan.body_count)
        part_count = min(affordable, enough)
        around = (
            MULTIPART_OVERHEAD_REQUEST_COUNT
            if is_multipart
            else min(plan.setting.thread_count, part_count) + 1
        )
        cost_max, body_bytes = plan.cost_max, min(payload, part)
        refusal = NO_TIME if cost_max.duration_seconds <= 0 else None
        if part_count < 1:
            refusal = refusal or too_little(cost_max, "allows", "part", body_bytes)
        return Allotment(
            is_multipart=is_multipart,
            object_part_count=object_part_count,
            part_count=part_count,
            body_bytes=body_bytes,
            tail_bytes=payload - (object_part_count - 1) * part,
            cost_max=replace(cost_max, request_count=cost_max.request_count - around),
            refusal=refusal,
        )


def _affordable_part_count(plan: ProbePlan[S3UploadSetting], body_bytes: int, *, is_multipart: bool) -> int:
    """How many bodies the plan pays for, with the requests that create, complete and remove."""
    requests, threads = plan.cost_max.request_count, plan.setting.thread_count
    if is_multipart:
        requests -= MULTIPART_OVERHEAD_REQUEST_COUNT
    else:  # each thread has a key of its own, which takes a request to delete where a batch of them is refused
        requests = max(min((requests - 1) // 2, threads), requests - 1 - threads)
    affordable = min(requests, plan.cost_max.transferred_bytes // body_bytes) if body_bytes else requests
    return max(0, affordable)


@dataclass(kw_only=True)
class _Upload:
    """One run: what is outside because of it, and what is still to be removed."""

    plan: ProbePlan[S3UploadSetting]
    allotment: Allotment
    store: ObjectStore
    sender: BodySender
    removal: Removal
    clock: Clock
    bucket: str
    key_prefix: str
    body: bytes
    crew: Crew = field(init=False)
    create_seconds: float | None = None
    complete_seconds: float | None = None
    request_count: int = 0  # besides those with a body
    upload_id: str | None = None
    may_be_unfinished: bool = False
    etags: dict[int, str] = field(default_factory=dict)
    # Of each body that was sent: its size, and the ETag.
    told: list[tuple[int, str]] = field(default_factory=list)
    checked: dict[str, float] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    unanswered: set[asyncio.Task[Any]] = field(default_factory=set)  # requests that create something

    def __post_init__(self) -> None:
        self.crew = Crew(
            clock=self.clock,
            thread_count=self.plan.setting.thread_count,
            cost_max=self.allotment.cost_max,
            size_bytes=self._size_bytes,
            move=self._send,
        )

    @property
    def may_arrive_later(self) -> bool:
        """Whether a request without an answer may be carried out after the clean-up."""
        return self.crew.lost_count > 0

    async def transfer(self) -> None:
        """All that is measured, within the plan's time."""
        self.crew.begin()
        try:
            async with asyncio.timeout(self.plan.cost_max.duration_seconds):
                if self.allotment.is_multipart:
                    await self._transfer_multipart()
                else:
                    await self._work()
        except TimeoutError:
            pass  # what has ended until now is what was measured
        except RequestError as error:
            self.crew.count_trouble(error)

    async def _transfer_multipart(self) -> None:
        started_seconds = self.crew.elapsed_seconds()
        await self._create()
        self.create_seconds = self.crew.elapsed_seconds() - started_seconds
        self.crew.reserve_seconds = 2 * self.create_seconds  # for the completion
        await self._work()
        if etags := self._consecutive_etags():
            started_seconds = self.crew.elapsed_seconds()
            await self._complete(etags)
            self.complete_seconds = self.crew.elapsed_seconds() - started_seconds

    async def _work(self) -> None:
        await self.crew.work(range(1, self.allotment.part_count + 1))

    async def _create(self) -> None:
        self.may_be_unfinished = True  # before the request: its answer may be lost
        self.request_count += 1
        try:
            await self._answered(self._create_known())
        except _NOT_DONE:
            self.may_be_unfinished = False
            raise

    async def _create_known(self) -> None:
        self.upload_id = await self.store.create_multipart_upload(self.bucket, self._object_key)

    async def _complete(self, etags: Sequence[str]) -> None:
        assert self.upload_id is not None
        self.keys.add(self._object_key)
        self.request_count += 1
        await self._answered(self._complete_known(self.upload_id, etags))

    async def _complete_known(self, upload_id: str, etags: Sequence[str]) -> None:
        await self.store.complete_multipart_upload(self.bucket, self._object_key, upload_id, etags)
        self.may_be_unfinished = False

    @property
    def _object_key(self) -> str:
        return self.key_prefix + MULTIPART_NAME

    def _consecutive_etags(self) -> list[str]:
        """From part 1 up to the first that is missing: an object may be completed with fewer parts."""
        numbers = itertools.takewhile(self.etags.__contains__, itertools.count(1))
        return [self.etags[number] for number in numbers]

    async def _send(self, thread: int, part_number: int) -> None:
        size_bytes = self._size_bytes(part_number)
        body = self.body if size_bytes == len(self.body) else self.body[:size_bytes]
        if self.upload_id is not None:
            etag = await self.sender.upload_part(
                self.bucket, self._object_key, self.upload_id, part_number, body
            )
            self.etags[part_number] = etag
            self.told.append((size_bytes, etag))
            return
        key = f"{self.key_prefix}{thread:04d}"  # a thread overwrites its own: fewer objects to remove
        is_new = key not in self.keys
        self.keys.add(key)  # before the request: its answer may be lost
        try:
            etag = await self._answered(self.sender.put_object(self.bucket, key, body))
            self.told.append((size_bytes, etag))
        except _NOT_DONE:
            if is_new:
                self.keys.discard(key)
            raise

    def verify(self) -> None:
        """Count the bodies that arrived as they were sent: S3 says the MD5 of each, and others an ETag of their own."""
        sums = {size: md5(self.body[:size], usedforsecurity=False).hexdigest() for size, _ in self.told}
        right_count = sum(etag.strip('"') == sums[size] for size, etag in self.told)
        self.checked = {
            "checksum_right_count": right_count,
            "checksum_wrong_count": len(self.told) - right_count,
        }

    def _size_bytes(self, part_number: int) -> int:
        allotment = self.allotment
        is_tail = allotment.is_multipart and part_number == allotment.object_part_count
        return allotment.tail_bytes if is_tail else allotment.body_bytes

    async def _answered(self, request: Coroutine[object, object, ResultT]) -> ResultT:
        """Carry out a request that creates something; a cancellation ends the waiting for it, not the request.

        Its bytes may be in the buffers of a socket: the service would carry it out after the deletion that follows.
        """
        task = asyncio.create_task(request)
        self.unanswered.add(task)
        task.add_done_callback(self.unanswered.discard)
        return await asyncio.shield(task)

    async def _await_answers(self) -> None:
        """Only what has been answered can be removed for certain; who waits too long is cancelled, and so are they."""
        unanswered = set(self.unanswered)
        try:
            if unanswered:
                await asyncio.wait(unanswered)
        finally:
            for task in unanswered:
                task.cancel()

    async def remove(self) -> None:
        """Abort what is unfinished, delete what was put. Raises RequestError when something may be left."""
        await self._await_answers()
        await all_tried(self._abort(), self.removal.delete(self.keys))

    async def _abort(self) -> None:
        """Abort; look again when a part that was on its way may outlive that, or when no id is known."""
        if self.may_be_unfinished:
            if self.upload_id is not None:
                await self.removal.abort(self._object_key, self.upload_id)
            if self._object_key not in self.keys:  # else it was to be completed: nothing was on its way
                await self.removal.abort_uploads(self._object_key)

    @property
    def used(self) -> Cost:
        """Bytes and requests so far."""
        writing = self.crew.attempt_count + self.request_count
        return Cost(
            transferred_bytes=self.crew.attempted_bytes,
            request_count=writing + self.removal.request_count,
            usd=self.plan.tariff.usd(
                write_request_count=writing + self.removal.listing_count,
                free_request_count=self.removal.request_count - self.removal.listing_count,
                sent_bytes=self.crew.attempted_bytes,
            ),
        )

    def outcome(self, started_at: datetime, effort: Effort, worker_count: int) -> Outcome[S3UploadSetting]:
        """What the run amounts to."""
        return self.crew.outcome(
            self.plan,
            started_at,
            effort,
            noun="part",
            used=self.used,
            worker_count=worker_count,
            measures=self._measures(),
            why_nothing=self._why_nothing(),
        )

    def _why_nothing(self) -> str:
        seconds = format_seconds(self.plan.cost_max.duration_seconds)
        if self.allotment.is_multipart and self.upload_id is None:
            return f"beginning an upload was not answered in time, within {seconds}: see what keeps the service silent"
        body = format_bytes(self.allotment.body_bytes)
        return f"no request of {body} ended within {seconds}: allow more time, or probe smaller parts"

    def _measures(self) -> dict[str, float]:
        measures: dict[str, float] = {
            "object_part_count": self.allotment.object_part_count,
            "part_size_bytes_sent": self.allotment.body_bytes,
            "uploaded_bytes": sum(sample.size_bytes for sample in self.crew.samples),
            "attempted_bytes": self.crew.attempted_bytes,
            **self.checked,
        }
        if self.create_seconds is not None:
            measures["create_seconds"] = self.create_seconds
        if self.complete_seconds is not None:
            measures["complete_seconds"] = self.complete_seconds
        return measures
