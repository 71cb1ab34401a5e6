"""Knows how to remove leftovers that the journal lists, and orphans that no journal lists any more."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from penstock.probes.outside import (
    Denied,
    Forbidden,
    MessageQueues,
    Missing,
    ObjectStore,
    RequestError,
    Throttled,
    Unreachable,
)
from penstock.probes.probe import Journal, Leftover, LeftoverKind
from penstock.probes.removal import PATIENCE, Removal
from penstock.probes.sharing import is_used

ORPHAN_AGE_SECONDS = 86_400.0
_RUN_DATE = "%Y%m%dT%H%M%SZ"
# Other programs name backups by such a date, too: the unique part tells ours apart.
_RUN = re.compile(r"(?P<date>[0-9]{8}T[0-9]{6}Z)-[0-9a-f]{32}(-reads-[1-9][0-9]*)?/")
_READS = re.compile(r"-reads-[1-9][0-9]*/$")
_FORBIDDING = frozenset({Denied, Forbidden})  # not a wrong key or clock, which are temporary
_OF_THE_CONTAINER = (Denied, Throttled, Unreachable)  # errors that its other entries would meet as well

T = TypeVar("T")
StoreFor = Callable[[Leftover], Awaitable[ObjectStore]]
QueuesFor = Callable[[Leftover], Awaitable[MessageQueues]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A leftover that could not be removed, and why, as a sentence for the operator."""

    leftover: Leftover
    reason: str
    is_forbidden: bool = False  # the credentials do not allow it: further ones would stay as well


@dataclass(slots=True, kw_only=True)
class SweepSummary:
    """What a sweep removed, what it has to try again, and the requests it took, by operation."""

    removed: list[Leftover] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    request_counts: Counter[str] = field(default_factory=Counter)
    priced_request_counts: Counter[str] = field(default_factory=Counter)  # of these


@dataclass(eq=False)
class Sweep:
    """One round over the leftovers: places in parallel, and the entries of each place one after another.

    Entries that are not settled yet are not struck: a request in flight may still be carried out. `summary` is valid at
    any moment, also if the sweep was cut short.
    """

    journal: Journal
    store_for: StoreFor
    queues_for: QueuesFor
    is_settled: Callable[[Leftover], bool]
    summary: SweepSummary = field(default_factory=SweepSummary)
    _swept: set[str] = field(default_factory=set)

    async def over(self, entries: Iterable[Leftover]) -> None:
        """Remove these; strike what is gone, and keep what could not be removed."""
        places = defaultdict[object, list[Leftover]](list)
        for leftover in entries:
            places[leftover.place].append(leftover)
            self._swept.add(leftover.name)
        await asyncio.gather(*map(self._over_one, places.values()))

    async def over_orphans(self, *, service: str, bucket: str, key_prefix: str, now: datetime) -> None:
        """Remove runs below our prefix that are older than a day and not in this host's journal.

        A run takes minutes, so these are dead, whichever host made them: a host that is gone, or lost its disk, does
        not sweep any more. Objects that hosts read together stay as long as one of them does.
        Raises RequestError if the bucket cannot be listed.
        """
        somewhere = Leftover(kind=LeftoverKind.S3_OBJECT, service=service, container=bucket, name=key_prefix)
        keys = await self._by_removal(somewhere, Removal.keys_below)
        known = {(entry.container, entry.name) for entry in await self.journal.open_entries()}
        runs = {key_prefix + key.removeprefix(key_prefix).partition("/")[0] + "/" for key in keys}
        await self.over(
            replace(somewhere, name=run)
            for run in sorted(runs)
            if (bucket, run) not in known and _is_old_run(run.removeprefix(key_prefix), now)
        )

    async def _over_one(self, entries: list[Leftover]) -> None:
        trouble: RequestError | None = None
        for leftover in entries:
            if not isinstance(trouble, _OF_THE_CONTAINER):
                trouble = await self._trouble_with(leftover)
            if trouble is not None:
                self.summary.kept.append(
                    Kept(leftover=leftover, reason=str(trouble), is_forbidden=type(trouble) in _FORBIDDING)
                )

    async def _trouble_with(self, leftover: Leftover) -> RequestError | None:
        """Remove a leftover; returns why that failed, or None if nothing of it exists any more."""
        try:
            count = await self._removed_count(leftover)
        except RequestError as error:
            return error
        if count:
            self.summary.removed.append(leftover)
        if self.is_settled(leftover):
            await self.journal.strike(leftover)
        return None

    async def _removed_count(self, leftover: Leftover) -> int:
        if leftover.kind is LeftoverKind.SQS_QUEUE:
            self._count(leftover.service, request_count=2, priced_count=2)
            return await _remove_queue(await self.queues_for(leftover), leftover.name)
        if _READS.search(leftover.name) and await self._is_read_by_others(leftover):
            return 0
        return await self._by_removal(leftover, Removal.clear)

    async def _is_read_by_others(self, leftover: Leftover) -> bool:
        self._count(leftover.service, request_count=1, priced_count=1)
        store = await self.store_for(leftover)
        try:
            return await is_used(store, leftover.container, leftover.name, besides=self._swept)
        except Missing:  # the bucket is gone
            return False

    async def _by_removal(self, leftover: Leftover, do: Callable[[Removal, str], Awaitable[T]]) -> T:
        """Use a patient `Removal`, and count its requests even if it fails."""
        removal = Removal(await self.store_for(leftover), leftover.container, patience=PATIENCE)
        try:
            return await do(removal, leftover.name)
        finally:
            self._count(
                leftover.service, request_count=removal.request_count, priced_count=removal.listing_count
            )

    def _count(self, service: str, *, request_count: int, priced_count: int) -> None:
        self.summary.request_counts[service] += request_count
        self.summary.priced_request_counts[service] += priced_count


def run_name(started_at: datetime, *, read_bytes: int | None = None) -> str:
    """The name of a new run, which tells its age, and the size of its object if that is there to be read."""
    reads = "" if read_bytes is None else f"-reads-{read_bytes}"
    return f"{started_at:{_RUN_DATE}}-{uuid.uuid4().hex}{reads}/"


def _is_old_run(name: str, now: datetime) -> bool:
    """Whether `name` was made by `run_name` more than a day ago; all other names are not ours."""
    if (match := _RUN.fullmatch(name)) is None:
        return False
    try:
        started_at = datetime.strptime(match["date"], _RUN_DATE).replace(tzinfo=UTC)
    except ValueError:
        return False
    return now - started_at > timedelta(seconds=ORPHAN_AGE_SECONDS)


async def _remove_queue(queues: MessageQueues, name: str) -> int:
    """Remove the queue of this name; returns how many there were: 0 or 1."""
    try:
        await queues.delete_queue(await queues.find_queue(name))
    except Missing:
        return 0
    return 1
