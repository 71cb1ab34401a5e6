"""Knows the objects that downloads are measured on: puts them once, finds those of other hosts, removes its own.

Such an object lies in a run of its own whose name tells its size. So hosts that share a bucket share the object, and
the sweep for dead hosts' leftovers finds it like any other run. Beside it lie the signs of the hosts that use it. Its
content follows from its size: an object with another size, beginning or checksum is somebody else's and left alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import re
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from penstock.models.prices import RETRIEVAL_CLASSES
from penstock.models.s3.read_objects import READ_OBJECT_PART_BYTES
from penstock.probes.cleaning import clean_up_shielded, struck_when_gone
from penstock.probes.leftovers import run_name
from penstock.probes.outside import RequestError, Throttled, may_be_done, page_count
from penstock.probes.probe import Leftover, LeftoverKind
from penstock.probes.removal import MULTIPART_NAME, Removal
from penstock.probes.s3.payload import incompressible_payload
from penstock.probes.s3.workspace import Workspace
from penstock.probes.sharing import SIGN, SIGNED_SECONDS, is_used
from penstock.units import KiB, MiB, counted, format_bytes, money
from penstock.vocabulary import FREE, Cost, Tariff

HEAD_BYTES = 64 * KiB  # compared to recognise an object
PARTS_AT_A_TIME = 16
CLEAN_UP_SECONDS_MAX = 30.0
CANDIDATE_COUNT_MAX = 2  # existing objects that are looked at
LOOKING_REQUEST_COUNT = 1 + CANDIDATE_COUNT_MAX
_AROUND_REQUEST_COUNT = 8  # to create and complete the upload and write the sign; at worst to remove it again
# Before a throttled request is made again. Putting is not part of the measurement.
_PAUSES_SECONDS = (0.5, 1.0, 2.0)
_RUN = re.compile(rf"[^/]+-reads-(?P<size>[1-9][0-9]*)/{MULTIPART_NAME}")

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadObject:
    """An object to be read."""

    key: str
    size_bytes: int


class ReadObjects:
    """The objects of one bucket to be read, by the size that was wanted."""

    def __init__(self, workspace: Workspace, *, operation: str, bytes_max: int) -> None:
        self._workspace = workspace
        self._bytes_max = bytes_max
        self._operation = operation
        self._known: dict[int, ReadObject] = {}  # by the size that was wanted
        self._own: dict[str, Leftover] = {}  # by key
        self._sign_name = SIGN + uuid.uuid4().hex  # unique to this instance
        self._signs: dict[str, Leftover] = {}  # by run
        self._sign_due_seconds: dict[str, float] = {}  # likewise, on the monotonic clock
        self._room_bytes = bytes_max  # what can be put within a probe's time
        self._tariff = FREE  # of the present plan
        self._refusals_left = 0  # throttled requests that may still be retried while an object is put
        self.used = Cost()  # of putting and looking, since the start

    async def find(
        self, payload_bytes: int, range_bytes: int, cost_max: Cost, tariff: Tariff
    ) -> ReadObject | str:
        """An object as large as the payload, or as large as allowed, and at least as large as a range.

        Puts one if there is none and half of the cost pays for it. Returns a sentence if there can be none. Raises
        RequestError.
        """
        self._tariff = tariff
        found = await self._found(payload_bytes, range_bytes, cost_max, tariff)
        if isinstance(found, ReadObject):
            await self._sign(found)
        return found

    async def _found(
        self, payload_bytes: int, range_bytes: int, cost_max: Cost, tariff: Tariff
    ) -> ReadObject | str:
        wanted = min(payload_bytes, self._bytes_max)
        known = self._known.get(wanted)
        if known is not None and known.size_bytes >= range_bytes:
            return known
        if cost_max.request_count < LOOKING_REQUEST_COUNT:
            most = f"{cost_max.request_count} requests, too few"
            return f"the plan allows {most} to list what could be read: raise the budget of a probe"
        if cost_max.usd < tariff.usd(write_request_count=1, read_request_count=CANDIDATE_COUNT_MAX):
            most = f"{money(cost_max.usd)}, too little"
            return f"the plan allows {most} to list what could be read: raise the budget of a probe"
        found = await self._look(wanted, range_bytes)
        paid, in_time = _room_bytes(wanted, cost_max, tariff), max(self._room_bytes, min(wanted, MiB))
        room = min(paid, in_time)
        if found is None and in_time < range_bytes <= paid:
            return (
                f"nothing in {self._workspace.bucket} is large enough to read, and no object with a range of "
                f"{format_bytes(range_bytes)} can be uploaded within {cost_max.duration_seconds:g} s: allow more time "
                "(duration_seconds_max), or name an object (object_key)"
            )
        if found is None and room < range_bytes:
            return (
                f"nothing in {self._workspace.bucket} is large enough to read, and half of the plan's "
                f"{format_bytes(cost_max.transferred_bytes)}, {counted(cost_max.request_count, 'request')} and "
                f"{money(cost_max.usd)} is too little to upload a range of {format_bytes(range_bytes)}: "
                "raise the budget, or name an object"
            )
        if found is None or (found.size_bytes < room and room >= range_bytes):
            found = await self._put(room, cost_max.duration_seconds)
        self._known[wanted] = found
        return found

    def forget(self, key: str) -> None:
        """Forget an object that is gone, or has changed."""
        self._known = {wanted: known for wanted, known in self._known.items() if known.key != key}

    async def remove(self) -> None:
        """Stop using all of them, and remove those that no other host uses, whichever host put them."""
        self._known.clear()
        runs = {_run_of(key) for key in self._own} | self._signs.keys()
        for run in sorted(runs):
            await clean_up_shielded(self._leave(run), seconds_max=CLEAN_UP_SECONDS_MAX)

    async def _sign(self, found: ReadObject) -> None:
        """Write or renew the sign that this host uses the object; a host that may not write reads it without one."""
        run, now_seconds = _run_of(found.key), self._workspace.clock.monotonic_seconds()
        if now_seconds < self._sign_due_seconds.get(run, -math.inf):
            return
        self._sign_due_seconds[run] = now_seconds + SIGNED_SECONDS
        self._signs[run] = sign = self._leftover(run + self._sign_name)
        await self._workspace.journal.record(sign)
        self._spend(write_request_count=1)
        try:
            await self._workspace.store.put_object(self._workspace.bucket, sign.name, b"")
        except RequestError as trouble:
            _log.info("other hosts cannot be told that %s is read here: %s", found.key, trouble)
            if not may_be_done(trouble):
                del self._signs[run]
                await self._workspace.journal.strike(sign)

    async def _leave(self, run: str) -> None:
        """Remove this host's sign, and the object if that was the last sign."""
        key = run + MULTIPART_NAME
        if (sign := self._signs.pop(run, None)) is not None:
            removal = Removal(self._workspace.store, self._workspace.bucket)
            await struck_when_gone(self._workspace.journal, sign, removal.delete([sign.name]))
            self._spend(free_request_count=removal.request_count)
        if key not in self._own:
            self._own[key] = self._leftover(run)
            await self._workspace.journal.record(self._own[key])
        await self._remove(key)

    def _leftover(self, name: str) -> Leftover:
        return Leftover(
            kind=LeftoverKind.S3_OBJECT,
            service=self._operation,
            container=self._workspace.bucket,
            name=name,
        )

    async def _look(self, wanted: int, least: int) -> ReadObject | None:
        """The largest genuine object in the bucket of at least `least` and at most `wanted` bytes; None without any."""
        self._spend(write_request_count=1)
        keys = await self._workspace.store.list_objects(self._workspace.bucket, self._workspace.key_prefix)
        self._spend(write_request_count=page_count(len(keys)) - 1)
        matches = ((key, _RUN.fullmatch(key.removeprefix(self._workspace.key_prefix))) for key in keys)
        sized = ((int(match["size"]), key) for key, match in matches if match)
        fitting = sorted(((size, key) for size, key in sized if least <= size <= wanted), reverse=True)
        for size, key in fitting[:CANDIDATE_COUNT_MAX]:
            if await self._is_genuine(key, size):
                return ReadObject(key, size)
        return None

    async def _is_genuine(self, key: str, size: int) -> bool:
        self._spend(read_request_count=1)
        head_bytes = min(HEAD_BYTES, size)
        try:
            found = await self._workspace.store.look_at(self._workspace.bucket, key, head_bytes)
        except RequestError as trouble:  # another host has just removed it, or this one may not read it
            _log.info("%s cannot be read: %s", key, trouble)
            return False
        begins_as_named = (found.size_bytes, found.head) == (size, _body(size)[:head_bytes])
        is_as_named = begins_as_named and (found.md5 is None or found.md5 == read_object_md5(size))
        return is_as_named and found.storage_class not in RETRIEVAL_CLASSES

    async def _put(self, size: int, seconds_max: float) -> ReadObject:
        run = self._workspace.key_prefix + run_name(self._workspace.clock.now(), read_bytes=size)
        key = run + MULTIPART_NAME
        self._own[key] = self._leftover(run)
        await self._workspace.journal.record(self._own[key])
        before, is_put = self.used.transferred_bytes, False
        try:
            async with asyncio.timeout(seconds_max):
                await self._send(key, size)
            is_put = True
        except TimeoutError:
            self._room_bytes = (self.used.transferred_bytes - before) // 4
            raise RequestError(
                f"{format_bytes(size)} to read could not be uploaded within {seconds_max:g} s; the next "
                "probe uploads less"
            ) from None
        finally:
            if not is_put:  # requests may still be in flight
                await clean_up_shielded(self._remove(key, is_certain=False), seconds_max=CLEAN_UP_SECONDS_MAX)
        return ReadObject(key, size)

    async def _send(self, key: str, size: int) -> None:
        """Put the object whole, or in parts, a few at a time."""
        store, bucket, body = self._workspace.store, self._workspace.bucket, _body(size)
        part_count = math.ceil(size / len(body))
        self._refusals_left = part_count  # half of the plan is for putting: the other half pays for retries
        if size <= len(body):
            await self._written(lambda: store.put_object(bucket, key, body), sent_bytes=size)
            return
        upload_id = await self._written(lambda: store.create_multipart_upload(bucket, key))
        etags: dict[int, str] = {}
        numbers = iter(range(1, part_count + 1))

        async def send_some() -> None:
            for number in numbers:
                part = body if number < part_count else body[: size - (part_count - 1) * len(body)]
                send = partial(store.upload_part, bucket, key, upload_id, number, part)
                etags[number] = await self._written(send, sent_bytes=len(part))

        async def send_all() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(PARTS_AT_A_TIME):
                    group.create_task(send_some())

        trouble: BaseException | None = None
        try:
            await asyncio.create_task(send_all())  # its own task, as in `MeasurementApplication.drive`
        except* RequestError as troubles:
            trouble = troubles.exceptions[0]  # raised below: in Python 3.11.2 it would become a group here
        if trouble is not None:
            raise trouble
        named = [etags[number] for number in sorted(etags)]
        await self._written(lambda: store.complete_multipart_upload(bucket, key, upload_id, named))

    async def _written(self, request: Callable[[], Awaitable[T]], *, sent_bytes: int = 0) -> T:
        """Make a request, and again after growing pauses while it is throttled; returns its answer."""
        for pause_seconds in _PAUSES_SECONDS:
            self._spend(write_request_count=1, sent_bytes=sent_bytes)
            try:
                return await request()
            except Throttled:
                if not self._refusals_left:
                    raise
                self._refusals_left -= 1
                await asyncio.sleep(pause_seconds)
        self._spend(write_request_count=1, sent_bytes=sent_bytes)
        return await request()

    async def _remove(self, key: str, *, is_certain: bool = True) -> None:
        leftover, removal = self._own.pop(key), Removal(self._workspace.store, self._workspace.bucket)
        clearing = self._cleared(leftover.name, removal)
        try:
            await struck_when_gone(
                self._workspace.journal, leftover, clearing, may_arrive_later=lambda: not is_certain
            )
        finally:
            deletions = removal.request_count - removal.listing_count
            self._spend(write_request_count=removal.listing_count, free_request_count=deletions)

    async def _cleared(self, run: str, removal: Removal) -> None:
        """Remove the run unless another host reads its object. Raises RequestError."""
        self._spend(write_request_count=1)
        if not await is_used(self._workspace.store, self._workspace.bucket, run, besides=()):
            await removal.clear(run)

    def _spend(self, **amounts: int) -> None:
        self.used += self._tariff.cost(**amounts)


def _room_bytes(wanted: int, cost_max: Cost, tariff: Tariff) -> int:
    """The bytes that half of what is not spent around them pays for: all that are wanted, or else a power of two."""
    part_count = float((cost_max.request_count - LOOKING_REQUEST_COUNT - _AROUND_REQUEST_COUNT) // 2)
    part_bytes = min(wanted, READ_OBJECT_PART_BYTES)
    around_usd = tariff.usd(
        write_request_count=1 + _AROUND_REQUEST_COUNT, read_request_count=CANDIDATE_COUNT_MAX
    )
    usd = (cost_max.usd - around_usd) / 2
    request_usd, part_usd = (tariff.usd(write_request_count=1, sent_bytes=sent) for sent in (0, part_bytes))
    if part_usd > 0:
        # A piece of a part takes a whole request.
        piece = (usd - request_usd) / (part_usd - request_usd or 1.0)
        part_count = min(part_count, usd // part_usd if usd >= part_usd else piece)
    affordable = min(cost_max.transferred_bytes // 2, int(max(part_count, 0.0) * part_bytes))
    if wanted <= affordable:
        return wanted
    return int(2 ** math.floor(math.log2(affordable))) if affordable >= 1 else 0


def _run_of(key: str) -> str:
    return key.removesuffix(MULTIPART_NAME)


def _body(size: int) -> bytes:
    """The bytes that such an object repeats: the same on every host."""
    return incompressible_payload(min(size, READ_OBJECT_PART_BYTES), seed=size)


def read_object_md5(size: int) -> str:
    """The ETag that S3 gives an object of this size: its MD5, or for parts, the MD5 of their MD5s, and their count."""
    body = _body(size)
    whole_count, rest_bytes = divmod(size, len(body))
    digests = [_digest(body)] * whole_count + [_digest(body[:rest_bytes])] * (rest_bytes > 0)
    return digests[0].hex() if len(digests) == 1 else f"{_digest(b''.join(digests)).hex()}-{len(digests)}"


def _digest(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
