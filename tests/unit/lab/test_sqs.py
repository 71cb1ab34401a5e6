"""What becomes of messages in the lab's SQS."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from penstock.lab.sqs import ActionTruth, Copy, QueueTruth, Sending, SqsError, SqsService
from penstock.lab.virtual_time import VirtualClock, run_virtually

ResultT = TypeVar("ResultT")

TEN_MS = ActionTruth(request_seconds=0.010, variation=0.0)
A_QUEUE = QueueTruth(send=TEN_MS, receive=TEN_MS, delete=TEN_MS)


def with_queue(
    story: Callable[[SqsService, VirtualClock], Awaitable[ResultT]],
    truth: QueueTruth = A_QUEUE,
    *,
    seed: int = 0,
) -> ResultT:
    """Tell the story with a new SQS that has the queue `q`."""

    async def tell(clock: VirtualClock) -> ResultT:
        service = SqsService(truth, clock=clock, seed=seed)
        await service.create_queue("q", {})
        return await story(service, clock)

    return run_virtually(tell, start_at=datetime(2026, 1, 1, tzinfo=UTC))


async def counts(service: SqsService) -> tuple[int, int, int]:
    """Return how many messages are visible, in flight and delayed."""
    queue = service.queue("q")
    queue.release()
    return queue.visible_count, queue.in_flight_count, queue.delayed_count


def test_a_message_is_hidden_then_back_then_gone() -> None:
    """Received is in flight; after the visibility timeout it is back; deleted is gone."""

    async def life(service: SqsService, _clock: VirtualClock) -> list[tuple[int, int, int]]:
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
        return seen

    assert with_queue(life) == [(1, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 0)]


def test_only_the_newest_handle_deletes() -> None:
    """A delete with an older handle succeeds and does nothing; the newest works even when time is over."""

    async def life(service: SqsService, _clock: VirtualClock) -> list[object]:
        await service.send("q", [Sending(body="hello")])
        (old,) = await service.receive("q", wait_seconds=1)
        await asyncio.sleep(31)
        (new,) = await service.receive("q", wait_seconds=1)
        seen: list[object] = [old.message_id == new.message_id, old.receipt_handle == new.receipt_handle]
        seen += [await service.delete("q", [old.receipt_handle]), await counts(service)]
        await asyncio.sleep(31)
        seen += [await service.delete("q", [new.receipt_handle]), await counts(service)]
        return seen

    assert with_queue(life) == [True, False, [None], (0, 1, 0), [None], (0, 0, 0)]


def test_old_handles_can_be_told_to_delete() -> None:
    """Where the truth says so, any handle removes the message."""

    async def life(service: SqsService, _clock: VirtualClock) -> tuple[int, int, int]:
        await service.send("q", [Sending(body="hello")])
        (old,) = await service.receive("q", wait_seconds=1)
        await asyncio.sleep(31)
        await service.receive("q", wait_seconds=1)
        await service.delete("q", [old.receipt_handle])
        return await counts(service)

    assert with_queue(life, dataclasses.replace(A_QUEUE, old_handle_deletes=True)) == (0, 0, 0)


def test_a_handle_from_elsewhere_is_invalid() -> None:
    """What never was a handle is refused, beside the others of its batch."""

    async def life(service: SqsService, _clock: VirtualClock) -> list[str | None]:
        await service.send("q", [Sending(body="hello")])
        (copy,) = await service.receive("q", wait_seconds=1)
        results = await service.delete("q", [copy.receipt_handle, "nonsense"])
        return [result.code if result else None for result in results]

    assert with_queue(life) == [None, "ReceiptHandleIsInvalid"]


def test_a_long_poll_ends_with_the_first_message() -> None:
    """A parked receive is answered half a request after the message can be found, and costs no load."""
    truth = dataclasses.replace(A_QUEUE, spread_seconds_median=0.1)

    async def wait(service: SqsService, clock: VirtualClock) -> float:
        began = clock.monotonic_seconds()
        receive = asyncio.create_task(service.receive("q", wait_seconds=20))
        await asyncio.sleep(5)
        await service.send("q", [Sending(body="hello")])
        assert len(await receive) == 1
        return clock.monotonic_seconds() - began

    assert with_queue(wait, truth) == pytest.approx(5 + 0.005 + 0.1 + 0.005)


def test_a_long_poll_gives_up_when_its_time_is_over() -> None:
    """An empty receive takes its wait and its request."""

    async def wait(service: SqsService, clock: VirtualClock) -> float:
        began = clock.monotonic_seconds()
        assert await service.receive("q", wait_seconds=3) == []
        return clock.monotonic_seconds() - began

    assert with_queue(wait) == pytest.approx(3.010)


def test_a_short_poll_looks_into_some_shards_only() -> None:
    """One message, 5 of 16 shards: found in about 5 of 16 short polls, and in every long one."""

    async def poll(service: SqsService, _clock: VirtualClock) -> tuple[float, int]:
        found = 0
        for _ in range(800):
            await service.send("q", [Sending(body="hello")])
            copies = await service.receive("q")
            found += len(copies)
            copies = copies or await service.receive("q", wait_seconds=1)
            await service.delete("q", [copy.receipt_handle for copy in copies])
        return found / 800, sum(await counts(service))

    fraction, rest = with_queue(poll)
    assert fraction == pytest.approx(5 / 16, abs=0.06)
    assert rest == 0


def test_a_batch_costs_its_request_and_its_messages() -> None:
    """l0 + l1 * b for each action; a receive pays for what it brings."""
    slow = ActionTruth(request_seconds=0.010, message_seconds=0.002, variation=0.0)

    async def batch(service: SqsService, clock: VirtualClock) -> list[float]:
        times = [clock.monotonic_seconds()]
        await service.send("q", [Sending(body="x")] * 10)
        times.append(clock.monotonic_seconds())
        copies = await service.receive("q", message_count_max=10, wait_seconds=1)
        times.append(clock.monotonic_seconds())
        await service.delete("q", [copy.receipt_handle for copy in copies])
        times.append(clock.monotonic_seconds())
        return [after - before for before, after in itertools.pairwise(times)]

    taken = with_queue(batch, QueueTruth(send=slow, receive=slow, delete=slow))
    assert taken == [pytest.approx(0.030)] * 3


def test_concurrency_follows_the_universal_scalability_law() -> None:
    """With n in service each takes 1 + sigma (n - 1) + kappa n (n - 1) times as long."""
    truth = dataclasses.replace(A_QUEUE, contention=0.01, coherency=0.001)

    async def flood(service: SqsService, clock: VirtualClock) -> float:
        sent = 0

        async def send_for_ever() -> None:
            nonlocal sent
            while clock.monotonic_seconds() < 30:
                await service.send("q", [Sending(body="x")])
                sent += 1

        await asyncio.gather(*(send_for_ever() for _ in range(20)))
        return sent / clock.monotonic_seconds()

    expected = 20 / (0.010 * (1 + 0.01 * 19 + 0.001 * 20 * 19))
    assert with_queue(flood, truth) == pytest.approx(expected, rel=0.03)


def test_each_action_has_its_own_request_limit() -> None:
    """Sends above their limit are throttled; receives are not touched by that."""
    limited = ActionTruth(request_seconds=0.010, variation=0.0, request_rate_per_second_max=10.0)

    async def hammer(service: SqsService, clock: VirtualClock) -> tuple[int, int]:
        accepted = throttled = 0
        while clock.monotonic_seconds() < 20:
            try:
                accepted += len(await service.send("q", [Sending(body="x")]))
            except SqsError as error:
                throttled += error.code == "RequestThrottled"
        for _ in range(100):
            await service.receive("q")
        return accepted, throttled

    accepted, throttled = with_queue(hammer, dataclasses.replace(A_QUEUE, send=limited))
    assert accepted == pytest.approx(200, abs=4)
    assert throttled > 1000


def test_one_slow_deleter_fills_the_queue_with_copies() -> None:
    """The collapse: a deleter slower than the sender, an unbounded backlog, and copies once it is V old."""
    truth = dataclasses.replace(
        A_QUEUE,
        delete=ActionTruth(request_seconds=0.012, variation=0.0),
        receive=ActionTruth(request_seconds=0.002, variation=0.0),
        visibility_timeout_seconds=5,
    )

    async def blast(service: SqsService, clock: VirtualClock) -> list[int]:
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
        return counted

    before, after = with_queue(blast, truth)
    assert before == 0  # the backlog reaches V = 5 s only after V / (1.2 - 1) = 25 s
    assert after > 1000


def test_attributes_tell_where_the_messages_are() -> None:
    """Visible, in flight and delayed are counted apart; a queue's own settings are among the attributes."""

    async def ask(service: SqsService, _clock: VirtualClock) -> dict[str, str]:
        await service.send("q", [Sending(body="a"), Sending(body="b"), Sending(body="c", delay_seconds=60.0)])
        await service.receive("q", wait_seconds=1)
        return await service.attributes("q")

    attributes = with_queue(ask)
    assert attributes["ApproximateNumberOfMessages"] == "1"
    assert attributes["ApproximateNumberOfMessagesNotVisible"] == "1"
    assert attributes["ApproximateNumberOfMessagesDelayed"] == "1"
    assert attributes["VisibilityTimeout"] == "30"


def test_in_flight_messages_have_a_limit() -> None:
    """At the limit a receive is refused with OverLimit."""

    async def fill(service: SqsService, _clock: VirtualClock) -> str:
        await service.send("q", [Sending(body="x")] * 10)
        await service.receive("q", message_count_max=10, wait_seconds=1)
        with pytest.raises(SqsError) as caught:
            await service.receive("q")
        return caught.value.code

    assert with_queue(fill, dataclasses.replace(A_QUEUE, in_flight_max=10)) == "OverLimit"


def test_visibility_can_be_changed() -> None:
    """A copy can be hidden for longer, or given back at once."""

    async def change(service: SqsService, _clock: VirtualClock) -> list[tuple[int, int, int]]:
        await service.send("q", [Sending(body="hello")])
        (copy,) = await service.receive("q", wait_seconds=1)
        await service.change_visibility("q", copy.receipt_handle, 100)
        await asyncio.sleep(90)
        seen = [await counts(service)]
        await service.change_visibility("q", copy.receipt_handle, 0)
        return [*seen, await counts(service)]

    assert with_queue(change) == [(0, 1, 0), (1, 0, 0)]


def test_messages_expire() -> None:
    """What nobody fetched within the retention period is not delivered any more."""

    async def forget(service: SqsService, _clock: VirtualClock) -> int:
        service.queue("q").attributes["MessageRetentionPeriod"] = "60"
        await service.send("q", [Sending(body="hello")])
        await asyncio.sleep(61)
        return len(await service.receive("q", wait_seconds=1)) + sum(await counts(service))

    assert with_queue(forget) == 0


def test_a_missing_queue_is_named() -> None:
    """A queue that is not there, or no longer, is QueueDoesNotExist."""

    async def ask(service: SqsService, _clock: VirtualClock) -> str:
        await service.delete_queue("q")
        with pytest.raises(SqsError) as caught:
            await service.send("q", [Sending(body="x")])
        return caught.value.code

    assert with_queue(ask) == "QueueDoesNotExist"


def test_a_receiver_that_leaves_passes_its_message_on() -> None:
    """A long poll that is broken off just as it was woken does not leave the next one waiting."""

    async def leave(service: SqsService, clock: VirtualClock) -> float:
        began = clock.monotonic_seconds()
        first = asyncio.create_task(service.receive("q", wait_seconds=20))
        await asyncio.sleep(1)
        second = asyncio.create_task(service.receive("q", wait_seconds=20))
        await asyncio.sleep(1)
        service.queue("q").add(Sending(body="hello"), 0.0)
        first.cancel()
        assert len(await second) == 1
        return clock.monotonic_seconds() - began

    assert with_queue(leave) == pytest.approx(2.005)


def test_the_same_seed_is_the_same_day() -> None:
    """Two worlds of one seed treat their messages alike to the last bit; another seed does not."""
    varied = ActionTruth(request_seconds=0.010, variation=0.5)
    truth = QueueTruth(
        send=varied, receive=varied, delete=varied, spread_seconds_median=0.01, spread_sigma=0.5
    )

    async def day(service: SqsService, clock: VirtualClock) -> tuple[float, list[str]]:
        received = []
        for _ in range(50):
            await service.send("q", [Sending(body="x")])
            received += [copy.message_id for copy in await service.receive("q")]
        return clock.monotonic_seconds(), received

    assert with_queue(day, truth, seed=7) == with_queue(day, truth, seed=7)
    assert with_queue(day, truth, seed=7) != with_queue(day, truth, seed=8)


FIFO = {"FifoQueue": "true"}


def with_fifo(
    story: Callable[[SqsService, VirtualClock], Awaitable[ResultT]],
    truth: QueueTruth = A_QUEUE,
    *,
    attributes: dict[str, str] = FIFO,
) -> ResultT:
    """Tell the story with a new SQS that has the queue `q.fifo`."""

    async def tell(clock: VirtualClock) -> ResultT:
        service = SqsService(truth, clock=clock, seed=0)
        await service.create_queue("q.fifo", attributes)
        return await story(service, clock)

    return run_virtually(tell, start_at=datetime(2026, 1, 1, tzinfo=UTC))


def in_group(group: str, *bodies: str) -> list[Sending]:
    """Messages of one group, each with its body as deduplication id."""
    return [Sending(body=body, group=group, deduplication_id=body) for body in bodies]


async def received(service: SqsService, count: int, wait_seconds: float = 0.0) -> list[Copy]:
    """Receive from the FIFO queue."""
    return await service.receive("q.fifo", message_count_max=count, wait_seconds=wait_seconds)


def test_a_group_is_in_order_and_one_receiver_at_a_time() -> None:
    """While a message of a group is in flight nobody gets the next one; other groups go on."""

    async def life(service: SqsService, _clock: VirtualClock) -> None:
        await service.send("q.fifo", [*in_group("a", "a1", "a2", "a3"), *in_group("b", "b1")])
        first = await received(service, 2)
        assert [copy.body for copy in first] == ["a1", "a2"]
        assert [copy.body for copy in await received(service, 10)] == ["b1"]
        assert await received(service, 10) == []
        await service.delete("q.fifo", [first[0].receipt_handle])
        assert await received(service, 10) == []  # a2 is still in flight
        await service.delete("q.fifo", [first[1].receipt_handle])
        assert [copy.body for copy in await received(service, 10)] == ["a3"]

    with_fifo(life)


def test_a_message_that_comes_back_is_first_again() -> None:
    """After the visibility timeout the group starts where it was, and the expired handle is refused."""

    async def life(service: SqsService, _clock: VirtualClock) -> None:
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

    with_fifo(life)


def test_a_waiting_receive_gets_what_a_delete_sets_free() -> None:
    """A long poll parked on a blocked group ends with the delete, not with its wait."""

    async def life(service: SqsService, clock: VirtualClock) -> None:
        await service.send("q.fifo", in_group("a", "a1", "a2"))
        (first,) = await received(service, 1)
        waiting = asyncio.create_task(received(service, 10, 20.0))
        await asyncio.sleep(5.0)
        began_seconds = clock.monotonic_seconds()
        await service.delete("q.fifo", [first.receipt_handle])
        assert [copy.body for copy in await waiting] == ["a2"]
        assert clock.monotonic_seconds() - began_seconds < 0.1

    with_fifo(life)


def test_order_survives_uneven_spreading() -> None:
    """However long a message takes to be seen, a later one of its group is never seen before it."""

    async def life(service: SqsService, _clock: VirtualClock) -> list[str]:
        for number in range(40):
            await service.send("q.fifo", in_group("a", f"{number:02}"))
        bodies: list[str] = []
        while len(bodies) < 40:
            copies = await received(service, 7, 1.0)
            bodies += [copy.body for copy in copies]
            await service.delete("q.fifo", [copy.receipt_handle for copy in copies])
        return bodies

    bodies = with_fifo(life, dataclasses.replace(A_QUEUE, spread_seconds_median=0.2, spread_sigma=1.5))
    assert bodies == sorted(bodies)


def test_a_deduplication_id_stores_once_in_five_minutes() -> None:
    """The same id is accepted with the number of the first message, until it is forgotten."""

    async def life(service: SqsService, _clock: VirtualClock) -> None:
        first = await service.send("q.fifo", in_group("a", "once"))
        assert await service.send("q.fifo", in_group("a", "once")) == first
        (copy,) = await received(service, 10)
        await service.delete("q.fifo", [copy.receipt_handle])
        assert await service.send("q.fifo", in_group("a", "once")) == first
        await asyncio.sleep(300.0)
        assert await service.send("q.fifo", in_group("a", "once")) != first

    with_fifo(life)


@pytest.mark.parametrize(
    ("attributes", "admitted_per_second"),
    [(FIFO, 300), (FIFO | {"FifoThroughputLimit": "perMessageGroupId"}, 2400)],
)
def test_a_fifo_queue_has_a_quota_for_each_action(
    attributes: dict[str, str], admitted_per_second: float
) -> None:
    """300 requests a second and no more, or what high throughput allows; messages in a batch count once."""
    quick = ActionTruth(request_seconds=0.001, variation=0.0)

    async def life(service: SqsService, clock: VirtualClock) -> float:
        async def send_on(thread: int) -> None:
            for number in range(10**6):
                with contextlib.suppress(SqsError):
                    await service.send("q.fifo", in_group(f"{thread}", f"{thread}-{number}"))

        threads = [asyncio.create_task(send_on(thread)) for thread in range(10)]
        await asyncio.sleep(4.0)
        for thread in threads:
            thread.cancel()
        counts = service.counts
        return (counts.request_count - counts.throttled_count) / clock.monotonic_seconds()

    rate = with_fifo(life, QueueTruth(send=quick, receive=quick, delete=quick), attributes=attributes)
    assert rate == pytest.approx(admitted_per_second, rel=0.08)


def test_what_a_fifo_queue_refuses() -> None:
    """A name without its ending, a message without group or deduplication id, a delay of its own."""

    async def life(service: SqsService, _clock: VirtualClock) -> None:
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

    with_fifo(life)
