"""Knows how a service limits the rate of requests: a token bucket."""

from __future__ import annotations

import asyncio
import math

_BURST_SECONDS = 0.25  # the size of the bucket, in seconds of the rate


class RequestAllowance:
    """A limit on requests per second, with a small burst; None is no limit. Time is that of the running loop."""

    def __init__(self, rate_per_second: float | None) -> None:
        self._rate_per_second = rate_per_second
        self._level_max = max(1.0, (rate_per_second or 0.0) * _BURST_SECONDS)
        self._level = self._level_max
        self._at = -math.inf

    def take(self) -> bool:
        """Whether another request is allowed now; if so, it is counted."""
        if self._rate_per_second is None:
            return True
        now = asyncio.get_running_loop().time()
        self._level = min(self._level_max, self._level + (now - self._at) * self._rate_per_second)
        self._at = now
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True
