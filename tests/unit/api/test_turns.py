"""Whose request is worked on next, on a clock that only work moves."""

from __future__ import annotations

import asyncio

from penstock.api.turns import Turns

HOSTILE, OTHER, ROOT = 1, 2, 0


class Workshop:
    """Requests that take 15 ms each, and the order in which they were worked on."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        self.order: list[int] = []
        self.turns = Turns(lambda: self.now_seconds)
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, uid: int, count: int = 1, *, work_seconds: float = 0.015) -> None:
        """So many requests of this user, each on a connection of its own."""
        loop = asyncio.get_running_loop()
        self.tasks += [loop.create_task(self._request(uid, work_seconds)) for _ in range(count)]

    async def _request(self, uid: int, work_seconds: float) -> None:
        await self.turns.mine(uid, is_in_control=uid == ROOT)
        self.now_seconds += work_seconds
        self.order.append(uid)


async def test_root_waits_for_one_request_and_not_for_a_thousand() -> None:
    """However many a user has waiting, those in control come next, and every other user after one of his."""
    workshop = Workshop()
    workshop.ask(HOSTILE, 1000)
    await asyncio.sleep(0)
    workshop.ask(OTHER)
    workshop.ask(ROOT)
    await asyncio.gather(*workshop.tasks)
    assert workshop.order.index(ROOT) <= 3
    assert workshop.order.index(OTHER) <= 4
    assert len(workshop.order) == 1002


async def test_the_loop_looks_out_between_two_requests() -> None:
    """Who comes while a thousand wait is seen at once: no turn of the loop works on more than a slice."""
    workshop = Workshop()
    workshop.ask(HOSTILE, 1000)
    for _ in range(10):
        before = len(workshop.order)
        await asyncio.sleep(0)
        assert len(workshop.order) - before <= 1
    for task in workshop.tasks:
        task.cancel()
    await asyncio.gather(*workshop.tasks, return_exceptions=True)


async def test_who_is_alone_waits_for_nobody() -> None:
    """Requests that take next to nothing are all worked on in the turn in which they came."""
    workshop = Workshop()
    workshop.ask(OTHER, 50, work_seconds=1e-6)
    await asyncio.sleep(0)
    assert len(workshop.order) == 50


async def test_requests_of_lost_connections_cost_no_turn() -> None:
    """A user who comes and goes leaves nothing behind that others have to wait for."""
    workshop = Workshop()
    workshop.ask(HOSTILE, 500)
    await asyncio.sleep(0)
    for task in workshop.tasks:
        task.cancel()
    workshop.ask(OTHER)
    await asyncio.gather(*workshop.tasks, return_exceptions=True)
    assert workshop.order[-1] == OTHER
    assert len(workshop.order) <= 3
