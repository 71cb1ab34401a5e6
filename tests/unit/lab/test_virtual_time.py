"""The rules of time that jumps."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from penstock.lab.virtual_time import StalledError, VirtualClock, run_virtually

START_AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_week_of_timers_passes_at_once() -> None:
    """Sleeping costs no real time, and the two faces of the clock agree on how long it was."""

    async def sleep_a_week(clock: VirtualClock) -> tuple[float, datetime]:
        for _ in range(7 * 24 * 60):
            await asyncio.sleep(60)
        return clock.monotonic_seconds(), clock.now()

    seconds, date = run_virtually(sleep_a_week, start_at=START_AT)
    assert seconds == pytest.approx(7 * 86400, abs=1e-3)
    assert date == START_AT + timedelta(seconds=seconds)


def test_timers_fire_in_their_order() -> None:
    """What is due first happens first, whoever was started first."""

    async def three(clock: VirtualClock) -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []

        async def note(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, clock.monotonic_seconds()))

        await asyncio.gather(note("late", 3.0), note("early", 1.0), note("middle", 2.0))
        return seen

    assert run_virtually(three, start_at=START_AT) == [("early", 1.0), ("middle", 2.0), ("late", 3.0)]


def test_time_limits_work() -> None:
    """Time limits of asyncio run on virtual time too."""

    async def wait_too_long(clock: VirtualClock) -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), timeout=3600)
        return clock.monotonic_seconds()

    assert run_virtually(wait_too_long, start_at=START_AT) == pytest.approx(3600)


def test_work_for_the_executor_runs_in_place() -> None:
    """Nothing leaves the thread, results and errors come back as from an executor, and no time passes."""

    async def hand_over(clock: VirtualClock) -> tuple[int, float]:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(lambda: 6 * 7), clock.monotonic_seconds()

    assert run_virtually(hand_over, start_at=START_AT) == (42, 0.0)


def test_waiting_for_nothing_is_an_error() -> None:
    """A world in which nothing can happen any more says so instead of hanging."""

    async def wait_for_ever(_clock: VirtualClock) -> None:
        await asyncio.Event().wait()

    with pytest.raises(StalledError, match="no timer"):
        run_virtually(wait_for_ever, start_at=START_AT)


def test_timers_go_on_after_ten_years() -> None:
    """Late in a long life, where floats are coarse, a short sleep still ends."""

    async def sleep_late(clock: VirtualClock) -> float:
        await asyncio.sleep(10 * 365 * 86400)
        began = clock.monotonic_seconds()
        await asyncio.sleep(0.001)
        return clock.monotonic_seconds() - began

    assert run_virtually(sleep_late, start_at=START_AT) == pytest.approx(0.001, rel=1e-3)
