"""Thinking in a process of its own: the same answers, no trace after rest, and a death that is survived."""

import asyncio
import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from penstock.daemon.cycle import thinker_process
from penstock.daemon.cycle.thinker import SpawnedThinker, ThinkerError
from penstock.operations.table import OPERATIONS
from penstock.optimizer.deliberation import Case
from penstock.vocabulary import Cost, Demand
from tests.factories import CONTEXT, PLACE, an_observation
from tests.inline_thinker import InlineThinker

MODEL = OPERATIONS["s3_upload"].model
CASE: Case[Any] = Case(
    place=PLACE,
    observations=(an_observation(),),
    next_context=CONTEXT,
    cost_max=Cost(
        transferred_bytes=2**30, request_count=1000, usd=1.0, credit_bytes=2**40, duration_seconds=60
    ),
    demand=Demand(thread_count_max=64),
    seed=3,
)


def children_of(process_id: int) -> set[int]:
    """Those that think and whose parent is this process."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            is_worker = b"thinker_process" in stat.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if is_worker and int(fields[1]) == process_id and fields[0] != "Z":
            found.add(int(stat.parent.name))
    return found


async def until_gone(process_ids: set[int]) -> bool:
    """Whether they end by themselves within some seconds."""
    for _ in range(2000):
        if not process_ids & children_of(os.getpid()):
            return True
        await asyncio.sleep(0.05)
    return False


async def rested(thinker: SpawnedThinker) -> None:
    """At rest, and its child is reaped before the loop ends."""
    child = thinker._child
    thinker.rest()
    if child is not None:
        await child.gone()


async def one_that_thought() -> tuple[SpawnedThinker, set[int]]:
    """With a child, which has concluded once."""
    before, thinker = children_of(os.getpid()), SpawnedThinker()
    await thinker.deliberate(MODEL, CASE)
    return thinker, children_of(os.getpid()) - before


async def test_a_child_concludes_what_the_parent_would() -> None:
    """Where the thinking happens makes no difference, and rest ends the child."""
    before = children_of(os.getpid())
    thinker = SpawnedThinker()
    conclusion = await thinker.deliberate(MODEL, CASE)
    children = children_of(os.getpid()) - before
    await rested(thinker)

    assert conclusion == await InlineThinker().deliberate(MODEL, CASE)
    assert children
    assert await until_gone(children)


async def test_a_killed_child_is_told_and_replaced() -> None:
    """When the child is killed in the middle, the case fails with advice, and the next one is answered."""
    thinker, children = await one_that_thought()
    for child in children:
        os.kill(child, signal.SIGSTOP)  # it must not be done before it is killed
    killed = thinker._child
    assert killed is not None
    asking = asyncio.create_task(thinker.deliberate(MODEL, CASE))
    await asyncio.sleep(0)
    for child in children:
        os.kill(child, signal.SIGKILL)
    with pytest.raises(ThinkerError, match="MemoryMax"):
        await asking
    await killed.gone()

    assert (await thinker.deliberate(MODEL, CASE)).plan is not None
    await rested(thinker)


async def test_rest_ends_a_child_that_still_thinks() -> None:
    """What nobody waits for any more neither overlaps the next probe nor delays the exit."""
    thinker, children = await one_that_thought()
    for child in children:
        os.kill(child, signal.SIGSTOP)  # as good as endless
    ended = thinker._child
    assert ended is not None
    endless = asyncio.create_task(thinker.deliberate(MODEL, CASE))
    await asyncio.sleep(0)
    endless.cancel()
    with pytest.raises(asyncio.CancelledError):
        await endless
    await ended.gone()
    assert children
    assert await until_gone(children)


async def test_the_child_leaves_sigterm_to_its_parent() -> None:
    """A stop is sent to the whole group; the daemon ends the child itself, in order."""
    thinker, (child,) = await one_that_thought()
    before = children_of(os.getpid())
    os.kill(child, signal.SIGTERM)
    assert (await thinker.deliberate(MODEL, CASE)).plan is not None
    assert children_of(os.getpid()) == before
    await rested(thinker)
    assert await until_gone({child})


async def test_a_host_without_room_for_a_process_is_trouble_that_is_foreseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The daemon goes on with what it knows; the next case tries again."""

    async def refuse(*_command: str, **_named: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    thinker = SpawnedThinker()
    with monkeypatch.context() as full:
        full.setattr(asyncio, "create_subprocess_exec", refuse)
        with pytest.raises(ThinkerError, match="the fitting process could not be started"):
            await thinker.deliberate(MODEL, CASE)
    assert (await thinker.deliberate(MODEL, CASE)).plan is not None
    await rested(thinker)


def test_it_thinks_where_its_priority_is_not_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit's filter of system calls refuses a change; it is nice by itself."""
    asked: list[int] = []

    def refuse(increment: int) -> int:
        asked.append(increment)
        raise PermissionError

    monkeypatch.setattr(os, "nice", refuse)
    thinker_process.give_way()
    assert asked
