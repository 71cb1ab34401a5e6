"""Knows what the thinking process does: one case after another, at lower priority than the host's other work.

Run as `python -m penstock.daemon.cycle.thinker_process PARENT_PROCESS_ID`; its standard input is the connection to the
daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from penstock.models.model import PerformanceModel
from penstock.optimizer.deliberation import Case, Conclusion, deliberate
from penstock.processes import companion
from penstock.processes.dialogue import Dialogue

NICE_INCREMENT = 5  # thinking yields to the applications on the host; probing does not


async def _deliberate(model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
    return deliberate(model, case)


async def work() -> None:
    """Answer cases until the daemon closes the connection."""
    reader, writer, _ = await companion.begun()  # its assignment is empty
    await Dialogue(reader, writer, served={"deliberate": _deliberate}).listening


def give_way() -> None:
    """Lower the priority where that is allowed; the unit's system call filter forbids it, but sets Nice=10 itself."""
    with contextlib.suppress(PermissionError):
        os.nice(NICE_INCREMENT)


if __name__ == "__main__":
    companion.settled()
    give_way()
    asyncio.run(work())
