"""How another process of penstock is started."""

import os

from penstock.processes.companion import Companion


async def test_ctrl_c_reaches_no_companion_however_early_it_comes() -> None:
    """A terminal sends it to its group, where a process that still imports would print a traceback."""
    companion = await Companion.started("penstock.daemon.cycle.thinker_process", None)
    try:
        assert os.getpgid(companion._process.pid) != os.getpgrp()
    finally:
        await companion.end()
