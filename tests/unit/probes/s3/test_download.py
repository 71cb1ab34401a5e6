"""The download probe measures what it says, pays no more than it may, writes once or never, and leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.lab.virtual_time import VirtualClock
from penstock.models import prices
from penstock.models.prices import NetworkPath
from penstock.models.s3.download import S3DownloadSetting
from penstock.models.s3.read_objects import cost_of_putting
from penstock.operations.s3.download import DOWNLOAD
from penstock.optimizer.choice import from_tables
from penstock.probes.outside import (
    LISTED_COUNT_IN_PAGE,
    Denied,
    Missing,
    RequestError,
    Throttled,
    Unreachable,
)
from penstock.probes.s3.download import S3DownloadProbe
from penstock.probes.s3.workspace import KEY_PREFIX, Workspace
from penstock.probes.sharing import UNUSED_SECONDS
from penstock.units import KiB, MiB
from penstock.vocabulary import Inconclusive, Observation, Outcome, ProbePlan
from tests.factories import S3_TARIFF
from tests.unit.probes.fakes import AMPLE, MemoryJournal, MemoryStore, a_download_plan, reason_of, virtually

Plan = ProbePlan[S3DownloadSetting]
WRITES = ("put", "create", "part", "complete", "abort", "delete", "delete_batch")


def a_probe(
    store: MemoryStore, clock: VirtualClock, journal: MemoryJournal | None = None, *, object_key: str = ""
) -> S3DownloadProbe:
    """On a bucket of its own."""
    return S3DownloadProbe(
        Workspace(store, clock, journal or MemoryJournal(), "b", loop_tick_seconds=0.1), object_key=object_key
    )


def outcomes_of(
    plans: Sequence[Plan], store: MemoryStore, journal: MemoryJournal | None = None, *, object_key: str = ""
) -> list[Outcome[S3DownloadSetting]]:
    """One probe after another, in virtual time, by one process that lives on."""

    async def story(clock: VirtualClock) -> list[Outcome[S3DownloadSetting]]:
        probe = a_probe(store, clock, journal, object_key=object_key)
        return [await probe.run(plan) for plan in plans]

    return virtually(story)


def observed(plan: Plan, store: MemoryStore, *, object_key: str = "") -> Observation[S3DownloadSetting]:
    """Run one probe that must measure."""
    (outcome,) = outcomes_of([plan], store, object_key=object_key)
    assert isinstance(outcome, Observation), outcome
    return outcome


def named(size: int = 64 * MiB, **times: float) -> MemoryStore:
    """A store with an object that an operator may name."""
    store = MemoryStore(**times)  # type: ignore[arg-type]  # only times are given
    store.objects.add("theirs")
    store.sizes["theirs"] = size
    return store


# --- What is measured ---


def test_a_whole_object_is_read_in_ranges() -> None:
    """An object that the plan pays for is read whole, the last range being what remains."""
    store = named(20 * MiB)
    observation = observed(a_download_plan(size=20 * MiB, threads=2), store, object_key="theirs")
    assert sorted(stop - start for _, start, stop in store.reads) == [4 * MiB, 8 * MiB, 8 * MiB]
    assert observation.transferred_bytes == 20 * MiB
    assert observation.measures["range_count"] == observation.measures["object_range_count"] == 3


def test_the_first_byte_is_told_from_the_body() -> None:
    """What passed before the answer began is measured by itself, and is part of the time of a range."""
    store = named(first_byte_seconds=0.05, body_seconds=0.2)
    measures = observed(a_download_plan(), store, object_key="theirs").measures
    assert measures["first_byte_seconds_mean"] == pytest.approx(0.05)
    assert measures["first_byte_seconds_p99"] == pytest.approx(0.05)
    assert measures["range_seconds_mean"] == pytest.approx(0.25)


def test_steady_throughput_knows_no_ramp_and_no_last_wave() -> None:
    """With every range taking as long, the steady throughput is exactly threads x size / time."""
    observation = observed(a_download_plan(size=7 * 8 * MiB, threads=3), named(), object_key="theirs")
    expected = 3 * 8 * MiB / 0.25
    assert observation.measures["steady_throughput_bytes_per_second"] == pytest.approx(expected)
    assert observation.throughput_bytes_per_second < expected


def test_small_objects_are_read_whole_and_side_by_side() -> None:
    """A range at or above the payload is a GET of all of it, and then threads read objects."""
    store = MemoryStore()
    observation = observed(a_download_plan(size=64 * KiB, threads=16), store)
    assert {(start, stop) for _, start, stop in store.reads} == {(0, 64 * KiB)}
    assert store.in_flight_count_max == observation.measures["connection_count"] == 16
    assert observation.measures["range_count"] == 128


def test_only_a_share_of_a_large_object_is_read() -> None:
    """Of a large object no more is read than the plan pays for."""
    cost_max = replace(AMPLE, transferred_bytes=100 * MiB)
    plan = a_download_plan(size=1024 * MiB, cost_max=cost_max)
    observation = observed(plan, named(1024 * MiB), object_key="theirs")
    assert observation.measures["range_count"] == 12
    assert observation.measures["attempted_bytes"] == observation.transferred_bytes == 96 * MiB


def test_more_than_a_steady_state_needs_is_not_read() -> None:
    """An ample budget is no reason to spend it."""
    observation = observed(a_download_plan(size=8192 * MiB), named(8192 * MiB), object_key="theirs")
    assert observation.measures["range_count"] == 32


def test_each_run_goes_on_where_the_last_one_ended() -> None:
    """What was read before is read again as late as can be, and the observation says how much of it was."""
    store = named(64 * MiB)
    plan = a_download_plan(size=64 * MiB, threads=1, cost_max=replace(AMPLE, transferred_bytes=48 * MiB))
    outcomes = outcomes_of([plan] * 3, store, object_key="theirs")
    fractions = [o.measures["read_before_fraction"] for o in outcomes if isinstance(o, Observation)]
    assert fractions == pytest.approx([0.0, 4 / 6, 1.0])
    starts = [start // (8 * MiB) for _, start, _ in store.reads]
    assert starts[:8] == list(range(8))


def test_refusals_are_counted_and_read_again() -> None:
    """A throttled range costs a pause and an attempt; it comes all the same."""
    store = named()
    store.trouble = lambda action, count: Throttled("slow") if (action, count) == ("read", 2) else None
    observation = observed(a_download_plan(), store, object_key="theirs")
    assert (observation.throttled_count, observation.transferred_bytes) == (1, 64 * MiB)
    assert observation.measures["attempted_bytes"] == 72 * MiB


def test_what_may_not_be_read_ends_at_once() -> None:
    """Nobody asks a thousand times for what is denied."""
    store = named()
    store.trouble = lambda action, _: Denied("no") if action == "read" else None
    (outcome,) = outcomes_of([a_download_plan(threads=2)], store, object_key="theirs")
    assert "no" in reason_of(outcome)
    assert len(store.reads) <= 2


# --- What is read ---


async def test_a_named_object_is_only_read(clock: VirtualClock) -> None:
    """With an object of the operator's no request is made that writes or lists, and nothing is journalled."""
    store, journal = named(), MemoryJournal()

    probe = a_probe(store, clock, journal, object_key="theirs")
    for threads in (1, 4):
        assert isinstance(await probe.run(a_download_plan(threads=threads)), Observation)
    await probe.close()
    assert set(store.counts) == {"look", "read"}
    assert store.counts["look"] == 1
    assert journal.log == []
    assert store.objects == {"theirs"}


@pytest.mark.parametrize("storage_class", ["standard-ia", "onezone-ia", "glacier-ir"])
async def test_classes_that_charge_for_reading_are_read_only_on_purpose(
    clock: VirtualClock, storage_class: str
) -> None:
    """Looking at such an object is paid for, and no more of it is read until the operator names its class."""
    store = named()
    store.storage_class = storage_class
    probe = a_probe(store, clock, object_key="theirs")
    refused = await probe.run(a_download_plan())
    assert probe.used.usd == S3_TARIFF.usd(read_request_count=1)
    assert "probes.s3_download.object_storage_class" in reason_of(refused)
    assert not store.reads
    insisting = S3DownloadProbe(
        Workspace(store, clock, MemoryJournal(), "b"), object_key="theirs", object_storage_class=storage_class
    )
    assert isinstance(await insisting.run(a_download_plan()), Observation)


def test_an_object_that_moved_to_such_a_class_is_not_read_again() -> None:
    """A bucket's lifecycle may move what other hosts put: then another one is put."""
    store = MemoryStore()
    outcomes_of([a_download_plan()], store)
    before = {key for key, _, _ in store.reads}
    store.storage_class = "standard-ia"
    store.reads.clear()
    observed(a_download_plan(), store)
    assert len({key for key, _, _ in store.reads} - before) == 1
    assert before.isdisjoint(key for key, _, _ in store.reads)


def test_a_named_object_that_is_too_small_is_said_to_be() -> None:
    """A range that does not fit into it cannot be measured on it."""
    (outcome,) = outcomes_of([a_download_plan(range_size=8 * MiB)], named(4 * MiB), object_key="theirs")
    assert "name a larger object" in reason_of(outcome)


@pytest.mark.parametrize("path", [NetworkPath.NAT_GATEWAY, NetworkPath.OUTSIDE])
@pytest.mark.parametrize("size", [64 * KiB, 5 * MiB, 8 * MiB])
def test_what_a_plan_allows_pays_for_something_to_read(path: NetworkPath, size: int) -> None:
    """Objects of less than a part are paid for as they are, and where it is dear to send, less is put."""
    plan, model = a_download_plan(size=size, threads=1, range_size=min(size, MiB)), DOWNLOAD.model
    tariff = prices.tariff("s3", "standard", path, home="eu-central-1", region="eu-central-1")
    tables = from_tables(model, plan.context.place)
    (cost_max,) = model.probe_costs(tables, plan.context, [plan.setting], tariff)
    cost_max += cost_of_putting(size, tariff)
    (outcome,) = outcomes_of([replace(plan, cost_max=cost_max, tariff=tariff)], MemoryStore())
    assert isinstance(outcome, Observation), outcome


def test_a_request_to_put_less_than_a_part_is_paid_for_whole() -> None:
    """Where bytes cost nothing, a small object costs as much as a part: half of this plan does not pay for it."""
    plan = a_download_plan(size=64 * KiB, threads=1, range_size=4 * KiB)
    tariff = prices.tariff(
        "s3", "standard", NetworkPath.GATEWAY_ENDPOINT, home="eu-central-1", region="eu-central-1"
    )
    cost_max = replace(plan.cost_max, usd=1.9 * tariff.usd(write_request_count=1))
    (outcome,) = outcomes_of([replace(plan, cost_max=cost_max, tariff=tariff)], store := MemoryStore())
    assert "too little to upload" in reason_of(outcome)
    assert to_be_read(store) == []


def test_what_is_there_and_too_small_is_not_called_nothing() -> None:
    """The first probe of a place puts what it can pay for, and a later one may want a larger range than that."""
    cost_max = replace(AMPLE, transferred_bytes=64 * MiB)
    plans = [a_download_plan(size=64 * MiB, range_size=size, cost_max=cost_max) for size in (MiB, 64 * MiB)]
    first, second = outcomes_of(plans, MemoryStore())
    assert isinstance(first, Observation)
    assert reason_of(second).startswith("nothing in b is large enough to read, and half of the plan's 64 MiB")


async def test_parts_that_are_sent_again_stay_within_the_plan(clock: VirtualClock) -> None:
    """What is left of the money pays for each of them once more, and for what stands around them."""
    tariff = prices.tariff(
        "s3", "standard", NetworkPath.GATEWAY_ENDPOINT, home="eu-central-1", region="eu-central-1"
    )
    plan = a_download_plan(size=256 * MiB, threads=1, range_size=MiB)
    usd = 36 * tariff.usd(write_request_count=1)
    store = MemoryStore(
        trouble=lambda action, count: Throttled("slow") if action == "part" and count < 16 else None
    )
    probe = a_probe(store, clock, MemoryJournal(store.log))
    await probe.run(replace(plan, cost_max=replace(plan.cost_max, usd=usd), tariff=tariff))
    assert probe.used.usd <= usd
    assert store.counts["part"]


def to_be_read(store: MemoryStore) -> list[str]:
    """Without the signs of who reads it."""
    return [key for key in store.objects if key.endswith("/object")]


async def test_each_page_of_what_others_put_beside_it_is_paid_for(clock: VirtualClock) -> None:
    """A listing of thousands of keys is several requests, before each probe that finds nothing to read."""
    usd = []
    for key_count in (0, 2 * LISTED_COUNT_IN_PAGE + 1):
        store = MemoryStore()
        store.objects = {f"{KEY_PREFIX}not-ours-{number}" for number in range(key_count)}
        probe = a_probe(store, clock, MemoryJournal(store.log))
        assert isinstance(await probe.run(a_download_plan(threads=4)), Observation)
        usd.append(probe.used.usd)
    assert usd[1] - usd[0] == pytest.approx(S3_TARIFF.usd(write_request_count=2))


async def test_what_is_read_is_put_once(clock: VirtualClock) -> None:
    """The first probe pays for it within its plan; later ones only read, until the probe is closed."""
    store = MemoryStore()
    journal = MemoryJournal(store.log)

    probe = a_probe(store, clock, journal)
    moved = []
    for threads in (4, 8):
        outcome = await probe.run(a_download_plan(threads=threads))
        assert isinstance(outcome, Observation)
        assert outcome.measures["attempted_bytes"] == probe.used.transferred_bytes
        moved.append(outcome.measures["attempted_bytes"])
    assert store.log.index("record") < store.log.index("create")
    assert len(journal.entries) == len(store.objects) == 2  # with the sign that it is used
    await probe.close()
    assert moved == [128 * MiB, 64 * MiB]
    assert sum(store.uploaded_sizes) == 64 * MiB
    assert (store.objects, store.uploads, journal.entries) == (set(), {}, [])


async def test_hosts_share_what_is_read(clock: VirtualClock) -> None:
    """A second host finds by its name what the first one put, and puts nothing; nor does it remove it."""
    store = MemoryStore()

    first, second = a_probe(store, clock), a_probe(store, clock)
    await first.run(a_download_plan())
    puts = store.counts["part"]
    assert isinstance(await second.run(a_download_plan()), Observation)
    assert store.counts["part"] == puts
    await second.close()
    assert len(to_be_read(store)) == 1
    await first.close()
    assert not store.objects


async def test_who_leaves_last_removes_what_is_read_together(clock: VirtualClock) -> None:
    """Not who put it: the others would put and pay for another. Each tells that it reads; a host that is lost, once."""
    store, journal = MemoryStore(), MemoryJournal()
    first, second, lost = a_probe(store, clock), a_probe(store, clock, journal), a_probe(store, clock)
    for probe in (first, second, lost):
        assert isinstance(await probe.run(a_download_plan()), Observation)
    await first.close()
    assert len(to_be_read(store)) == 1
    await asyncio.sleep(UNUSED_SECONDS + 1)
    assert isinstance(await second.run(a_download_plan()), Observation)
    await second.close()
    assert (store.objects, journal.entries) == (set(), [])


async def test_a_host_that_may_not_write_reads_what_others_keep(clock: VirtualClock) -> None:
    """It tells nobody, removes nothing and leaves nothing in its journal."""
    store, journal = MemoryStore(), MemoryJournal()
    first, reader = a_probe(store, clock), a_probe(store, clock, journal)
    await first.run(a_download_plan())
    store.trouble = lambda action, _count: Denied("no PutObject") if action == "put" else None
    assert isinstance(await reader.run(a_download_plan()), Observation)
    await reader.close()
    assert (len(to_be_read(store)), journal.entries) == (1, [])


@pytest.mark.parametrize("damage", ["longer", "another beginning", "another checksum"])
async def test_what_is_not_penstocks_is_not_read(clock: VirtualClock, damage: str) -> None:
    """An object that only has the name is left alone: it may be compressible, or short."""
    store = MemoryStore()

    await a_probe(store, clock).run(a_download_plan())
    (theirs,) = to_be_read(store)
    if damage == "longer":
        store.sizes[theirs] += 1
    elif damage == "another checksum":
        store.md5s[theirs] = "0" * 32
    else:
        store.heads[theirs] = bytes(64 * KiB)
    store.reads.clear()
    assert isinstance(await a_probe(store, clock).run(a_download_plan()), Observation)
    assert theirs not in {key for key, _, _ in store.reads}
    assert len(to_be_read(store)) == 2


async def test_what_was_removed_meanwhile_is_put_again(clock: VirtualClock) -> None:
    """Another host that stops takes its object along: one probe fails, the next one goes on."""
    store = MemoryStore()

    probe = a_probe(store, clock)
    found = [type(await probe.run(a_download_plan()))]
    store.objects.clear()
    found += [type(await probe.run(a_download_plan())) for _ in range(2)]
    assert found == [Observation, Inconclusive, Observation]


def test_a_small_plan_puts_less() -> None:
    """What is put takes no more than half of what a probe may move; the rest is read, over and over."""
    store = MemoryStore()
    cost_max = replace(AMPLE, transferred_bytes=100 * MiB)
    observation = observed(a_download_plan(size=1024 * MiB, cost_max=cost_max), store)
    assert sum(store.uploaded_sizes) == observation.measures["read_object_bytes"] == 32 * MiB
    assert observation.transferred_bytes == 64 * MiB
    assert observation.measures["read_before_fraction"] == pytest.approx(0.5)


def test_a_plan_that_pays_for_no_range_says_so() -> None:
    """One sentence, and nothing is written."""
    store = MemoryStore()
    cost_max = replace(AMPLE, transferred_bytes=10 * MiB)
    (outcome,) = outcomes_of([a_download_plan(cost_max=cost_max)], store)
    assert "raise the budget, or name an object" in reason_of(outcome)
    assert not any(store.counts[action] for action in WRITES)


def test_where_putting_takes_too_long_less_is_put() -> None:
    """A slow way out does not stop the way in from being measured; nothing half is left."""
    store, journal = MemoryStore(upload_seconds=6.0), MemoryJournal()
    plan = a_download_plan(size=256 * MiB, cost_max=replace(AMPLE, duration_seconds=10.0))
    first, second = outcomes_of([plan, plan], store, journal)
    assert "the next probe uploads less" in reason_of(first)
    assert isinstance(second, Observation)
    assert second.measures["read_object_bytes"] <= 64 * MiB
    assert not store.uploads


def test_a_range_that_cannot_be_put_in_time_wants_time_and_no_money() -> None:
    """More budget would change nothing."""
    store, cost_max = MemoryStore(upload_seconds=6.0), replace(AMPLE, duration_seconds=10.0)
    plans = [
        a_download_plan(size=256 * MiB, range_size=size, cost_max=cost_max) for size in (8 * MiB, 256 * MiB)
    ]
    _, outcome = outcomes_of(plans, store)
    assert "no object with a range of 256 MiB can be uploaded within 10 s: allow more time" in reason_of(
        outcome
    )


def test_a_store_that_asks_for_less_while_something_is_put_is_given_time() -> None:
    """What is put first is no measurement: a refused part is sent again, and each of its requests is counted."""
    store = MemoryStore()
    refused = {3, 4, 9}
    store.trouble = lambda action, count: (
        Throttled("slow")
        if (action == "create" and count == 1) or (action == "part" and count in refused)
        else None
    )
    observation = observed(a_download_plan(size=64 * MiB), store)
    assert observation.measures["read_object_bytes"] == 64 * MiB
    assert observation.throttled_count == 0
    assert store.counts["part"] == 8 + len(refused)


def test_a_store_that_goes_on_refusing_is_left_alone() -> None:
    """No more is refused while something is put than is paid for, and nothing half is left."""
    store, journal = MemoryStore(), MemoryJournal()
    store.trouble = lambda action, _count: Throttled("slow") if action == "part" else None
    (outcome,) = outcomes_of([a_download_plan(size=64 * MiB)], store, journal)
    assert "slow" in reason_of(outcome)
    assert store.counts["part"] <= 2 * 8
    assert not store.uploads


@pytest.mark.parametrize("error", [Unreachable("lost"), Denied("not yours"), Missing("no bucket")])
def test_putting_that_fails_is_told_and_cleared_away(error: RequestError) -> None:
    """The reason is the service's; what was begun is removed, and the sweep is told where to look."""
    store, journal = MemoryStore(), MemoryJournal()
    store.trouble = lambda action, count: error if (action, count) == ("part", 3) else None
    (outcome,) = outcomes_of([a_download_plan()], store, journal)
    assert str(error) in reason_of(outcome)
    assert (store.objects, store.uploads) == (set(), {})
    assert journal.abandoned == journal.entries != []
