"""Knows how to measure S3 downloads: ranges of one object, or many small objects at once; bytes are only counted.

If the range size is at or above the payload size, each object is a single GET, and `thread_count` objects are read at a
time, so that small objects are measured as requests per second. Otherwise `thread_count` ranges of one object are read
at a time: of a large object only as many as the plan pays for, and no more than a steady state needs.

The object that is read is named by the operator, or was put by penstock (`read_objects`). It may be smaller than the
payload: then it is read repeatedly. Each run goes on where the last one ended, so that bytes are read again as late as
possible.

An observation's `measures` have, beside those of `crew` (a number that was not measured is absent):

- `object_range_count`: ranges of the whole payload; `range_size_bytes_read`: bytes of each range, except perhaps the
  last; `read_object_bytes`: the size of the object that was read.
- `first_byte_seconds_mean`, also `_p50`, `_p90` and `_p99`: from a request until its answer began.
- `read_before_fraction`: fraction of the bytes that this process had read before, which some stores serve faster; 0 if
  all were read for the first time, as far as is known here.
- `downloaded_bytes`: bytes that arrived; `attempted_bytes`: the same with those of failed requests, and with those that
  were put to be read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from penstock.models.prices import RETRIEVAL_CLASSES
from penstock.models.s3.download import S3DownloadSetting
from penstock.models.s3.read_objects import READ_OBJECT_BYTES_MAX
from penstock.probes.measurement import summarize
from penstock.probes.outside import Missing, RangeReader, Refused, RequestError
from penstock.probes.probe import NO_TIME, inconclusive
from penstock.probes.s3.crew import Allotment, Crew, count_enough, too_little
from penstock.probes.s3.read_objects import ReadObject, ReadObjects
from penstock.probes.s3.workers import Duty
from penstock.probes.s3.workspace import Workspace
from penstock.units import format_bytes, format_seconds, money
from penstock.vocabulary import Cost, Outcome, ProbePlan

OPERATION = "s3_download"
NO_TIME_LEFT = (
    "no time was left to read after the object had been uploaded: allow more time (duration_seconds_max)"
)


class S3DownloadProbe:
    """Reads from the real service and measures every request; `close` removes what it put to be read."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        object_key: str = "",
        object_storage_class: str = "standard",
        read_object_bytes_max: int = READ_OBJECT_BYTES_MAX,
        is_apart: bool = False,
    ) -> None:
        """With an `object_key`, that object is read, and nothing is ever written.

        If its storage class has a price for each byte read, it is read only if `object_storage_class` names that class.
        Without a key, an object of at most `read_object_bytes_max` is put.
        """
        self._workspace = workspace
        self._object_key = object_key
        self._object_storage_class = object_storage_class
        self._named: ReadObject | None = None
        self._objects = ReadObjects(workspace, operation=OPERATION, bytes_max=read_object_bytes_max)
        self._staff = workspace.staff(is_apart=is_apart)
        self._read_bytes: dict[str, int] = {}  # of each object so far
        self.used = Cost()

    async def run(self, plan: ProbePlan[S3DownloadSetting]) -> Outcome[S3DownloadSetting]:
        """Carry out the plan within its cost, including what has to be put first."""
        self.used = Cost()
        started_at, before = self._workspace.clock.now(), self._objects.used
        began_seconds = self._workspace.clock.monotonic_seconds()
        try:
            source = await self._source(plan)
        except RequestError as trouble:
            source = str(trouble)
        finally:
            self.used += self._objects.used - before
        left = _payable(plan.cost_max - self.used, plan)
        seconds = self._workspace.clock.monotonic_seconds() - began_seconds
        left = replace(left, duration_seconds=plan.cost_max.duration_seconds - seconds)
        if isinstance(source, str):
            return inconclusive(plan, started_at, source, self.used)
        allotment = _allotted(plan, left)
        if allotment.refusal:
            return inconclusive(plan, started_at, allotment.refusal, self.used)
        duty = self._staff.on_duty(plan.setting.thread_count, allotment.body_bytes, held_bytes=0)
        async with duty as on_duty:
            return await self._run(plan, allotment, source, on_duty)

    async def close(self) -> None:
        await self._objects.remove()

    async def _source(self, plan: ProbePlan[S3DownloadSetting]) -> ReadObject | str:
        """The object to read, or a sentence about why there is none. Raises RequestError."""
        payload = max(plan.context.payload_size_bytes, 1)
        range_bytes = min(plan.setting.range_size_bytes, payload)
        if plan.cost_max.duration_seconds <= 0:
            return NO_TIME
        if not self._object_key:
            return await self._objects.find(payload, range_bytes, plan.cost_max, plan.tariff)
        if self._named is None:
            asking = plan.tariff.cost(read_request_count=1)
            if asking.usd > plan.cost_max.usd:
                said = f"the plan allows {money(plan.cost_max.usd)}, too little to look up {self._object_key}"
                return f"{said}: raise the budget of a probe"
            self.used = asking
            found = await self._workspace.store.look_at(self._workspace.bucket, self._object_key, 1)
            if found.storage_class in RETRIEVAL_CLASSES - {self._object_storage_class}:
                return (
                    f"{self._object_key} is in the storage class {found.storage_class}, in which reading "
                    "each byte costs money: name another object, or that class in "
                    f"probes.{OPERATION}.object_storage_class"
                )
            self._named = ReadObject(self._object_key, found.size_bytes)
        if self._named.size_bytes < range_bytes:
            return (
                f"{self._object_key} has {format_bytes(self._named.size_bytes)}, less than a range of "
                f"{format_bytes(range_bytes)}: name a larger object"
            )
        return self._named

    async def _run(
        self, plan: ProbePlan[S3DownloadSetting], allotment: Allotment, source: ReadObject, duty: Duty
    ) -> Outcome[S3DownloadSetting]:
        started_at = self._workspace.clock.now()
        download = _Download(
            plan=plan,
            clock=self._workspace.clock,
            prepared=self.used,
            allotment=allotment,
            reader=duty.workers or self._workspace.store,
            bucket=self._workspace.bucket,
            source=source,
            read_before_bytes=self._read_bytes.get(source.key, 0),
        )
        try:
            effort = download.while_busy(await duty.measured(download.transfer()))
        finally:
            self.used = download.used
            self._read_bytes[source.key] = download.read_bytes
        if isinstance(download.trouble, (Missing, Refused)):  # the object is gone, or was replaced
            self._named = None
            self._objects.forget(source.key)
            self._read_bytes.pop(source.key)
        duty.learn(effort, thread_count=download.connection_count)
        return download.outcome(started_at, effort, duty.worker_count)


def _allotted(plan: ProbePlan[S3DownloadSetting], left: Cost) -> Allotment:
    """As many ranges as what is `left` pays for, and no more than a steady state needs."""
    payload = max(plan.context.payload_size_bytes, 1)
    range_bytes = min(plan.setting.range_size_bytes, payload)
    object_range_count = math.ceil(payload / range_bytes)
    affordable = max(0, min(left.request_count, left.transferred_bytes // range_bytes))
    if affordable and object_range_count > 1:  # the last one may be short
        affordable = min(affordable + 1, left.request_count)
    enough = count_enough(plan.setting.thread_count, object_range_count, wanted_count=plan.body_count)
    refusal = NO_TIME_LEFT if left.duration_seconds <= 0 else None
    if affordable < 1:
        refusal = refusal or too_little(left, "leaves", "range", range_bytes)
    return Allotment(
        object_request_count=object_range_count,
        request_count=min(affordable, enough),
        body_bytes=range_bytes,
        tail_bytes=payload - (object_range_count - 1) * range_bytes,
        cost_max=left,
        refusal=refusal,
    )


@dataclass(kw_only=True)
class _Download(Crew[S3DownloadSetting]):
    """One run of a download."""

    noun = "range"

    prepared: Cost  # of finding or putting the object
    reader: RangeReader
    bucket: str
    source: ReadObject
    read_before_bytes: int

    @property
    def used(self) -> Cost:
        """The cost of the run so far, including what was put first."""
        return self.prepared + self.plan.tariff.cost(
            read_request_count=self.attempt_count, received_bytes=self.attempted_bytes
        )

    @property
    def read_bytes(self) -> int:
        """The bytes of the object that all runs have read so far."""
        return self.read_before_bytes + self.moved_bytes

    async def move(self, thread: int, number: int) -> None:
        del thread
        range_bytes, size_bytes = self.allotment.body_bytes, self.allotment.size_bytes(number)
        slot_count = max(1, self.source.size_bytes // range_bytes)  # positions at which a range can begin
        start = (self.read_before_bytes // range_bytes + number) % slot_count * range_bytes
        reading = await self.reader.read_range(
            self.bucket,
            self.source.key,
            start,
            start + size_bytes,
            object_size_bytes=self.source.size_bytes,
        )
        self.first_byte_seconds.append(reading.first_byte_seconds)

    def why_nothing(self) -> str:
        size = format_bytes(self.allotment.body_bytes)
        seconds = format_seconds(self.allotment.cost_max.duration_seconds)
        return f"no range of {size} arrived within {seconds}: allow more time (duration_seconds_max)"

    def measures(self) -> dict[str, float]:
        """The measures of the object, and of the first bytes of its answers."""
        first_bytes = summarize(self.first_byte_seconds)
        again_bytes = self.read_bytes - max(self.source.size_bytes, self.read_before_bytes)
        return {
            "object_range_count": self.allotment.object_request_count,
            "range_size_bytes_read": self.allotment.body_bytes,
            "read_object_bytes": self.source.size_bytes,
            "first_byte_seconds_mean": first_bytes.mean_seconds,
            "first_byte_seconds_p50": first_bytes.p50_seconds,
            "first_byte_seconds_p90": first_bytes.p90_seconds,
            "first_byte_seconds_p99": first_bytes.p99_seconds,
            "read_before_fraction": max(0, again_bytes) / max(self.moved_bytes, 1),
            "downloaded_bytes": self.moved_bytes,
            "attempted_bytes": self.used.transferred_bytes,
        }


def _payable(left: Cost, plan: ProbePlan[S3DownloadSetting]) -> Cost:
    """The part of what is left that its dollars pay for: reading has other prices than putting."""
    range_bytes = min(plan.setting.range_size_bytes, max(plan.context.payload_size_bytes, 1))
    usd = plan.tariff.usd(read_request_count=1, received_bytes=range_bytes)
    if usd <= 0:
        return left
    count = max(0, math.floor(left.usd / usd))
    return replace(
        left,
        request_count=min(left.request_count, count),
        transferred_bytes=min(left.transferred_bytes, count * range_bytes),
    )
