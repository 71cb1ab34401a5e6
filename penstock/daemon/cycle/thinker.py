"""Knows where fits are computed: in a child process, so that the event loop never waits for one.

A fit in a thread of the probing process made its loop 6 to 33 ms late, which is as long as an SQS request takes; and
importing scikit-optimize takes the daemon from 65 to 164 MB. So a child process thinks, one case at a time, and
ends when the daemon has nothing to do.
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
    """Turns cases into conclusions, in this process or in another."""

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        """The conclusion of `penstock.optimizer.deliberation.deliberate`."""
        ...

    def rest(self) -> None:
        """Give memory back: no case will come for a while."""
        ...


class ThinkerError(RuntimeError):
    """The child process could not be started, or was killed while it thought; the message says what to do."""


class SpawnedThinker:
    """Thinks in a child process with one BLAS thread and lower priority, which ends with the daemon."""

    def __init__(self) -> None:
        self._child: Companion | None = None

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        """Ask the child, which is started if none runs. Raises ThinkerError when it ends before it answers."""
        if self._child is None:
            try:
                self._child = await Companion.started(_MODULE, None)
            except OSError as trouble:
                raise ThinkerError(f"the fitting process could not be started: {trouble}") from trouble
        asking = asyncio.create_task(self._child.ask("deliberate", model, case))
        try:
            return cast("Conclusion[Any]", await asyncio.shield(asking))
        except GoneError:
            self.rest()
            raise ThinkerError(
                "the fitting process was killed (out of memory?): raise MemoryMax, "
                "or lower advice.fit_observation_count_max"
            ) from None
        except asyncio.CancelledError:  # it cannot be told while it thinks: kill it
            self.rest()
            await asyncio.gather(asking, return_exceptions=True)
            raise

    def rest(self) -> None:
        """Kill the child; the next case starts another (about a second).

        A case that nobody waits for any more is dropped: it would overlap the next probe, or delay the exit.
        """
        if self._child is not None:
            self._child.kill()
            self._child = None
            memory.give_back()
