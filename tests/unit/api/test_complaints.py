"""How much of the log strangers may fill, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from penstock.api.complaints import LINE_COUNT_MAX, USER_COUNT_MAX, WINDOW_SECONDS, Complaints


@pytest.mark.usefixtures("clock")
async def test_a_user_fills_a_few_lines_a_minute_and_then_a_count(caplog: pytest.LogCaptureFixture) -> None:
    """However often he provokes a line: the count comes when the minute is over, and then there is room again."""
    complaints = Complaints()
    assert sum(complaints.may_write(12345) for _ in range(1000)) == LINE_COUNT_MAX
    await asyncio.sleep(WINDOW_SECONDS + 1.0)
    assert sum(complaints.may_write(12345) for _ in range(LINE_COUNT_MAX)) == LINE_COUNT_MAX
    await asyncio.sleep(WINDOW_SECONDS + 1.0)
    assert len(caplog.records) == 1, "nothing was held back in the second"
    assert sum(complaints.may_write(12345) for _ in range(1000)) == LINE_COUNT_MAX
    assert f"{1000 - LINE_COUNT_MAX} more lines about requests of user 12345" in caplog.text


async def test_nobody_uses_up_the_lines_of_another() -> None:
    """Also not when more users come than are told apart: those share what one has."""
    complaints = Complaints()
    for uid in range(USER_COUNT_MAX - 1):
        for _ in range(2 * LINE_COUNT_MAX):
            complaints.may_write(uid)
    assert complaints.may_write(5000)
    assert sum(complaints.may_write(uid) for uid in range(6000, 7000)) == LINE_COUNT_MAX
