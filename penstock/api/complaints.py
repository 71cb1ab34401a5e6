"""Knows how much of the log one user may fill by what he asks: a few lines a minute, and then a count.

Whoever may open the socket could otherwise write a traceback with every request, until the disk is full or what an
operator looks for has been rotated away.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

LINE_COUNT_MAX = 5  # of one user in a window: enough to see a fault, and that it comes again
WINDOW_SECONDS = 60.0
USER_COUNT_MAX = 64  # at a time; more than that share what one has
_THE_REST = None

_log = logging.getLogger(__name__)


class Complaints:
    """Decides, user by user, whether a line is written; says afterwards how many were not."""

    def __init__(self) -> None:
        self._line_counts: Counter[int | None] = Counter()  # by user, since the first in his window

    def may_write(self, uid: int | None) -> bool:
        """Whether a line that this user causes is written now; it counts. To be called in the event loop."""
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
