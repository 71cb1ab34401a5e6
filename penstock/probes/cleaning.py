"""Knows how to finish a clean-up that a cancellation must not cut short."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

_log = logging.getLogger(__name__)


async def clean_up_shielded(cleaning: Coroutine[object, object, None], *, seconds_max: float) -> None:
    """Run the clean-up to its end or its time limit; a cancellation meanwhile is raised after it.

    What was not removed in time stays in the journal, where the next sweep finds it.
    """
    task = asyncio.create_task(_bounded(cleaning, seconds_max))
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            interruption = error
    task.result()
    if interruption is not None:
        raise interruption


async def _bounded(cleaning: Coroutine[object, object, None], seconds_max: float) -> None:
    try:
        async with asyncio.timeout(seconds_max):
            await cleaning
    except TimeoutError:
        _log.warning("the clean-up did not end within %g s; the next sweep goes on with it", seconds_max)
