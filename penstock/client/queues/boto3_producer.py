"""Knows how to send messages to an SQS queue with boto3 as advised, many at a time, and what became of each.

    from penstock.client.boto3 import QueueProducer

    with QueueProducer(sqs, queue_url, message_rate_per_second=200) as producer:
        for order in orders:
            producer.send(json.dumps(order)).add_done_callback(note)

`send` takes a message and returns a `concurrent.futures.Future` of what SQS says of it; it may be called by many
threads, and waits while too many are held. What is accepted is sent, or its future says why not. Of a message group of
a FIFO queue one message at a time is on its way: SQS may refuse one of a batch and take those behind it.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future

from penstock.client.attention import ATTENTION_SECONDS
from penstock.client.complaint import complain
from penstock.client.ending import at_the_end, not_at_the_end
from penstock.client.forks import OfOneProcess, close_inherited
from penstock.client.queues.crew import run_missing
from penstock.client.queues.sending import EXIT_SECONDS_MAX, Message, Sending

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class QueueProducer(OfOneProcess, Sending):
    """Sends with the advised threads, batches and rate.

    `advice` replaces asking; `demand` is that of `penstock.client.advice.advise`. The client needs a connection for
    each thread: `penstock.client.boto3.connection_pool_count(producer.advice)`. A message that fails for no fault of
    its own is sent again for `try_seconds_max`.
    """

    def send(self, body: str, **entry: Any) -> Future[Mapping[str, Any]]:
        """Accept a message; `entry` has what else boto3 takes of one: MessageGroupId, MessageAttributes, ...

        Raises ValueError for what no request can hold, and RuntimeError when it is closed. The future's result is what
        SQS said, with the MessageId; its exception is SendFailedError, or what boto3 raised.
        """
        message = Message({"MessageBody": body, **entry})
        future: Future[Mapping[str, Any]] = Future()
        future.set_running_or_notify_cancel()  # what was accepted cannot be cancelled
        message.future = future
        self._notice_fork()
        with self._changed:
            while not self._has_room(message):
                self._changed.wait(ATTENTION_SECONDS)
            if not self._threads and not self._is_closed:
                self._start()
            self._accept(message)
        return future

    def flush(self, *, timeout_seconds: float | None = None) -> bool:
        """Wait until all that was accepted has ended; whether it has, in time."""
        self._notice_fork()
        end_seconds = time.monotonic() + (float("inf") if timeout_seconds is None else timeout_seconds)
        with self._changed:
            self._hurried_count += 1
            self._changed.notify_all()
            try:
                while self._held_count and (left := end_seconds - time.monotonic()) > 0:
                    self._changed.wait(min(left, ATTENTION_SECONDS))
            finally:
                self._hurried_count -= 1
            return not self._held_count

    def close(self, *, timeout_seconds: float | None = None) -> None:
        """Accept no more, and send what was accepted. What was not in time, or until an interrupt, its future says."""
        self._notice_fork()
        with self._changed:
            self._is_closed = True
        try:
            self.flush(timeout_seconds=timeout_seconds)
        finally:
            not_at_the_end(self._finish)
            self._give_up()

    def __enter__(self) -> QueueProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        super()._begin()
        self._threads: dict[tuple[str, int], threading.Thread] = {}
        vars(self).setdefault("_process_id", os.getpid())  # a child's is noted when all of it has begun anew

    def _begin_anew(self) -> None:
        """What a parent accepted is its own to send."""
        close_inherited(self._client)
        self._begin()
        self._obey(self.advice)

    def _start(self) -> None:
        """The threads that do not run yet, or as many as there can be. Raises RuntimeError where there can be none."""
        at_the_end(self._finish)
        works = [(self._send_all, number) for number in range(self.sender_thread_count)]
        try:
            run_missing(self._threads, works, "penstock-producer")
        except RuntimeError as trouble:
            if not self._threads:
                raise
            complain("not all advised threads send to %s: %s", self._url, trouble)

    def _finish(self) -> None:
        if self._process_id == os.getpid():
            self.close(timeout_seconds=EXIT_SECONDS_MAX)

    def _has_room(self, message: Message) -> bool:
        """Who hears of a message and sends another is a thread of ours, and would wait for himself."""
        return threading.current_thread() in self._threads.values() or super()._has_room(message)

    def _send_all(self, number: int) -> None:
        while number < self.sender_thread_count:
            for holds, seconds in self._waits_to_send():
                with self._changed:
                    self._changed.wait_for(holds, seconds)
            batch = self._take()
            if batch is None:
                return
            if batch:
                self._follow()
                time.sleep(self._pace.pause_seconds(len(batch)))
                time.sleep(self._send(batch))

    def _follow(self) -> None:
        """Send as is advised now, unless the advice was given."""
        if self._is_to_ask() and (advice := self._asking.news(self.advice)) is not None:
            self._obey(advice)
            with self._changed:
                self._start()

    def _send(self, batch: list[Message]) -> float:
        """For how many seconds to pause then."""
        answer: Any
        try:
            answer = self._client.send_message_batch(**self._request(batch))
        except Exception as trouble:  # noqa: BLE001 - whatever botocore raises is for who waits for the message
            answer = trouble
        return self._note(batch, answer)
