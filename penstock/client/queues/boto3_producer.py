"""Knows how to send messages to an SQS queue with boto3 as advised, many at a time, and what became of each.

    from penstock.client.boto3 import QueueProducer

    with QueueProducer(sqs, queue_url, message_rate_per_second=200) as producer:
        for order in orders:
            producer.send(json.dumps(order)).add_done_callback(note)

`send` returns a `concurrent.futures.Future` of SQS's answer about the message. Many threads may call it; it waits while
10,000 messages or 64 MiB are pending. An accepted message is sent, or its future says why not. In a FIFO queue only one
message of a group is in flight at a time: SQS may refuse one of a batch and accept those behind it.
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

    Without a daemon it sends with one thread and one message a request. `advice` is used in place of asking; `demand`
    is that of `penstock.client.advice.advise`. The client needs a connection for each thread:
    `penstock.client.boto3.connection_pool_count(producer.advice)`. A message that fails through no fault of its own is
    sent again for `try_seconds_max` seconds, 60 by default.
    """

    def send(self, body: str, **entry: Any) -> Future[Mapping[str, Any]]:
        """Accept a message; `entry` holds boto3's other fields of a message: MessageGroupId, MessageAttributes, ...

        Raises ValueError if the message is too large for a request (1 MiB), and RuntimeError if the producer is closed.
        The future's result is SQS's answer, with the MessageId; its exception is SendFailedError, or what boto3 raised.
        """
        message = Message({"MessageBody": body, **entry})
        future: Future[Mapping[str, Any]] = Future()
        future.set_running_or_notify_cancel()  # an accepted message cannot be cancelled
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
        """Wait until every accepted message has been sent or has failed. Returns whether that was in time."""
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
        """Accept no more, and send what was accepted.

        What is not sent in time, or by an interrupt, fails with SendFailedError in its future.
        """
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
        vars(self).setdefault("_process_id", os.getpid())  # a child sets it once all has begun anew

    def _begin_anew(self) -> None:
        """The parent sends what it has accepted."""
        close_inherited(self._client)
        self._begin()
        self._obey(self.advice)

    def _start(self) -> None:
        """Start the threads that do not run yet, or as many as possible. Raises RuntimeError if there are none."""
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
        """Callbacks of futures run in a sending thread, which would wait for itself if one sent another message."""
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
        """Follow new advice, unless `advice` was given."""
        if self._is_to_ask() and (advice := self._asking.news(self.advice)) is not None:
            self._obey(advice)
            with self._changed:
                self._start()

    def _send(self, batch: list[Message]) -> float:
        """Send a batch; returns for how many seconds to pause."""
        answer: Any
        try:
            answer = self._client.send_message_batch(**self._request(batch))
        except Exception as trouble:  # noqa: BLE001 - whatever botocore raises goes into the futures
            answer = trouble
        return self._note(batch, answer)
