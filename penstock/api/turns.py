"""Knows whose request is worked on next: users take turns, those in control first, and the event loop runs in between.

A request is worked on without a pause, for up to tens of milliseconds. A thousand connections of one user could each
have one waiting, and the next user would wait for all of them. So only a few milliseconds of work begin in one
iteration of the event loop; the rest waits by user, and users take turns with one request each. A single user never
waits.

Messages to lease holders, a hundred or so after each measurement, wait as if another user had asked for them: they
delay nobody's requests, not even those of the same user.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

_SLICE_SECONDS = 0.002
_Key = tuple[int, bool]  # a user's id, and whether it is a message that was not asked for just now
_IN_CONTROL: _Key = (-1, False)  # no user has this number


class Turns:
    """The requests that wait, and the work of this iteration of the event loop. `seconds` is a monotonic clock."""

    def __init__(self, seconds: Callable[[], float] = perf_counter) -> None:
        self._seconds = seconds
        self._slice_began: float | None = None  # None: nothing was begun in this iteration
        self._waiting: dict[_Key, deque[asyncio.Future[None]]] = {}  # by user, the next one first

    async def mine(self, uid: int, *, is_in_control: bool, is_told: bool = False) -> None:
        """Wait for this user's turn; the request then goes on without a pause.

        `is_told`: it is not a request, but a message to somebody who asked before, such as a lease holder.
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
        """Whether this iteration of the event loop has time for one more request."""
        if self._slice_began is None:
            self._slice_began = self._seconds()
            asyncio.get_running_loop().call_soon(self._next)
            return True
        return self._seconds() - self._slice_began < _SLICE_SECONDS

    def _next(self) -> None:
        """In the next iteration of the event loop: let one that waits go on, and come back here."""
        self._slice_began = None
        turn = self._first()
        if turn is not None:
            turn.set_result(None)
            self._slice_began = self._seconds()
            asyncio.get_running_loop().call_soon(self._next)

    def _first(self) -> asyncio.Future[None] | None:
        """The next request, of the user whose turn it is, who then queues behind the others; None when none waits."""
        while self._waiting:
            key = _IN_CONTROL if _IN_CONTROL in self._waiting else next(iter(self._waiting))
            of_user = self._waiting.pop(key)
            while of_user and of_user[0].done():  # cancelled, because connections were lost
                of_user.popleft()
            if of_user:
                turn = of_user.popleft()
                if of_user:
                    self._waiting[key] = of_user
                return turn
        return None
