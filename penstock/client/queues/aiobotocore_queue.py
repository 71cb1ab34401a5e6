"""Knows how to work off an SQS queue with aiobotocore as advised, and to tell the daemon how that goes.

    from penstock.client.aiobotocore import AsyncQueueConsumer

    async with AsyncQueueConsumer(sqs, queue_url, handle, message_rate_per_second=200, work_seconds=0.02):
        await serve()       # messages are handled meanwhile; or await consumer.run() where there is nothing else to do

It is boto3's `QueueConsumer` for an event loop: `handle(message)` is async, and as many are awaited at a time as are
advised to receive. A message is deleted when it returns, and comes back after its timeout when it raises.

Leaving the block, or calling `stop`, lets running handlers finish. Cancellation cancels them, too: their messages are
given back at once, with those that were not begun. Long polls are not waited for; what one still brings is given back
as long as loop and client exist.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from functools import partial

from penstock.client.complaint import complain
from penstock.client.looping import in_thread, to_its_end
from penstock.client.queues.consuming import Consuming
from penstock.client.queues.tasks import Changes, begin_missing
from penstock.client.sdk_client import pool_count_of

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Any

    from typing_extensions import Unpack

    from penstock.client.advice import Advice
    from penstock.client.queues.messages import Wait
    from penstock.client.queues.options import ConsumerOptions
    from penstock.client.queues.tasks import Tasks

_left_behind: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references


class AsyncQueueConsumer(Consuming):
    """Receives messages, has them handled and deletes them, with the advised tasks, batches and window.

    Its arguments are those of `penstock.client.boto3.QueueConsumer`. It asks for advice when it is entered, and every
    `report_seconds`. The client needs a connection for each task, and no more tasks run than it has connections: a
    request without one would wait behind long polls.
    """

    _library = "aiobotocore"
    _condition_of, _asks_at_once = Changes, False
    _changed: Changes

    def __init__(
        self,
        sqs_client: Any,
        queue_url: str,
        handle: Callable[[Mapping[str, Any]], Awaitable[object]],
        **options: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__(sqs_client, queue_url, handle, **options)
        self._tasks: Tasks = {}
        self._handling: set[asyncio.Task[Any]] = set()  # receiving tasks while they wait for a handler
        self._mistake: TypeError | None = None

    async def run(self) -> None:
        """Work until `stop`, or until cancelled. Raises TypeError if `handle` is not async."""
        async with self:
            await self._changed.wait([(lambda: self._is_stopped, None)])

    async def __aenter__(self) -> AsyncQueueConsumer:
        self._say_if_stopped()
        await self._follow()
        self._start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Cancellation cancels running handlers. Raises TypeError if `handle` returned nothing to await."""
        self.stop()
        try:
            if kind is None:
                await self._changed.wait(self._messages.waits_for_handlers())
        finally:
            for task in self._handling:
                task.cancel()
            await to_its_end(self._end())
        if self._mistake is not None and kind is None:
            raise self._mistake

    def stop(self) -> None:
        """Begin no more messages. Returns at once; handlers and `loop.add_signal_handler` may call it."""
        self._is_stopped = True
        self._messages.stop()

    async def _follow(self) -> bool:
        """Take new advice, and return whether there was any; done in the loop, whose tasks no thread may wake."""
        advice = await in_thread(partial(self._asking.news, self.advice))
        if advice is not None:
            self._take(advice)
        return advice is not None

    def _take(self, advice: Advice) -> None:
        super()._take(advice)
        # One connection is for hiding what is handled. A task without a connection would wait behind long polls.
        room, count = pool_count_of(self._client) - 1, self._receiver_count + self._deleter_count
        if count > room:
            complain("not all advised tasks work on %s: its client has %s connections", self._url, room + 1)
            self._receiver_count = max(1, self._receiver_count * room // count)
            self._deleter_count = max(1, self._deleter_count * room // count)

    def _start(self) -> None:
        begin_missing(self._tasks, [*self._works(), (self._report_all, 0)], self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Something cancelled a task of ours, as a shutdown does: the consumer stops, as it would lack that task."""
        if task.cancelled() and not self._is_stopped:
            complain("the consumer of %s ends: a task of its own was cancelled", self._url)
            self.stop()

    async def _end(self) -> None:
        """Each step is bounded except one: handlers that resist cancellation."""
        self._start()  # the tasks that delete and give back may have been cancelled as the loop ends,
        begin_missing(self._tasks, [(self._delete_all, -1)])  # but may not have ended yet
        try:
            await self._changed.wait(self._messages.waits_for_handlers())
            await self._changed.wait(self._messages.waits_for_the_rest())
        finally:
            self._messages.end(self._end_seconds_max)
        polling = {("_receive_all", number) for number in self._messages.polling_numbers}
        _left_behind.update(self._tasks[key] for key in polling)
        for key in polling:
            self._tasks[key].add_done_callback(_left_behind.discard)
        others = {task for key, task in self._tasks.items() if key not in polling}
        _, late = await asyncio.wait(others, timeout=self._end_seconds_max)
        for task in late:
            task.cancel()
        self._report()

    # --- What tasks await

    async def _wait(self, waits: Iterable[Wait]) -> None:
        await self._changed.wait(waits)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _answer(self, request: Callable[..., Any], **parameters: object) -> Any:
        return await request(**parameters)

    async def _work_off(self, message: Mapping[str, Any]) -> None:
        """Handle a message in a task of its own: to tell who was cancelled, and to isolate context variables."""
        number, began = message["MessageId"], time.perf_counter()
        handling, receiver = asyncio.ensure_future(self._call_handler(message)), asyncio.current_task()
        assert receiver is not None
        self._handling.add(receiver)
        is_cancelled = False
        try:
            await asyncio.wait([handling])
        except asyncio.CancelledError:
            is_cancelled = True
            handling.cancel()
            await to_its_end(asyncio.wait([handling]))
            raise
        finally:
            self._handling.discard(receiver)
            self._note_outcome(number, handling, is_cancelled=is_cancelled)
            self._note_work(began)

    def _note_outcome(self, number: str, handling: asyncio.Task[None], *, is_cancelled: bool) -> None:
        has_ended = handling.done() and not handling.cancelled()
        trouble = handling.exception() if has_ended else asyncio.CancelledError()
        if trouble is None:
            self._messages.note_handled(number)
        elif is_cancelled and handling.done():
            self._messages.take_back(number)
        else:
            self._note_unhandled(number, trouble)

    async def _call_handler(self, message: Mapping[str, Any]) -> None:
        handled = self._handle(message)
        if not inspect.isawaitable(handled):
            self.stop()
            self._mistake = TypeError(
                "what handles messages is called in an event loop and has to be async: "
                "functools.partial(asyncio.to_thread, handle) is for what is not"
            )
            raise self._mistake
        await handled

    async def _report_all(self, _: int) -> None:
        while not self._is_stopped:
            await self._changed.wait([(lambda: self._is_stopped, self._report_seconds)])
            if not self._is_stopped:
                self._report()
                if await self._follow():
                    self._start()
