"""Requests that create something are awaited before what they made is removed, and not for ever."""

from __future__ import annotations

import asyncio

import pytest

from penstock.probes.cleaning import Unanswered


@pytest.mark.usefixtures("clock")
async def test_a_request_that_has_no_answer_ends_with_the_patience_of_who_waits_for_it() -> None:
    """It outlives who made it; else a service that is silent would be asked on behind the end of a probe."""
    unanswered, never = Unanswered(), asyncio.Event()
    asking = asyncio.create_task(unanswered.answer_to(never.wait()))
    await asyncio.sleep(0)
    (request,) = unanswered._requests
    asking.cancel()
    await asyncio.wait({asking})
    assert not request.done()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await unanswered.are_answered()
    await asyncio.wait({request})
    assert request.cancelled()
