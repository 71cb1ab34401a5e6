"""Knows how to measure S3 uploads: some parts of one object, or many small objects at once.

If the part size is at or above the object's size, each object is a single PUT, and `thread_count` objects are uploaded
at a time, so that small objects are measured as requests per second. Otherwise one multipart upload sends
`thread_count` parts at a time: of a large object only as many as the plan pays for, and no more than a steady state
needs.

An observation's `measures` have, beside those of `crew` (a number that was not measured is absent):

- `object_part_count`: parts of the whole object (1 for a single PUT); `part_size_bytes_sent`: bytes of each part,
  except perhaps the last.
- `create_seconds`, `complete_seconds`: the two requests around a multipart upload.
- `checksum_right_count`, `checksum_wrong_count`: if verification was asked for, bodies whose ETag is their MD5, and
  others; in a store whose ETags are not MD5s (as with some encryption) none is right.
- `uploaded_bytes`: bytes that arrived; `attempted_bytes`: the same with those of failed requests.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import md5

from penstock.models.s3.upload import S3UploadSetting
from penstock.probes.cleaning import clean_up_shielded, struck_when_gone
from penstock.probes.leftovers import run_name
from penstock.probes.outside import BodySender
from penstock.probes.probe import NO_TIME, Leftover, LeftoverKind, inconclusive
from penstock.probes.s3.crew import Allotment, Crew, count_enough, too_little
from penstock.probes.s3.payload import incompressible_payload
from penstock.probes.s3.workers import Duty
from penstock.probes.s3.workspace import Workspace
from penstock.probes.s3.written import MULTIPART_OVERHEAD_REQUEST_COUNT, Written
from penstock.units import format_bytes, format_seconds
from penstock.vocabulary import Cost, Outcome, ProbePlan

OPERATION = "s3_upload"
CLEAN_UP_SECONDS_MAX = 30.0

PayloadSource = Callable[[int, int], bytes]


class S3UploadProbe:
    """Uploads to the real service, measures every request, and removes what it uploaded."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        payload_source: PayloadSource = incompressible_payload,
        is_verified: bool = False,
    ) -> None:
        """`is_verified`: compare each body's ETag with its MD5, after the transfer."""
        self._workspace = workspace
        self._payload_source = payload_source
        self._is_verified = is_verified
        self._staff = workspace.staff()
        self.used = Cost()

    async def run(self, plan: ProbePlan[S3UploadSetting]) -> Outcome[S3UploadSetting]:
        """Carry out the plan within its cost; then clean up, within 30 s more."""
        self.used = Cost()
        started_at = self._workspace.clock.now()
        allotment = _allotted(plan)
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
        written = self._workspace.written(run_name(started_at))
        upload = _Upload(
            plan=plan,
            clock=self._workspace.clock,
            allotment=allotment,
            written=written,
            sender=duty.workers or self._workspace.store,
            body=self._payload_source(allotment.body_bytes, plan.seed),
        )
        leftover = Leftover(
            kind=LeftoverKind.S3_OBJECT, service=OPERATION, container=written.bucket, name=written.key_prefix
        )
        await self._workspace.journal.record(leftover)
        try:
            effort = upload.while_busy(await duty.measured(upload.transfer()))
        finally:
            removal = struck_when_gone(
                self._workspace.journal,
                leftover,
                written.remove(),
                may_arrive_later=lambda: upload.lost_count > 0,
            )
            try:
                await clean_up_shielded(removal, seconds_max=CLEAN_UP_SECONDS_MAX)
            finally:
                self.used = upload.used
        duty.learn(effort, thread_count=upload.connection_count)
        if self._is_verified:
            await asyncio.to_thread(upload.verify)
        return upload.outcome(started_at, effort, duty.worker_count)

    async def close(self) -> None:
        """Do nothing: nothing is kept between two runs."""


def _allotted(plan: ProbePlan[S3UploadSetting]) -> Allotment:
    """As many parts as the plan pays for, and no more than a steady state needs."""
    payload, part = plan.context.payload_size_bytes, plan.setting.part_size_bytes
    is_multipart, body_bytes, cost_max = payload > part, min(payload, part), plan.cost_max
    object_part_count = math.ceil(payload / part) if is_multipart else 1
    affordable = _affordable_part_count(plan, body_bytes, is_multipart=is_multipart)
    enough = count_enough(plan.setting.thread_count, object_part_count, wanted_count=plan.body_count)
    part_count = min(affordable, enough)
    around = MULTIPART_OVERHEAD_REQUEST_COUNT
    if not is_multipart:
        around = min(plan.setting.thread_count, part_count) + 1
    refusal = NO_TIME if cost_max.duration_seconds <= 0 else None
    if part_count < 1:
        refusal = refusal or too_little(cost_max, "allows", "part", body_bytes)
    return Allotment(
        object_request_count=object_part_count,
        request_count=part_count,
        body_bytes=body_bytes,
        tail_bytes=payload - (object_part_count - 1) * part,
        cost_max=replace(cost_max, request_count=cost_max.request_count - around),
        refusal=refusal,
    )


def _affordable_part_count(plan: ProbePlan[S3UploadSetting], body_bytes: int, *, is_multipart: bool) -> int:
    """How many bodies the plan pays for, including the requests to create, complete and remove."""
    requests, threads = plan.cost_max.request_count, plan.setting.thread_count
    if is_multipart:
        requests -= MULTIPART_OVERHEAD_REQUEST_COUNT
    else:  # each thread has its own key, which takes a request to delete where batches are refused
        requests = max(min((requests - 1) // 2, threads), requests - 1 - threads)
    affordable = min(requests, plan.cost_max.transferred_bytes // body_bytes) if body_bytes else requests
    return max(0, affordable)


@dataclass(kw_only=True)
class _Upload(Crew[S3UploadSetting]):
    """One run of an upload, with what it has written."""

    noun = "part"

    written: Written
    sender: BodySender
    body: bytes
    create_seconds: float | None = None
    complete_seconds: float | None = None
    # The size and the ETag of each body that was sent.
    told: list[tuple[int, str]] = field(default_factory=list)
    checked: dict[str, float] = field(default_factory=dict)

    @property
    def _is_multipart(self) -> bool:
        return self.allotment.object_request_count > 1

    async def carry_out(self) -> None:
        if not self._is_multipart:
            await self.work()
            return
        started_seconds = self.elapsed_seconds()
        await self.written.create()
        self.create_seconds = self.elapsed_seconds() - started_seconds
        self.reserve_seconds = 2 * self.create_seconds  # for the completion
        await self.work()
        if etags := self.written.consecutive_etags:
            started_seconds = self.elapsed_seconds()
            await self.written.complete(etags)
            self.complete_seconds = self.elapsed_seconds() - started_seconds

    async def move(self, thread: int, number: int) -> None:
        size_bytes, part_number = self.allotment.size_bytes(number), number + 1
        body = self.body if size_bytes == len(self.body) else self.body[:size_bytes]
        written = self.written
        if written.upload_id is not None:
            etag = await self.sender.upload_part(
                written.bucket, written.object_key, written.upload_id, part_number, body
            )
            written.etags[part_number] = etag
        else:
            key = written.key_of_thread(thread)
            etag = await written.put(key, self.sender.put_object(written.bucket, key, body))
        self.told.append((size_bytes, etag))

    def verify(self) -> None:
        """Count the bodies whose ETag is their MD5, as S3 returns it, and the others."""
        sums = {size: md5(self.body[:size], usedforsecurity=False).hexdigest() for size, _ in self.told}
        right_count = sum(etag.strip('"') == sums[size] for size, etag in self.told)
        self.checked = {
            "checksum_right_count": right_count,
            "checksum_wrong_count": len(self.told) - right_count,
        }

    @property
    def used(self) -> Cost:
        """The cost of the run so far, including its removal."""
        removal = self.written.removal
        writing = self.attempt_count + self.written.request_count
        return self.plan.tariff.cost(
            write_request_count=writing + removal.listing_count,
            free_request_count=removal.request_count - removal.listing_count,
            sent_bytes=self.attempted_bytes,
        )

    def why_nothing(self) -> str:
        seconds = format_seconds(self.plan.cost_max.duration_seconds)
        if self._is_multipart and self.written.upload_id is None:
            return (
                f"the service did not answer the start of an upload in {seconds}: check endpoint and network"
            )
        body = format_bytes(self.allotment.body_bytes)
        return f"no request of {body} completed within {seconds}: allow more time (duration_seconds_max)"

    def measures(self) -> dict[str, float]:
        """The measures of the object, and of the requests around its upload."""
        measures: dict[str, float] = {
            "object_part_count": self.allotment.object_request_count,
            "part_size_bytes_sent": self.allotment.body_bytes,
            "uploaded_bytes": self.moved_bytes,
            "attempted_bytes": self.attempted_bytes,
            **self.checked,
        }
        if self.create_seconds is not None:
            measures["create_seconds"] = self.create_seconds
        if self.complete_seconds is not None:
            measures["complete_seconds"] = self.complete_seconds
        return measures
