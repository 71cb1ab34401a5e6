"""Knows the life of a daemon from start to stop, and how commands run one cycle in the foreground without it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from penstock.api.advisor import RefusedError
from penstock.api.listener import ConnectionLimits, serving
from penstock.api.routes import Api
from penstock.api.wire import snapshot_document
from penstock.clock import Clock, SystemClock
from penstock.daemon import host, instance
from penstock.daemon.advisory import Advisory, cycle_document
from penstock.daemon.assembly import App, Surroundings, assembled
from penstock.daemon.config import Configuration, HostSection
from penstock.daemon.config_files import ConfigError
from penstock.daemon.cycle.thinker import SpawnedThinker
from penstock.daemon.entrance import Entrance, keep_files
from penstock.daemon.heard.audit import Audit
from penstock.daemon.heard.client_hours import keep_client_hours
from penstock.daemon.heard.hearing import Hearing
from penstock.daemon.heard.refusal_watch import RefusalWatch
from penstock.daemon.instance import HostIdentity
from penstock.daemon.memory.store import Store
from penstock.daemon.outside.prober import Prober
from penstock.daemon.systemd import Notifier, inherited_sockets
from penstock.daemon.yielding.harm_watch import HarmWatch
from penstock.optimizer import surrogate
from penstock.probes.measurement import LOOP_TICK_SECONDS
from penstock.processes import package
from penstock.vocabulary import UNKNOWN

log = logging.getLogger(__name__)

_SOCKET_NAME = "api"
# Keys of `daemon` that take effect only at a restart, because what they name outlives a reload.
_FIXED = ("runtime_directory", "state_directory", "socket_mode", "control_group")
_STOP_SECONDS_MAX = 90.0  # to clean up after a probe and remove queues while a service does not answer
_BEAT_SECONDS = 10.0


async def run_once(configuration: Configuration) -> Mapping[str, Any]:
    """Run one cycle for every watched context in the foreground, without a socket; returns the results as JSON values.

    Raises StoreError.
    """
    async with alone(configuration) as app:
        await app.conductor.sweep()
        await app.conductor.prepare()
        await app.conductor.visit_fleet()  # a host as short-lived as this has nothing else to start from
        cycles = [await app.conductor.run_cycle(context) for context in app.conductor.contexts]
        await app.conductor.visit_fleet()
        snapshot = snapshot_document(app.board.snapshot(app.conductor.clock.now()))
        told = [{**cycle_document(cycle), "has_failed": cycle.has_failed} for cycle in cycles]
        document: Mapping[str, Any] = msgspec.to_builtins({"cycles": told, **snapshot})
        return document  # dates are text, as in answers from the socket


async def remove_leftovers(configuration: Configuration, *, forgets: bool = False) -> Mapping[str, Any]:
    """Remove what probes left behind while no daemon runs; returns what came of it as JSON values. Raises StoreError.

    `forgets`: do not try again later what cannot be removed now.
    """
    async with alone(configuration) as app:
        app.conductor.sweeper.hurry()
        removed = await app.conductor.sweep()
        return await app.conductor.sweeper.concluded(removed, forgets=forgets)


@contextlib.asynccontextmanager
async def alone(configuration: Configuration) -> AsyncIterator[App]:
    """An app without a socket, on the daemon's own database; the daemon must not run meanwhile. Raises StoreError."""
    async with contextlib.AsyncExitStack() as resources:
        surroundings = await _real_surroundings(configuration, resources)
        yield await resources.enter_async_context(assembled(configuration, surroundings))


async def serve(load: Callable[[], Configuration]) -> None:
    """Run until SIGTERM or SIGINT. `load` reads the configuration, now and at every reload.

    Raises ConfigError, StoreError, SocketPathError and ConductorError; each message says what to do.
    """
    _ = package.begun()
    configuration = load()
    notifier = Notifier()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    path = configuration.daemon.socket_path
    inherited = inherited_sockets().get(_SOCKET_NAME)
    entrance = Entrance(
        path,
        mode=int(configuration.daemon.socket_mode, 8),
        gid=host.group_id(configuration.daemon.control_group),
        inherited=inherited,
    )
    log.info("listening on %s%s", path, "" if inherited is None else ", a socket of systemd")
    if surrogate.is_native():
        log.info("scikit-optimize is not installed: a Gaussian process of penstock's own takes its place")
    beating = asyncio.create_task(_beat(notifier))
    try:
        while not stop.is_set():
            configuration = await _live(configuration, load, entrance, stop, notifier)
    finally:
        beating.cancel()
        entrance.close()


async def _live(
    configuration: Configuration,
    load: Callable[[], Configuration],
    entrance: Entrance,
    stop: asyncio.Event,
    notifier: Notifier,
) -> Configuration:
    """Run with one configuration until a stop or a reload; returns the configuration to run with next."""
    reload = _Reload(load, configuration, notifier)
    async with contextlib.AsyncExitStack() as resources:
        surroundings = await _real_surroundings(configuration, resources)
        api: Api | None = None

        def publish() -> None:
            if api is not None:
                api.publish()

        hearing = Hearing(surroundings.clock)
        harm_watch = HarmWatch(hearing.totals, surroundings.clock, configuration.listen)
        app = await resources.enter_async_context(
            assembled(configuration, surroundings, on_change=publish, harm_watch=harm_watch)
        )
        reload.trouble = lambda: app.store.trouble
        app.backlogs.heard_delete_rate = hearing.deleted_messages_per_second
        refusal_watch = RefusalWatch(hearing, surroundings.clock, app.home, app.conductor.contexts)
        app.board.caution, app.conductor.on_observed = refusal_watch.caution, refusal_watch.note
        api = _api(configuration, app, hearing, surroundings.clock, reload, harm_watch=harm_watch)
        api.publish()
        # Each configuration listens through a descriptor of its own; the socket itself outlives them all.
        acceptor = await resources.enter_async_context(
            serving(
                api.application(),
                entrance.listening.dup(),
                _limits(configuration),
                api.answers,
                api.turns,
                control_gid=host.group_id(configuration.daemon.control_group),
            )
        )
        notifier.ready("serving")
        async with asyncio.TaskGroup() as tasks:
            beside = (
                app.backlogs.watch(surroundings.outside, app.store.add_backlog, app.conductor.troubles),
                hearing.listen(configuration.listen, app.conductor.troubles),
                keep_client_hours(hearing, app.store, surroundings.clock),
                _tell_status(notifier, app, harm_watch, refusal_watch),
                keep_files(entrance, acceptor, api, app.conductor.troubles),
                _find_out(configuration.host, surroundings.identity, reload),
            )
            until = [tasks.create_task(each) for each in (_work(app), stop.wait(), reload.requested.wait())]
            others = [tasks.create_task(each) for each in beside]
            await asyncio.wait(until, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                notifier.stopping("removing what probes left outside")
                notifier.extend_timeout(_STOP_SECONDS_MAX)
            for task in (*until, *others):
                task.cancel()
        await app.close_probes()  # seconds, when a queue must be deleted: the socket answers meanwhile
    return reload.configuration


async def _find_out(section: HostSection, known: HostIdentity, reload: _Reload) -> None:
    """Restart once region and instance type become known: advice, prices and the fleet depend on both."""
    if UNKNOWN in {known.region, known.instance_type}:
        await instance.found_out(section, known)
        while reload.trouble() is not None:  # noqa: ASYNC110 - no event tells when the disk has room again
            await asyncio.sleep(_BEAT_SECONDS)
        reload.begin_anew()


async def _work(app: App) -> None:
    await app.conductor.prepare()
    for forecast in app.forecast():
        log.info("%s", forecast.sentence)
    await app.conductor.run()


async def _beat(notifier: Notifier) -> None:
    """Tell the service manager that the event loop runs, also during a reload."""
    while True:
        notifier.watchdog()
        await asyncio.sleep((notifier.watchdog_seconds or 2 * _BEAT_SECONDS) / 2)


async def _tell_status(
    notifier: Notifier, app: App, harm_watch: HarmWatch, refusal_watch: RefusalWatch
) -> None:
    while True:
        app.host_watch.look()
        is_news, sooner = refusal_watch.look(app.conductor.probed_seconds)
        if is_news:
            app.conductor.heed(sooner)
        harm_watch.look()
        for harm in harm_watch.take_told():
            await app.store.run(partial(Store.add_harm, harm=harm))
        app.conductor.troubles.note("package", await asyncio.to_thread(package.trouble))
        troubles = app.conductor.troubles.now()
        ailing = f"; trouble with {troubles[0].subject}: {troubles[0].sentence}" if troubles else ""
        notifier.status(app.conductor.activity + ailing)
        await asyncio.sleep(_BEAT_SECONDS)


class _Reload:
    """Reads a new configuration and keeps it until it is taken up; a bad one is refused and the old one stays."""

    def __init__(
        self, load: Callable[[], Configuration], configuration: Configuration, notifier: Notifier
    ) -> None:
        self._load = load
        self._notifier = notifier
        self.configuration = configuration
        self.requested = asyncio.Event()
        # What keeps the store from writing: a reload closes the store, and would lose what is not written yet.
        self.trouble: Callable[[], str | None] = lambda: None
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_signal)

    async def __call__(self) -> str:
        """Read the configuration again; says whether it changed. Raises RefusedError with every mistake in it."""
        try:
            configuration = self._load()
        except ConfigError as trouble:
            raise RefusedError(f"the configuration stays as it was: {trouble}") from trouble
        changed = [
            name
            for name in _FIXED
            if getattr(configuration.daemon, name) != getattr(self.configuration.daemon, name)
        ]
        if changed:
            raise RefusedError(
                f"{' and '.join(f'daemon.{name}' for name in changed)} changes only with a restart"
            )
        is_changed = configuration != self.configuration
        if is_changed and (waiting := self.trouble()) is not None:
            raise RefusedError(f"a reload would lose what waits in memory: {waiting}")
        self.configuration = configuration
        if is_changed:
            self.begin_anew()
        return "the configuration has changed and is taken up now" if is_changed else "nothing has changed"

    def begin_anew(self) -> None:
        """Restart with the configuration that was read last."""
        self._notifier.reloading()
        self.requested.set()

    def _on_signal(self) -> None:
        task = asyncio.ensure_future(self())
        task.add_done_callback(_log_reload)


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
    identity = await instance.identify(configuration.host)
    log.info("region %s, instance type %s (%s)", identity.region, identity.instance_type, identity.sentence)
    host_name = instance.host_name()
    prober = await resources.enter_async_context(Prober(configuration, host_name, LOOP_TICK_SECONDS))
    return Surroundings(
        clock=SystemClock(),
        outside=prober,
        probe=prober.probe,
        thinker=SpawnedThinker(),
        identity=identity,
        host_name=host_name,
        sample_host=host.sample,
        seed=configuration.daemon.seed or instance.machine_seed(),
    )


def _api(
    configuration: Configuration,
    app: App,
    hearing: Hearing,
    clock: Clock,
    reload: _Reload,
    *,
    harm_watch: HarmWatch,
) -> Api:
    advisory = Advisory(
        app=app,
        harm_watch=harm_watch,
        audit=Audit(app.board, hearing, clock, app.home),
        take_up=reload,
    )
    return Api(
        advisory,
        clock=clock,
        limits=_limits(configuration),
        snapshot_path=configuration.daemon.snapshot_path,
        control_gid=host.group_id(configuration.daemon.control_group),
        leases=app.leases,
    )


def _limits(configuration: Configuration) -> ConnectionLimits:
    return ConnectionLimits(
        connection_count_max=configuration.daemon.connection_count_max,
        connection_count_max_per_uid=configuration.daemon.connection_count_max_per_user,
    )
