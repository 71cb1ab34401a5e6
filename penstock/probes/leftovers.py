"""Knows how to remove what a killed process left outside, by the journal, and what no journal lists any more."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.probes.outside import MessageQueues, Missing, ObjectStore, RequestError
from penstock.probes.probe import Journal, Leftover, LeftoverKind

ORPHAN_AGE_SECONDS = 86_400.0
_RUN_DATE = "%Y%m%dT%H%M%SZ"

StoreFor = Callable[[Leftover], Awaitable[ObjectStore]]
QueuesFor = Callable[[Leftover], Awaitable[MessageQueues]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A leftover that could not be removed, and why, as a sentence for the operator."""

    leftover: Leftover
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """What a sweep removed, and what it has to try again."""

    removed: tuple[Leftover, ...]
    kept: tuple[Kept, ...]


async def sweep(journal: Journal, store_for: StoreFor, queues_for: QueuesFor) -> SweepSummary:
    """Remove all that the journal still lists; strike what is gone, keep what could not be reached."""
    removed: list[Leftover] = []
    kept: list[Kept] = []
    for leftover in await journal.open_entries():
        try:
            await remove(leftover, store_for, queues_for)
        except RequestError as error:
            kept.append(Kept(leftover=leftover, reason=str(error)))
        else:
            await journal.strike(leftover)
            removed.append(leftover)
    return SweepSummary(removed=tuple(removed), kept=tuple(kept))


async def remove(leftover: Leftover, store_for: StoreFor, queues_for: QueuesFor) -> None:
    """Remove one thing; it is no trouble when it is gone already. Raises RequestError."""
    if leftover.kind is LeftoverKind.SQS_QUEUE:
        await _remove_queue(await queues_for(leftover), leftover.name)
    else:
        await _remove_objects(await store_for(leftover), leftover.container, leftover.name)


async def sweep_orphans(
    journal: Journal, store: ObjectStore, *, service: str, bucket: str, key_prefix: str, now: datetime
) -> SweepSummary:
    """Remove runs of uploads below our prefix that are older than a day and in no journal of this host.

    A run takes minutes, so that these are dead, whichever host made them: one that was ended for good, or whose disk
    was lost, sweeps no more. Raises RequestError when the bucket cannot be looked into.
    """
    keys = await store.list_objects(bucket, key_prefix)
    keys += [key for key, _ in await store.list_multipart_uploads(bucket, key_prefix)]
    known = {(entry.container, entry.name) for entry in await journal.open_entries()}
    runs = {key_prefix + key.removeprefix(key_prefix).partition("/")[0] + "/" for key in keys}
    removed: list[Leftover] = []
    kept: list[Kept] = []
    for run in sorted(runs):
        if (bucket, run) in known or not _is_old_run(run.removeprefix(key_prefix), now):
            continue
        orphan = Leftover(kind=LeftoverKind.S3_OBJECT, service=service, container=bucket, name=run)
        try:
            await _remove_objects(store, bucket, run)
        except RequestError as error:
            kept.append(Kept(leftover=orphan, reason=str(error)))
        else:
            removed.append(orphan)
    return SweepSummary(removed=tuple(removed), kept=tuple(kept))


def run_name(started_at: datetime, unique: str) -> str:
    """How a run is named outside: its age can be told from the name alone."""
    return f"{started_at:{_RUN_DATE}}-{unique}/"


def _is_old_run(name: str, now: datetime) -> bool:
    """Whether `name` was made by `run_name` more than a day ago; anything else is not ours."""
    date, _, _ = name.partition("-")
    try:
        started_at = datetime.strptime(date, _RUN_DATE).replace(tzinfo=UTC)
    except ValueError:
        return False
    return now - started_at > timedelta(seconds=ORPHAN_AGE_SECONDS)


async def _remove_queue(queues: MessageQueues, name: str) -> None:
    with contextlib.suppress(Missing):
        await queues.delete_queue(await queues.find_queue(name))


async def _remove_objects(store: ObjectStore, bucket: str, name: str) -> None:
    """The key and its unfinished uploads; all below it when the name ends in a slash."""
    with contextlib.suppress(Missing):  # the bucket is gone, and everything with it
        for key, upload_id in await store.list_multipart_uploads(bucket, name):
            if _belongs(key, name):
                with contextlib.suppress(Missing):  # another host was faster
                    await store.abort_multipart_upload(bucket, key, upload_id)
        for key in await store.list_objects(bucket, name):
            if _belongs(key, name):
                await store.delete_object(bucket, key)


def _belongs(key: str, name: str) -> bool:
    return key.startswith(name) if name.endswith("/") else key == name
