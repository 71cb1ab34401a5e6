"""Two ends of one connection: answers, troubles, cancellations and the end of one of them reach the other."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from penstock.probes.outside import Throttled
from penstock.processes.dialogue import Dialogue, GoneError


@contextlib.asynccontextmanager
async def two_ends(
    told: Callable[[str], None] | None = None, **served: Callable[..., Awaitable[object]]
) -> AsyncIterator[tuple[Dialogue, Dialogue]]:
    """Who asks, and who answers to what is served."""
    dialogues = [
        Dialogue(*await asyncio.open_unix_connection(sock=end), served=names, told=heard)
        for end, names, heard in zip(
            socket.socketpair(), ({}, served), ({"told": told} if told else {}, {}), strict=True
        )
    ]
    try:
        yield dialogues[0], dialogues[1]
    finally:
        for dialogue in dialogues:
            dialogue.close()
        await asyncio.gather(*(dialogue.listening for dialogue in dialogues))


async def test_questions_are_answered_in_whatever_order_they_end() -> None:
    """One that takes long does not hold up another."""
    slow = asyncio.Event()

    async def wait() -> str:
        await slow.wait()
        return "late"

    async def double(number: int) -> int:
        slow.set()
        return 2 * number

    async with two_ends(wait=wait, double=double) as (asking, _):
        late = asyncio.create_task(asking.ask("wait"))
        assert await asking.ask("double", 21) == 42
        assert await late == "late"


async def test_trouble_is_raised_where_it_was_asked() -> None:
    """Of the same class and with the same sentence, and with what the log needs to find it."""

    async def refuse() -> None:
        raise Throttled("fewer, please")

    async with two_ends(refuse=refuse) as (asking, _):
        with pytest.raises(Throttled) as caught:
            await asking.ask("refuse")
    assert str(caught.value) == "fewer, please"
    assert "in refuse" in caught.value.__notes__[0]


async def test_trouble_that_cannot_be_sent_is_described() -> None:
    """A class that only one of them can make again is told in words."""

    class OddError(Exception):
        def __init__(self, *, of: str) -> None:
            super().__init__(of)

    async def fail() -> None:
        raise OddError(of="odd")

    async with two_ends(fail=fail) as (asking, _):
        with pytest.raises(RuntimeError, match="OddError"):
            await asking.ask("fail")


async def test_an_answer_that_cannot_be_sent_is_trouble() -> None:
    """Whoever asked would wait for it for ever."""

    async def give() -> object:
        return lambda: None

    async with two_ends(give=give) as (asking, _):
        with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
            await asking.ask("give")


async def test_a_cancellation_returns_when_the_other_side_has_ended() -> None:
    """What has to be removed there is removed by then, and what it comes to was told."""
    begun, log = asyncio.Event(), list[str]()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600.0)
        finally:
            await asyncio.sleep(0.01)
            log.append("removed")
            answering.tell("told", "used")

    async with two_ends(log.append, work=work) as (asking, answering):
        task = asyncio.create_task(asking.ask("work"))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # impatient
        with pytest.raises(asyncio.CancelledError):
            await task
    assert log == ["removed", "used"]


async def test_a_cancellation_that_comes_with_its_question_is_answered() -> None:
    """A process that was starting reads both at once: who asked waited for a minute and a half, and would not end."""
    first, second = socket.socketpair()
    asking = Dialogue(*await asyncio.open_unix_connection(sock=first), served={})
    question = asyncio.create_task(asking.ask("wait", 3600.0))
    await asyncio.sleep(0)
    question.cancel()
    await asyncio.sleep(0)
    served = {"wait": asyncio.sleep}
    answering = Dialogue(*await asyncio.open_unix_connection(sock=second), served=served)
    _, waiting = await asyncio.wait({question}, timeout=10.0)
    for dialogue in (asking, answering):
        dialogue.close()
    await asyncio.wait({asking.listening, answering.listening, question})
    assert not waiting
    assert question.cancelled()


async def test_whoever_waits_hears_that_the_other_one_is_gone() -> None:
    """While it waits, and when it asks again."""
    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.sleep(3600.0)

    async with two_ends(hang=hang) as (asking, answering):
        task = asyncio.create_task(asking.ask("hang"))
        await begun.wait()
        answering.close()
        with pytest.raises(GoneError):
            await task
        with pytest.raises(GoneError):
            await asking.ask("hang")
