"""Knows how much of the log one user's requests may fill: a few lines a minute, and then a count of the rest.

Otherwise any user of the socket could have a traceback written with every request, until the disk is full or the lines
that an operator looks for have been rotated away.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

LINE_COUNT_MAX = 5  # of one user in a window: enough to see a fault, and that it recurs
WINDOW_SECONDS = 60.0
USER_COUNT_MAX = 64  # at a time; further users share one count
_THE_REST = None

_log = logging.getLogger(__name__)


class Complaints:
    """Decides, user by user, whether a line is logged; logs afterwards how many were not."""

    def __init__(self) -> None:
        self._line_counts: Counter[int | None] = Counter()  # by user, since the window began

    def may_write(self, uid: int | None) -> bool:
        """Count a line that this user causes; returns whether to log it. To be called in the event loop."""
        key = uid if uid in self._line_counts or len(self._line_counts) < USER_COUNT_MAX else _THE_REST
        if key not in self._line_counts:
            asyncio.get_running_loop().call_later(WINDOW_SECONDS, self._end, key)
        self._line_counts[key] += 1
        return self._line_counts[key] <= LINE_COUNT_MAX

    def _end(self, key: int | None) -> None:
        held_back_count = self._line_counts.pop(key) - LINE_COUNT_MAX
        if held_back_count > 0:
            who = "other users" if key is _THE_REST else f"user {key}"
            _log.warning(
                "%d more lines about requests of %s were held back in %g seconds",
                held_back_count,
                who,
                WINDOW_SECONDS,
            )
