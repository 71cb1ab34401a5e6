"""Knows how everything is put together: THE COMPOSITION ROOT, from a configuration and the app's surroundings."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from penstock.api.leases import LeaseBook
from penstock.clock import Clock
from penstock.daemon import host, quiet_hours
from penstock.daemon.backlog_watch import BacklogWatch
from penstock.daemon.board import Board
from penstock.daemon.config import Configuration
from penstock.daemon.cycle.conductor import Conductor, Cycle
from penstock.daemon.cycle.thinker import Thinker
from penstock.daemon.cycle.watch import Watch
from penstock.daemon.fleet.exchange import Fleet, word_for
from penstock.daemon.fleet.shared_limits import SharedLimits, wanted_by_leases
from penstock.daemon.instance import HostIdentity
from penstock.daemon.memory.async_store import AsyncStore
from penstock.daemon.memory.store import Store
from penstock.daemon.outside.sweeper import Sweeper
from penstock.daemon.outside.whereabouts import PlacedJournal, Whereabouts
from penstock.daemon.spending import budget
from penstock.daemon.spending.forecast import Forecast, forecasts
from penstock.daemon.spending.tariffs import Tariffs
from penstock.daemon.troubles import Troubles
from penstock.daemon.yielding.attended_probe import AttendedProbe
from penstock.daemon.yielding.harm_watch import HarmWatch
from penstock.daemon.yielding.host_watch import HostWatch, ceiling_bytes_per_second
from penstock.models import burst
from penstock.models.model import Fit
from penstock.operations.operation import Equipment, Operation, Outside, Service
from penstock.operations.sections.section import Section
from penstock.operations.table import OPERATIONS, setting_types
from penstock.probes.measurement import LOOP_TICK_SECONDS
from penstock.probes.on_demand import ProbeOnDemand
from penstock.probes.probe import Probe
from penstock.vocabulary import UNKNOWN, Context, Demand, Place, Setting

log = logging.getLogger(__name__)


def probe_here(row: Operation[Any, Any], section: Section, equipment: Equipment) -> Probe[Any]:
    """A probe that runs in this process."""
    return ProbeOnDemand(partial(row.make_probe, section, equipment), equipment.clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The world an app runs in: this machine and AWS, or the lab."""

    clock: Clock
    outside: Outside
    thinker: Thinker
    identity: HostIdentity
    host_name: str
    seed: int
    sample_host: Callable[[], host.HostSample] = host.HostSample  # the host's counters; all zero in the lab
    loop_tick_seconds: float = LOOP_TICK_SECONDS
    probe: Callable[[Operation[Any, Any], Section, Equipment], Probe[Any]] = probe_here

    @property
    def home(self) -> Place:
        """This host, for any operation."""
        return Place(operation="", region=self.identity.region, instance_type=self.identity.instance_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """The assembled parts that callers use by name."""

    conductor: Conductor
    board: Board
    backlogs: BacklogWatch
    host_watch: HostWatch
    store: AsyncStore
    tariffs: Tariffs
    leases: LeaseBook
    home: Place
    started_at: datetime
    close_probes: Callable[[], Awaitable[None]]  # removes what they keep on AWS; further calls do nothing
    forecast: Callable[[], Sequence[Forecast]]  # of costs; empty before the first fits


@contextlib.asynccontextmanager
async def assembled(
    configuration: Configuration,
    surroundings: Surroundings,
    *,
    on_change: Callable[[], None] = lambda: None,
    on_cycle: Callable[[Cycle], None] = lambda _cycle: None,
    harm_watch: HarmWatch | None = None,
) -> AsyncIterator[App]:
    """An app, wired together and restored from its database; leaving closes probes and store. Raises StoreError."""
    clock, home = surroundings.clock, surroundings.home
    store = AsyncStore(Store(configuration.daemon.database_path, setting_types()), clock.now)
    probes: list[Probe[Any]] = []

    async def close_probes() -> None:
        while probes:
            await probes.pop().close()

    try:
        for notice in await store.run(Store.take_notices):
            log.warning("%s", notice)
        parts = _Parts(configuration, surroundings, store, Tariffs(configuration, surroundings.identity))
        watches = parts.watches(harm_watch)
        probes += {id(watch.probe): watch.probe for watch in watches}.values()
        board, limits, leases = await parts.divided_board()
        host_watch = parts.host_watch(board)
        conductor = Conductor(
            watches,
            board=board,
            store=store,
            ledger=await parts.ledger(),
            thinker=surroundings.thinker,
            sweeper=parts.sweeper(),
            clock=clock,
            troubles=Troubles(clock),
            host_verdict=host_watch.verdict,
            seed=surroundings.seed,
            observation_count_max=configuration.advice.fit_observation_count_max,
            retention_seconds=configuration.advice.observation_retention_seconds,
            on_change=on_change,
            on_cycle=on_cycle,
            fleet=parts.fleet(),
            limits=limits,
        )
        yield App(
            conductor=conductor,
            board=board,
            backlogs=BacklogWatch(clock, configuration.watched_queue, region=home.region),
            host_watch=host_watch,
            store=store,
            tariffs=parts.tariffs,
            leases=leases,
            home=home,
            started_at=clock.now(),
            close_probes=close_probes,
            forecast=partial(parts.forecast, board),
        )
    finally:
        surroundings.thinker.rest()
        await close_probes()
        await store.close()


@dataclass(frozen=True, slots=True)
class _Parts:
    """Makes each part of the app."""

    configuration: Configuration
    surroundings: Surroundings
    store: AsyncStore
    tariffs: Tariffs

    @property
    def whereabouts(self) -> Whereabouts:
        identity = self.surroundings.identity
        return Whereabouts(self.configuration, identity.region, identity.machine)

    def sweeper(self) -> Sweeper:
        around, at = self.surroundings, self.whereabouts
        return Sweeper(around.outside, self.store, around.clock, tariffs=self.tariffs, whereabouts=at)

    def watches(self, harm_watch: HarmWatch | None) -> list[Watch]:
        """One watch for each context to be probed; all of one operation and region share a probe."""
        return [
            Watch(
                context=Context(place=self.tariffs.place(row, region), payload_size_bytes=size),
                section=section,
                probe=probe,
                tariff=partial(self.tariffs.of, row, region),
                note_observed=self.tariffs.note_observed,
            )
            for row, section in self.configuration.enabled()
            for region in self.tariffs.regions(section)
            for probe in (self._probe(row, section, region, harm_watch),)
            for size in section.payload_size_bytes
        ]

    def _probe(
        self, row: Operation[Any, Any], section: Section, region: str, harm_watch: HarmWatch | None
    ) -> Probe[Any]:
        around = self.surroundings
        equipment = Equipment(
            clock=around.clock,
            journal=PlacedJournal(self.store, self.whereabouts),
            outside=around.outside,
            region=region,
            host_name=around.host_name,
            loop_tick_seconds=around.loop_tick_seconds,
        )
        probe = around.probe(row, section, equipment)
        return AttendedProbe(probe, around.sample_host, around.clock, harm_watch)

    def host_watch(self, board: Board) -> HostWatch:
        """Watches how busy the host is, against what it could carry."""
        around = self.surroundings
        return HostWatch(
            self.configuration.budget,
            around.clock,
            around.sample_host,
            ceiling_bytes_per_second=lambda: ceiling_bytes_per_second(
                around.identity.instance_type, board.fits()
            ),
            quiet_hours=tuple(map(quiet_hours.parse, self.configuration.probes.quiet_hours)),
        )

    def fleet(self) -> Fleet | None:
        """The exchange with the bucket for every place with advice, probed here or not; None without a bucket."""
        section, around, tariffs = self.configuration.fleet, self.surroundings, self.tariffs
        home = around.home
        if not section.bucket or UNKNOWN in {home.region, home.instance_type}:
            return None  # measurements of an unknown kind of host are useless to others
        region = section.region_or(home.region)
        return Fleet(
            section,
            around.outside,
            around.clock,
            places=sorted(
                {context.place for context in standing_contexts(self.configuration, home)}, key=str
            ),
            probed={
                tariffs.place(row, r): probed.mean_interval_seconds
                for row, probed in self.configuration.enabled()
                for r in tariffs.regions(probed)
            },
            region=region,
            tariff=tariffs.of_bucket(region),
            host_name=around.host_name,
            seed=around.seed,
        )

    async def divided_board(self) -> tuple[Board, SharedLimits | None, LeaseBook]:
        """The board with the stored advice, the shared limits and the leases, which depend on each other.

        Advice stays within this host's part of each shared limit, and that part follows from its leases.
        """
        home, now, leases = self.surroundings.home, self.surroundings.clock.now, LeaseBook()
        limits = self._shared_limits(
            lambda operation: wanted_by_leases(board, leases, home, operation, now())
        )
        board = board_of(self.configuration, home, limits)
        fits, advice = await self.store.run(Store.fits), await self.store.run(Store.recommendations)
        board.restore(fits, advice, now())
        return board, limits, leases

    def _shared_limits(self, wanted: Callable[[str], float]) -> SharedLimits | None:
        section, around = self.configuration.fleet, self.surroundings
        if not section.bucket or not section.shared_limits:
            return None
        region = section.region_or(around.home.region)
        return SharedLimits(
            section,
            around.outside,
            around.clock,
            region=region,
            tariff=self.tariffs.of_bucket(region),
            host=word_for(around.host_name, around.seed),
            wanted=wanted,
        )

    def forecast(self, board: Board) -> Sequence[Forecast]:
        """The forecast of costs, by what is known of each place now."""
        now = self.surroundings.clock.now()

        def advised(context: Context) -> tuple[Fit, Setting] | None:
            fit = board.fit(context.place)
            return None if fit is None else (fit, board.recommend(context, Demand(), now).setting)

        return forecasts(self.configuration, self.tariffs, advised, now)

    async def ledger(self) -> budget.Ledger:
        """What may be spent, and what was spent."""
        ceiling = burst.ceiling(self.surroundings.identity.instance_type)
        limit = budget.daily_limit(
            self.configuration.budget, credit_bytes_per_day=ceiling.credit_bytes_max if ceiling else 0.0
        )
        # All the newest rows, also those dated ahead of the clock: it may step there and back.
        spends = tuple(await self.store.run(Store.newest_spend))
        limit = budget.left(limit, self.tariffs.standing_cost())
        return budget.Ledger(limit, spends, self.tariffs.probing_usd_limits())


def board_of(configuration: Configuration, home: Place, limits: SharedLimits | None = None) -> Board:
    """An empty board for every context with advice, with the limits that are configured and shared."""
    store = configuration.aws.store
    stored = [row.name for row in OPERATIONS.values() if row.service is Service.S3]
    return Board(
        standing_contexts(configuration, home),
        thread_count_max=configuration.thread_count_limits,
        region=home.region,
        instance_type=home.instance_type,
        validity_seconds=configuration.advice.validity_seconds,
        stores={} if store is None else dict.fromkeys(stored, store.name),
        fleet_share=limits.share if limits else lambda _operation: None,
    )


def standing_contexts(configuration: Configuration, home: Place) -> list[Context]:
    """The contexts with standing advice: every operation at each size of its ladder and each size that is probed."""
    contexts = []
    for name, row in OPERATIONS.items():
        section = configuration.section_of(row)
        for region in section.regions or (home.region,):
            place = dataclasses.replace(
                home, operation=name, region=region, service_class=section.service_class
            )
            sizes = sorted({*row.payload_ladder_bytes, *section.payload_size_bytes})
            contexts += [Context(place=place, payload_size_bytes=size) for size in sizes]
    return contexts
