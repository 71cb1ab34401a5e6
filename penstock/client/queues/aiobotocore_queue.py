"""Knows how to work off an SQS queue with aiobotocore as advised, and to tell the daemon how that goes.

    from penstock.client.aiobotocore import AsyncQueueConsumer

    async with AsyncQueueConsumer(sqs, queue_url, handle, message_rate_per_second=200, work_seconds=0.02):
        await serve()       # messages are handled meanwhile; or await consumer.run() where there is nothing else to do

It is `QueueConsumer` of boto3 for an event loop: `handle(message)` is async, and as many are awaited at a time as
are advised to receive. A message is deleted when it returns, and comes back after its timeout when it raises.

Who leaves the block, or calls `stop`, waits for what is being handled. Who is cancelled cancels that, too: its messages
are given back at once, with those that were not begun. No long poll is waited for; what it still brings is given back
as long as the loop and the client are there.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from functools import partial

from penstock.client.complaint import complain
from penstock.client.looping import in_thread, to_its_end
from penstock.client.queues.consuming import (
    MESSAGE_COUNT_MAX,
    Consuming,
    deletion_entries,
    visibility_entries,
)
from penstock.client.queues.tasks import Changes, begin_missing
from penstock.client.sdk_client import pool_count_of

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from typing_extensions import Unpack

    from penstock.client.advice import Advice
    from penstock.client.queues.options import ConsumerOptions
    from penstock.client.queues.tasks import Tasks

_left_behind: set[asyncio.Task[None]] = set()  # the loop alone holds no task


class AsyncQueueConsumer(Consuming):
    """Receives, hands over and deletes, with the advised tasks, batches and window.

    Its arguments are those of `penstock.client.boto3.QueueConsumer`. It asks when it is entered, and once in
    `report_seconds`. The client needs a connection for each task, and there are no more tasks than it has connections:
    a request that finds none would wait behind long polls.
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
        self._handling: set[asyncio.Task[Any]] = set()  # those that receive, while they wait for who handles
        self._mistake: TypeError | None = None

    async def run(self) -> None:
        """Work until `stop`, or until it is cancelled."""
        async with self:
            await self._changed.wait([(lambda: self._is_stopped, None)])

    async def __aenter__(self) -> AsyncQueueConsumer:
        await self._follow()
        self._start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Who is cancelled here cancels what is being handled. Raises TypeError where nothing could be awaited."""
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
        """Begin nothing more. Returns at once; also for who handles a message, and `loop.add_signal_handler`."""
        self._is_stopped = True
        self._messages.stop()

    async def _follow(self) -> bool:
        """Whether something else is advised now, which is taken: here, for a thread may not wake who waits here."""
        advice = await in_thread(partial(self._asking.news, self.advice))
        if advice is not None:
            self._take(advice)
        return advice is not None

    def _take(self, advice: Advice) -> None:
        super()._take(advice)
        # One keeps what is handled hidden. Who finds no connection waits for one, behind long polls.
        room, count = pool_count_of(self._client) - 1, self._receiver_count + self._deleter_count
        if count > room:
            complain("not all advised tasks work on %s: its client has %s connections", self._url, room + 1)
            self._receiver_count = max(1, self._receiver_count * room // count)
            self._deleter_count = max(1, self._deleter_count * room // count)

    def _start(self) -> None:
        works = self._works(self._receive_all, self._delete_all, self._keep_all)
        begin_missing(self._tasks, [*works, (self._report_all, 0)])

    async def _end(self) -> None:
        """Each step is bounded but one: what handles a message and does not let itself be cancelled."""
        self._start()  # who deletes and gives back may have been cancelled, with all others at the end of a loop
        begin_missing(self._tasks, [(self._delete_all, -1)])  # and may not have ended yet
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

    # --- Receiving

    async def _receive_all(self, number: int) -> None:
        while not self._is_stopped and number < self._receiver_count:
            await self._changed.wait(self._messages.waits_for_room())
            room = self._messages.take_room(
                self._batch, poll_seconds=self._long_poll_seconds, receiver=number
            )
            if room:
                answer, seconds = await self._ask(self._client.receive_message, **self._poll(room))
                received = self._note_received(number, room, answer, seconds)
                for message in self._messages.turns(received):
                    await self._work_off(message)
        await self._give_back()
        if late := self._messages.pop_handled(self._batch):  # copies, when nobody else deletes any more
            await self._delete(late)

    async def _give_back(self) -> None:
        """Make visible again what was received and will not be handled here."""
        while handles := self._messages.take_unbegun(MESSAGE_COUNT_MAX):
            entries = visibility_entries(handles)
            await self._ask(self._client.change_message_visibility_batch, Entries=entries)
            self._messages.note_given_back()

    async def _work_off(self, message: Mapping[str, Any]) -> None:
        """In a task of its own: so it can be told who was cancelled, and what one message does to its context ends."""
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

    # --- Keeping

    async def _keep_all(self, _: int) -> None:
        """Hide anew what takes longer than the queue hides it: else others handle it, too."""
        await self._visibility_timeout_seconds()
        while True:
            await self._changed.wait(self._messages.waits_for_age(self._age_to_hide()))
            aging = self._messages.take_aging(self._age_to_hide(), self._hold_seconds_max)
            if aging is None:
                return
            seconds = self._timeout_seconds or await self._visibility_timeout_seconds()
            for begin in range(0, len(aging) if seconds else 0, MESSAGE_COUNT_MAX):
                await self._hide(aging[begin : begin + MESSAGE_COUNT_MAX], seconds)

    async def _visibility_timeout_seconds(self) -> int:
        answer, _ = await self._ask(self._client.get_queue_attributes, AttributeNames=["VisibilityTimeout"])
        return self._note_timeout(answer)

    async def _hide(self, receipts: Sequence[tuple[str, str]], seconds: int) -> None:
        entries = visibility_entries((handle, seconds) for _, handle in receipts)
        answer, _ = await self._ask(self._client.change_message_visibility_batch, Entries=entries)
        self._note_hidden(receipts, answer)

    # --- Deleting

    async def _delete_all(self, _: int) -> None:
        while True:
            await self._changed.wait(self._messages.waits_for_handled(self._batch))
            receipts = self._messages.take_handled(self._batch)
            if receipts is None:
                return
            if receipts:
                await self._delete(receipts)
            await self._give_back()

    async def _delete(self, receipts: Sequence[tuple[str, str]]) -> None:
        entries = deletion_entries(receipts)
        try:
            answer, seconds = await self._ask(self._client.delete_message_batch, Entries=entries)
        except BaseException:
            self._messages.put_back(receipts)
            raise
        await asyncio.sleep(self._note_deleted(receipts, answer, seconds))

    # --- All

    async def _ask(self, request: Callable[..., Any], **parameters: object) -> tuple[Any, float]:
        """The answer and its seconds; None when there is none, after a pause."""
        began, name = time.perf_counter(), getattr(request, "__name__", "")
        try:
            answer = await request(QueueUrl=self._url, **parameters)
        except Exception as trouble:  # noqa: BLE001 - whatever aiobotocore raises: the consumer goes on
            await asyncio.sleep(self._note_trouble(name, began, trouble))
            return None, 0.0
        return answer, self._note_answer(name, began, answer)

    async def _report_all(self, _: int) -> None:
        while not self._is_stopped:
            await self._changed.wait([(lambda: self._is_stopped, self._report_seconds)])
            if not self._is_stopped:
                self._report()
                if await self._follow():
                    self._start()
