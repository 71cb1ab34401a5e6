"""Knows how everything is put together: the composition root, and the life of a daemon from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import grp
import logging
import platform
import re
import signal
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.clock import Clock, SystemClock
from penstock.daemon import budget, host
from penstock.daemon.advisory import Advisory, cycle_document
from penstock.daemon.api import Api, RefusedError
from penstock.daemon.backlog_watch import BacklogWatch, watch_queue
from penstock.daemon.board import Board
from penstock.daemon.conductor import Conductor, Cycle, Watch
from penstock.daemon.config import ConfigError, Configuration
from penstock.daemon.leases import LeaseBook
from penstock.daemon.listener import ConnectionLimits, open_socket, remove_socket, serving
from penstock.daemon.outside_aws import AwsOutside
from penstock.daemon.services import (
    SERVICES,
    Equipment,
    Outside,
    ProbeOnDemand,
    setting_types,
    thread_count_limits,
    usd_limits,
    watching_cost,
)
from penstock.daemon.store import AsyncStore, Store
from penstock.daemon.systemd import Notifier, inherited_sockets
from penstock.daemon.thinker import SpawnedThinker, Thinker
from penstock.daemon.wire import standing_document
from penstock.models import burst
from penstock.probes import leftovers
from penstock.probes.measurement import LOOP_TICK_SECONDS
from penstock.probes.outside import MessageQueues, ObjectStore, RequestError
from penstock.probes.probe import Leftover, Probe
from penstock.vocabulary import Context, Place

log = logging.getLogger(__name__)

_SOCKET_NAME = "api"
_FIXED = (
    "runtime_directory",
    "state_directory",
    "socket_mode",
    "control_group",
)  # the socket and the file outlive
_STOP_SECONDS_MAX = 90.0  # a probe's clean-up, and the removal of queues, when a service is silent
_BEAT_SECONDS = 10.0
_BUSY_WINDOW_SECONDS_MIN = 1.0  # shorter ones are noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an app is put into: this machine and AWS, or the lab."""

    clock: Clock
    outside: Outside
    thinker: Thinker
    region: str
    instance_type: str
    host_name: str
    host_verdict: Callable[[datetime], budget.Verdict]
    seed: int
    look_at_host: Callable[[], None] = lambda: None  # to be called every few seconds
    sample_host: Callable[[], host.HostSample] = host.HostSample  # what the network counts: nothing in a lab
    loop_tick_seconds: float = LOOP_TICK_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """The parts that others need by name."""

    conductor: Conductor
    board: Board
    backlogs: BacklogWatch
    store: AsyncStore
    home: Place
    started_at: datetime
    close_probes: Callable[[], Awaitable[None]]  # removes what they keep outside; once is enough


@contextlib.asynccontextmanager
async def assembled(
    configuration: Configuration,
    surroundings: Surroundings,
    *,
    on_change: Callable[[], None] = lambda: None,
    on_cycle: Callable[[Cycle], None] = lambda _cycle: None,
) -> AsyncIterator[App]:
    """Everything wired together and restored from the store; on leaving, probes and store are closed.

    Raises StoreError when the database cannot be used.
    """
    clock = surroundings.clock
    home = Place(operation="", region=surroundings.region, instance_type=surroundings.instance_type)
    store = AsyncStore(Store(configuration.daemon.database_path, setting_types()), clock.now)
    probes: list[Probe[Any]] = []

    async def close_probes() -> None:
        while probes:
            await probes.pop().close()

    try:
        for notice in await store.run(Store.take_notices):
            log.warning("%s", notice)
        watches = _watches(configuration, surroundings, store)
        probes += {id(watch.probe): watch.probe for watch in watches}.values()
        board = _board(configuration, home)
        board.restore(await store.run(Store.fits), await store.run(Store.recommendations), clock.now())
        conductor = Conductor(
            watches,
            services=SERVICES,
            board=board,
            store=store,
            ledger=await _ledger(configuration, surroundings, store),
            thinker=surroundings.thinker,
            clock=clock,
            host_verdict=surroundings.host_verdict,
            seed=surroundings.seed,
            observation_count_max=configuration.advice.fit_observation_count_max,
            retention_seconds=configuration.advice.observation_retention_seconds,
            on_change=on_change,
            on_cycle=on_cycle,
        )
        backlogs = BacklogWatch(clock, configuration.watched_queue, region=home.region)
        yield App(
            conductor=conductor,
            board=board,
            backlogs=backlogs,
            store=store,
            home=home,
            started_at=clock.now(),
            close_probes=close_probes,
        )
    finally:
        surroundings.thinker.rest()
        await close_probes()
        await store.close()


async def sweep(configuration: Configuration, app: App, outside: Outside, now: datetime) -> None:
    """Remove what an earlier life left outside, by the journal, and objects of hosts that are no more.

    What cannot be reached is tried at the next start.
    """

    async def store_for(leftover: Leftover) -> ObjectStore:
        return await outside.object_store(
            _region_of_bucket(configuration, leftover.container, app.home.region)
        )

    async def queues_for(leftover: Leftover) -> MessageQueues:
        return await outside.message_queues(leftover.container)

    _tell_of_sweep(await leftovers.sweep(app.store, store_for, queues_for))
    await _sweep_orphans(configuration, app, outside, now)


async def _sweep_orphans(configuration: Configuration, app: App, outside: Outside, now: datetime) -> None:
    """Objects of hosts that are no more, in every bucket that is probed."""
    section = configuration.probes.s3_upload
    for region in (section.regions or (app.home.region,)) if section.is_enabled else ():
        try:
            summary = await leftovers.sweep_orphans(
                app.store,
                await outside.object_store(region),
                service="s3_upload",
                bucket=section.bucket_in(region),
                key_prefix=section.key_prefix,
                now=now,
            )
        except RequestError as trouble:
            log.info("%s was not searched for what other hosts left: %s", section.bucket_in(region), trouble)
        else:
            _tell_of_sweep(summary)


def _tell_of_sweep(summary: leftovers.SweepSummary) -> None:
    for leftover in summary.removed:
        log.warning("removed %s %s, which an earlier run left behind", leftover.kind, leftover.name)
    for kept in summary.kept:
        log.warning("%s %s is left behind: %s", kept.leftover.kind, kept.leftover.name, kept.reason)


async def run_once(configuration: Configuration) -> Mapping[str, Any]:
    """One cycle for every context that is watched, in the foreground, without a socket; a document of what came of it.

    Raises StoreError.
    """
    async with contextlib.AsyncExitStack() as resources:
        surroundings = await _real_surroundings(configuration, resources)
        app = await resources.enter_async_context(assembled(configuration, surroundings))
        await sweep(configuration, app, surroundings.outside, surroundings.clock.now())
        await app.conductor.prepare()
        cycles = [await app.conductor.run_cycle(context) for context in app.conductor.contexts]
        standing = standing_document(app.board.standing(surroundings.clock.now()))
        return {"cycles": [cycle_document(cycle) for cycle in cycles], **standing}


async def serve(load: Callable[[], Configuration]) -> None:
    """Live until SIGTERM or SIGINT. `load` reads the configuration, now and at every reload.

    Raises ConfigError, StoreError, SocketPathError and ConductorError; each says what to do.
    """
    configuration = load()
    notifier = Notifier()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    path = configuration.daemon.socket_path
    inherited = inherited_sockets().get(_SOCKET_NAME)
    listening = inherited or open_socket(
        path, mode=configuration.daemon.socket_mode_bits, gid=_group_id(configuration.daemon.control_group)
    )
    log.info("listening on %s%s", path, "" if inherited is None else ", a socket of systemd")
    listening.setblocking(False)  # noqa: FBT003  # the method takes no other
    beating = asyncio.create_task(_beat(notifier))
    try:
        while not stop.is_set():
            configuration = await _live(configuration, load, listening, stop, notifier)
    finally:
        beating.cancel()
        listening.close()
        if inherited is None:
            remove_socket(path)


async def _live(
    configuration: Configuration,
    load: Callable[[], Configuration],
    listening: socket.socket,
    stop: asyncio.Event,
    notifier: Notifier,
) -> Configuration:
    """One life between two readings of the configuration; returns the configuration of the next."""
    reload = _Reload(load, configuration, notifier)
    async with contextlib.AsyncExitStack() as resources:
        surroundings = await _real_surroundings(configuration, resources)
        api: Api | None = None

        def publish() -> None:
            if api is not None:
                api.publish()

        app = await resources.enter_async_context(assembled(configuration, surroundings, on_change=publish))
        api = _api(configuration, app, surroundings.clock, reload)
        api.publish()
        # Each life listens through a descriptor of its own; the socket itself outlives them all.
        await resources.enter_async_context(
            serving(api.application(), listening.dup(), _limits(configuration), api.answers)
        )
        notifier.ready("serving")
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(_work(configuration, app, surroundings))
            watched = configuration.watched_queue
            watching = tasks.create_task(
                watch_queue(app.backlogs, surroundings.outside, watched, region=app.home.region)
            )
            telling = tasks.create_task(_tell_status(notifier, app.conductor, surroundings.look_at_host))
            ending = [tasks.create_task(stop.wait()), tasks.create_task(reload.requested.wait())]
            await asyncio.wait({work, *ending}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                notifier.stopping("removing what probes left outside")
                notifier.extend_timeout(_STOP_SECONDS_MAX)
            for task in (work, watching, telling, *ending):
                task.cancel()
        await app.close_probes()  # seconds, when a queue has to go: the socket answers meanwhile
    return reload.configuration


async def _work(configuration: Configuration, app: App, surroundings: Surroundings) -> None:
    await sweep(configuration, app, surroundings.outside, surroundings.clock.now())
    await app.conductor.prepare()
    await app.conductor.run()


async def _beat(notifier: Notifier) -> None:
    """Tell the manager that the loop turns, also while one life ends and the next begins."""
    while True:
        notifier.watchdog()
        await asyncio.sleep((notifier.watchdog_seconds or 2 * _BEAT_SECONDS) / 2)


async def _tell_status(notifier: Notifier, conductor: Conductor, look_at_host: Callable[[], None]) -> None:
    while True:
        look_at_host()
        notifier.status(conductor.activity)
        await asyncio.sleep(_BEAT_SECONDS)


class _Reload:
    """A new configuration that waits to be taken up; a bad one is refused and the old one stays."""

    def __init__(
        self, load: Callable[[], Configuration], configuration: Configuration, notifier: Notifier
    ) -> None:
        self._load = load
        self._notifier = notifier
        self.configuration = configuration
        self.requested = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_signal)

    async def __call__(self) -> str:
        """Read it. Raises RefusedError with every mistake in it."""
        try:
            configuration = self._load()
        except ConfigError as trouble:
            raise RefusedError(f"the configuration stays as it was: {trouble}") from trouble
        changed = [
            name for name in _FIXED if _daemon(configuration, name) != _daemon(self.configuration, name)
        ]
        if changed:
            raise RefusedError(
                f"{' and '.join(f'daemon.{name}' for name in changed)} changes only with a restart"
            )
        is_changed = configuration != self.configuration
        self.configuration = configuration
        if is_changed:
            self._notifier.reloading()
            self.requested.set()
        return "the configuration has changed and is taken up now" if is_changed else "nothing has changed"

    def _on_signal(self) -> None:
        task = asyncio.ensure_future(self())
        task.add_done_callback(_log_reload)


def _daemon(configuration: Configuration, name: str) -> object:
    return getattr(configuration.daemon, name)


def _log_reload(task: asyncio.Future[str]) -> None:
    if task.cancelled():
        return
    trouble = task.exception()
    if trouble is None:
        log.info("reload: %s", task.result())
    else:
        log.error("reload: %s", trouble)


async def _real_surroundings(
    configuration: Configuration, resources: contextlib.AsyncExitStack
) -> Surroundings:
    identity = await host.identify(configuration.host)
    log.info("region %s, instance type %s (%s)", identity.region, identity.instance_type, identity.sentence)
    clock = SystemClock()
    watch = _HostWatch(configuration, clock)
    return Surroundings(
        clock=clock,
        outside=await resources.enter_async_context(AwsOutside(configuration)),
        thinker=SpawnedThinker(),
        region=identity.region,
        instance_type=identity.instance_type,
        host_name=re.sub(r"[^A-Za-z0-9-]", "-", platform.node())[:24] or "host",
        host_verdict=watch,
        look_at_host=watch.look,
        sample_host=host.sample,
        seed=configuration.daemon.seed or host.machine_seed(),
    )


class _HostWatch:
    """How busy the host is with its own work, over the last seconds: a look now and then, and one when asked."""

    def __init__(self, configuration: Configuration, clock: Clock) -> None:
        self._section = configuration.budget
        self._clock = clock
        self._samples = deque([(clock.monotonic_seconds(), host.sample())], maxlen=2)

    def look(self) -> None:
        """Begin a new window; call it every few seconds."""
        self._samples.append((self._clock.monotonic_seconds(), host.sample()))

    def __call__(self, now: datetime) -> budget.Verdict:
        """Whether there is room, by the window that is at least a second long."""
        seconds, now_seconds = [at for at, _ in self._samples], self._clock.monotonic_seconds()
        before = self._samples[-1 if now_seconds - seconds[-1] >= _BUSY_WINDOW_SECONDS_MIN else 0][1]
        usage = host.usage(before, host.sample())
        return budget.host_verdict(usage.others_busy_fraction, self._section, now)


def _watches(configuration: Configuration, surroundings: Surroundings, store: AsyncStore) -> list[Watch]:
    """Every context that the configuration wants probed; those of one operation and region share a probe."""
    watches = []
    for operation, service in SERVICES.items():
        plan = service.plan(configuration)
        for region in (plan.regions or (surroundings.region,)) if plan.is_enabled else ():
            equipment = Equipment(
                configuration=configuration,
                clock=surroundings.clock,
                journal=store,
                outside=surroundings.outside,
                region=region,
                host_name=surroundings.host_name,
                loop_tick_seconds=surroundings.loop_tick_seconds,
            )
            probe = host.AttendedProbe(ProbeOnDemand(service, equipment), surroundings.sample_host)
            place = Place(
                operation=operation,
                region=region,
                instance_type=surroundings.instance_type,
                service_class=plan.service_class,
            )
            watches += [
                Watch(
                    context=Context(place=place, payload_size_bytes=size),
                    service=service,
                    plan=plan,
                    probe=probe,
                )
                for size in plan.payload_size_bytes
            ]
    return watches


def _board(configuration: Configuration, home: Place) -> Board:
    return Board(
        SERVICES,
        _standing_contexts(configuration, home),
        thread_count_max=thread_count_limits(configuration),
        region=home.region,
        instance_type=home.instance_type,
        validity_seconds=configuration.advice.validity_seconds,
    )


def _standing_contexts(configuration: Configuration, home: Place) -> list[Context]:
    """Every operation at every size of its ladder, and at the sizes that are probed."""
    contexts = []
    for operation, service in SERVICES.items():
        plan = service.plan(configuration)
        for region in plan.regions or (home.region,):
            place = dataclasses.replace(
                home, operation=operation, region=region, service_class=plan.service_class
            )
            sizes = sorted({*service.payload_ladder_bytes, *plan.payload_size_bytes})
            contexts += [Context(place=place, payload_size_bytes=size) for size in sizes]
    return contexts


async def _ledger(
    configuration: Configuration, surroundings: Surroundings, store: AsyncStore
) -> budget.Ledger:
    ceiling = burst.ceiling(surroundings.instance_type)
    limit = budget.daily_limit(
        configuration.budget, credit_bytes_per_day=ceiling.credit_bytes_max if ceiling else 0.0
    )
    since = (
        surroundings.clock.now() - 30 * budget.DAY
    )  # a clock that steps there and back finds its rows again
    spends = tuple(await store.run(lambda s: s.spend(since=since)))
    limit = budget.left(limit, watching_cost(configuration))
    return budget.Ledger(limit, spends, usd_limits(configuration))


def _api(configuration: Configuration, app: App, clock: Clock, reload: _Reload) -> Api:
    leases = LeaseBook()
    advisory = Advisory(
        services=SERVICES,
        board=app.board,
        conductor=app.conductor,
        backlogs=app.backlogs,
        store=app.store,
        clock=clock,
        home=app.home,
        started_at=app.started_at,
        reload=reload,
        leases=leases,
    )
    return Api(
        advisory,
        clock=clock,
        limits=_limits(configuration),
        snapshot_path=configuration.daemon.snapshot_path,
        control_gid=_group_id(configuration.daemon.control_group),
        leases=leases,
    )


def _limits(configuration: Configuration) -> ConnectionLimits:
    return ConnectionLimits(
        connection_count_max=configuration.daemon.connection_count_max,
        connection_count_max_per_uid=configuration.daemon.connection_count_max_per_user,
    )


def _group_id(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None  # no such group here: control is for root and the daemon's own user


def _region_of_bucket(configuration: Configuration, bucket: str, home_region: str) -> str:
    section = configuration.probes.s3_upload
    regions = section.regions or (home_region,)
    return next((region for region in regions if section.bucket_in(region) == bucket), home_region)
