"""Knows how an ordinary application drives a queue with boto3 and threads, with advice or without.

Senders send, receivers hand what they receive to a queue of deletions, deleters work that off. Without windows and
limits this is the application that collapses when its deleter is a little slower than its sender. With advice it keeps
to all of it: windows, limits, and the rest of the receivers while the oldest undeleted message is too old.
"""

from __future__ import annotations

import itertools
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_LONG_POLL_SECONDS = 1
_IDLE_SECONDS = 0.005
_THREAD_END_SECONDS_MAX = 10.0


@dataclass(slots=True)
class Tally:
    """What happened so far; guarded by the application's lock."""

    sent_count: int = 0
    received_count: int = 0  # every copy
    duplicate_count: int = 0  # copies of messages that were received before
    deleted_count: int = 0  # distinct messages
    throttled_count: int = 0
    seen: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    undeleted: dict[str, float] = field(default_factory=dict)  # receipt: when it came, the oldest first


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRun:
    """What came of driving the queue for a while."""

    goodput_messages_per_second: float  # distinct messages deleted, over the measured time
    duplicate_count: int
    sent_count: int
    throttled_count: int
    duration_seconds: float


class QueueApplication:
    """One run against one queue. `setting` has the fields of the advice; a window or rate of 0 means none.

    Receivers rest while the oldest undeleted message is older than `receive_pause_seconds`, the advice's
    `receive_pause_at_oldest_undeleted_seconds`; without one they do not.
    """

    def __init__(
        self,
        make_client: Callable[[int], Any],
        queue_url: str,
        setting: Mapping[str, float],
        *,
        message_rate_per_second: float | None,
        body: str,
        receive_pause_seconds: float = math.inf,
    ) -> None:
        self._setting = {name: int(value) for name, value in setting.items()}
        pool = sum(self._setting[f"{role}_thread_count"] for role in ("sender", "receiver", "deleter"))
        self._client = make_client(pool)
        self._url = queue_url
        self._body = body
        self._receive_pause_seconds = receive_pause_seconds
        limits = (setting["send_rate_limit_messages_per_second"], message_rate_per_second or 0.0)
        self._rate = min((limit for limit in limits if limit > 0), default=None)
        self._tally = Tally()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._receipts: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._next_send_at = time.perf_counter()
        self._sequence = itertools.count()

    def run(self, *, warm_up_seconds: float, measured_seconds: float) -> QueueRun:
        """Drive the queue; the goodput is that of the measured time, the duplicates are of all of it."""
        threads = [
            threading.Thread(target=self._loop, args=(act,), daemon=True)
            for role, act in (("sender", self._send), ("receiver", self._receive), ("deleter", self._delete))
            for _ in range(self._setting[f"{role}_thread_count"])
        ]
        for thread in threads:
            thread.start()
        try:
            time.sleep(warm_up_seconds)
            before, started = self._tally.deleted_count, time.perf_counter()
            time.sleep(measured_seconds)
            duration = time.perf_counter() - started
            goodput = (self._tally.deleted_count - before) / duration
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(_THREAD_END_SECONDS_MAX)
        tally = self._tally
        return QueueRun(
            goodput_messages_per_second=goodput,
            duplicate_count=tally.duplicate_count,
            sent_count=tally.sent_count,
            throttled_count=tally.throttled_count,
            duration_seconds=duration,
        )

    def _loop(self, act: Callable[[], None]) -> None:
        from botocore.exceptions import ClientError

        while not self._stop.is_set():
            try:
                act()
            except ClientError as trouble:
                if trouble.response["Error"]["Code"] not in {"RequestThrottled", "ThrottlingException"}:
                    raise
                with self._lock:
                    self._tally.throttled_count += 1
                time.sleep(_IDLE_SECONDS)

    def _send(self) -> None:
        count = self._setting["batch_message_count"]
        if not self._may_send(count):
            time.sleep(_IDLE_SECONDS)
            return
        bodies = [f"{next(self._sequence)}:{self._body}" for _ in range(count)]
        is_sent = False
        try:
            if count == 1:
                self._client.send_message(QueueUrl=self._url, MessageBody=bodies[0])
            else:
                entries = [{"Id": str(i), "MessageBody": body} for i, body in enumerate(bodies)]
                self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
            is_sent = True
        finally:
            if not is_sent:  # what was refused is not outstanding, or the window would shrink for good
                with self._lock:
                    self._tally.sent_count -= count

    def _may_send(self, count: int) -> bool:
        """Take leave to send that many: within the window, and not before the rate allows it."""
        with self._lock:
            outstanding = self._tally.sent_count - len(self._tally.seen)
            window = self._setting["send_window_message_count"]
            if window and outstanding + count > max(window, count):
                return False
            now = time.perf_counter()
            if self._rate is not None:
                if now < self._next_send_at:
                    return False
                # A short delay is caught up with; a long one is not, or it would become a burst.
                self._next_send_at = max(self._next_send_at, now - 0.25) + count / self._rate
            self._tally.sent_count += count
            return True

    def _receive(self) -> None:
        window = self._setting["receive_window_message_count"]
        room = window - (self._tally.received_count - self._tally.deleted_count) if window else 10
        if room <= 0 or self._oldest_undeleted_seconds() > self._receive_pause_seconds:
            time.sleep(_IDLE_SECONDS)
            return
        answer = self._client.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=min(10, room), WaitTimeSeconds=_LONG_POLL_SECONDS
        )
        with self._lock:
            for message in answer.get("Messages", []):
                self._tally.received_count += 1
                self._tally.duplicate_count += message["MessageId"] in self._tally.seen
                self._tally.seen.add(message["MessageId"])
                self._tally.undeleted[message["ReceiptHandle"]] = time.perf_counter()
                self._receipts.put((message["MessageId"], message["ReceiptHandle"]))

    def _oldest_undeleted_seconds(self) -> float:
        with self._lock:
            oldest = next(iter(self._tally.undeleted.values()), math.inf)
        return max(0.0, time.perf_counter() - oldest)

    def _delete(self) -> None:
        receipts = self._take_receipts()
        if not receipts:
            return
        is_deleted = False
        try:
            if len(receipts) == 1:
                self._client.delete_message(QueueUrl=self._url, ReceiptHandle=receipts[0][1])
            else:
                entries = [{"Id": str(i), "ReceiptHandle": handle} for i, (_, handle) in enumerate(receipts)]
                self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            is_deleted = True
        finally:
            if not is_deleted:  # a refused deletion is tried again, or its messages would all come back
                for receipt in receipts:
                    self._receipts.put(receipt)
        with self._lock:
            for _, handle in receipts:
                self._tally.undeleted.pop(handle, None)
            self._tally.deleted.update(message_id for message_id, _ in receipts)
            self._tally.deleted_count = len(self._tally.deleted)

    def _take_receipts(self) -> list[tuple[str, str]]:
        """A batch of deletions: the first is waited for, the rest only if they are there."""
        receipts: list[tuple[str, str]] = []
        try:
            receipts.append(self._receipts.get(timeout=_LONG_POLL_SECONDS))
            while len(receipts) < self._setting["batch_message_count"]:
                receipts.append(self._receipts.get(timeout=_IDLE_SECONDS))
        except queue.Empty:
            pass
        return receipts
