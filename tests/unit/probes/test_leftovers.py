"""What a killed process left outside is removed by the next start."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta

import pytest

from penstock.probes import leftovers
from penstock.probes.leftovers import Sweep, SweepSummary, run_name
from penstock.probes.outside import (
    LISTED_COUNT_IN_PAGE,
    Denied,
    MessageQueues,
    Missing,
    ObjectStore,
    Throttled,
    Unreachable,
)
from penstock.probes.probe import Leftover, LeftoverKind
from tests.unit.probes.fakes import START_AT, MemoryJournal, MemoryQueues, MemoryStore

RUN = "penstock/20260101T000000Z-a/"


def an_object(name: str = RUN) -> Leftover:
    """Below the prefix of one run, unless told otherwise."""
    return Leftover(kind=LeftoverKind.S3_OBJECT, service="s3_upload", container="bucket", name=name)


def a_queue(name: str) -> Leftover:
    """A queue of the probe's region."""
    return Leftover(kind=LeftoverKind.SQS_QUEUE, service="sqs_delivery", container="eu-west-1", name=name)


class World:
    """Everything a sweep touches."""

    def __init__(self) -> None:
        self.store = MemoryStore(small_seconds=0.0)
        self.queues = MemoryQueues()
        self.journal = MemoryJournal()
        self.is_settled = True

    async def store_for(self, _: Leftover) -> ObjectStore:
        return self.store

    async def queues_for(self, _: Leftover) -> MessageQueues:
        return self.queues

    def new_sweep(self) -> Sweep:
        return Sweep(self.journal, self.store_for, self.queues_for, lambda _: self.is_settled)

    async def sweep(self) -> SweepSummary:
        """All that the journal lists."""
        sweep = self.new_sweep()
        await sweep.over(self.journal.entries[:])
        return sweep.summary


async def test_sweep_removes_what_is_listed_and_nothing_else() -> None:
    """Objects, unfinished uploads and queues of the journal go; their neighbours stay."""
    world = World()
    world.journal.entries = [an_object(), a_queue("mine")]
    world.store.objects = {f"{RUN}0000", f"{RUN}object", "penstock/20260101T000000Z-ab/object", "other"}
    world.store.uploads = {"1": f"{RUN}object", "2": "penstock/20260101T000000Z-b/object"}
    world.queues.attributes = {"mine": {}, "mine-too": {}}
    summary = await world.sweep()
    assert world.store.objects == {"penstock/20260101T000000Z-ab/object", "other"}
    assert list(world.store.uploads) == ["2"]
    assert list(world.queues.attributes) == ["mine-too"]
    assert (len(summary.removed), summary.kept, world.journal.entries) == (2, [], [])


async def test_a_key_is_no_prefix() -> None:
    """An entry that names one key removes that key alone."""
    world = World()
    world.journal.entries = [an_object("a/b")]
    world.store.objects = {"a/b", "a/bc"}
    await world.sweep()
    assert world.store.objects == {"a/bc"}


async def test_an_upload_is_found_by_its_own_key() -> None:
    """Some stores list unfinished uploads of exactly the key that is asked for, and of no prefix."""
    world = World()
    world.store.lists_uploads_by_key_only = True
    world.journal.entries = [an_object()]
    world.store.uploads = {"1": f"{RUN}object", "2": "penstock/20260101T000000Z-b/object"}
    await world.sweep()
    assert list(world.store.uploads) == ["2"]


async def test_what_cannot_be_reached_is_kept_with_its_reason() -> None:
    """One unreachable thing neither is struck nor stops the sweep of the others."""
    world = World()
    world.store.trouble = lambda _action, _count: Unreachable("no route to the bucket")
    world.journal.entries = [an_object(), a_queue("mine")]
    world.queues.attributes = {"mine": {}}
    summary = await world.sweep()
    assert world.journal.entries == [an_object()]
    assert [(kept.leftover, kept.reason) for kept in summary.kept] == [
        (an_object(), "no route to the bucket")
    ]
    assert world.queues.attributes == {}


async def test_what_is_gone_already_is_struck() -> None:
    """Sweeping twice is no trouble."""
    world = World()
    world.journal.entries = [an_object(), a_queue("gone")]
    summary = await world.sweep()
    assert (summary.removed, world.journal.entries) == ([], [])


async def test_what_may_still_arrive_is_looked_at_again() -> None:
    """A request that was on its way when a process was killed may be carried out after the first sweep."""
    world = World()
    world.journal.entries = [an_object()]
    world.is_settled = False
    await world.sweep()
    world.store.objects = {f"{RUN}0001"}
    assert len((await world.sweep()).removed) == 1
    assert world.journal.entries == [an_object()]
    world.is_settled = True
    await world.sweep()
    assert (world.journal.entries, world.store.objects) == ([], set())


async def test_a_container_out_of_reach_costs_one_try() -> None:
    """However many runs were left in a bucket that does not answer, a sweep waits for it once."""
    world = World()
    world.store.trouble = lambda _action, _count: Unreachable("no answer")
    world.journal.entries = [an_object(f"penstock/{number}/") for number in range(50)]
    summary = await world.sweep()
    assert world.store.request_count == 2  # uploads and objects of the first, side by side
    assert {kept.reason for kept in summary.kept} == {"no answer"}
    assert len(summary.kept) == len(world.journal.entries) == 50


async def test_a_store_that_takes_few_requests_is_swept_by_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred a second and none at once: what it wanted later is asked again, one after another."""
    monkeypatch.setattr(leftovers, "PATIENCE", (0.02, 0.2))
    world, loop, taken_at = World(), asyncio.get_running_loop(), [-math.inf]

    def few(_action: str, _count: int) -> Throttled | None:
        if loop.time() - taken_at[0] < 0.01:
            return Throttled("fewer, please")
        taken_at[0] = loop.time()
        return None

    world.store.trouble, world.store.deletes_only_singly = few, True
    world.journal.entries = [an_object()]
    world.store.objects = {f"{RUN}{number:04}" for number in range(20)}
    world.store.uploads = {"1": f"{RUN}object"}
    assert (await world.sweep()).kept == []
    assert (world.store.objects, world.store.uploads, world.journal.entries) == (set(), {}, [])


async def test_a_store_that_takes_no_request_is_asked_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one request, and for one thing; the rest has to wait for another sweep."""
    monkeypatch.setattr(leftovers, "PATIENCE", (0.01, 0.02))
    world = World()
    world.store.trouble = lambda _action, _count: Throttled("none, please")
    world.journal.entries = [an_object(f"penstock/{number}/") for number in range(50)]
    summary = await world.sweep()
    assert {kept.reason for kept in summary.kept} == {"none, please"}
    assert world.store.request_count == summary.request_counts["s3_upload"] == 2 + 2


async def test_a_sweep_counts_its_requests() -> None:
    """Listings cost money, deletions do not."""
    world = World()
    world.journal.entries = [an_object(), a_queue("mine")]
    world.store.objects = {f"{RUN}0000", f"{RUN}0001"}
    summary = await world.sweep()
    assert summary.request_counts == {"s3_upload": 4, "sqs_delivery": 2}, "two of them delete"
    assert summary.priced_request_counts == {"s3_upload": 2, "sqs_delivery": 2}


async def test_sweep_that_is_cut_short_goes_on_next_time() -> None:
    """An entry is struck only after the removal, so that a kill in between forgets nothing."""
    world = World()
    world.store.small_seconds = 1.0
    world.journal.entries = [an_object()]
    world.store.objects = {f"{RUN}object"}
    sweeping = asyncio.create_task(world.sweep())
    await asyncio.sleep(0)
    sweeping.cancel()
    await asyncio.wait({sweeping})
    assert world.journal.entries == [an_object()]


async def sweep_orphans_of(world: World) -> SweepSummary:
    """Below the prefix that probes write to."""
    sweep = world.new_sweep()
    await sweep.over_orphans(service="s3_upload", bucket="bucket", key_prefix="penstock/", now=START_AT)
    return sweep.summary


async def test_orphans_are_old_ours_and_unknown() -> None:
    """Only runs that began more than a day ago and that no journal lists are removed; a user's objects never are."""
    world = World()
    old, young, known = (run_name(START_AT - timedelta(hours=h)) for h in (30, 3, 40))
    world.journal.entries = [an_object(f"penstock/{known}")]
    backup = "penstock/20240101T000000Z-nightly/dump"
    others = {f"penstock/{young}0001", "penstock/readme", "penstock/a-b/c", backup}
    world.store.objects = {f"penstock/{old}0001", *others}
    world.store.uploads = {"1": f"penstock/{known}object", "2": f"penstock/{old}object"}
    summary = await sweep_orphans_of(world)
    assert summary.removed == [an_object(f"penstock/{old}")]
    assert world.store.objects == others
    assert world.store.uploads == {"1": f"penstock/{known}object"}


async def test_each_page_of_a_listing_is_counted() -> None:
    """Each is a request that is paid for, and others may have put thousands of keys there."""
    world = World()
    world.store.objects = {f"penstock/not-ours-{number}" for number in range(2 * LISTED_COUNT_IN_PAGE + 1)}
    summary = await sweep_orphans_of(world)
    assert summary.priced_request_counts["s3_upload"] == 1 + 3  # of uploads, and of objects


async def test_orphans_are_looked_for_with_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store that wants the first request of each kind later; the next look is a day away."""
    monkeypatch.setattr(leftovers, "PATIENCE", (0.01, 0.02))
    world = World()
    old = f"penstock/{run_name(START_AT - timedelta(hours=30))}"
    world.store.objects = {f"{old}0001"}
    world.store.trouble = lambda _action, count: None if count else Throttled("later, please")
    summary = await sweep_orphans_of(world)
    assert summary.removed == [an_object(old)]
    assert summary.request_counts["s3_upload"] == world.store.request_count


async def test_an_orphan_that_another_host_removes_meanwhile_is_no_trouble() -> None:
    """Hosts of a fleet that start together find the same orphans."""
    world = World()
    old = f"penstock/{run_name(START_AT - timedelta(hours=30))}"
    world.store.objects = {f"{old}0001"}
    world.store.uploads = {"1": f"{old}object"}
    world.store.trouble = lambda action, _: Missing("gone") if action == "abort" else None
    assert (await sweep_orphans_of(world)).removed == [an_object(old)]
    assert world.store.objects == set()


async def test_an_orphan_that_cannot_be_removed_is_told() -> None:
    """The next start tries again; until then the operator knows."""
    world = World()
    old = f"penstock/{run_name(START_AT - timedelta(hours=30))}"
    world.store.objects = {f"{old}0001"}
    world.store.trouble = lambda action, _: Denied("no DeleteObject") if action == "delete" else None
    summary = await sweep_orphans_of(world)
    assert [kept.reason for kept in summary.kept] == ["no DeleteObject"]


@pytest.mark.parametrize("is_read", [True, False])
async def test_what_others_read_outlives_who_put_it_and_was_killed(*, is_read: bool) -> None:
    """Its own sign is no sign of others; the entries of both are struck, whether the object stays or goes."""
    world, run = World(), f"penstock/{run_name(START_AT, read_bytes=8)}"
    own, others = f"{run}used-by-me", f"{run}used-by-others"
    for key in (f"{run}object", own, *([others] if is_read else [])):
        await world.store.put_object("bucket", key, b"12345678")
    world.journal.entries = [an_object(run), an_object(own)]
    await world.sweep()
    assert world.store.objects == ({f"{run}object", others} if is_read else set())
    assert world.journal.entries == []
