"""Knows how to work off an SQS queue with boto3 as advised, and to tell the daemon how that goes.

    from penstock.client.boto3 import QueueConsumer

    consumer = QueueConsumer(sqs, queue_url, handle, message_rate_per_second=200, work_seconds=0.02)
    consumer.run()          # until consumer.stop() is called in another thread or in a signal handler

`handle(message)` gets each message as boto3 returns it, and is called by many threads. When it returns, the message is
deleted. When it raises, the message comes back after the visibility timeout; in a FIFO queue, so does what follows it
in its group. Copies of a message that this process still handles, or handled recently, are deleted without being
handled again.

Stopping does not wait for long polls. Messages that were received but not begun are made visible again, and so are
those that a pending poll still brings, as long as the process lives. SQS counts these as received once.

The receive window keeps a queue from collapsing: no more messages are received and not yet deleted than the deletions
can keep up with, and receiving pauses while the oldest of them is too old.
"""

from __future__ import annotations

import os
import time
from queue import Empty, SimpleQueue

from penstock.client.complaint import complain
from penstock.client.forks import OfOneProcess, close_inherited
from penstock.client.queues.consuming import Consuming
from penstock.client.queues.crew import run_missing

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from typing_extensions import Unpack

    from penstock.client.queues.messages import Wait
    from penstock.client.queues.options import ConsumerOptions


class QueueConsumer(OfOneProcess, Consuming):
    """Receives messages, has them handled and deletes them, with the advised threads, batches and window.

    It asks for advice at the beginning and every `report_seconds`, unless `advice` is given. Without a daemon it works
    with one receiver and one deleter, and batches of one. `demand` is that of `penstock.client.advice.advise`
    (message_rate_per_second, work_seconds, visibility_timeout_seconds, ...). The client needs a connection for each
    thread: `penstock.client.boto3.connection_pool_count(consumer.advice)`.

    A message that is being handled, or waits for it here, stays hidden from others for up to `hold_seconds_max`
    seconds, whatever the queue's visibility timeout is; 0 leaves it to the timeout.
    """

    _library = "boto3"

    def __init__(
        self,
        sqs_client: Any,
        queue_url: str,
        handle: Callable[[Mapping[str, Any]], object],
        **options: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__(sqs_client, queue_url, handle, **options)
        self._process_id = os.getpid()
        self._threads: dict[tuple[str, int], threading.Thread] = {}
        # Unlike an Event, a signal handler may use it.
        self._stops: SimpleQueue[None] = SimpleQueue()

    def run(self) -> None:
        """Work until `stop`; then finish and delete what is being handled, and give the rest back.

        A request to SQS that fails is logged and tried again, without end. Raises RuntimeError if no thread can be
        started to receive, or none to delete.

        A pending long poll is left behind: its thread gives back what it brings, and ends. An exception from a signal
        handler, such as KeyboardInterrupt, stops in the same way before it is raised.
        """
        self._notice_fork()
        self._say_if_stopped()
        try:
            self._start()
            while not (self._is_stopped or self._waits_for_stop(self._report_seconds)):
                self._report()
                if (advice := self._asking.news(self.advice)) is not None:
                    self._take(advice)
                    self._start()
        finally:
            self.stop()
            self._end()
        self._report()

    def _begin_anew(self) -> None:
        """The parent handles and deletes what it has received."""
        close_inherited(self._client)
        self._begin()
        self._note_limits()

    def _start(self) -> None:
        """Start the threads that do not run yet, or as many as possible; being daemon threads, they delay no exit."""
        try:
            run_missing(self._threads, self._works(), "penstock-queue")
        except RuntimeError as trouble:
            self._deleter_count = self._running_count(self._delete_all)
            self._receiver_count = self._running_count(self._receive_all)
            if not self._deleter_count or not self._receiver_count:
                raise
            complain("not all advised threads work on %s: %s", self._url, trouble)

    def _running_count(self, work: Callable[[int], Any]) -> int:
        return sum(name == work.__name__ and thread.is_alive() for (name, _), thread in self._threads.items())

    def stop(self) -> None:
        """Let `run` return as soon as no message is being handled. Returns at once; signal handlers may call it."""
        if not self._is_stopped:
            self._is_stopped = True
            self._stops.put(None)

    def _waits_for_stop(self, seconds: float) -> bool:
        try:
            self._stops.get(timeout=seconds)
        except Empty:
            return False
        return True

    def _end(self) -> None:
        """Each step is bounded except one: handlers that run may take as long as they need."""
        try:
            self._messages.stop()
            self._stand_by(self._messages.waits_for_handlers())
            self._stand_by(self._messages.waits_for_the_rest())
        finally:
            self._messages.end(self._end_seconds_max)
        end_seconds = time.monotonic() + self._end_seconds_max
        for (name, _), thread in self._threads.items():
            if name != self._receive_all.__name__ and thread.ident is not None:  # it was started
                thread.join(max(0.0, end_seconds - time.monotonic()))

    def _stand_by(self, waits: Iterable[Wait]) -> None:
        for holds, seconds in waits:
            with self._changed:
                self._changed.wait_for(holds, seconds)

    # --- What threads do where tasks await

    async def _wait(self, waits: Iterable[Wait]) -> None:
        self._stand_by(waits)

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - no loop runs here: see `crew`

    async def _answer(self, request: Callable[..., Any], **parameters: object) -> Any:
        return request(**parameters)

    async def _work_off(self, message: Mapping[str, Any]) -> None:
        """Nothing that a handler raises, not even SystemExit, ends the thread that receives."""
        number, began = message["MessageId"], time.perf_counter()
        try:
            self._call_handler(message)
        except BaseException as trouble:  # noqa: BLE001 - whatever the application raises: other messages follow
            self._note_unhandled(number, trouble)
        else:
            self._messages.note_handled(number)
        finally:
            self._note_work(began)

    def _call_handler(self, message: Mapping[str, Any]) -> None:
        if hasattr(self._handle(message), "__await__"):
            raise TypeError(
                "what handles messages is called in a thread, where nobody awaits what it returns: "
                "penstock.client.aiobotocore.AsyncQueueConsumer is for what is async"
            )
