"""Knows how to limit a rate, of bytes or of messages."""

from __future__ import annotations

from threading import Lock
from time import monotonic


class Pace:
    """A limit of `per_second` on average; a pause earns no burst afterwards. Safe to share between threads."""

    def __init__(self) -> None:
        self.per_second: float | None = None  # None: no limit
        self._lock, self._due_at = Lock(), 0.0

    def pause_seconds(self, amount: float) -> float:
        """How long to wait before using this amount, which counts as used from now on."""
        if not self.per_second:
            return 0.0
        with self._lock:
            now = monotonic()
            begin = max(now, self._due_at)
            self._due_at = begin + amount / self.per_second
        return begin - now
