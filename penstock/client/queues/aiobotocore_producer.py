"""Knows how to send messages to an SQS queue with aiobotocore as advised, many at a time, and what became of each.

    from penstock.client.aiobotocore import AsyncQueueProducer

    async with AsyncQueueProducer(sqs, queue_url, message_rate_per_second=200) as producer:
        async for order in orders:
            (await producer.send(json.dumps(order))).add_done_callback(note)

It is boto3's `QueueProducer` for an event loop: `send` waits while too many messages are pending, and returns an
`asyncio.Future` of SQS's answer about the message. An accepted message is sent, or its future says why not.
"""

from __future__ import annotations

import asyncio
from functools import partial

from penstock.client.looping import in_thread, to_its_end
from penstock.client.queues.sending import EXIT_SECONDS_MAX, Message, Sending
from penstock.client.queues.tasks import Changes, begin_missing

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from penstock.client.queues.tasks import Tasks


class AsyncQueueProducer(Sending):
    """Sends with the advised tasks, batches and rate, within `async with`. Its arguments are `QueueProducer`'s."""

    _condition_of, _asks_at_once = Changes, False
    _changed: Changes
    _door: asyncio.Lock  # of the loop in which it is opened

    async def send(self, body: str, **entry: Any) -> asyncio.Future[Mapping[str, Any]]:
        """Accept a message once there is room; `entry` holds aiobotocore's other fields of a message.

        Raises ValueError if the message is too large for a request (1 MiB), and RuntimeError if the producer is closed
        or not open yet. Cancelling this call sends nothing; cancelling the wait for the future does not take the
        message back. The future's exception is SendFailedError, or what aiobotocore raised.
        """
        message = Message({"MessageBody": body, **entry})
        if self._is_closed:
            raise RuntimeError("the producer is closed, or not open yet: `async with` opens it")
        self._start()  # something may have cancelled the sending tasks, with all others but this one
        async with self._door:  # in order of arrival; only the first waits for room
            await self._changed.wait([(lambda: self._has_room(message), None)])
            future: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
            message.future = future
            self._accept(message)
        return future

    async def flush(self, *, timeout_seconds: float | None = None) -> bool:
        """Wait until every accepted message has been sent or has failed. Returns whether that was in time."""
        self._start()  # as in `send`
        self._hurried_count += 1
        self._changed.notify_all()
        try:
            await self._changed.wait([(lambda: not self._held_count, timeout_seconds)])
        finally:
            self._hurried_count -= 1
        return not self._held_count

    async def aclose(self, *, timeout_seconds: float | None = None) -> None:
        """Accept no more, and send what was accepted.

        What is not sent in time, or before a cancellation, fails with SendFailedError in its future.
        """
        self._is_closed = True
        try:
            # As the loop ends, sending tasks may have been cancelled and not ended yet.
            begin_missing(self._tasks, [(self._send_all, -1)])
            await self.flush(timeout_seconds=timeout_seconds)
        finally:
            for task in self._tasks.values():
                task.cancel()
            try:
                await to_its_end(asyncio.wait(self._tasks.values()))
            finally:
                self._give_up()

    async def __aenter__(self) -> AsyncQueueProducer:
        await self._follow()
        self._door, self._is_closed = asyncio.Lock(), False
        self._start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After a cancellation, what was accepted gets five seconds at most."""
        is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self.aclose(timeout_seconds=EXIT_SECONDS_MAX if is_cancelled else None)

    def _begin(self) -> None:
        super()._begin()
        self._is_closed = True
        self._tasks: Tasks = {}

    async def _follow(self) -> None:
        """Follow new advice."""
        advice = await in_thread(partial(self._asking.news, self.advice))
        if advice is not None:
            self._obey(advice)

    def _start(self) -> None:
        works = [(self._send_all, number) for number in range(self.sender_thread_count)]
        begin_missing(self._tasks, works, self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Replace a task that was cancelled but had not ended when more was accepted."""
        if task.cancelled() and self._held_count and not self._is_closed:
            self._start()

    async def _send_all(self, number: int) -> None:
        while number < self.sender_thread_count:
            await self._changed.wait(self._waits_to_send())
            batch = self._take()
            if batch is None:
                return
            if batch:
                await asyncio.sleep(await self._send(batch))

    async def _send(self, batch: list[Message]) -> float:
        """Send a batch; returns for how many seconds to pause. After a cancellation the batch counts as not sent."""
        answer: Any
        try:
            if self._is_to_ask():
                await self._follow()
                self._start()
            await asyncio.sleep(self._pace.pause_seconds(len(batch)))
            answer = await self._client.send_message_batch(**self._request(batch))
        except Exception as trouble:  # noqa: BLE001 - whatever aiobotocore raises goes into the futures
            answer = trouble
        except BaseException:
            for message in batch:
                message.was_cut_off = True
            self._put_back(batch)
            raise
        return self._note(batch, answer)
