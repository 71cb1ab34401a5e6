"""What becomes of messages in the lab's SQS."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from functools import partial

import pytest

from penstock.lab.sqs import ActionTruth, Copy, QueueTruth, Sending, SqsError, SqsService
from penstock.lab.virtual_time import VirtualClock, run_virtually
from tests.factories import NOON

TEN_MS = ActionTruth(request_seconds=0.010, variation=0.0)
A_QUEUE = QueueTruth(send=TEN_MS, receive=TEN_MS, delete=TEN_MS)


async def an_sqs(clock: VirtualClock, truth: QueueTruth = A_QUEUE, *, seed: int = 0) -> SqsService:
    """Make a new one that has the queue `q`."""
    service = SqsService(truth, clock=clock, seed=seed)
    await service.create_queue("q", {})
    return service


async def counts(service: SqsService) -> tuple[int, int, int]:
    """Return how many messages are visible, in flight and delayed."""
    queue = service.queue("q")
    queue.release()
    return queue.visible_count, queue.in_flight_count, queue.delayed_count


async def test_a_message_is_hidden_then_back_then_gone(clock: VirtualClock) -> None:
    """Received is in flight; after the visibility timeout it is back; deleted is gone."""
    service = await an_sqs(clock)
    await service.send("q", [Sending(body="hello")])
    seen = [await counts(service)]
    await service.receive("q", wait_seconds=1)
    seen.append(await counts(service))
    await asyncio.sleep(31)
    seen.append(await counts(service))
    (copy,) = await service.receive("q", wait_seconds=1)
    await service.delete("q", [copy.receipt_handle])
    seen.append(await counts(service))
    assert (copy.body, copy.receive_count) == ("hello", 2)
    assert seen == [(1, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 0)]


async def test_only_the_newest_handle_deletes(clock: VirtualClock) -> None:
    """A delete with an older handle succeeds and does nothing; the newest works even when time is over."""
    service = await an_sqs(clock)
    await service.send("q", [Sending(body="hello")])
    (old,) = await service.receive("q", wait_seconds=1)
    await asyncio.sleep(31)
    (new,) = await service.receive("q", wait_seconds=1)
    seen: list[object] = [old.message_id == new.message_id, old.receipt_handle == new.receipt_handle]
    seen += [await service.delete("q", [old.receipt_handle]), await counts(service)]
    await asyncio.sleep(31)
    seen += [await service.delete("q", [new.receipt_handle]), await counts(service)]
    assert seen == [True, False, [None], (0, 1, 0), [None], (0, 0, 0)]


async def test_a_handle_from_elsewhere_is_invalid(clock: VirtualClock) -> None:
    """What never was a handle is refused, beside the others of its batch."""
    service = await an_sqs(clock)
    await service.send("q", [Sending(body="hello")])
    (copy,) = await service.receive("q", wait_seconds=1)
    results = await service.delete("q", [copy.receipt_handle, "nonsense"])
    assert [result.code if result else None for result in results] == [None, "ReceiptHandleIsInvalid"]


async def test_a_long_poll_ends_with_the_first_message(clock: VirtualClock) -> None:
    """A parked receive is answered half a request after the message can be found, and costs no load."""
    truth = dataclasses.replace(A_QUEUE, spread_seconds_median=0.1)

    service = await an_sqs(clock, truth)
    began = clock.monotonic_seconds()
    receive = asyncio.create_task(service.receive("q", wait_seconds=20))
    await asyncio.sleep(5)
    await service.send("q", [Sending(body="hello")])
    assert len(await receive) == 1
    assert clock.monotonic_seconds() - began == pytest.approx(5 + 0.005 + 0.1 + 0.005)


async def test_a_long_poll_gives_up_when_its_time_is_over(clock: VirtualClock) -> None:
    """An empty receive takes its wait and its request."""
    service = await an_sqs(clock)
    began = clock.monotonic_seconds()
    assert await service.receive("q", wait_seconds=3) == []
    assert clock.monotonic_seconds() - began == pytest.approx(3.010)


async def test_a_short_poll_looks_into_some_shards_only(clock: VirtualClock) -> None:
    """One message, 5 of 16 shards: found in about 5 of 16 short polls, and in every long one."""
    service = await an_sqs(clock)
    found = 0
    for _ in range(800):
        await service.send("q", [Sending(body="hello")])
        copies = await service.receive("q")
        found += len(copies)
        copies = copies or await service.receive("q", wait_seconds=1)
        await service.delete("q", [copy.receipt_handle for copy in copies])
    fraction, rest = found / 800, sum(await counts(service))
    assert fraction == pytest.approx(5 / 16, abs=0.06)
    assert rest == 0


async def test_a_batch_costs_its_request_and_its_messages(clock: VirtualClock) -> None:
    """l0 + l1 * b for each action; a receive pays for what it brings."""
    slow = ActionTruth(request_seconds=0.010, message_seconds=0.002, variation=0.0)

    service = await an_sqs(clock, QueueTruth(send=slow, receive=slow, delete=slow))
    times = [clock.monotonic_seconds()]
    await service.send("q", [Sending(body="x")] * 10)
    times.append(clock.monotonic_seconds())
    copies = await service.receive("q", message_count_max=10, wait_seconds=1)
    times.append(clock.monotonic_seconds())
    await service.delete("q", [copy.receipt_handle for copy in copies])
    times.append(clock.monotonic_seconds())
    taken = [after - before for before, after in itertools.pairwise(times)]
    assert taken == [pytest.approx(0.030)] * 3


async def test_concurrency_follows_the_universal_scalability_law(clock: VirtualClock) -> None:
    """With n in service each takes 1 + sigma (n - 1) + kappa n (n - 1) times as long."""
    truth = dataclasses.replace(A_QUEUE, contention=0.01, coherency=0.001)
    service, sent_count = await an_sqs(clock, truth), 0

    async def send_for_ever() -> None:
        nonlocal sent_count
        while clock.monotonic_seconds() < 30:
            await service.send("q", [Sending(body="x")])
            sent_count += 1

    await asyncio.gather(*(send_for_ever() for _ in range(20)))
    expected = 20 / (0.010 * (1 + 0.01 * 19 + 0.001 * 20 * 19))
    assert sent_count / clock.monotonic_seconds() == pytest.approx(expected, rel=0.03)


async def test_each_action_has_its_own_request_limit(clock: VirtualClock) -> None:
    """Sends above their limit are throttled; receives are not touched by that."""
    limited = ActionTruth(request_seconds=0.010, variation=0.0, request_rate_per_second_max=10.0)

    service = await an_sqs(clock, dataclasses.replace(A_QUEUE, send=limited))
    accepted = throttled = 0
    while clock.monotonic_seconds() < 20:
        try:
            accepted += len(await service.send("q", [Sending(body="x")]))
        except SqsError as error:
            throttled += error.code == "RequestThrottled"
    for _ in range(100):
        await service.receive("q")
    assert accepted == pytest.approx(200, abs=4)
    assert throttled > 1000


async def test_one_slow_deleter_fills_the_queue_with_copies(clock: VirtualClock) -> None:
    """The collapse: a deleter slower than the sender, an unbounded backlog, and copies once it is V old."""
    truth = dataclasses.replace(
        A_QUEUE,
        delete=ActionTruth(request_seconds=0.012, variation=0.0),
        receive=ActionTruth(request_seconds=0.002, variation=0.0),
        visibility_timeout_seconds=5,
    )

    service = await an_sqs(clock, truth)
    backlog: asyncio.Queue[str] = asyncio.Queue()
    duplicates, seen = [0], set[str]()

    async def send() -> None:
        while True:
            await service.send("q", [Sending(body="x")])

    async def receive() -> None:
        while True:
            for copy in await service.receive("q", message_count_max=10, wait_seconds=1):
                duplicates[0] += copy.message_id in seen
                seen.add(copy.message_id)
                backlog.put_nowait(copy.receipt_handle)

    async def delete() -> None:
        while True:
            await service.delete("q", [await backlog.get()])

    tasks = [asyncio.create_task(actor()) for actor in (send, receive, delete)]
    counted = []
    for until in (25, 60):
        await asyncio.sleep(until - clock.monotonic_seconds())
        counted.append(duplicates[0])
    for task in tasks:
        task.cancel()
    before, after = counted
    assert before == 0  # the backlog reaches V = 5 s only after V / (1.2 - 1) = 25 s
    assert after > 1000


async def test_attributes_tell_where_the_messages_are(clock: VirtualClock) -> None:
    """Visible, in flight and delayed are counted apart; a queue's own settings are among the attributes."""
    service = await an_sqs(clock)
    await service.send("q", [Sending(body="a"), Sending(body="b"), Sending(body="c", delay_seconds=60.0)])
    await service.receive("q", wait_seconds=1)
    attributes = await service.attributes("q")
    assert attributes["ApproximateNumberOfMessages"] == "1"
    assert attributes["ApproximateNumberOfMessagesNotVisible"] == "1"
    assert attributes["ApproximateNumberOfMessagesDelayed"] == "1"
    assert attributes["VisibilityTimeout"] == "30"


async def test_in_flight_messages_have_a_limit(clock: VirtualClock) -> None:
    """At the limit a receive is refused with OverLimit."""
    service = await an_sqs(clock, dataclasses.replace(A_QUEUE, in_flight_max=10))
    await service.send("q", [Sending(body="x")] * 10)
    await service.receive("q", message_count_max=10, wait_seconds=1)
    with pytest.raises(SqsError) as caught:
        await service.receive("q")
    assert caught.value.code == "OverLimit"


async def test_visibility_can_be_changed(clock: VirtualClock) -> None:
    """A copy can be hidden for longer, or given back at once."""
    service = await an_sqs(clock)
    await service.send("q", [Sending(body="hello")])
    (copy,) = await service.receive("q", wait_seconds=1)
    await service.change_visibility("q", copy.receipt_handle, 100)
    await asyncio.sleep(90)
    seen = [await counts(service)]
    await service.change_visibility("q", copy.receipt_handle, 0)
    assert [*seen, await counts(service)] == [(0, 1, 0), (1, 0, 0)]


async def test_messages_expire(clock: VirtualClock) -> None:
    """What nobody fetched within the retention period is not delivered any more."""
    service = await an_sqs(clock)
    service.queue("q").attributes["MessageRetentionPeriod"] = "60"
    await service.send("q", [Sending(body="hello")])
    await asyncio.sleep(61)
    assert await service.receive("q", wait_seconds=1) == []
    assert await counts(service) == (0, 0, 0)


async def test_a_missing_queue_is_named(clock: VirtualClock) -> None:
    """A queue that is not there, or no longer, is QueueDoesNotExist."""
    service = await an_sqs(clock)
    await service.delete_queue("q")
    with pytest.raises(SqsError) as caught:
        await service.send("q", [Sending(body="x")])
    assert caught.value.code == "QueueDoesNotExist"


async def test_a_receiver_that_leaves_passes_its_message_on(clock: VirtualClock) -> None:
    """A long poll that is broken off just as it was woken does not leave the next one waiting."""
    service = await an_sqs(clock)
    began = clock.monotonic_seconds()
    first = asyncio.create_task(service.receive("q", wait_seconds=20))
    await asyncio.sleep(1)
    second = asyncio.create_task(service.receive("q", wait_seconds=20))
    await asyncio.sleep(1)
    service.queue("q").add(Sending(body="hello"), 0.0)
    first.cancel()
    assert len(await second) == 1
    assert clock.monotonic_seconds() - began == pytest.approx(2.005)


def test_the_same_seed_is_the_same_day() -> None:
    """Two worlds of one seed treat their messages alike to the last bit; another seed does not."""
    varied = ActionTruth(request_seconds=0.010, variation=0.5)
    truth = QueueTruth(
        send=varied, receive=varied, delete=varied, spread_seconds_median=0.01, spread_sigma=0.5
    )

    async def day(seed: int, clock: VirtualClock) -> tuple[float, list[str]]:
        service, received = await an_sqs(clock, truth, seed=seed), []
        for _ in range(50):
            await service.send("q", [Sending(body="x")])
            received += [copy.message_id for copy in await service.receive("q")]
        return clock.monotonic_seconds(), received

    first, again, other = (run_virtually(partial(day, seed), start_at=NOON) for seed in (7, 7, 8))
    assert first == again != other


FIFO = {"FifoQueue": "true"}


async def a_fifo_sqs(
    clock: VirtualClock, truth: QueueTruth = A_QUEUE, *, attributes: dict[str, str] = FIFO
) -> SqsService:
    """Make a new one that has the queue `q.fifo`."""
    service = SqsService(truth, clock=clock, seed=0)
    await service.create_queue("q.fifo", attributes)
    return service


def in_group(group: str, *bodies: str) -> list[Sending]:
    """Messages of one group, each with its body as deduplication id."""
    return [Sending(body=body, group=group, deduplication_id=body) for body in bodies]


async def received(service: SqsService, count: int, wait_seconds: float = 0.0) -> list[Copy]:
    """Receive from the FIFO queue."""
    return await service.receive("q.fifo", message_count_max=count, wait_seconds=wait_seconds)


async def test_a_group_is_in_order_and_one_receiver_at_a_time(clock: VirtualClock) -> None:
    """While a message of a group is in flight nobody gets the next one; other groups go on."""
    service = await a_fifo_sqs(clock)
    await service.send("q.fifo", [*in_group("a", "a1", "a2", "a3"), *in_group("b", "b1")])
    first = await received(service, 2)
    assert [copy.body for copy in first] == ["a1", "a2"]
    assert [copy.body for copy in await received(service, 10)] == ["b1"]
    assert await received(service, 10) == []
    await service.delete("q.fifo", [first[0].receipt_handle])
    assert await received(service, 10) == []  # a2 is still in flight
    await service.delete("q.fifo", [first[1].receipt_handle])
    assert [copy.body for copy in await received(service, 10)] == ["a3"]


async def test_a_message_that_comes_back_is_first_again(clock: VirtualClock) -> None:
    """After the visibility timeout the group starts where it was, and the expired handle is refused."""
    service = await a_fifo_sqs(clock)
    await service.send("q.fifo", in_group("a", "a1", "a2", "a3"))
    late = await received(service, 2)
    await asyncio.sleep(30.1)
    (refusal,) = await service.delete("q.fifo", [late[0].receipt_handle])
    assert refusal is not None
    assert "expired" in refusal.message
    again = await received(service, 10)
    assert [(copy.body, copy.receive_count) for copy in again] == [("a1", 2), ("a2", 2), ("a3", 1)]
    assert (await service.delete("q.fifo", [late[1].receipt_handle]))[0] is not None
    assert await service.delete("q.fifo", [copy.receipt_handle for copy in again]) == [None] * 3


async def test_a_waiting_receive_gets_what_a_delete_sets_free(clock: VirtualClock) -> None:
    """A long poll parked on a blocked group ends with the delete, not with its wait."""
    service = await a_fifo_sqs(clock)
    await service.send("q.fifo", in_group("a", "a1", "a2"))
    (first,) = await received(service, 1)
    waiting = asyncio.create_task(received(service, 10, 20.0))
    await asyncio.sleep(5.0)
    began_seconds = clock.monotonic_seconds()
    await service.delete("q.fifo", [first.receipt_handle])
    assert [copy.body for copy in await waiting] == ["a2"]
    assert clock.monotonic_seconds() - began_seconds < 0.1


async def test_order_survives_uneven_spreading(clock: VirtualClock) -> None:
    """However long a message takes to be seen, a later one of its group is never seen before it."""
    service = await a_fifo_sqs(
        clock, dataclasses.replace(A_QUEUE, spread_seconds_median=0.2, spread_sigma=1.5)
    )
    for number in range(40):
        await service.send("q.fifo", in_group("a", f"{number:02}"))
    bodies: list[str] = []
    while len(bodies) < 40:
        copies = await received(service, 7, 1.0)
        bodies += [copy.body for copy in copies]
        await service.delete("q.fifo", [copy.receipt_handle for copy in copies])
    assert bodies == sorted(bodies)


async def test_a_deduplication_id_stores_once_in_five_minutes(clock: VirtualClock) -> None:
    """The same id is accepted with the number of the first message, until it is forgotten."""
    service = await a_fifo_sqs(clock)
    first = await service.send("q.fifo", in_group("a", "once"))
    assert await service.send("q.fifo", in_group("a", "once")) == first
    (copy,) = await received(service, 10)
    await service.delete("q.fifo", [copy.receipt_handle])
    assert await service.send("q.fifo", in_group("a", "once")) == first
    await asyncio.sleep(300.0)
    assert await service.send("q.fifo", in_group("a", "once")) != first


@pytest.mark.parametrize(
    ("attributes", "admitted_per_second"),
    [(FIFO, 300), (FIFO | {"FifoThroughputLimit": "perMessageGroupId"}, 2400)],
)
async def test_a_fifo_queue_has_a_quota_for_each_action(
    clock: VirtualClock, attributes: dict[str, str], admitted_per_second: float
) -> None:
    """300 requests a second and no more, or what high throughput allows; messages in a batch count once."""
    quick = ActionTruth(request_seconds=0.001, variation=0.0)

    service = await a_fifo_sqs(
        clock, QueueTruth(send=quick, receive=quick, delete=quick), attributes=attributes
    )

    async def send_on(thread: int) -> None:
        for number in range(10**6):
            with contextlib.suppress(SqsError):
                await service.send("q.fifo", in_group(f"{thread}", f"{thread}-{number}"))

    threads = [asyncio.create_task(send_on(thread)) for thread in range(10)]
    await asyncio.sleep(4.0)
    for thread in threads:
        thread.cancel()
    counts = service.counts
    rate = (counts.request_count - counts.throttled_count) / clock.monotonic_seconds()
    assert rate == pytest.approx(admitted_per_second, rel=0.08)


async def test_what_a_fifo_queue_refuses(clock: VirtualClock) -> None:
    """A name without its ending, a message without group or deduplication id, a delay of its own."""
    service = await a_fifo_sqs(clock)
    with pytest.raises(SqsError, match="ends in"):
        await service.create_queue("other", FIFO)
    with pytest.raises(SqsError, match="ends in"):
        await service.create_queue("other.fifo", {})
    with pytest.raises(SqsError, match="MessageGroupId"):
        await service.send("q.fifo", [Sending(body="x")])
    with pytest.raises(SqsError, match="MessageDeduplicationId"):
        await service.send("q.fifo", [Sending(body="x", group="a")])
    with pytest.raises(SqsError, match="DelaySeconds"):
        await service.send("q.fifo", [Sending(body="x", group="a", delay_seconds=1.0)])
