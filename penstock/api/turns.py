"""Knows whose request is worked on next: users in turn, those in control first, and the loop looks out in between.

A request is worked on without a pause, for up to tens of milliseconds. A thousand connections of one user could each
have one waiting, and whoever asks next would wait for all of them. So a few milliseconds of work are begun in one turn
of the event loop; what is left waits by user, one of each in turn. Whoever is alone never waits.

What is told to those who hold a lease, a hundred of them after each measurement, waits as another user's would: it
keeps nobody who asks from his answer, the holder's own questions included.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

_SLICE_SECONDS = 0.002
_Key = tuple[int, bool]  # a user, and whether he is told what he has not asked now
_IN_CONTROL: _Key = (-1, False)  # no user has this number


class Turns:
    """The requests that wait, and the work of this turn of the loop. `seconds` is a monotonic clock."""

    def __init__(self, seconds: Callable[[], float] = perf_counter) -> None:
        self._seconds = seconds
        self._slice_began: float | None = None  # None: nothing was begun in this turn of the loop
        self._waiting: dict[_Key, deque[asyncio.Future[None]]] = {}  # by user, whose turn it is first

    async def mine(self, uid: int, *, is_in_control: bool, is_told: bool = False) -> None:
        """Wait until it is the turn of a request of this user, which then goes on without a pause.

        `is_told` is who has asked before, and is told again.
        """
        if not self._waiting and self._has_time():
            return
        key = _IN_CONTROL if is_in_control and not is_told else (uid, is_told)
        turn = asyncio.get_running_loop().create_future()
        if key not in self._waiting:
            self._waiting[key] = deque()
        self._waiting[key].append(turn)
        await turn

    def _has_time(self) -> bool:
        """Whether what was begun in this turn of the loop leaves time for one more."""
        if self._slice_began is None:
            self._slice_began = self._seconds()
            asyncio.get_running_loop().call_soon(self._next)
            return True
        return self._seconds() - self._slice_began < _SLICE_SECONDS

    def _next(self) -> None:
        """In the next turn of the loop: one of those who wait, and then look out again."""
        self._slice_began = None
        turn = self._first()
        if turn is not None:
            turn.set_result(None)
            self._slice_began = self._seconds()
            asyncio.get_running_loop().call_soon(self._next)

    def _first(self) -> asyncio.Future[None] | None:
        """The next of the user whose turn it is, who then waits behind the others; None when nobody waits."""
        while self._waiting:
            key = _IN_CONTROL if _IN_CONTROL in self._waiting else next(iter(self._waiting))
            of_user = self._waiting.pop(key)
            while of_user and of_user[0].done():  # their connections were lost
                of_user.popleft()
            if of_user:
                turn = of_user.popleft()
                if of_user:
                    self._waiting[key] = of_user
                return turn
        return None
