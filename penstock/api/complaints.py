"""Knows how much of the log one user may fill by what he asks: a few lines a minute, and then a count.

Whoever may open the socket could otherwise write a traceback with every request, until the disk is full or what an
operator looks for has been rotated away.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

LINE_COUNT_MAX = 5  # of one user in a window: enough to see a fault, and that it comes again
WINDOW_SECONDS = 60.0
USER_COUNT_MAX = 64  # at a time; more than that share what one has
_THE_REST = None

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Window:
    """What one user has caused since his first line in it."""

    line_count: int = 0
    held_back_count: int = 0


class Complaints:
    """Decides, user by user, whether a line is written; says afterwards how many were not."""

    def __init__(self) -> None:
        self._windows: dict[int | None, _Window] = {}

    def may_write(self, uid: int | None) -> bool:
        """Whether a line that this user causes is written now; it counts. To be called in the event loop."""
        key = uid if uid in self._windows or len(self._windows) < USER_COUNT_MAX else _THE_REST
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window()
            asyncio.get_running_loop().call_later(WINDOW_SECONDS, self._end, key)
        if window.line_count < LINE_COUNT_MAX:
            window.line_count += 1
            return True
        window.held_back_count += 1
        return False

    def _end(self, key: int | None) -> None:
        window = self._windows.pop(key)
        if window.held_back_count:
            who = "other users" if key is _THE_REST else f"user {key}"
            _log.warning(
                "%d more lines about requests of %s were held back in %g seconds",
                window.held_back_count,
                who,
                WINDOW_SECONDS,
            )
