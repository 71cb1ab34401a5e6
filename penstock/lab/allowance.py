"""Knows how many requests a second a service takes before it asks for less."""

from __future__ import annotations

import asyncio
import math

_BURST_SECONDS = 0.25  # how much of a second's requests may come at once


class RequestAllowance:
    """So many requests a second, and a little more at once; None is no limit. Time is the running loop's."""

    def __init__(self, rate_per_second: float | None) -> None:
        self._rate_per_second = rate_per_second
        self._level_max = max(1.0, (rate_per_second or 0.0) * _BURST_SECONDS)
        self._level = self._level_max
        self._at = -math.inf

    def take(self) -> bool:
        """Whether one more request is allowed now; if so, it is counted."""
        if self._rate_per_second is None:
            return True
        now = asyncio.get_running_loop().time()
        self._level = min(self._level_max, self._level + (now - self._at) * self._rate_per_second)
        self._at = now
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True
