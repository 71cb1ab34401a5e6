"""Knows how a test waits for what threads and processes bring about that tell nobody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(holds: Callable[[], T], seconds: float = 200.0) -> T:
    """What it comes to, as soon as that is true; looked at again and again."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"did not come to pass in {seconds:g} s"
        time.sleep(0.01)
    return found


async def comes(holds: Callable[[], object], seconds: float = 200.0) -> None:
    """The same on an event loop, which turns meanwhile."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110  # what is waited for tells nobody
            await asyncio.sleep(0.001)
