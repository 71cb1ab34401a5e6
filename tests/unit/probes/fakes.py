"""Knows the outside of the probes as a page of memory: scripted trouble, virtual time, and a log of what was asked."""

# ruff: noqa: ARG002  # a fake takes what its seam is given

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.models.s3.download import S3DownloadSetting
from penstock.models.s3.upload import S3UploadSetting
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.probes.outside import (
    Changed,
    Listed,
    Missing,
    NotOffered,
    Reading,
    ReceivedMessage,
    RequestError,
    StoredObject,
    Tagged,
    VersionRequests,
)
from penstock.probes.probe import Leftover
from penstock.units import GiB, KiB, MiB
from penstock.vocabulary import Context, Cost, Inconclusive, Outcome, Place, ProbePlan, Reason, SettingT
from tests.factories import S3_TARIFF, SQS_TARIFF

HEAD_BYTES = 64 * KiB
START_AT = datetime(2026, 1, 1, tzinfo=UTC)
AMPLE = Cost(transferred_bytes=100 * GiB, request_count=100_000, usd=1000.0, duration_seconds=600.0)
Trouble = Callable[[str, int], RequestError | None]  # by action and how many of it there were before
ResultT = TypeVar("ResultT")


def virtually(story: Callable[[VirtualClock], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Run a story in virtual time."""
    return run_virtually(story, start_at=START_AT)


def no_trouble(_action: str, _count: int) -> RequestError | None:
    """All goes well."""
    return None


def a_plan(operation: str, size: int, setting: SettingT, cost_max: Cost) -> ProbePlan[SettingT]:
    """A plan for a small host of some region."""
    return ProbePlan(
        context=Context(
            place=Place(operation=operation, region="eu-west-1", instance_type="c6i.large"),
            payload_size_bytes=size,
        ),
        setting=setting,
        reason=Reason.EXPLORE,
        cost_max=cost_max,
        tariff=SQS_TARIFF if operation == "sqs_delivery" else S3_TARIFF,
    )


def an_upload_plan(
    *, size: int = 64 * MiB, threads: int = 4, part: int = 8 * MiB, cost_max: Cost = AMPLE
) -> ProbePlan[S3UploadSetting]:
    """A plan of which a test names what it is about."""
    return a_plan("s3_upload", size, S3UploadSetting(thread_count=threads, part_size_bytes=part), cost_max)


def a_download_plan(
    *, size: int = 64 * MiB, threads: int = 4, range_size: int = 8 * MiB, cost_max: Cost = AMPLE
) -> ProbePlan[S3DownloadSetting]:
    """A plan of which a test names what it is about."""
    setting = S3DownloadSetting(thread_count=threads, range_size_bytes=range_size)
    return a_plan("s3_download", size, setting, cost_max)


def a_delivery_plan(
    *, size: int = 100, cost_max: Cost | None = None, **setting: float
) -> ProbePlan[SqsDeliverySetting]:
    """A plan of which a test names what it is about."""
    values: dict[str, float] = {
        "sender_thread_count": 2,
        "receiver_thread_count": 2,
        "deleter_thread_count": 2,
        "batch_message_count": 1,
    }
    return a_plan(
        "sqs_delivery",
        size,
        SqsDeliverySetting(**(values | setting)),  # type: ignore[arg-type]  # whole numbers, by test
        cost_max or Cost(transferred_bytes=100 * MiB, request_count=100_000, duration_seconds=4.0),
    )


def reason_of(outcome: Outcome[Any]) -> str:
    """Why it could not measure, as it did not."""
    assert isinstance(outcome, Inconclusive), outcome
    return outcome.reason


class MemoryJournal:
    """A journal that also says in which order things happened."""

    def __init__(self, log: list[str] | None = None) -> None:
        self.entries: list[Leftover] = []
        self.abandoned: list[Leftover] = []  # struck or not
        self.log = log if log is not None else []

    async def record(self, leftover: Leftover) -> None:
        if leftover not in self.entries:
            self.entries.append(leftover)
        self.log.append("record")

    async def strike(self, leftover: Leftover) -> None:
        if leftover in self.entries:
            self.entries.remove(leftover)
        self.log.append("strike")

    async def abandon(self, leftover: Leftover) -> None:
        self.abandoned.append(leftover)

    async def open_entries(self) -> list[Leftover]:
        return list(self.entries)


class Scripted:
    """A service that is told what goes wrong, and notes what it was asked."""

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        self.raised: list[RequestError] = []
        self.log: list[str] = []
        self.counts: Counter[str] = Counter()
        self._ids = itertools.count(1)

    @property
    def request_count(self) -> int:
        return self.counts.total()

    def _there(self, name: str, among: Collection[str]) -> None:
        if name not in among:
            raise Missing(f"there is no {name}")

    def _refuse(self, action: str) -> None:
        self.log.append(action)
        count = self.counts[action]
        self.counts[action] += 1
        if (error := self.trouble(action, count)) is not None:
            self.raised.append(error)
            raise error


class StandingStill:
    """A clock of a process that stood still for ten seconds."""

    def __init__(self, clock: VirtualClock, *, at_seconds: float) -> None:
        self.now = clock.now
        self._clock = clock
        self._at_seconds = at_seconds

    def monotonic_seconds(self) -> float:
        """As the machine's."""
        seconds = self._clock.monotonic_seconds()
        return seconds if seconds < self._at_seconds else seconds + 10.0


class MemoryStore(Scripted):
    """S3 whose every upload request takes the same time, unless told otherwise."""

    def __init__(
        self,
        *,
        upload_seconds: float = 0.5,
        small_seconds: float = 0.05,
        trouble: Trouble = no_trouble,
        deletes_only_singly: bool = False,
        lists_uploads_by_key_only: bool = False,
        first_byte_seconds: float = 0.05,
        body_seconds: float = 0.2,
    ) -> None:
        super().__init__(trouble)
        self.upload_seconds = upload_seconds
        self.small_seconds = small_seconds
        self.deletes_only_singly = deletes_only_singly
        self.of_versions = VersionRequests()  # what each deletion takes besides
        self.lists_uploads_by_key_only = lists_uploads_by_key_only  # as MinIO does
        self.first_byte_seconds = first_byte_seconds
        self.body_seconds = body_seconds
        self._part_sizes: dict[str, dict[int, int]] = {}
        self.objects: set[str] = set()
        self.sizes: dict[str, int] = {}  # by key
        self.storage_class = "standard"  # of every object
        self.heads: dict[str, bytes] = {}  # how they begin
        self.md5s: dict[str, str] = {}  # where the store says one
        self.reads: list[tuple[str, int, int]] = []  # key, start and stop of every attempt
        self.shared: dict[str, Tagged] = {}  # what hosts write together
        self.written_seconds: dict[str, float] = {}  # when
        self.uploads: dict[str, str] = {}  # id to key
        self.uploaded_sizes: list[int] = []  # of every attempt
        self.bodies: set[int] = set()  # by identity
        self.in_flight_count_max = 0
        self._in_flight_count = 0

    async def put_object(self, bucket: str, key: str, body: bytes) -> str:
        await self._upload("put", body)
        self.objects.add(key)
        self.sizes[key], self.heads[key] = len(body), body[:HEAD_BYTES]
        self.shared[key] = Tagged(body, f"etag-{next(self._ids)}")
        self.written_seconds[key] = asyncio.get_running_loop().time()
        return ""

    async def create_multipart_upload(self, bucket: str, key: str) -> str:
        upload_id = f"id-{next(self._ids)}"
        self._refuse("create")
        self.uploads[upload_id] = key  # before the answer, which may be lost
        await asyncio.sleep(self.small_seconds)
        return upload_id

    async def upload_part(self, bucket: str, key: str, upload_id: str, part_number: int, body: bytes) -> str:
        await self._upload("part", body)
        self._known(upload_id)
        self._part_sizes.setdefault(upload_id, {})[part_number] = len(body)
        if part_number == 1:
            self.heads[key] = body[:HEAD_BYTES]
        return f"etag-{part_number}"

    async def complete_multipart_upload(
        self, bucket: str, key: str, upload_id: str, etags: Sequence[str]
    ) -> None:
        await self._small("complete")
        self._known(upload_id)
        assert list(etags) == [f"etag-{number}" for number in range(1, len(etags) + 1)]
        del self.uploads[upload_id]
        self.objects.add(key)
        self.sizes[key] = sum(self._part_sizes.get(upload_id, {}).values())

    async def read_range(
        self, bucket: str, key: str, start: int, stop: int, *, object_size_bytes: int
    ) -> Reading:
        self.reads.append((key, start, stop))
        with self._in_flight():
            await asyncio.sleep(self.first_byte_seconds)
            self._refuse("read")
            self._there(key, self.objects)
            assert self.sizes[key] == object_size_bytes
            assert 0 <= start < stop <= object_size_bytes
            await asyncio.sleep(self.body_seconds)
        return Reading(first_byte_seconds=self.first_byte_seconds)

    async def look_at(self, bucket: str, key: str, size_bytes: int) -> StoredObject:
        await self._small("look")
        self._there(key, self.objects)
        head, md5 = self.heads.get(key, b"")[:size_bytes], self.md5s.get(key)
        return StoredObject(head, self.sizes[key], self.storage_class, md5)

    async def get_unless(
        self, bucket: str, key: str, etag: str | None, *, size_bytes_max: int
    ) -> Tagged | None:
        await self._small("get_unless")
        self._there(key, self.shared)
        found = self.shared[key]
        return None if found.etag == etag else Tagged(found.body[: size_bytes_max + 1], found.etag)

    async def put_if(self, bucket: str, key: str, body: bytes, etag: str | None) -> str:
        await self._small("put_if")
        there = self.shared[key].etag if key in self.shared else None
        if there != etag:
            raise Changed("it was written meanwhile")
        self.shared[key] = Tagged(body, f"etag-{next(self._ids)}")
        return self.shared[key].etag

    async def list_shared(self, bucket: str, prefix: str) -> list[Listed]:
        await self._small("list_shared")
        seconds = asyncio.get_running_loop().time()
        return [
            Listed(key, one.etag, seconds - self.written_seconds.get(key, seconds))
            for key, one in sorted(self.shared.items())
            if key.startswith(prefix)
        ]

    async def abort_multipart_upload(self, bucket: str, key: str, upload_id: str) -> None:
        await self._small("abort")
        self._known(upload_id)
        del self.uploads[upload_id]

    async def list_multipart_uploads(self, bucket: str, prefix: str) -> list[tuple[str, str]]:
        await self._small("list")
        found = [(key, upload_id) for upload_id, key in self.uploads.items() if key.startswith(prefix)]
        return [(key, id_) for key, id_ in found if key == prefix or not self.lists_uploads_by_key_only]

    async def list_objects(self, bucket: str, prefix: str) -> list[str]:
        await self._small("list")
        return sorted(key for key in self.objects if key.startswith(prefix))

    async def delete_object(self, bucket: str, key: str) -> VersionRequests:
        await self._small("delete")
        self._forget({key})
        return self.of_versions

    async def delete_objects(self, bucket: str, keys: Sequence[str]) -> VersionRequests:
        await self._small("delete_batch")
        if self.deletes_only_singly:
            raise NotOffered("no batches here")
        self._forget(keys)
        return self.of_versions

    def _forget(self, keys: Collection[str]) -> None:
        self.objects -= set(keys)
        for key in keys:
            self.shared.pop(key, None)

    def _known(self, upload_id: str) -> None:
        self._there(upload_id, self.uploads)

    async def _small(self, action: str) -> None:
        await asyncio.sleep(self.small_seconds)
        self._refuse(action)

    async def _upload(self, action: str, body: bytes) -> None:
        self.uploaded_sizes.append(len(body))
        self.bodies.add(id(body))
        with self._in_flight():
            await asyncio.sleep(self.upload_seconds if body else self.small_seconds)
        self._refuse(action)

    @contextlib.contextmanager
    def _in_flight(self) -> Iterator[None]:
        self._in_flight_count += 1
        self.in_flight_count_max = max(self.in_flight_count_max, self._in_flight_count)
        try:
            yield
        finally:
            self._in_flight_count -= 1


class MemoryQueues(Scripted):
    """SQS with one shard, whose every request takes the same time; a receive waits for the first message."""

    def __init__(
        self,
        *,
        send_seconds: float = 0.02,
        receive_seconds: float = 0.02,
        delete_seconds: float = 0.02,
        trouble: Trouble = no_trouble,
    ) -> None:
        super().__init__(trouble)
        self.seconds = {"send": send_seconds, "receive": receive_seconds, "delete": delete_seconds}
        self.attributes: dict[str, dict[str, str]] = {}  # by name of the queue
        self.visible: list[str] = []
        self.in_flight: dict[str, str] = {}  # handle to body
        self.sent_bytes = 0
        self.sent_sizes: set[int] = set()
        self.unreceived_count_max = 0
        self.undeleted_count_max = 0
        self.send_times: list[float] = []
        self.deliver_twice_at: int | None = None  # by the number of receives before
        self._arrival = asyncio.Event()

    async def create_queue(self, name: str, attributes: Mapping[str, str]) -> str:
        self._refuse("create")
        self.attributes[name] = dict(attributes)
        return name

    async def find_queue(self, name: str) -> str:
        self._refuse("find")
        self._known(name)
        return name

    async def list_queues(self, prefix: str) -> list[str]:
        return [name for name in self.attributes if name.startswith(prefix)]

    async def delete_queue(self, url: str) -> None:
        self._refuse("remove")
        self._known(url)
        del self.attributes[url]

    async def queue_attributes(self, url: str) -> dict[str, str]:
        self._refuse("attributes")
        self._known(url)
        return self.attributes[url]

    async def send(self, url: str, bodies: Sequence[str], *, group_ids: Sequence[str] = ()) -> int:
        self.send_times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.seconds["send"])
        self._refuse("send")
        self._known(url)
        self.visible += bodies
        self.sent_bytes += sum(len(body) for body in bodies)
        self.sent_sizes.update(len(body) for body in bodies)
        self.unreceived_count_max = max(self.unreceived_count_max, len(self.visible))
        self._arrival.set()
        return len(bodies)

    async def receive(self, url: str, *, message_count_max: int, wait_seconds: int) -> list[ReceivedMessage]:
        if not self.visible:
            self._arrival.clear()
            try:
                await asyncio.wait_for(self._arrival.wait(), wait_seconds)
            except TimeoutError:
                return []
        await asyncio.sleep(self.seconds["receive"])
        self._refuse("receive")
        self._known(url)
        taken = self.visible[:message_count_max]
        if self.counts["receive"] - 1 != self.deliver_twice_at:
            del self.visible[:message_count_max]
        return [self._handed_out(body) for body in taken]

    async def delete(self, url: str, receipt_handles: Sequence[str]) -> int:
        await asyncio.sleep(self.seconds["delete"])
        self._refuse("delete")
        for handle in receipt_handles:
            del self.in_flight[handle]
        return len(receipt_handles)

    def _handed_out(self, body: str) -> ReceivedMessage:
        handle = f"handle-{next(self._ids)}"
        self.in_flight[handle] = body
        self.undeleted_count_max = max(self.undeleted_count_max, len(self.in_flight))
        return ReceivedMessage(message_id=body[:21], receipt_handle=handle, body=body)

    def _known(self, name: str) -> None:
        self._there(name, self.attributes)
