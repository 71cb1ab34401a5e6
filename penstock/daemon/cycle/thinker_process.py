"""Knows what is done in the process that thinks: one case after another, giving way to whoever else is on the host.

`python -m penstock.daemon.cycle.thinker_process PARENT_PROCESS_ID`, its standard input the connection to the daemon.
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
    """Until the daemon hangs up."""
    reader, writer, _ = await companion.begun()  # there is nothing to be told
    await Dialogue(reader, writer, served={"deliberate": _deliberate}).listening


def give_way() -> None:
    """As far as it may: the unit's filter of system calls refuses, and it has Nice=10 of its own."""
    with contextlib.suppress(PermissionError):
        os.nice(NICE_INCREMENT)


if __name__ == "__main__":
    companion.settled()
    give_way()
    asyncio.run(work())
