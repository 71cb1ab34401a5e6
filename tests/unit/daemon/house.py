"""Knows a conductor with one watched context in virtual time, whose thinker and probe do as they are told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.clock import Clock
from penstock.daemon.board import Board
from penstock.daemon.config import Configuration, ProbesSection
from penstock.daemon.cycle.conductor import Conductor
from penstock.daemon.cycle.watch import Watch
from penstock.daemon.instance import HostIdentity
from penstock.daemon.memory.async_store import AsyncStore
from penstock.daemon.memory.store import Store
from penstock.daemon.outside.sweeper import Sweeper
from penstock.daemon.outside.whereabouts import Whereabouts
from penstock.daemon.spending.budget import ALLOWED, Ledger
from penstock.daemon.spending.tariffs import Tariffs
from penstock.daemon.troubles import Troubles
from penstock.lab.virtual_time import VirtualClock
from penstock.models.model import Fit, PerformanceModel
from penstock.operations.sections.objects import ObjectSection
from penstock.operations.table import OPERATIONS
from penstock.optimizer.deliberation import Case, Conclusion
from penstock.probes.outside import MessageQueues, ObjectStore
from penstock.units import GiB
from penstock.vocabulary import Cost, Observation, Outcome, Place, ProbePlan, Reason, Tariff
from tests.factories import CONTEXT, S3_TARIFF, SETTING, SETTING_TYPES, an_observation
from tests.unit.probes.fakes import MemoryQueues, MemoryStore

CONFIGURATION = Configuration(probes=ProbesSection(s3_upload=ObjectSection(bucket="bucket")))
TARIFFS = Tariffs(CONFIGURATION, HostIdentity(region="r", instance_type="i", sentence=""))
WHEREABOUTS = Whereabouts(CONFIGURATION, "r")
PLAN_COST = Cost(transferred_bytes=GiB, request_count=100, usd=0.1, duration_seconds=10.0)
DAY_LIMIT = Cost(
    transferred_bytes=5 * GiB, request_count=1000, usd=1.0, credit_bytes=50 * GiB, duration_seconds=600.0
)


class CannedThinker:
    """Always the same proposal, at once."""

    def __init__(self) -> None:
        self.asked: list[Place] = []
        self.firsts: list[bool] = []  # of what was asked to be planned
        self.tariffs: list[Tariff] = []  # of the same
        self.trouble: Exception | None = None
        self.heeds_failures = False  # then there is no plan after the first of them
        self._fits: dict[Place, Fit] = {}

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        self.asked.append(case.place)
        if self.trouble is not None:
            raise self.trouble
        plan: ProbePlan[Any] | None = None
        self.firsts += [case.is_first] * (case.next_context is not None)
        self.tariffs += [case.tariff] * (case.next_context is not None)
        is_left = not (self.heeds_failures and SETTING in case.avoided)
        if case.next_context is not None and is_left:
            plan = ProbePlan(
                context=case.next_context, setting=SETTING, reason=Reason.EXPLORE, cost_max=PLAN_COST
            )
        if case.place not in self._fits:
            self._fits[case.place] = model.fit(case.place, (), prior=None, seed=1)
        return Conclusion(fit=self._fits[case.place], plan=plan)

    def rest(self) -> None:
        pass


class CannedProbe:
    """Measures the same again and again; `before_end` is what happens meanwhile."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.before_end: Callable[[], None] = lambda: None
        self.run_count = 0
        self.measures: dict[str, float] = {}
        self.usd = 0.001
        self.moved_bytes = 0  # also in vain; 0: what was observed
        self.used = Cost()

    async def run(self, plan: ProbePlan[Any]) -> Outcome[Any]:
        self.run_count += 1
        started_at = self._clock.now()
        await asyncio.sleep(2.0)
        self.before_end()
        observation = an_observation(context=plan.context, started_at=started_at, measures=self.measures)
        self.used = Cost(
            transferred_bytes=self.moved_bytes or observation.transferred_bytes,
            request_count=observation.request_count,
            usd=self.usd,
        )
        return observation

    async def close(self) -> None:
        pass


class Outside:
    """A store and queues of memory, the same in every region."""

    def __init__(self) -> None:
        self.objects = MemoryStore()
        self.queues = MemoryQueues()

    async def object_store(self, _region: str, _endpoint_url: str | None = None) -> ObjectStore:
        return self.objects

    async def message_queues(self, _region: str, _endpoint_url: str | None = None) -> MessageQueues:
        return self.queues


class SteppingClock:
    """Virtual time whose date can be set wrong."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.ahead = timedelta()

    def monotonic_seconds(self) -> float:
        return self._clock.monotonic_seconds()

    def now(self) -> datetime:
        return self._clock.now() + self.ahead


class House:
    """A conductor with one watched context, and all that it touches."""

    def __init__(self, directory: Path, virtual_clock: VirtualClock) -> None:
        self.clock = clock = SteppingClock(virtual_clock)
        self.disk = Store(directory / "penstock.db", SETTING_TYPES)
        self.thinker = CannedThinker()
        self.probe = CannedProbe(clock)
        self.verdict = ALLOWED
        self.store = AsyncStore(self.disk, clock.now)
        self.board = Board(
            [CONTEXT], thread_count_max={}, region="r", instance_type="i", validity_seconds=3600.0
        )
        self.outside = Outside()
        self.tariff, self.observed = S3_TARIFF, list[Observation[Any]]()
        watch = Watch(
            context=CONTEXT,
            section=OPERATIONS[CONTEXT.operation].section_type(),
            probe=self.probe,
            tariff=lambda: self.tariff,
            note_observed=self.observed.append,
        )
        self.conductor = Conductor(
            [watch],
            board=self.board,
            store=self.store,
            ledger=Ledger(DAY_LIMIT),
            thinker=self.thinker,
            sweeper=Sweeper(self.outside, self.store, clock, tariffs=TARIFFS, whereabouts=WHEREABOUTS),
            clock=clock,
            troubles=Troubles(clock),
            host_verdict=lambda _now: self.verdict,
            seed=1,
            observation_count_max=100,
            retention_seconds=86400.0,
            on_change=lambda: None,
            on_cycle=lambda _cycle: None,
        )

    def lock_disk(self, *, is_locked: bool = True) -> None:
        """From now on nothing can be written."""
        self.disk._database._connection.execute(f"PRAGMA query_only = {int(is_locked)}")

    async def live(self, seconds: float) -> None:
        """Run for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.conductor.run()


@contextlib.asynccontextmanager
async def lived_in(directory: Path, clock: VirtualClock) -> AsyncIterator[House]:
    """One whose conductor is prepared, and whose store is closed at the end."""
    house = House(directory, clock)
    await house.conductor.prepare()
    try:
        yield house
    finally:
        house.lock_disk(is_locked=False)
        await house.store.close()
