"""Knows where deliberation happens: in a process of its own, so that the event loop never waits for a fit.

A fit in a thread of the probing process made its loop 6 to 33 ms late, which is as long as an SQS request takes; and
importing scikit-optimize takes the daemon from 65 to 164 MB. So a child process thinks, one case at a time, and
is let go as soon as the daemon rests.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from penstock.models.model import PerformanceModel
from penstock.optimizer.deliberation import Case, Conclusion, deliberate
from penstock.processes import memory
from penstock.processes.parent import settle_in

_NICE_INCREMENT = 5  # thinking yields to the applications on the host; probing does not


class Thinker(Protocol):
    """Deliberates, somewhere."""

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        """The conclusion of `penstock.optimizer.deliberation.deliberate`."""
        ...

    def rest(self) -> None:
        """Nothing will be asked for a while: give the memory back."""
        ...


class InlineThinker:
    """Thinks in the caller's process: for virtual time, where nothing real can be disturbed."""

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        """Answer at once."""
        return deliberate(model, case)

    def rest(self) -> None:
        """Hold nothing."""


class ThinkerError(RuntimeError):
    """The child process died while it was thinking; the message says what the operator can do."""


class SpawnedThinker:
    """Thinks in a spawned child with one BLAS thread, lower priority and the daemon's own life span."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._children: set[BaseProcess] = set()

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        """Ask the child, starting one when none is there. Raises ThinkerError when it dies on the way."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1, multiprocessing.get_context("spawn"), _settle_in, (os.getpid(),)
            )
        loop = asyncio.get_running_loop()
        others = set(multiprocessing.active_children()) - self._children
        try:
            answer = loop.run_in_executor(self._pool, deliberate, model, case)
            self._children = set(multiprocessing.active_children()) - others
            return await answer
        except BrokenProcessPool as trouble:
            self.rest()
            raise ThinkerError(
                "the fitting process was killed (out of memory?): raise MemoryMax, "
                "or lower advice.fit_observation_count_max"
            ) from trouble

    def rest(self) -> None:
        """End the child; the next case starts another (about a second).

        A case that nobody waits for any more ends with it: it would overlap the next probe, or delay the exit.
        """
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
            memory.give_back()
        for child in self._children:
            child.kill()
        self._children = set()


def _settle_in(parent_process_id: int) -> None:
    """Prepare the child: it ends with its parent, leaves signals to it, and gives way to others."""
    settle_in(parent_process_id)
    _give_way()


def _give_way() -> None:
    with contextlib.suppress(PermissionError):  # the unit's filter of system calls; it has Nice=10 of its own
        os.nice(_NICE_INCREMENT)
