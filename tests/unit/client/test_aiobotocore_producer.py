"""Sending messages from an event loop: what waits, what is cancelled, and what becomes of each message."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.advice import default_advice
from penstock.client.queues import advised as queue_advice
from penstock.client.queues import sending
from penstock.client.queues.aiobotocore_producer import AsyncQueueProducer
from penstock.client.queues.sending import BATCH_BYTES_MAX, SendFailedError
from penstock.units import KiB
from tests.unit.client.test_boto3_producer import FIFO, INTERNAL, REFUSED, URL, Queue, advice, at_first
from tests.waiting import comes

PATIENCE_SECONDS = 20.0


class AsyncQueue(Queue):
    """The same queue for a client of aiobotocore, which answers when it may."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.let_go: asyncio.Event | None = None
        self.asked_count = 0

    async def send_message_batch(self, **request: Any) -> dict[str, Any]:  # type: ignore[override]
        """As aiobotocore's."""
        self.asked_count += 1
        await asyncio.sleep(0)
        if self.let_go is not None:
            await self.let_go.wait()
        return super().send_message_batch(**request)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_PAUSE_SECONDS", 0.001)


def producing(queue: Queue, url: str = URL, **options: Any) -> AsyncQueueProducer:
    return AsyncQueueProducer(queue, url, **{"advice": advice(), **options})


def bodies(queue: Queue) -> list[str]:
    return [entry["MessageBody"] for entry in queue.taken]


async def test_messages_share_requests_and_each_is_told_its_own() -> None:
    """As many as are advised, of what many tasks send; what is refused for what it is fails alone."""
    queue = AsyncQueue(at_first(99, REFUSED, of="13"))
    async with producing(queue) as producer:
        futures = await asyncio.gather(*(producer.send(str(n)) for n in range(100)))
    assert len(queue.batches) < 50
    told = {int(body): str(n) for n, body in enumerate(bodies(queue), 1)}
    assert [futures[n].result()["MessageId"] for n in told] == [*told.values()]
    with pytest.raises(SendFailedError, match="InvalidMessageContents: no"):
        futures[13].result()


@settings(max_examples=20, deadline=None)
@given(
    messages=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, BATCH_BYTES_MAX // 3)), max_size=40),
    held=st.integers(1, 10),
    seed=st.integers(0, 99),
)
def test_each_group_keeps_its_order(messages: list[tuple[str, int]], held: int, seed: int) -> None:
    """Of many tasks as they came, whatever of a batch is refused, and however many have to wait to be accepted."""
    chance = random.Random(seed)
    queue = AsyncQueue(lambda _: INTERNAL if chance.random() < 0.3 else None)

    async def send_all() -> None:
        async with producing(queue, FIFO) as producer:
            await asyncio.gather(
                *(
                    producer.send(f"{n}:{'x' * size}", MessageGroupId=g)
                    for n, (g, size) in enumerate(messages)
                )
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sending, "HELD_COUNT_MAX", held)
        asyncio.run(send_all())
    for group in "abc":
        taken = [int(e["MessageBody"].partition(":")[0]) for e in queue.taken if e["MessageGroupId"] == group]
        assert taken == [n for n, (other, _) in enumerate(messages) if other == group]
    for entries in queue.batches:
        assert sum(len(entry["MessageBody"]) for entry in entries) <= BATCH_BYTES_MAX


@pytest.mark.parametrize(
    ("name", "bound", "body"), [("HELD_COUNT_MAX", 5, "x"), ("HELD_BYTES_MAX", 5 * KiB, "x" * KiB)]
)
async def test_who_sends_waits_while_too_many_are_held(
    name: str, bound: int, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded; who is cancelled while he waits has sent nothing, and lets the next one pass."""
    monkeypatch.setattr(sending, name, bound)
    queue = AsyncQueue()
    queue.let_go = asyncio.Event()
    async with producing(queue) as producer:
        sends = [asyncio.ensure_future(producer.send(body)) for _ in range(9)]
        await comes(lambda: queue.asked_count)
        assert sum(send.done() for send in sends) == 5
        for waiting in sends[5:7]:  # the first of those that wait, and one behind it
            waiting.cancel()
        queue.let_go.set()
        assert (await sends[8]) is not None
    assert [send.cancelled() for send in sends] == [n in {5, 6} for n in range(9)]
    assert len(queue.taken) == 7


async def test_who_gives_up_waiting_for_an_answer_has_sent_all_the_same() -> None:
    """A future that is cancelled is told nothing, and ends no task that sends."""
    queue = AsyncQueue()
    queue.let_go = asyncio.Event()
    async with producing(queue, advice=advice(threads=1)) as producer:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(await producer.send("one"), 0.05)
        queue.let_go.set()
        assert (await (await producer.send("two")))["MessageId"] == "2"
    assert bodies(queue) == ["one", "two"]


async def test_what_was_accepted_is_sent_when_the_buffer_is_full_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who still waits to be accepted is told that it is closed."""
    monkeypatch.setattr(sending, "HELD_COUNT_MAX", 3)
    queue = AsyncQueue()
    queue.let_go = asyncio.Event()
    async with producing(queue, FIFO) as producer:
        sends = [asyncio.ensure_future(producer.send(str(n), MessageGroupId="g")) for n in range(6)]
        await comes(lambda: queue.asked_count)
        closing = asyncio.ensure_future(producer.aclose())
        await comes(lambda: all(send.done() for send in sends))
        assert not queue.taken
        queue.let_go.set()
        await closing
    done = await asyncio.gather(*sends, return_exceptions=True)
    assert [isinstance(one, RuntimeError) for one in done] == [False] * 3 + [True] * 3
    assert bodies(queue) == ["0", "1", "2"]
    with pytest.raises(RuntimeError, match="closed"):
        await producer.send("more")


async def test_nobody_overtakes_who_waits_to_be_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes when there is room again is behind who came before: a group would be in another order."""
    monkeypatch.setattr(sending, "HELD_COUNT_MAX", 1)
    queue, sends = AsyncQueue(), list[asyncio.Future[Any]]()
    queue.let_go = asyncio.Event()
    async with producing(queue, FIFO) as producer:

        def send(body: str) -> None:
            sends.append(asyncio.ensure_future(producer.send(body, MessageGroupId="g")))

        (await producer.send("first", MessageGroupId="g")).add_done_callback(lambda _: send("third"))
        send("second")
        await comes(lambda: queue.asked_count)
        queue.let_go.set()
        await comes(lambda: len(sends) == 2 and sends[1].done())
    assert bodies(queue) == ["first", "second", "third"]


async def test_a_cancel_while_it_closes_says_what_was_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    """Of what was on its way that nobody knows it, of what stood behind it that it was not; no task is left."""
    queue = AsyncQueue()
    queue.let_go = asyncio.Event()
    producer = producing(queue, FIFO)
    async with producer:
        futures = [await producer.send(str(n), MessageGroupId="g") for n in range(3)]
        await comes(lambda: queue.asked_count)
        closing = asyncio.ensure_future(producer.aclose())
        await asyncio.sleep(0.01)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    codes = [
        error.code for error in map(asyncio.Future.exception, futures) if isinstance(error, SendFailedError)
    ]
    assert codes == ["Unsaid", "NotSent", "NotSent"]
    assert "3 messages" in caplog.text
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_who_is_cancelled_sends_what_was_accepted_and_waits_for_it_no_longer_than_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the end of a process does with threads."""
    monkeypatch.setattr("penstock.client.queues.aiobotocore_producer.EXIT_SECONDS_MAX", 0.05)
    for is_answering in (True, False):
        queue, futures = AsyncQueue(), list[asyncio.Future[Any]]()
        queue.let_go = asyncio.Event()
        task = asyncio.ensure_future(_send_and_wait(queue, futures))
        await comes(lambda: queue.asked_count)  # noqa: B023 - within the same turn
        if is_answering:
            queue.let_go.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [future.exception() is None for future in futures] == [is_answering] * 3


async def _send_and_wait(queue: Queue, futures: list[asyncio.Future[Any]], **options: Any) -> None:
    async with producing(queue, **options) as producer:
        futures += [await producer.send(str(n)) for n in range(3)]
        await asyncio.sleep(PATIENCE_SECONDS)


def test_what_was_accepted_is_sent_at_the_end_of_a_loop() -> None:
    """Which cancels every task at once: who sends in the middle of a request, and who would have closed."""
    queue, futures = AsyncQueue(), list[asyncio.Future[Any]]()

    async def main() -> asyncio.Task[None]:
        queue.let_go = asyncio.Event()
        task = asyncio.ensure_future(_send_and_wait(queue, futures))
        await comes(lambda: queue.asked_count)
        asyncio.get_running_loop().call_soon(queue.let_go.set)
        return task

    assert asyncio.run(main()).cancelled()
    assert {"0", "1", "2"} == set(bodies(queue))
    assert all(future.exception() is None for future in futures)


@pytest.mark.parametrize("have_ended", [True, False])
async def test_what_is_accepted_is_sent_though_all_tasks_were_cancelled(*, have_ended: bool) -> None:
    """But that of who sends: nobody sent it any more, and who waited for it waited for ever."""
    queue = AsyncQueue()
    async with producing(queue) as producer:
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        if have_ended:
            await asyncio.sleep(0)
        assert await asyncio.wait_for(await producer.send("one"), PATIENCE_SECONDS)
    assert bodies(queue) == ["one"]


class SlowToEnd(AsyncQueue):
    """Its first request ends when it is cancelled, and not at once: its connection is closed before."""

    async def send_message_batch(self, **request: Any) -> dict[str, Any]:  # type: ignore[override]
        """As aiobotocore's."""
        if not self.asked_count:
            self.asked_count += 1
            try:
                await asyncio.sleep(PATIENCE_SECONDS)
            finally:
                await asyncio.sleep(0.01)
        return await super().send_message_batch(**request)


def test_what_was_accepted_is_sent_where_a_request_ends_slowly_at_the_end_of_a_loop() -> None:
    """Who sent it had not ended when others were begun for those that had, and then nobody was there."""
    queue, futures = SlowToEnd(), list[asyncio.Future[Any]]()

    async def main() -> None:
        asyncio.ensure_future(_send_and_wait(queue, futures, advice=advice(threads=1)))  # noqa: RUF006 - the loop ends it
        await comes(lambda: queue.asked_count)

    asyncio.run(main())
    assert {"0", "1", "2"} == set(bodies(queue))
    assert all(future.exception() is None for future in futures)


async def test_a_cancel_while_the_last_request_ends_leaves_no_future_without_an_end() -> None:
    """Who waited for what was never sent waited for ever."""
    queue = SlowToEnd()
    async with producing(queue, FIFO) as producer:
        futures = [await producer.send(str(n), MessageGroupId="g") for n in range(3)]
        await comes(lambda: queue.asked_count)
        closing = asyncio.ensure_future(producer.aclose())
        for _ in range(2):  # who sends is cancelled, and before he has ended who waits for that
            await asyncio.sleep(0.005)
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert all(future.exception() for future in futures)


async def test_nothing_is_accepted_before_it_is_opened() -> None:
    """Nobody would send it."""
    with pytest.raises(RuntimeError, match="async with"):
        await producing(AsyncQueue()).send("early")
    async with producing(AsyncQueue()) as producer:
        with pytest.raises(ValueError, match="SQS takes"):
            await producer.send("x" * (BATCH_BYTES_MAX + 1))
        assert await producer.flush(timeout_seconds=1.0)


async def test_it_follows_the_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a daemon that comes later, with no more tasks than the client has connections."""
    found = [
        default_advice("sqs_delivery", 1024, "none"),
        advice(threads=3, batch=7),
        advice(threads=99, batch=5),
    ]
    monkeypatch.setattr(queue_advice, "advise_in", lambda *_: found[0] if len(found) == 1 else found.pop(0))
    monkeypatch.setattr(sending, "_FOLLOW_SECONDS", 0.0)
    followed = list[tuple[int, int, int]]()
    async with AsyncQueueProducer(AsyncQueue(), URL) as producer:
        for _ in range(3):
            count = (producer.sender_thread_count, producer.batch_message_count, len(producer._tasks))
            followed.append(count)
            await (await producer.send("one"))
    assert followed == [(1, 1, 1), (3, 7, 3), (8, 5, 8)]
