"""Whose request is worked on next, on a clock that only work moves."""

from __future__ import annotations

import asyncio

import pytest

from penstock.api.turns import Turns

HOSTILE, OTHER, ROOT = 1, 2, 0


class Workshop:
    """Requests that take 15 ms each, and the order in which they were worked on."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        self.order: list[int] = []
        self.asked_at: dict[int, int] = {}  # the place in it of the last request that was asked
        self.turns = Turns(lambda: self.now_seconds)
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, uid: int, count: int = 1, *, work_seconds: float = 0.015, is_told: bool = False) -> None:
        """So many requests of this user, each on a connection of its own."""
        loop = asyncio.get_running_loop()
        self.tasks += [loop.create_task(self._request(uid, work_seconds, is_told)) for _ in range(count)]

    async def _request(self, uid: int, work_seconds: float, is_told: bool) -> None:
        await self.turns.mine(uid, is_in_control=uid == ROOT, is_told=is_told)
        self.now_seconds += work_seconds
        self.order.append(uid)
        if not is_told:
            self.asked_at[uid] = len(self.order)


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


@pytest.mark.parametrize("uid", [HOSTILE, ROOT])
async def test_who_asks_does_not_wait_for_what_is_told_to_those_who_hold_leases(uid: int) -> None:
    """After each measurement a hundred shares are worked out anew: his own, and root's, come in turn with questions."""
    workshop = Workshop()
    workshop.ask(uid, 100, is_told=True)
    await asyncio.sleep(0)
    workshop.ask(OTHER)
    workshop.ask(uid)
    await asyncio.gather(*workshop.tasks)
    assert max(workshop.asked_at.values()) <= 5
    assert len(workshop.order) == 102


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
