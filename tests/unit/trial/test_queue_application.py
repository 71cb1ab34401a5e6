"""The ordinary application keeps to what it is advised, the rest of its receivers included."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.trial.queue_application import QueueApplication

ONE_OF_EACH: Mapping[str, float] = {
    "sender_thread_count": 1,
    "receiver_thread_count": 1,
    "deleter_thread_count": 1,
    "batch_message_count": 1,
    "send_rate_limit_messages_per_second": 100.0,
    "send_window_message_count": 0,
    "receive_window_message_count": 0,
}


class StuckQueue:
    """Gives a message every few milliseconds, and deletes none before it is told to."""

    def __init__(self) -> None:
        self.deletes = threading.Event()
        self.receive_times: list[float] = []

    def send_message(self, **_request: Any) -> None:
        time.sleep(0.001)

    def receive_message(self, **_request: Any) -> dict[str, Any]:
        time.sleep(0.005)
        self.receive_times.append(time.perf_counter())
        number = len(self.receive_times)
        return {"Messages": [{"MessageId": f"m{number}", "ReceiptHandle": f"h{number}"}]}

    def delete_message(self, **_request: Any) -> None:
        self.deletes.wait(5.0)


@pytest.mark.parametrize(("pause_seconds", "rests"), [(0.1, True), (math.inf, False)])
def test_receivers_rest_while_the_oldest_is_too_old(*, pause_seconds: float, rests: bool) -> None:
    """Nothing is received once the oldest undeleted message is older than advised; without advice it goes on."""
    queue = StuckQueue()
    application = QueueApplication(
        lambda _count: queue,
        "url",
        ONE_OF_EACH,
        message_rate_per_second=None,
        body="x",
        receive_pause_seconds=pause_seconds,
    )
    release = threading.Timer(0.5, queue.deletes.set)
    release.start()
    application.run(warm_up_seconds=0.0, measured_seconds=0.45)
    release.join()
    span_seconds = queue.receive_times[-1] - queue.receive_times[0]
    assert (span_seconds < 0.3) is rests
