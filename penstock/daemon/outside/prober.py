"""Knows the process that speaks to AWS for the daemon: it starts when it is needed and ends when it is idle.

aiobotocore, its clients and a probe's buffers would be a quarter of the daemon's memory, so they are kept only while
they are used. When the process ends, the state of its probes is saved and passed to the next one. The daemon, which
outlives the process, journals what probes create.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, cast

from penstock.clock import Clock
from penstock.daemon.config import Configuration
from penstock.operations.operation import Equipment, Operation, Service
from penstock.operations.sections.section import Section
from penstock.probes.outside import MessageQueues, ObjectStore, RequestError, Unreachable
from penstock.probes.probe import Journal, Leftover, NoJournal, Probe, inconclusive
from penstock.processes import memory
from penstock.processes.companion import Companion, Remote
from penstock.processes.dialogue import GoneError
from penstock.vocabulary import Cost, Outcome, ProbePlan

IDLE_SECONDS = 60.0
BEYOND_SECONDS_MAX = 300.0  # for preparation and clean-up, beyond a probe's own duration
_MODULE = "penstock.daemon.outside.prober_process"
_GONE = "the probing process ended unexpectedly: was it killed for lack of memory?"
_SILENT = "the probing process did not answer and was replaced: did somebody stop it?"
_log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Of a probe: the operation's name, and the region."""
Site = tuple[Service, str, str | None]
"""Of a client: the service, the region, and the endpoint where it is not the configured one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The first message to a new process."""

    configuration: Configuration
    host_name: str
    loop_tick_seconds: float
    put_away: Mapping[Key, bytes] = field(default_factory=dict)  # pickled probes of the previous process


class Prober:
    """`penstock.operations.operation.Outside`, and the maker of probes, by way of the process.

    A context manager: leaving it ends the process; everything that uses it must have ended before.
    """

    def __init__(self, configuration: Configuration, host_name: str, loop_tick_seconds: float) -> None:
        self._assignment = Assignment(
            configuration=configuration, host_name=host_name, loop_tick_seconds=loop_tick_seconds
        )
        self._journal: Journal = NoJournal()
        self._recorded: set[Leftover] = set()  # in the journal, and neither struck nor abandoned yet
        self._used: dict[Key, Cost] = {}
        self._changing = asyncio.Lock()
        self._there: Companion | None = None
        self._asking_count = 0
        # With a watched queue or shared limits there are requests all the time: the process is kept then.
        self._is_kept = bool(configuration.watched_queue.name or configuration.fleet.shared_limits)
        self._rest_handle: asyncio.TimerHandle | None = None
        self._resting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._stay()
        async with self._changing:
            await self._end()

    async def object_store(self, region: str, endpoint_url: str | None = None) -> ObjectStore:
        return cast("ObjectStore", Remote(partial(self.ask, "request", (Service.S3, region, endpoint_url))))

    async def message_queues(self, region: str, endpoint_url: str | None = None) -> MessageQueues:
        return cast(
            "MessageQueues", Remote(partial(self.ask, "request", (Service.SQS, region, endpoint_url)))
        )

    def probe(self, row: Operation[Any, Any], _section: Section, equipment: Equipment) -> Probe[Any]:
        """A probe that runs in the process."""
        self._journal = equipment.journal
        return _ProbeThere(self, (row.name, equipment.region), equipment.clock)

    async def ask(self, name: str, *arguments: Any) -> Any:  # Any: pickled
        """Ask the process, which is started if none runs. Raises what was raised there, and Unreachable."""
        self._stay()
        self._asking_count += 1
        try:
            async with self._changing:
                there = await self._living()
            return await there.ask(name, *arguments)
        except GoneError:
            raise Unreachable(_GONE) from None
        finally:
            self._asking_count -= 1
            if not self._asking_count and not self._is_kept:
                self._rest_handle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._begin_rest)

    def used(self, key: Key) -> Cost:
        """The cost of the newest run: nothing before it begins, and all that its plan allows until it ends."""
        return self._used.get(key, Cost())

    def forget_used(self, key: Key) -> None:
        """Reset the cost before another run, in case that never begins."""
        self._used.pop(key, None)

    @property
    def is_holding(self) -> bool:
        """Whether probes keep anything on AWS."""
        return bool(self._recorded)

    async def _living(self) -> Companion:
        if self._there is not None and self._there.is_gone:
            await self._bury()
        if self._there is None:
            await self._start()
        assert self._there is not None
        return self._there

    async def _start(self) -> None:
        served = {name: getattr(self, f"_{name}") for name in ("record", "strike", "abandon", "open_entries")}
        told = {"used": self._used.__setitem__}
        try:
            self._there = await Companion.started(_MODULE, self._assignment, served=served, told=told)
        except OSError as trouble:
            raise Unreachable(f"the probing process could not be started: {trouble}") from trouble
        self._assignment = replace(self._assignment, put_away={})

    def _stay(self) -> None:
        if self._rest_handle is not None:
            self._rest_handle.cancel()

    def _begin_rest(self) -> None:
        self._resting = asyncio.create_task(self._rest())  # once begun, it is not interrupted

    async def _rest(self) -> None:
        """Save the state of the probes, and end the process; the next one takes a second to start."""
        async with self._changing:
            if not self._asking_count and self._there is not None:
                with contextlib.suppress(GoneError):  # then the next request cleans up after it
                    put_away = await self._there.ask("put_away")
                    self._assignment = replace(self._assignment, put_away=put_away)
                    await self._end()

    async def _end(self) -> None:
        """End the process; what its probes keep on AWS is saved or closed by now."""
        if self._there is not None:
            await self._there.end()
            self._there = None
            memory.give_back()

    async def _bury(self) -> None:
        """Clean up after a process that ended by itself: nobody uses any more what its probes created."""
        _log.warning("%s", _GONE)
        await self._end()
        for leftover in list(self._recorded):
            await self._abandon(leftover)

    async def _record(self, leftover: Leftover) -> None:
        await self._journal.record(leftover)
        self._recorded.add(leftover)

    async def _strike(self, leftover: Leftover) -> None:
        self._recorded.discard(leftover)
        await self._journal.strike(leftover)

    async def _abandon(self, leftover: Leftover) -> None:
        self._recorded.discard(leftover)
        await self._journal.abandon(leftover)

    async def _open_entries(self) -> list[Leftover]:
        return await self._journal.open_entries()


class _ProbeThere:
    """Stands for a probe in the other process."""

    def __init__(self, prober: Prober, key: Key, clock: Clock) -> None:
        self._prober = prober
        self._key = key
        self._clock = clock

    @property
    def used(self) -> Cost:
        return self._prober.used(self._key)

    async def run(self, plan: ProbePlan[Any]) -> Outcome[Any]:
        started_at = self._clock.now()
        self._prober.forget_used(self._key)
        try:
            async with asyncio.timeout(plan.cost_max.duration_seconds + BEYOND_SECONDS_MAX):
                outcome: Outcome[Any] = await self._prober.ask("run", self._key, plan)
                return outcome
        except Unreachable as trouble:
            return inconclusive(plan, started_at, str(trouble))
        except TimeoutError:
            return inconclusive(plan, started_at, _SILENT)

    async def close(self) -> None:
        if self._prober.is_holding:
            with contextlib.suppress(RequestError):  # the next sweep removes what the journal still has
                await self._prober.ask("close", self._key)
