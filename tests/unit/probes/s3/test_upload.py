"""The S3 probe measures what it says, pays no more than it may, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import md5

import pytest

from penstock.lab.virtual_time import VirtualClock
from penstock.models.s3.upload import S3UploadSetting
from penstock.probes.measurement import Effort
from penstock.probes.outside import (
    Denied,
    Missing,
    Refused,
    RequestError,
    Throttled,
    Unreachable,
    Unsent,
    VersionRequests,
)
from penstock.probes.s3.crew import (
    Allotment,
    Crew,
    admitted_while_refusing,
    refused_window,
    steady_window,
)
from penstock.probes.s3.payload import incompressible_payload
from penstock.probes.s3.upload import S3UploadProbe
from penstock.probes.s3.workspace import Workspace
from penstock.units import KiB, MiB
from penstock.vocabulary import Cost, Inconclusive, Observation, Outcome, ProbePlan, Tariff
from tests.unit.probes.fakes import (
    AMPLE,
    MemoryJournal,
    MemoryStore,
    StandingStill,
    an_upload_plan,
    reason_of,
    virtually,
)


def blank_payload(size_bytes: int, seed: int) -> bytes:
    """Zeros: quick to make."""
    return bytes(size_bytes)


def a_probe(store: MemoryStore, clock: VirtualClock, journal: MemoryJournal) -> S3UploadProbe:
    """On a bucket of its own."""
    return S3UploadProbe(
        Workspace(store, clock, journal, "bucket", loop_tick_seconds=0.1), payload_source=blank_payload
    )


def outcome_of(
    plan: ProbePlan[S3UploadSetting], store: MemoryStore, journal: MemoryJournal | None = None
) -> Outcome[S3UploadSetting]:
    """Run one probe in virtual time."""
    return virtually(lambda clock: a_probe(store, clock, journal or MemoryJournal()).run(plan))


def observed(plan: ProbePlan[S3UploadSetting], store: MemoryStore) -> Observation[S3UploadSetting]:
    """Run one probe that must measure."""
    outcome = outcome_of(plan, store)
    assert isinstance(outcome, Observation), outcome
    return outcome


def test_whole_object_is_uploaded_in_parts() -> None:
    """An object that the plan pays for is uploaded whole, the last part being what remains."""
    store = MemoryStore()
    observation = observed(an_upload_plan(size=20 * MiB, threads=2), store)
    assert sorted(store.uploaded_sizes) == [4 * MiB, 8 * MiB, 8 * MiB]
    assert observation.transferred_bytes == 20 * MiB
    assert observation.measures["part_count"] == observation.measures["object_part_count"] == 3


def test_all_whole_parts_share_one_body() -> None:
    """The memory of a probe is one part, however many threads it has."""
    store = MemoryStore()
    observed(an_upload_plan(size=128 * MiB, threads=8), store)
    assert len(store.bodies) == 1


def test_only_a_share_of_a_large_object_is_uploaded() -> None:
    """Of a large object no more is uploaded than the plan pays for, and it is completed all the same."""
    store = MemoryStore()
    cost_max = replace(AMPLE, transferred_bytes=100 * MiB)
    observation = observed(an_upload_plan(size=1024 * MiB, cost_max=cost_max), store)
    assert observation.measures["part_count"] == 12
    assert observation.measures["object_part_count"] == 128
    assert store.counts["complete"] == 1


def test_more_than_a_steady_state_needs_is_not_uploaded() -> None:
    """An ample budget is no reason to spend it."""
    observation = observed(an_upload_plan(size=8192 * MiB, threads=4), MemoryStore())
    assert observation.measures["part_count"] == 32


def test_small_objects_move_side_by_side() -> None:
    """A part size above the object's is a single PUT, and then threads move objects."""
    store = MemoryStore()
    observation = observed(an_upload_plan(size=64 * KiB, threads=16), store)
    assert store.in_flight_count_max == observation.measures["connection_count"] == 16
    assert store.counts["create"] == 0
    assert observation.measures["part_count"] == 128


def test_steady_throughput_knows_no_ramp_and_no_last_wave() -> None:
    """With every part taking as long, the steady throughput is exactly threads x size / time."""
    observation = observed(an_upload_plan(size=7 * 8 * MiB, threads=3), MemoryStore())
    expected = 3 * 8 * MiB / 0.5
    assert observation.measures["steady_throughput_bytes_per_second"] == pytest.approx(expected)
    assert observation.throughput_bytes_per_second < expected


class DamagingStore(MemoryStore):
    """Says the MD5 of what it wrote, which is not always what was sent."""

    async def put_object(self, bucket: str, key: str, body: bytes) -> str:
        await super().put_object(bucket, key, body)
        arrived = b"damaged" if self.counts["put"] % 4 == 0 else body
        return f'"{md5(arrived, usedforsecurity=False).hexdigest()}"'


def test_what_arrived_damaged_is_told_by_its_checksum() -> None:
    """Who asks for it hears of writes whose ETag is not the MD5 of what was sent; nobody else pays for it."""
    plan = an_upload_plan(size=64 * KiB, threads=2)

    def measures(*, is_verified: bool) -> Mapping[str, float]:
        outcome = virtually(
            lambda clock: S3UploadProbe(
                Workspace(DamagingStore(), clock, MemoryJournal(), "bucket"), is_verified=is_verified
            ).run(plan)
        )
        assert isinstance(outcome, Observation)
        return outcome.measures

    verified = measures(is_verified=True)
    assert (verified["checksum_right_count"], verified["checksum_wrong_count"]) == (48, 16)
    assert "checksum_wrong_count" not in measures(is_verified=False)


def test_threads_beyond_the_parts_are_not_counted() -> None:
    """The effective concurrency is what was in flight, not what was asked for."""
    observation = observed(an_upload_plan(size=24 * MiB, threads=64), MemoryStore())
    assert observation.measures["connection_count"] == 3


def test_journal_before_create_and_strike_after_delete() -> None:
    """What a probe creates is written down before, and struck out when it is gone."""
    store = MemoryStore()
    journal = MemoryJournal(store.log)
    outcome_of(an_upload_plan(), store, journal)
    assert store.log[:2] == ["record", "create"]
    assert store.log[-2:] == ["delete", "strike"]
    assert (store.objects, store.uploads, journal.entries) == (set(), {}, [])


def test_what_cannot_be_deleted_stays_in_the_journal() -> None:
    """A measurement counts although its clean-up failed; the entry stays for the next sweep."""
    journal = MemoryJournal()
    store = MemoryStore(trouble=lambda action, _: Unreachable("gone") if action == "delete" else None)
    assert isinstance(outcome_of(an_upload_plan(), store, journal), Observation)
    assert [entry.name.startswith("penstock/20260101T000000Z-") for entry in journal.entries] == [True]


@pytest.mark.parametrize("size", [64 * KiB, 512 * MiB])
@pytest.mark.parametrize("after_seconds", [0.0, 0.02, 0.3, 0.6, 1.2])
async def test_cancelled_probe_leaves_nothing(clock: VirtualClock, size: int, after_seconds: float) -> None:
    """A cancellation at any moment still aborts, deletes and strikes."""
    store, journal = MemoryStore(), MemoryJournal()

    running = asyncio.create_task(a_probe(store, clock, journal).run(an_upload_plan(size=size)))
    await asyncio.sleep(after_seconds)
    running.cancel()
    await asyncio.sleep(0.01)
    running.cancel()  # an impatient second time
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (store.objects, store.uploads, journal.entries) == (set(), {}, [])


class LateStore(MemoryStore):
    """As S3: what is on its way is carried out, whether or not its sender waits for the answer."""

    async def put_object(self, bucket: str, key: str, body: bytes) -> str:
        return await asyncio.shield(asyncio.ensure_future(super().put_object(bucket, key, body)))

    async def create_multipart_upload(self, bucket: str, key: str) -> str:
        return await asyncio.shield(asyncio.ensure_future(self._create_late(bucket, key)))

    async def _create_late(self, bucket: str, key: str) -> str:
        await asyncio.sleep(4 * self.small_seconds)
        return await super().create_multipart_upload(bucket, key)

    async def complete_multipart_upload(
        self, bucket: str, key: str, upload_id: str, etags: Sequence[str]
    ) -> None:
        await asyncio.shield(
            asyncio.ensure_future(super().complete_multipart_upload(bucket, key, upload_id, etags))
        )


@pytest.mark.parametrize(
    ("size", "after_seconds"), [(64 * KiB, 0.1), (64 * KiB, 0.7), (8 * MiB + 1, 0.02), (8 * MiB + 1, 0.77)]
)
async def test_what_is_on_its_way_is_awaited_before_it_is_removed(
    clock: VirtualClock, size: int, after_seconds: float
) -> None:
    """A put, a creation and a completion that are cancelled take place all the same, after a deletion at once."""
    store, journal = LateStore(), MemoryJournal()

    running = asyncio.create_task(a_probe(store, clock, journal).run(an_upload_plan(size=size)))
    await asyncio.sleep(after_seconds)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(60.0)
    assert (store.objects, store.uploads, journal.entries) == (set(), {}, [])


async def test_clean_up_that_hangs_ends(clock: VirtualClock) -> None:
    """A service that stops answering does not hold the daemon's shutdown for ever."""
    store, journal = MemoryStore(), MemoryJournal()

    running = asyncio.create_task(a_probe(store, clock, journal).run(an_upload_plan()))
    await asyncio.sleep(0.3)
    store.small_seconds = 1e6
    running.cancel()
    await asyncio.wait({running})
    assert clock.monotonic_seconds() < 31
    assert len(journal.entries) == 1


def test_throttled_parts_are_counted_and_sent_again() -> None:
    """A throttle is evidence, not the end: it is counted and the part is tried again."""
    store = MemoryStore(
        trouble=lambda action, n: Throttled("slow") if action == "part" and n in {1, 4} else None
    )
    observation = observed(an_upload_plan(), store)
    assert (observation.throttled_count, observation.failed_count) == (2, 0)
    assert observation.transferred_bytes == 64 * MiB
    assert observation.measures["attempted_bytes"] == 80 * MiB


@pytest.mark.parametrize("error", [Denied("key refused"), Missing("no bucket"), Unsent("no route")])
@pytest.mark.parametrize("size", [64 * KiB, 64 * MiB])
def test_nothing_succeeded(error: RequestError, size: int) -> None:
    """When nothing succeeds the outcome repeats the operator's sentence, and the probe does not hammer."""
    store = MemoryStore(trouble=lambda action, _: error if action in {"put", "create", "part"} else None)
    journal = MemoryJournal()
    outcome = outcome_of(an_upload_plan(size=size), store, journal)
    assert str(error) in reason_of(outcome)
    assert store.request_count < 40
    assert (store.uploads, journal.entries) == ({}, [])


@pytest.mark.parametrize("size", [64 * KiB, 64 * MiB])
def test_what_was_refused_was_not_made(size: int) -> None:
    """A bucket in another region takes and tells nothing: no probe leaves anything there that could not be removed."""
    store, journal = MemoryStore(trouble=lambda _action, _n: Refused("another region")), MemoryJournal()
    outcome_of(an_upload_plan(size=size), store, journal)
    assert journal.entries == []


@pytest.mark.parametrize(("size", "action"), [(64 * KiB, "put"), (64 * MiB, "part"), (64 * MiB, "complete")])
def test_what_was_not_answered_stays_in_the_journal(size: int, action: str) -> None:
    """A request without an answer may be carried out after the clean-up, so that somebody has to look again."""
    store = MemoryStore(
        trouble=lambda asked, n: (
            Unreachable("lost") if (asked, n) == (action, 2 * (action != "complete")) else None
        )
    )
    journal = MemoryJournal()
    outcome_of(an_upload_plan(size=size), store, journal)
    assert (store.objects, store.uploads, len(journal.entries)) == (set(), {}, 1)


def test_a_thousand_objects_are_removed_by_one_request() -> None:
    """Far away, one deletion after another would take longer than the clean-up may."""
    store = MemoryStore(small_seconds=0.2)
    observed(an_upload_plan(size=64 * KiB, threads=256), store)
    assert (store.counts["delete_batch"], store.counts["delete"], store.objects) == (1, 0, set())


async def test_what_removes_versions_is_paid_for(clock: VirtualClock) -> None:
    """A listing is billed like an upload, a deletion is not; both are requests of the budget."""
    plan = replace(an_upload_plan(size=64 * KiB, threads=16), tariff=Tariff(usd_per_write_request=1.0))
    costs = []
    for of_versions in (VersionRequests(), VersionRequests(listing_count=2, deletion_count=3)):
        store = MemoryStore()
        store.of_versions = of_versions
        probe = a_probe(store, clock, MemoryJournal())
        await probe.run(plan)
        costs.append(probe.used)
    without, beside = costs
    assert beside.request_count - without.request_count == 5
    assert beside.usd - without.usd == 2.0


async def test_where_there_are_no_batches_deletions_go_side_by_side(clock: VirtualClock) -> None:
    """256 objects on a path of 200 ms are gone long before the clean-up is given up after 30 s."""
    store = MemoryStore(small_seconds=0.2, deletes_only_singly=True)

    transfer_seconds = 8 * store.upload_seconds
    await a_probe(store, clock, MemoryJournal()).run(an_upload_plan(size=64 * KiB, threads=256))
    assert clock.monotonic_seconds() < transfer_seconds + 5.0
    assert (store.counts["delete"], store.objects) == (256, set())


def test_a_failed_abort_stops_no_deletion() -> None:
    """What can be removed is removed, and the entry stays for the rest."""
    store = MemoryStore(
        trouble=lambda action, _: {"abort": Throttled("slow"), "complete": Throttled("slow")}.get(action)
    )
    journal = MemoryJournal()
    outcome_of(an_upload_plan(), store, journal)
    assert store.counts["delete"] == 1
    assert (len(store.uploads), len(journal.entries)) == (1, 1)


async def test_lost_answer_to_create_is_looked_up(clock: VirtualClock) -> None:
    """An upload whose id never arrived is found by listing, and aborted."""
    store = MemoryStore(small_seconds=0.05)

    plan = an_upload_plan(cost_max=replace(AMPLE, duration_seconds=0.02))
    assert isinstance(await a_probe(store, clock, MemoryJournal()).run(plan), Inconclusive)
    assert (store.uploads, store.counts["list"], store.counts["abort"]) == ({}, 1, 1)


def test_slow_parts_end_with_the_time() -> None:
    """When the time ends before any part does, the outcome names the key that allows more, and nothing is left."""
    store = MemoryStore(upload_seconds=60.0)
    outcome = outcome_of(an_upload_plan(cost_max=replace(AMPLE, duration_seconds=5.0)), store)
    assert "within 5 s: allow more time (duration_seconds_max)" in reason_of(outcome)
    assert store.uploads == {}


def test_a_service_that_is_silent_is_called_so() -> None:
    """Not even the upload was begun: smaller parts would not help."""
    plan, store = an_upload_plan(cost_max=replace(AMPLE, duration_seconds=10.0)), MemoryStore()
    store.small_seconds = 1e6
    outcome = outcome_of(plan, store)
    assert "the service did not answer the start of an upload in" in reason_of(outcome)
    assert "smaller parts" not in reason_of(outcome)


def test_too_small_a_budget_does_nothing() -> None:
    """A plan that pays for no part sends no request."""
    store = MemoryStore()
    outcome = outcome_of(an_upload_plan(cost_max=replace(AMPLE, transferred_bytes=MiB)), store)
    assert "raise the budget" in reason_of(outcome)
    assert store.request_count == 0


@pytest.mark.parametrize("upload_seconds", [0.5, 1e3])
async def test_late_event_loop_is_inconclusive(upload_seconds: float, clock: VirtualClock) -> None:
    """Whatever was seen by a process that stood still, or was not, is thrown away, with the reason."""
    store = MemoryStore(upload_seconds=upload_seconds)
    workspace = Workspace(store, StandingStill(clock, at_seconds=0.7), MemoryJournal(), "b")
    probe = S3UploadProbe(workspace, payload_source=blank_payload)
    outcome = await probe.run(an_upload_plan(cost_max=replace(AMPLE, duration_seconds=5.0)))
    assert "stood still for 10.0" in reason_of(outcome)


@dataclass(kw_only=True)
class Sleepers(Crew[S3UploadSetting]):
    """Whose requests take what they are told to."""

    noun = "part"
    used = Cost()

    seconds: Sequence[float]

    async def move(self, thread: int, number: int) -> None:
        del thread
        await asyncio.sleep(self.seconds[number])

    def measures(self) -> dict[str, float]:
        return {}

    def why_nothing(self) -> str:
        return ""


def effort_while_busy(threads: int, seconds: Sequence[float], whole: Effort) -> Effort:
    """Of the whole, where so many threads make requests that take so long."""

    async def story(clock: VirtualClock) -> Effort:
        allotment = Allotment(
            object_request_count=1,
            request_count=len(seconds),
            body_bytes=1000,
            tail_bytes=1000,
            cost_max=AMPLE,
        )
        plan = an_upload_plan(threads=threads)
        crew = Sleepers(plan=plan, clock=clock, allotment=allotment, seconds=seconds)
        await crew.transfer()
        return crew.while_busy(whole)

    return virtually(story)


def test_a_straggler_hides_no_processor_that_was_full() -> None:
    """Two threads make eight requests in a second, of which one comes four seconds later: they kept it busy before."""
    whole = Effort(duration_seconds=5.0, client_cpu_fraction=0.16, client_cpu_wait_fraction=0.02)
    effort = effort_while_busy(2, [*[0.25] * 7, 4.25], whole)
    busy_share = (7 + 0.25 / 4.25) / 8  # of the bytes, in the first second
    assert effort.client_cpu_fraction == pytest.approx(0.16 * 5.0 * busy_share)
    assert effort.client_cpu_demand_fraction == pytest.approx(0.18 * 5.0 * busy_share)


def test_a_single_wave_kept_the_processor_busy_to_its_end() -> None:
    """What every thread still has to do after the first has ended is work like that before."""
    whole = Effort(duration_seconds=1.03, client_cpu_fraction=0.5)
    effort = effort_while_busy(4, [1.0, 1.01, 1.02, 1.03], whole)
    assert effort.client_cpu_fraction == pytest.approx(0.5, rel=0.02)


def test_where_requests_are_refused_what_was_admitted_at_once_is_left_out() -> None:
    """Four of a bucket at the start, one every half second from then on; nothing where it was over at once."""
    bucket = [(thread, 0.0, 0.25) for thread in range(4)]
    later = [(0, 0.5 * i, 0.5 * i + 0.25) for i in range(1, 5)]
    assert refused_window([*bucket, *later], 0.1, None) == (0.25, 2.25)
    assert refused_window([*bucket, *later], 0.1, 2.0) == (0.25, 2.0)
    assert refused_window(bucket, 0.1, 0.3) is None
    assert refused_window([], 0.1, None) is None


def test_what_is_admitted_is_counted_while_others_are_refused() -> None:
    """Ten of a bucket at once, four of what came in the next tenth of a second; large bodies, and later a few more."""
    herd = [0.0] * 10 + [0.1] * 4
    assert admitted_while_refusing(herd, [0.0, 0.0, 0.1]) == (4, 0.1)
    assert admitted_while_refusing([*herd, 1.5, 1.5], [0.0, 0.1, 1.6]) == (4, 0.1)
    evenly = [0.1 * i for i in range(1, 50)]
    count, seconds = admitted_while_refusing(evenly, [0.05, 0.06, 0.11, 2.45, 4.85])
    assert (count, round(seconds, 9)) == (48, 4.8)
    assert admitted_while_refusing(herd, [0.05]) == (0, 0.0)


class ShallowStore(MemoryStore):
    """Admits forty requests a second, and ten at once."""

    def __init__(self) -> None:
        super().__init__()
        self._tokens, self._at_seconds = 10.0, 0.0

    async def upload_part(self, bucket: str, key: str, upload_id: str, part_number: int, body: bytes) -> str:
        if not self._admits():
            raise Throttled("SlowDown")
        return await super().upload_part(bucket, key, upload_id, part_number, body)

    def _admits(self) -> bool:
        now_seconds = asyncio.get_running_loop().time()
        self._tokens = min(10.0, self._tokens + 40.0 * (now_seconds - self._at_seconds))
        self._at_seconds = now_seconds
        is_admitted = self._tokens >= 1.0
        self._tokens -= is_admitted
        return is_admitted


def test_who_begins_with_too_many_at_once_measures_the_rate_all_the_same() -> None:
    """Sixteen threads move 32 parts in a second at the least, far below the rate; six of them are refused first."""
    observation = observed(an_upload_plan(size=32 * 8 * MiB, threads=16), ShallowStore())
    assert observation.throttled_count > 0
    answered_per_second = observation.measures["part_count"] / observation.duration_seconds
    admitted_per_second = observation.measures["admitted_count"] / observation.measures["refusing_seconds"]
    assert answered_per_second < 25
    assert admitted_per_second == pytest.approx(40.0, rel=0.25)  # of four a token more or less


def test_steady_window_of_a_single_wave_is_the_wave() -> None:
    """With one part for each thread there is no other time when all were busy."""
    assert steady_window([(0, 0.0, 2.0), (1, 0.5, 3.0)], 2.0) == (0.0, 2.0)


def test_payload_is_random_and_replayable() -> None:
    """The same seed gives the same bytes, of exactly the size."""
    payload = incompressible_payload(3 * MiB + 7, 5)
    assert len(payload) == 3 * MiB + 7
    assert payload == incompressible_payload(3 * MiB + 7, 5)
    assert len(set(payload[:4096])) > 200
