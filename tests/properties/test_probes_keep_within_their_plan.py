"""Whatever the plan and whatever goes wrong: a probe never costs more than the plan, and leaves nothing behind."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.lab.virtual_time import VirtualClock
from penstock.probes.outside import Refused, RequestError, Throttled, Unreachable
from penstock.probes.s3.download import S3DownloadProbe
from penstock.probes.s3.upload import S3UploadProbe
from penstock.probes.s3.workspace import Workspace
from penstock.probes.sqs.delivery import SqsDeliveryProbe
from penstock.units import KiB
from penstock.vocabulary import Cost
from tests.factories import S3_TARIFF, SQS_TARIFF
from tests.unit.probes.fakes import (
    MemoryJournal,
    MemoryQueues,
    MemoryStore,
    Trouble,
    a_delivery_plan,
    a_download_plan,
    an_upload_plan,
    virtually,
)

ERRORS = [Throttled("slow"), Refused("500"), Unreachable("lost")]


def troubles(actions: set[str]) -> st.SearchStrategy[Trouble]:
    """Trouble at any of the first requests of any action."""
    keys = st.tuples(st.sampled_from(sorted(actions)), st.integers(0, 12))

    def scripted(script: dict[tuple[str, int], RequestError]) -> Trouble:
        return lambda action, count: script.get((action, count))

    return st.dictionaries(keys, st.sampled_from(ERRORS), max_size=6).map(scripted)


@given(
    size=st.integers(0, 700 * KiB),
    threads=st.integers(1, 40),
    part=st.integers(10 * KiB, 200 * KiB),
    cost_max=st.builds(
        Cost,
        transferred_bytes=st.integers(0, 2000 * KiB),
        request_count=st.integers(0, 60),
        duration_seconds=st.floats(0.01, 20.0),
    ),
    trouble=troubles({"put", "part", "create", "complete"}),
    upload_seconds=st.floats(0.001, 3.0),
    deletes_only_singly=st.booleans(),
)
def test_uploads(
    *,
    size: int,
    threads: int,
    part: int,
    cost_max: Cost,
    trouble: Trouble,
    upload_seconds: float,
    deletes_only_singly: bool,
) -> None:
    """Bytes, requests and time stay within the plan; objects, uploads and entries are gone.

    An entry stays where an answer was lost: what was asked for may yet be done.
    """
    store = MemoryStore(
        upload_seconds=upload_seconds, trouble=trouble, deletes_only_singly=deletes_only_singly
    )
    journal = MemoryJournal()

    async def story(clock: VirtualClock) -> tuple[float, Cost]:
        probe = S3UploadProbe(
            Workspace(store, clock, journal, "b", loop_tick_seconds=1.0), payload_source=lambda n, _: bytes(n)
        )
        await probe.run(an_upload_plan(size=size, threads=threads, part=part, cost_max=cost_max))
        return clock.monotonic_seconds(), probe.used

    # A body that is on its way when the time is over is waited for, because only then can it be deleted for certain.
    cleaning_seconds = store.small_seconds * (3 + threads) + upload_seconds
    seconds, used = virtually(story)
    assert seconds <= cost_max.duration_seconds + cleaning_seconds + 1e-6
    assert sum(store.uploaded_sizes) <= cost_max.transferred_bytes
    assert store.request_count <= cost_max.request_count
    assert used.usd >= S3_TARIFF.usd(sent_bytes=sum(store.uploaded_sizes))
    assert used.usd <= S3_TARIFF.usd(
        write_request_count=cost_max.request_count, sent_bytes=cost_max.transferred_bytes
    )
    assert store.in_flight_count_max <= threads
    assert (store.objects, store.uploads) == (set(), {})
    assert not journal.entries or any(isinstance(error, Unreachable) for error in store.raised)


@given(
    size=st.integers(0, 700 * KiB),
    threads=st.integers(1, 40),
    range_size=st.integers(10 * KiB, 200 * KiB),
    cost_max=st.builds(
        Cost,
        transferred_bytes=st.integers(0, 3000 * KiB),
        request_count=st.integers(0, 80),
        usd=st.floats(0.0, 0.0003),
        duration_seconds=st.floats(0.01, 20.0),
    ),
    trouble=troubles({"put", "read", "head", "begin"}),
    seconds=st.floats(0.001, 3.0),
)
def test_downloads(
    *, size: int, threads: int, range_size: int, cost_max: Cost, trouble: Trouble, seconds: float
) -> None:
    """What is read and what is put first stay within the plan together; nothing is left when the probe is closed."""
    store, journal = (
        MemoryStore(body_seconds=seconds, upload_seconds=seconds, trouble=trouble),
        MemoryJournal(),
    )
    plan = a_download_plan(size=size, threads=threads, range_size=range_size, cost_max=cost_max)

    async def story(clock: VirtualClock) -> float:
        probe = S3DownloadProbe(Workspace(store, clock, journal, "b", loop_tick_seconds=1.0))
        await probe.run(plan)
        ran_seconds, request_count = clock.monotonic_seconds(), store.request_count
        read_bytes = sum(stop - start for _, start, stop in store.reads)
        assert read_bytes + sum(store.uploaded_sizes) <= cost_max.transferred_bytes
        assert request_count <= probe.used.request_count <= cost_max.request_count  # one may be cut off
        moved_usd = S3_TARIFF.usd(received_bytes=read_bytes, sent_bytes=sum(store.uploaded_sizes))
        assert moved_usd <= probe.used.usd <= cost_max.usd
        await probe.close()
        return ran_seconds

    looking_seconds = 10 * store.small_seconds  # before the time is watched, and to clear away what failed
    assert virtually(story) <= cost_max.duration_seconds + looking_seconds + 1e-6
    assert store.in_flight_count_max <= threads
    assert (store.objects, store.uploads) == (set(), {})


@given(
    cost_max=st.builds(
        Cost,
        transferred_bytes=st.integers(0, 200_000),
        request_count=st.integers(0, 400),
        duration_seconds=st.floats(0.05, 8.0),
    ),
    threads=st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)),
    batch=st.integers(1, 10),
    windows=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    rate=st.sampled_from([0.0, 7.0, 90.0]),
    trouble=troubles({"send", "receive", "delete"}),
)
def test_deliveries(
    *,
    cost_max: Cost,
    threads: tuple[int, int, int],
    batch: int,
    windows: tuple[int, int],
    rate: float,
    trouble: Trouble,
) -> None:
    """Requests, bytes and time stay within the plan; with room to drain, the queue is empty in the end."""
    queues, journal = MemoryQueues(trouble=trouble), MemoryJournal()
    plan = a_delivery_plan(
        cost_max=cost_max,
        sender_thread_count=threads[0],
        receiver_thread_count=threads[1],
        deleter_thread_count=threads[2],
        batch_message_count=batch,
        send_window_message_count=windows[0],
        receive_window_message_count=windows[1],
        send_rate_limit_messages_per_second=rate,
    )

    async def story(clock: VirtualClock) -> float:
        probe = SqsDeliveryProbe(queues, clock, journal, queue_name="q", loop_tick_seconds=1.0)
        await probe.run(plan)
        assert probe.used.usd >= SQS_TARIFF.usd(sent_bytes=queues.sent_bytes)
        assert probe.used.usd <= SQS_TARIFF.usd(
            write_request_count=cost_max.request_count,
            sent_bytes=cost_max.transferred_bytes / 2,
            received_bytes=cost_max.transferred_bytes / 2,
        )
        await probe.run(replace(plan, cost_max=Cost()))  # no time: does nothing
        ended_seconds = clock.monotonic_seconds()
        await probe.close()
        return ended_seconds

    assert virtually(story) <= cost_max.duration_seconds + 1e-6
    assert queues.request_count - queues.counts["remove"] <= cost_max.request_count
    assert queues.sent_bytes <= cost_max.transferred_bytes
    assert (queues.attributes, journal.entries) == ({}, [])
