"""Consuming a queue in an event loop, where things end half way: handlers, polls and loops that are cancelled.

What it has in common with threads is tried for both in `test_boto3_queue`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.client.advice import Advice, default_advice
from penstock.client.queues import advised as queue_advice
from penstock.client.queues import aiobotocore_queue, consuming
from penstock.client.queues.aiobotocore_queue import AsyncQueueConsumer
from tests.advice import a_queue_advice
from tests.sdk import KeptReports, a_meta
from tests.unit.client.test_boto3_queue import (
    URL,
    FakeQueue,
    advice,
    haste,  # noqa: F401 - for each test here, too
)
from tests.waiting import comes

FOR_EVER = 200.0


class AsyncQueue(FakeQueue):
    """The same queue for a client of aiobotocore; while it is empty, its polls wait."""

    def __init__(self, message_count: int, *, connection_count: int = 50) -> None:
        super().__init__(message_count)
        self.meta = a_meta(connection_count)
        self.polling_count = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.endswith(("_message", "_batch", "_attributes")):
            return found

        async def request(**parameters: Any) -> Any:
            await asyncio.sleep(0)
            if name == "receive_message":
                self.polling_count += 1
                try:
                    while not self._visible:  # noqa: ASYNC110 - tests put messages there, and tell nobody
                        await asyncio.sleep(0.001)
                finally:
                    self.polling_count -= 1
            return found(**parameters)

        request.__name__ = name
        return request


Handle = Callable[[Mapping[str, Any]], Awaitable[object]]


def a_consumer(queue: FakeQueue, handle: Handle, *, given: Advice | None = None) -> AsyncQueueConsumer:
    options: Any = {"advice": given or advice(), "reporter": KeptReports(), "long_poll_seconds": 1}
    return AsyncQueueConsumer(queue, URL, handle, **options)


class Handler:
    """Holds what it gets until it may go on, and counts how each ended."""

    def __init__(self) -> None:
        self.begun, self.cancelled, self.done = list[str](), list[str](), list[str]()
        self.let_go = asyncio.Event()

    async def __call__(self, message: Mapping[str, Any]) -> None:
        number = message["MessageId"]
        self.begun.append(number)
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        self.done.append(number)


def of_this_test() -> set[Any]:
    """Tasks beside the test's own that are no polls."""
    return asyncio.all_tasks() - {asyncio.current_task()} - aiobotocore_queue._left_behind


async def test_a_cancel_gives_all_back_at_once() -> None:
    """What is being handled is cancelled, and given back like the rest; nothing is left running."""
    queue, handler = AsyncQueue(30), Handler()
    running = asyncio.ensure_future(a_consumer(queue, handler).run())
    await comes(lambda: len(handler.begun) == 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(handler.cancelled) == sorted(handler.begun)
    assert {seconds for _, seconds in queue.given_back} == {0}
    assert sorted(number for number, _ in queue.given_back) == sorted(f"m{n}" for n in range(30))
    assert queue.in_flight == set()
    assert not of_this_test()


async def test_who_leaves_the_block_waits_for_what_is_being_handled() -> None:
    """That is deleted; what was not begun is given back meanwhile."""
    queue, handler = AsyncQueue(30), Handler()
    async with a_consumer(queue, handler) as consumer:
        await comes(lambda: len(handler.begun) == 3)
        consumer.stop()
        await comes(lambda: len(queue.given_back) == 27)
        handler.let_go.set()
    assert handler.done == handler.begun
    assert queue.left == {number for number, _ in queue.given_back}
    assert consumer.undeleted_count == 0
    assert not of_this_test()


async def test_an_error_in_the_block_cancels_what_is_being_handled() -> None:
    """As a group of tasks does; the error is not hidden."""
    queue, handler = AsyncQueue(3), Handler()
    with pytest.raises(ZeroDivisionError):
        async with a_consumer(queue, handler):
            await comes(lambda: handler.begun and 1 / 0)
    assert handler.cancelled == handler.begun
    assert queue.in_flight == set()


async def test_a_cancel_while_it_waits_for_the_last_ones_ends_them() -> None:
    """Whoever bounds the end of an application with a time-out loses nothing by it."""
    queue, handler = AsyncQueue(30), Handler()
    consumer = a_consumer(queue, handler)
    running = asyncio.ensure_future(consumer.run())
    await comes(lambda: len(handler.begun) == 3)
    consumer.stop()
    await comes(lambda: len(queue.given_back) == 27)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(queue.given_back) == 30
    assert queue.in_flight == set()


async def test_what_a_handler_finishes_although_it_is_cancelled_is_deleted() -> None:
    """It has done its work: to give it back would have it done twice."""
    queue, is_begun = AsyncQueue(1), asyncio.Event()

    async def handle(_message: Mapping[str, Any]) -> None:
        is_begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(FOR_EVER)

    running = asyncio.ensure_future(a_consumer(queue, handle).run())
    await is_begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (queue.left, queue.given_back) == (set(), [])


@pytest.mark.parametrize("moment", range(6))
def test_the_end_of_a_loop_loses_nothing(moment: int) -> None:
    """It cancels every task at once, whatever each is about: what was handled is deleted, the rest is given back."""
    queue, handled = AsyncQueue(40), Counter[str]()

    async def handle(message: Mapping[str, Any]) -> None:
        await asyncio.sleep(0.0005 if moment % 2 else 0)
        handled.update([message["MessageId"]])

    async def main() -> None:
        running = asyncio.ensure_future(a_consumer(queue, handle, given=advice(batch=4)).run())
        await comes(lambda: len(handled) > moment)
        assert not running.done()

    asyncio.run(main())
    assert queue.in_flight == set()
    assert queue.left == {f"m{n}" for n in range(40)} - handled.keys()
    assert set(handled.values()) == {1}


class SlowToEnd(AsyncQueue):
    """Its first deletions end when they are cancelled, and not at once: their connections are closed before."""

    deleting_count = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name != "delete_message_batch" or self.deleting_count == 2:
            return found

        async def request(**_: Any) -> None:
            self.deleting_count += 1
            try:
                await asyncio.sleep(FOR_EVER)
            finally:
                await asyncio.sleep(0.01)

        request.__name__ = name
        return request


def test_what_was_handled_is_deleted_where_requests_end_slowly_at_the_end_of_a_loop() -> None:
    """Those who deleted had not ended when others were begun for those that had, and then nobody was there."""
    queue, handled = SlowToEnd(40), Counter[str]()

    async def handle(message: Mapping[str, Any]) -> None:
        handled.update([message["MessageId"]])

    async def main() -> None:
        asyncio.ensure_future(a_consumer(queue, handle).run())  # noqa: RUF006 - the loop ends it
        await comes(lambda: queue.deleting_count == 2)

    asyncio.run(main())
    assert queue.in_flight == set()
    assert queue.left == {f"m{n}" for n in range(40)} - handled.keys()


async def test_a_consumer_whose_tasks_are_cancelled_ends_and_gives_all_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who cancels all tasks but his own had one that stood there, and received nothing any more."""
    queue, handler = AsyncQueue(0), Handler()
    async with a_consumer(queue, handler) as consumer:
        await comes(lambda: queue.polling_count == 3)
        for task in of_this_test():
            task.cancel()
        await asyncio.sleep(0.01)
        assert consumer._messages.polling_numbers == set()
        await consumer.run()  # which has an end
    assert "a task of its own was cancelled" in caplog.text
    assert "make another" in caplog.text
    assert not of_this_test()


async def test_what_is_no_coroutine_ends_the_consumer() -> None:
    """It would hold the loop up, or has not begun: after one message somebody is told, and no message is lost."""
    queue: FakeQueue = AsyncQueue(30)
    handle: Any = print
    with pytest.raises(TypeError, match=r"asyncio\.to_thread"):
        await a_consumer(queue, handle).run()
    assert len(queue.left) == 30


async def test_a_handler_that_is_cancelled_by_others_ends_no_receiver(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What it waited for was cancelled, and it with it: its message comes back, as of any that fails."""
    queue = AsyncQueue(50)

    async def handle(message: Mapping[str, Any]) -> None:
        if message["MessageId"] in {"m0", "m10", "m20"}:
            other = asyncio.ensure_future(asyncio.sleep(FOR_EVER))
            asyncio.get_running_loop().call_soon(other.cancel)
            await other

    async with a_consumer(queue, handle):
        await comes(lambda: len(queue.left) == 3)
    assert queue.left == {"m0", "m10", "m20"}
    assert queue.given_back == []
    assert "message m10 was not handled" in caplog.text


async def test_a_stop_waits_for_no_poll_and_gives_back_what_it_brings() -> None:
    """As long as the loop is there."""
    queue, handler = AsyncQueue(0), Handler()
    async with a_consumer(queue, handler):
        await comes(lambda: queue.polling_count == 3)
    assert len(aiobotocore_queue._left_behind) == queue.polling_count == 3  # the loop alone holds no task
    queue.put("m1", "m2")
    await comes(lambda: {("m1", 0), ("m2", 0)} <= set(queue.given_back))
    for poll in list(aiobotocore_queue._left_behind):
        poll.cancel()
    await comes(lambda: not aiobotocore_queue._left_behind)
    assert not handler.begun


async def test_a_poll_that_is_left_to_a_closed_client_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever leaves the block of the client after that of the consumer has done nothing wrong."""
    queue, polls = AsyncQueue(0), asyncio.Event()

    async def receive_message(**_: object) -> None:
        queue.polling_count += 1
        await polls.wait()
        raise RuntimeError("Session is closed")

    client: Any = SimpleNamespace(
        meta=queue.meta, receive_message=receive_message, get_queue_attributes=queue.get_queue_attributes
    )
    async with a_consumer(client, Handler()):
        await comes(lambda: queue.polling_count == 3)
    polls.set()
    await comes(lambda: not aiobotocore_queue._left_behind)
    assert caplog.text == ""


async def test_what_takes_longer_than_the_timeout_is_hidden_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being handled, and what waits for that."""
    monkeypatch.setattr(consuming, "_HIDE_AGAIN_FRACTION", 0.02)
    queue, handler = AsyncQueue(10), Handler()
    queue.visibility_timeout_seconds = 1
    async with a_consumer(queue, handler):
        await comes(lambda: len(queue.hidden) == 10 and min(queue.hidden.values()) > 3)
        handler.let_go.set()


@pytest.mark.parametrize(("connection_count", "expected"), [(50, (9, 6)), (10, (5, 3)), (3, (1, 1))])
async def test_there_are_no_more_tasks_than_connections(
    connection_count: int, expected: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """A deletion that waits for a connection behind long polls is made when its message has come back."""
    given = a_queue_advice(receivers=9)
    given.document["setting"]["deleter_thread_count"] = 6
    queue = AsyncQueue(0, connection_count=connection_count)
    async with a_consumer(queue, Handler(), given=given) as consumer:
        await comes(lambda: queue.polling_count == expected[0])
        names = Counter(name for name, _ in consumer._tasks)
    assert (names["_receive_all"], names["_delete_all"]) == expected
    assert ("has 10 connections" in caplog.text) == (connection_count == 10)


async def test_it_follows_the_advice_of_a_daemon_that_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then it works as the SDK does by itself."""
    said = [default_advice("sqs_delivery", 1024, "no daemon")]
    monkeypatch.setattr(queue_advice, "advise_in", lambda *_: said[-1])
    queue, handler, told = AsyncQueue(40), Handler(), KeptReports()
    consumer = AsyncQueueConsumer(
        queue, URL, handler, reporter=told, long_poll_seconds=1, report_seconds=0.01
    )
    async with consumer:
        await comes(lambda: len(handler.begun) == 1)
        said.append(a_queue_advice(receivers=3, window=50))
        await comes(lambda: len(handler.begun) == 3)
        assert queue.asked_count_max == 10
        said.append(said[0])
        handler.let_go.set()
        await comes(lambda: not queue.left)
    assert consumer.advice is said[1]
    assert {report["client"] for report in told.reports} == {"aiobotocore"}
