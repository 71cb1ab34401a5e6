"""How much of the log strangers may fill, in virtual time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from penstock.api.complaints import LINE_COUNT_MAX, USER_COUNT_MAX, WINDOW_SECONDS, Complaints
from penstock.lab.virtual_time import run_virtually

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_user_fills_a_few_lines_a_minute_and_then_a_count(caplog: pytest.LogCaptureFixture) -> None:
    """However often he provokes a line: the count comes when the minute is over, and then there is room again."""

    async def ask() -> tuple[int, int]:
        complaints = Complaints()
        first = sum(complaints.may_write(12345) for _ in range(1000))
        await asyncio.sleep(WINDOW_SECONDS + 1.0)
        return first, sum(complaints.may_write(12345) for _ in range(1000))

    assert run_virtually(lambda _clock: ask(), start_at=NOW) == (LINE_COUNT_MAX, LINE_COUNT_MAX)
    assert f"{1000 - LINE_COUNT_MAX} more lines about requests of user 12345" in caplog.text


def test_nobody_uses_up_the_lines_of_another() -> None:
    """Also not when more users come than are told apart: those share what one has."""

    async def ask() -> tuple[bool, int]:
        complaints = Complaints()
        for uid in range(USER_COUNT_MAX - 1):
            for _ in range(2 * LINE_COUNT_MAX):
                complaints.may_write(uid)
        is_heard = complaints.may_write(5000)
        return is_heard, sum(complaints.may_write(uid) for uid in range(6000, 7000))

    assert run_virtually(lambda _clock: ask(), start_at=NOW) == (True, LINE_COUNT_MAX)
