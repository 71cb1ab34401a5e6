"""Knows how an application tells the daemon what its transfers did, without being held up by it.

    from penstock.client.reporting import report

    report("s3_upload", size_bytes, {"thread_count": 8, "part_size_bytes": 8 << 20},
           duration_seconds=2.0, transferred_bytes=size_bytes, request_count=10, client="boto3")

`report` appends to a queue and returns. A thread posts the queue in batches; without a daemon it keeps the newest
reports and tries again later. What does not fit is dropped and counted. Nothing here raises because of penstock. What
is left when the process ends is posted within half a second, or lost.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from datetime import datetime, timedelta, timezone

from penstock.client.complaint import complain
from penstock.client.connection import NoDaemonError, ask, socket_path
from penstock.client.ending import at_the_end, not_at_the_end
from penstock.client.forks import OfOneProcess
from penstock.client.sizes import read_size

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

WAITING_COUNT_MAX = 1000
BATCH_COUNT_MAX = 50  # of about 600 bytes each: far below what the daemon accepts in one post
REPORT_COUNT_PER_SECOND = 1.0  # the daemon's sustained limit for one user; it takes bursts of 600
REPORT_COUNT_BURST = 100.0
_LINGER_SECONDS = 0.2  # reports come in bursts, which share a post
_PAUSE_SECONDS = 30.0  # after nobody answered
_TIMEOUT_SECONDS = 2.0
_EXIT_SECONDS_MAX = 0.5
# Raised by arguments, or by answers, that are not what they should be.
_NO_VALUES = (TypeError, ValueError, AttributeError, RecursionError)


class Reporter(OfOneProcess):
    """A queue of reports to one daemon, and the thread that posts them. Safe to share between threads.

    The daemon accepted `posted_count` reports and refused `refused_count` (the log has the first reason);
    `dropped_count` were never sent, or reached a daemon whose disk is full. A forked child starts with an empty queue
    and its own thread.
    """

    def __init__(self, *, socket: str | None = None, timeout_seconds: float | None = None) -> None:
        self._socket_path = socket or socket_path()
        self._timeout_seconds = _TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
        self.posted_count = self.refused_count = self.dropped_count = 0
        self._has_complained = False
        self._tokens, self._filled_seconds = REPORT_COUNT_BURST, time.monotonic()
        self._process_id = os.getpid()
        self._begin_anew()

    def report(
        self,
        operation: str,
        payload_size_bytes: int | str,
        setting: Mapping[str, float],
        *,
        duration_seconds: float,
        transferred_bytes: int,
        request_count: int,
        started_at: datetime | None = None,
        **more: Any,
    ) -> bool:
        """Report one transfer. Returns whether the report is queued; never raises.

        The names are those of the socket's protocol, also in `more`: throttled_count, failed_count,
        latency_seconds_mean, region, service_class, client, measures. Durations are in seconds. `started_at` is an
        aware datetime; without it, the transfer is taken to have ended now. At most one report a second is queued on
        average, and 100 at once.
        """
        try:
            import json  # may fail for want of file descriptors

            began_at = started_at or datetime.now(timezone.utc) - timedelta(seconds=duration_seconds)  # noqa: UP017 - Python 3.9
            document = {
                "operation": operation,
                "payload_size_bytes": read_size(payload_size_bytes),
                "setting": dict(setting),
                "started_at": began_at.isoformat(),
                "duration_seconds": float(duration_seconds),
                "transferred_bytes": int(transferred_bytes),
                "request_count": int(request_count),
                **{name: value for name, value in more.items() if value is not None},
            }
            text = json.dumps(document, allow_nan=False)
        except (*_NO_VALUES, OverflowError, OSError, ImportError) as trouble:
            self._complain(f"one cannot be written: {trouble}")
            self.refused_count += 1
            return False
        self._notice_fork()
        with self._changed:
            if self._is_closed or not self._may_report() or not self._has_thread():
                self.dropped_count += 1
                return False
            if len(self._waiting) >= WAITING_COUNT_MAX:
                self._waiting.popleft()
                self.dropped_count += 1
            self._waiting.append(text)
            self._changed.notify_all()
        return True

    def flush(self, *, timeout_seconds: float | None = None) -> bool:
        """Wait until all reports so far are posted. Returns whether they were in time, by default two seconds."""
        self._notice_fork()
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()
            is_empty = self._changed.wait_for(
                lambda: not self._waiting and not self._is_posting,
                self._timeout_seconds if timeout_seconds is None else timeout_seconds,
            )
            self._is_hurried = False
        return is_empty

    def close(self, *, timeout_seconds: float = _EXIT_SECONDS_MAX) -> None:
        """Post what is left, within this time, and end the thread; later reports are dropped."""
        self.flush(timeout_seconds=timeout_seconds)
        with self._changed:
            self._is_closed = self._is_hurried = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            not_at_the_end(self._finish)
            thread.join(timeout_seconds)

    def _begin_anew(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[str] = deque()  # each as JSON
        self._thread: threading.Thread | None = None
        self._is_posting = self._is_hurried = self._is_closed = False

    def _may_report(self) -> bool:
        """A token bucket: a process that moves a thousand small objects reports only a sample of them."""
        now = time.monotonic()
        gained = (now - self._filled_seconds) * REPORT_COUNT_PER_SECOND
        self._tokens, self._filled_seconds = min(REPORT_COUNT_BURST, self._tokens + gained), now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _has_thread(self) -> bool:
        """Start the thread if need be. Returns whether it runs: the process may be out of threads, or ending."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="penstock-reports", daemon=True)
            try:
                thread.start()
            except RuntimeError as trouble:
                self._complain(str(trouble))
                return False
            self._thread = thread
            at_the_end(self._finish)
        return True

    def _finish(self) -> None:
        if self._process_id == os.getpid():
            not_at_the_end(self._finish)
            self.flush(timeout_seconds=_EXIT_SECONDS_MAX)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or bool(self._waiting))
                if self._is_closed:
                    return
                self._changed.wait_for(lambda: self._is_hurried, _LINGER_SECONDS)
                batch = [self._waiting.popleft() for _ in range(min(BATCH_COUNT_MAX, len(self._waiting)))]
                self._is_posting = True
            was_answered = self._post(batch)
            with self._changed:
                self._is_posting = False
                if not was_answered:
                    self._put_back(batch)
                self._changed.notify_all()
                if not was_answered:
                    self._changed.wait_for(lambda: self._is_hurried, _PAUSE_SECONDS)
                    self._is_hurried = self._is_closed  # one more try, not many

    def _put_back(self, batch: list[str]) -> None:
        room = WAITING_COUNT_MAX - len(self._waiting)
        kept = batch[-room:] if room > 0 else []
        self.dropped_count += len(batch) - len(kept)
        self._waiting.extendleft(reversed(kept))

    def _post(self, batch: list[str]) -> bool:
        """Post a batch. Returns whether anything answered."""
        try:
            import json

            answer = ask(
                self._socket_path,
                "POST",
                "/v1/observations",
                body=f'{{"observations": [{",".join(batch)}]}}'.encode(),
                timeout_seconds=self._timeout_seconds,
            )
            if answer.status == 507:  # the daemon's disk is full, which is the operator's concern
                self.dropped_count += len(batch)
                return True
            document = json.loads(answer.body)
            accepted = int(document.get("accepted_count", 0)) if answer.status < 300 else 0
        except (NoDaemonError, OSError, ImportError) as trouble:
            self._complain(str(trouble))
            return False
        except _NO_VALUES as trouble:  # the answer is malformed
            accepted, document = 0, {"detail": str(trouble)}
        self.posted_count += accepted
        self.refused_count += len(batch) - accepted
        if accepted < len(batch):
            self._complain(
                f"of {len(batch)} reports {len(batch) - accepted} were refused: {_reason(document)}"
            )
        return True

    def _complain(self, sentence: str) -> None:
        """Log it, once: the application's log is not penstock's."""
        if not self._has_complained:
            self._has_complained = complain("reports to penstock: %s", sentence)


_reporters: dict[str, Reporter] = {}


def default_reporter() -> Reporter:
    """This process's reporter for the socket named by PENSTOCK_SOCKET, or the usual one."""
    path = socket_path()
    reporter = _reporters.get(path)
    # Without a lock, because a fork might copy it locked.
    return reporter or _reporters.setdefault(path, Reporter(socket=path))


def report(operation: str, payload_size_bytes: int | str, setting: Mapping[str, float], **what: Any) -> bool:
    """Like `Reporter.report`, to the usual daemon."""
    return default_reporter().report(operation, payload_size_bytes, setting, **what)


def _reason(document: Any) -> str:
    if not isinstance(document, dict):
        return "the answer is none"
    for refused in document.get("refused") or ():
        for error in refused.get("errors") or ():
            return f"{error.get('where')} {error.get('detail')}"
    return str(document.get("detail"))
