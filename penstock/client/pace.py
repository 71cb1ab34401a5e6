"""Knows how to keep to a rate, of bytes or of messages."""

from __future__ import annotations

from threading import Lock
from time import monotonic


class Pace:
    """So much a second on average, and none beyond that for a pause before. Safe to share between threads."""

    def __init__(self) -> None:
        self.per_second: float | None = None  # no limit
        self._lock, self._due_at = Lock(), 0.0

    def pause_seconds(self, amount: float) -> float:
        """For how long who takes so much has to wait before; it counts as taken."""
        if not self.per_second:
            return 0.0
        with self._lock:
            now = monotonic()
            begin = max(now, self._due_at)
            self._due_at = begin + amount / self.per_second
        return begin - now
