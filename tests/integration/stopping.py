"""A consumer that is stopped over HTTP: with messages in its hands, and while it waits for some.

Whoever has the fixture `stopping` imports the tests.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.client.queues.boto3_queue import QueueConsumer
from penstock.client.reporting import Reporter
from tests.advice import a_queue_advice
from tests.waiting import until

POLL_SECONDS = 10
_WAIT_SECONDS_MAX = 30.0


class Stopping:
    """A queue that hides for five minutes what is received and not given back, and a consumer of it."""

    def __init__(self, client: Any, folder: Path) -> None:
        self._client = client
        self._reporter = Reporter(socket=str(folder / "nobody"))
        name = f"stop-{uuid.uuid4().hex[:12]}"
        queue = client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "300"})
        self._url = queue["QueueUrl"]

    def send(self, count: int) -> None:
        """So many messages."""
        for first in range(0, count, 10):
            entries = [{"Id": str(n), "MessageBody": "m"} for n in range(first, min(first + 10, count))]
            self._client.send_message_batch(QueueUrl=self._url, Entries=entries)

    def start(self, handle: Callable[[Mapping[str, Any]], object]) -> tuple[QueueConsumer, threading.Thread]:
        """A consumer at work."""
        consumer = QueueConsumer(
            self._client,
            self._url,
            handle,
            advice=a_queue_advice(),
            reporter=self._reporter,
            long_poll_seconds=POLL_SECONDS,
        )
        thread = threading.Thread(target=consumer.run, daemon=True)
        thread.start()
        return consumer, thread

    def left(self, count: int) -> Counter[str]:
        """How often each message is received that anybody can receive, until there are so many."""
        found, end = Counter[str](), time.monotonic() + _WAIT_SECONDS_MAX
        while len(found) < count and time.monotonic() < end:
            answer = self._client.receive_message(
                QueueUrl=self._url, MaxNumberOfMessages=10, WaitTimeSeconds=2
            )
            found.update(message["MessageId"] for message in answer.get("Messages") or ())
        return found

    def close(self) -> None:
        """Nothing is left of it."""
        self._client.delete_queue(QueueUrl=self._url)
        self._reporter.close()
        self._client.close()


def test_a_stop_gives_back_what_is_in_hand(stopping: Stopping) -> None:
    """What is being handled is deleted, the rest can be received at once, and nothing twice.

    Nobody else waits for the visibility timeout.
    """
    handled, is_done = Counter[str](), threading.Event()

    def handle(message: Mapping[str, Any]) -> None:
        handled.update([message["MessageId"]])
        is_done.wait(_WAIT_SECONDS_MAX)

    stopping.send(30)
    consumer, thread = stopping.start(handle)
    until(lambda: len(handled) == 3)
    consumer.stop()
    left = stopping.left(27)  # while the three are still being handled
    is_done.set()
    thread.join(_WAIT_SECONDS_MAX)
    assert not thread.is_alive()
    assert len(left) == 27
    assert set(left.values()) | set(handled.values()) == {1}
    assert not left & handled


def test_a_stop_waits_for_no_long_poll(stopping: Stopping) -> None:
    """It ends while its long polls are under way, and what these bring can soon be received by others."""
    handled: list[str] = []
    consumer, thread = stopping.start(lambda message: handled.append(message["MessageId"]))
    polls = consumer._messages._polls
    until(lambda: len(polls) == 3)
    consumer.stop()
    thread.join(_WAIT_SECONDS_MAX)
    assert not thread.is_alive()
    assert len(polls) == 3
    stopping.send(5)
    assert len(stopping.left(5)) == 5
    until(lambda: not polls)
    assert not handled
