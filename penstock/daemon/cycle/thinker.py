"""Knows where deliberation happens: in a process of its own, so that the event loop never waits for a fit.

A fit in a thread of the probing process made its loop 6 to 33 ms late, which is as long as an SQS request takes; and
importing scikit-optimize takes the daemon from 65 to 164 MB. So a child process thinks, one case at a time, and
is let go as soon as the daemon rests.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, cast

from penstock.models.model import PerformanceModel
from penstock.optimizer.deliberation import Case, Conclusion
from penstock.processes import memory
from penstock.processes.companion import Companion
from penstock.processes.dialogue import GoneError

_MODULE = "penstock.daemon.cycle.thinker_process"


class Thinker(Protocol):
    """Deliberates, somewhere."""

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        """The conclusion of `penstock.optimizer.deliberation.deliberate`."""
        ...

    def rest(self) -> None:
        """Nothing will be asked for a while: give the memory back."""
        ...


class ThinkerError(RuntimeError):
    """There is no child process that thinks to the end; the message says what the operator can do."""


class SpawnedThinker:
    """Thinks in a child process with one BLAS thread, lower priority and the daemon's own life span."""

    def __init__(self) -> None:
        self._child: Companion | None = None

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        """Ask the child, starting one when none is there. Raises ThinkerError when it does not live to answer."""
        if self._child is None:
            try:
                self._child = await Companion.started(_MODULE, None)
            except OSError as trouble:
                raise ThinkerError(f"no process to fit in could be started: {trouble}") from trouble
        asking = asyncio.create_task(self._child.ask("deliberate", model, case))
        try:
            return cast("Conclusion[Any]", await asyncio.shield(asking))
        except GoneError:
            self.rest()
            raise ThinkerError(
                "the fitting process was killed (out of memory?): raise MemoryMax, "
                "or lower advice.fit_observation_count_max"
            ) from None
        except asyncio.CancelledError:  # it does not hear while it thinks
            self.rest()
            await asyncio.gather(asking, return_exceptions=True)
            raise

    def rest(self) -> None:
        """End the child; the next case starts another (about a second).

        A case that nobody waits for any more ends with it: it would overlap the next probe, or delay the exit.
        """
        if self._child is not None:
            self._child.kill()
            self._child = None
            memory.give_back()
