"""Whatever the plan and whatever goes wrong: a probe never costs more than the plan, and leaves nothing behind."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.lab.virtual_time import VirtualClock
from penstock.probes.outside import Refused, RequestError, Throttled, Unreachable
from penstock.probes.s3_upload import S3UploadProbe
from penstock.probes.sqs_delivery import SqsDeliveryProbe
from penstock.units import KiB
from penstock.vocabulary import Cost
from tests.unit.probes.fakes import (
    MemoryJournal,
    MemoryQueues,
    MemoryStore,
    Trouble,
    a_delivery_plan,
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
)
def test_uploads(
    *, size: int, threads: int, part: int, cost_max: Cost, trouble: Trouble, upload_seconds: float
) -> None:
    """Bytes, requests and time stay within the plan; objects, uploads and entries are gone."""
    store = MemoryStore(upload_seconds=upload_seconds, trouble=trouble)
    journal = MemoryJournal()

    async def story(clock: VirtualClock) -> float:
        probe = S3UploadProbe(
            store, clock, journal, bucket="b", payload_source=lambda n, _: bytes(n), loop_tick_seconds=1.0
        )
        await probe.run(an_upload_plan(size=size, threads=threads, part=part, cost_max=cost_max))
        return clock.monotonic_seconds()

    # A body that is on its way when the time is over is waited for, because only then can it be deleted for certain.
    cleaning_seconds = store.small_seconds * (3 + threads) + upload_seconds
    assert virtually(story) <= cost_max.duration_seconds + cleaning_seconds + 1e-6
    assert sum(store.uploaded_sizes) <= cost_max.transferred_bytes
    assert store.request_count <= cost_max.request_count
    assert store.in_flight_count_max <= threads
    assert (store.objects, store.uploads, journal.entries) == (set(), {}, [])


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
        await probe.run(replace(plan, cost_max=Cost()))  # no time: does nothing
        ended_seconds = clock.monotonic_seconds()
        await probe.close()
        return ended_seconds

    assert virtually(story) <= cost_max.duration_seconds + 1e-6
    assert queues.request_count - queues.counts["remove"] <= cost_max.request_count
    assert queues.sent_bytes <= cost_max.transferred_bytes
    assert (queues.attributes, journal.entries) == ({}, [])
