"""Knows how an experiment runs on real services: step by step, within an allowance, and resumable.

It uses the daemon's own surroundings: its configuration; its journal, so that the next run or the daemon sweeps what a
killed run left; its database, so that the models learn from every transfer and from every queue's requests; and its
book of expenses.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.daemon.app import alone
from penstock.daemon.assembly import App
from penstock.daemon.config import Configuration
from penstock.daemon.outside.aws import access_to
from penstock.daemon.outside.whereabouts import PlacedJournal
from penstock.daemon.regions import domain
from penstock.experiments.archive import Archive
from penstock.experiments.experiment import DOWNLOAD, QUEUE, UPLOAD, Experiment, Form, Record, Step
from penstock.experiments.queue_host import queue_hosts
from penstock.experiments.virtually import plan_of, record_of
from penstock.operations.operation import Operation, Service
from penstock.operations.table import OPERATIONS
from penstock.probes.aws.access import Access
from penstock.probes.aws.objects import AwsObjectStore, open_object_store
from penstock.probes.aws.queues import open_message_queues
from penstock.probes.measurement import LOOP_TICK_SECONDS
from penstock.probes.on_demand import ProbeOnDemand
from penstock.probes.outside import ANSWERED_BY, MessageQueues
from penstock.probes.probe import Probe
from penstock.probes.s3.download import S3DownloadProbe
from penstock.probes.s3.upload import S3UploadProbe
from penstock.probes.s3.workers import hired
from penstock.probes.s3.workspace import Workspace
from penstock.probes.sqs.queue_application import JOURNALLED_AS, QueueApplicationProbe, as_delivery
from penstock.tuning.clients import Target, command_line, noting, what_is_missing
from penstock.tuning.command import Failure, Report, run_command
from penstock.tuning.remains import remove_noted
from penstock.units import format_bytes
from penstock.vocabulary import Cost, Observation, Outcome, Place, Tariff

_ADVISED_CONNECTION_COUNT = 64  # for threads that the advice may add
_PLAIN_S3 = "http://s3.{region}.{domain}"

Tell = Callable[[Record], None]


class NotAllowedError(Exception):
    """It would cost more than is allowed, or there is nothing to run it on; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The most that one run may take."""

    usd: float
    transferred_bytes: int


def steps_here(
    steps: Sequence[Step], configuration: Configuration, far: Configuration | None = None
) -> list[Step]:
    """The steps that can be run: at an end that is named, and with the TLS setting of one's own endpoint."""
    return [step for step in steps if _is_possible(step, far if step.is_far else configuration)]


def _is_possible(step: Step, end: Configuration | None) -> bool:
    if end is None:
        return False
    url = end.aws.s3_endpoint_url
    return not url or step.is_plain is None or step.is_plain is (urlsplit(url).scheme == "http")


def place_of(experiment: Experiment, configuration: Configuration, far: Configuration | None = None) -> str:
    """Which services the records are about, as part of a file name."""
    if far is not None:
        return f"{place_of(experiment, configuration)}--{place_of(experiment, far)}"
    aws = configuration.aws
    is_queue = any(step.operation == QUEUE for step in experiment.steps(Form.SHORT))
    url = aws.sqs_endpoint_url if is_queue else aws.s3_endpoint_url
    if url:
        return urlsplit(url).netloc.replace(":", "-").replace(".", "-")
    section = configuration.section_of(OPERATIONS[JOURNALLED_AS if is_queue else UPLOAD])
    region = section.regions[0] if section.regions else configuration.host.region
    return f"aws-{region}" if region else "aws"


async def run_for_real(
    archive: Archive,
    configuration: Configuration,
    allowance: Allowance,
    tell: Tell,
    *,
    far: Configuration | None,
) -> None:
    """Run what is left of the archive's experiment, with the far end if one is named.

    Raises NotAllowedError, ArchiveError, StoreError, RequestError.
    """
    if archive.experiment.needs_endpoint and not configuration.aws.s3_endpoint_url:
        raise NotAllowedError(
            "it is about another host: name that as aws.s3_endpoint_url in a configuration of its own"
        )
    done = {record.label for record in archive.read() if record.reason is None}
    possible = steps_here(archive.experiment.steps(archive.form), configuration, far)
    left = [step for step in possible if step.label not in done]
    if not left:
        return
    if far is not None and far.daemon.database_path == configuration.daemon.database_path:
        raise NotAllowedError("the far end needs a daemon.state_directory of its own in its configuration")
    async with contextlib.AsyncExitStack() as resources:
        sites: dict[bool, _Site] = {}
        for is_far in dict.fromkeys(step.is_far for step in left):
            end = far if is_far and far is not None else configuration
            app = await resources.enter_async_context(alone(end))
            mine = [step for step in left if step.is_far is is_far]
            sites[is_far] = await resources.enter_async_context(_site(app, end, mine))
        _refuse_more_than(allowance, [sites[step.is_far].cost(step) for step in left])
        notes = archive.path.parent / "notes"
        for site in sites.values():
            await site.app.conductor.sweep()  # removes what a killed run left outside
        await asyncio.to_thread(remove_noted, notes)  # the same for a killed client
        try:
            for step in left:
                await asyncio.sleep(step.wait_seconds)
                site = sites[step.is_far]
                record = await (site.client_record(step, notes) if step.client else site.record(step))
                archive.append(record)
                tell(record)
        finally:  # a request of a client that was ended may have taken effect after its own removal
            await asyncio.to_thread(remove_noted, notes)


def _refuse_more_than(allowance: Allowance, costs: Sequence[Cost]) -> None:
    """Raise NotAllowedError before anything is spent."""
    total = sum(costs, Cost())
    if total.usd > allowance.usd or total.transferred_bytes > allowance.transferred_bytes:
        raise NotAllowedError(
            f"what is left of it may cost ${total.usd:.2f} and move {format_bytes(total.transferred_bytes)}: allow "
            f"that with --usd-max and --bytes-max, or try --short"
        )


@contextlib.asynccontextmanager
async def _site(app: App, configuration: Configuration, steps: Sequence[Step]) -> AsyncIterator[_Site]:
    """The clients for these steps. Raises NotAllowedError, Denied."""
    rows = {_row(step) for step in steps}
    regions = {row.name: app.tariffs.regions(configuration.section_of(row))[0] for row in rows}
    async with contextlib.AsyncExitStack() as resources:
        site = _Site(app, configuration, regions)
        threads = max(_connection_count(step) for step in steps)
        for name, region in regions.items():
            service = OPERATIONS[name].service
            access = access_to(configuration, service, region, threads)
            if service is Service.SQS:
                site.queue_access = access
                site.queues = await resources.enter_async_context(open_message_queues(access))
                continue
            site.bucket(name)  # may raise NotAllowedError
            site.stores[name, False] = await resources.enter_async_context(open_object_store(access))
            if not access.endpoint_url and any(step.is_plain for step in steps):
                plain = replace(access, endpoint_url=_PLAIN_S3.format(region=region, domain=domain(region)))
                site.stores[name, True] = await resources.enter_async_context(open_object_store(plain))
        yield site


class _Site:
    """This host, its services, and the probes on them."""

    def __init__(self, app: App, configuration: Configuration, regions: dict[str, str]) -> None:
        self.queues: MessageQueues | None = None
        self.queue_access: Access | None = None
        # By operation, and by whether it is without TLS.
        self.stores: dict[tuple[str, bool], AwsObjectStore] = {}
        self.app = app
        self._clock = app.conductor.clock
        self._journal = PlacedJournal(app.store, app.conductor.sweeper.whereabouts)
        self._configuration = configuration
        self._regions = regions

    def cost(self, step: Step) -> Cost:
        """The most that the step costs, at the prices of the route."""
        usd = step.copy_count * step.usd(self._tariff(_row(step)))
        return replace(step.cost_of_all, usd=usd)

    def bucket(self, operation: str) -> str:
        section: Any = self._configuration.section_of(OPERATIONS[operation])  # Any: one of objects
        if not section.bucket:
            raise NotAllowedError(f"it needs probes.{operation}.bucket in the configuration")
        return str(section.bucket_in(self._regions[operation]))

    async def record(self, step: Step) -> Record:
        """Run all copies at the same time. The maximum is booked before, and replaced by the real cost after."""
        row = _row(step)
        booked = await self.app.conductor.pay(row.name, self.cost(step))
        plan = plan_of(step, self.app.tariffs.place(row, self._regions[row.name]), self._tariff(row))
        addresses: Counter[str] = Counter()
        hearing, probes = ANSWERED_BY.set(addresses), list[Probe[Any]]()
        start_seconds = self._clock.monotonic_seconds()
        try:
            async with contextlib.AsyncExitStack() as ending:
                for _ in range(step.copy_count):
                    probes.append(await self._probe(step, row.name, ending))
                outcomes = await asyncio.gather(*(probe.run(plan) for probe in probes))
        finally:
            ANSWERED_BY.reset(hearing)
            used = sum((probe.used for probe in probes), Cost())
            seconds = self._clock.monotonic_seconds() - start_seconds
            await self.app.conductor.settle(booked, replace(used, duration_seconds=seconds))
        await self._remember(step, outcomes, probes, plan.context.place)
        return record_of(step, outcomes, probes, addresses)

    async def client_record(self, step: Step, notes: Path) -> Record:
        """Run somebody else's client; `notes` is the folder for notes of what it may leave behind."""
        row, started_at = _row(step), self._clock.now().isoformat(timespec="seconds")
        if (missing := what_is_missing(step.client)) is not None:
            return Record(label=step.label, started_at=started_at, reason=missing)
        await self.app.conductor.pay(row.name, self.cost(step))
        target = Target(
            bucket=self.bucket(row.name),
            endpoint_url=self._configuration.aws.s3_endpoint_url or None,
            region=self._regions[row.name],
        )
        setting: Any = step.setting  # Any: that of an upload
        wanted = {"object_size_bytes": step.payload_size_bytes, **asdict(setting)}
        command = f"{command_line(step.client, target)} {noting(notes)}"
        report = await _followed(command, wanted, step.cost_max.duration_seconds)
        if isinstance(report, Failure):
            return Record(label=step.label, started_at=started_at, reason=report.reason)
        values = {
            "duration_seconds": report.duration_seconds,
            "transferred_bytes": report.transferred_bytes,
            "throughput_bytes_per_second": report.transferred_bytes / report.duration_seconds,
            "request_count": float(step.body_count or 1),  # with bodies; others are unknown
            "throttled_count": float(report.throttled_count),
            "failed_count": float(report.failed_count),
        }
        return Record(label=step.label, started_at=started_at, values=values)

    async def _remember(
        self, step: Step, outcomes: Sequence[Outcome[Any]], probes: Sequence[Probe[Any]], place: Place
    ) -> None:
        """Store what models learn from: transfers, and request times of queues if this process made the requests."""
        for outcome, probe in zip(outcomes, probes, strict=True):
            if not isinstance(outcome, Observation):
                continue
            lesson: Observation[Any] = outcome
            if isinstance(probe, QueueApplicationProbe):
                if step.process_count or probe.course is None:
                    continue
                lesson = as_delivery(outcome, probe.course, place)
            await self.app.store.add_observation(lesson)
            self.app.tariffs.note_observed(lesson)

    def _tariff(self, row: Operation[Any, Any]) -> Tariff:
        return self.app.tariffs.of(row, self._regions[row.name])

    async def _probe(self, step: Step, operation: str, ending: contextlib.AsyncExitStack) -> Probe[Any]:
        """One copy of the step's probe; `ending` closes it and its processes. Raises RequestError."""
        if step.operation == QUEUE:
            assert self.queues is not None
            assert self.queue_access is not None
            hosts = None
            if step.process_count:
                hosts = await ending.enter_async_context(queue_hosts(step.process_count, self.queue_access))
            probe: Probe[Any] = QueueApplicationProbe(self.queues, self._clock, self._journal, messages=hosts)
        else:
            probe = ProbeOnDemand(partial(self._transfer_probe, step, operation), self._clock)
        ending.push_async_callback(probe.close)
        return probe

    async def _transfer_probe(self, step: Step, operation: str) -> Probe[Any]:
        store = self.stores.get((operation, step.is_plain is True)) or self.stores[operation, False]
        section: Any = self._configuration.section_of(OPERATIONS[operation])  # Any: one of objects
        workspace = Workspace(
            store,
            self._clock,
            self._journal,
            self.bucket(operation),
            key_prefix=section.key_prefix,
            hire=partial(hired, access=store.access, loop_tick_seconds=LOOP_TICK_SECONDS),
            worker_count_max=max(step.process_count, 1),
        )
        if step.operation == DOWNLOAD:
            return S3DownloadProbe(
                workspace,
                read_object_bytes_max=step.payload_size_bytes,  # it is read as a whole
                is_apart=step.process_count > 0,
            )
        assert step.operation == UPLOAD
        return S3UploadProbe(workspace, is_verified=True)


async def _followed(command: str, request: Mapping[str, int], seconds_max: float) -> Report | Failure:
    """Run the command outside the loop; cancellation ends it, and waits until it has removed what it sent."""
    stop = os.eventfd(0)
    try:
        running = asyncio.create_task(
            asyncio.to_thread(run_command, command, request, timeout_seconds=seconds_max, stop=stop)
        )
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            os.eventfd_write(stop, 1)
            while not running.done():  # however often it is cancelled
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({running})
            raise
    finally:
        os.close(stop)


def _row(step: Step) -> Operation[Any, Any]:
    """The operation whose section, client and journal a step uses."""
    return OPERATIONS[JOURNALLED_AS if step.operation == QUEUE else step.operation]


def _connection_count(step: Step) -> int:
    setting: Any = step.setting  # Any: of any operation
    if step.operation != QUEUE:
        return int(setting.thread_count) * step.copy_count
    conduct = setting.conduct
    stated = conduct.sender_count + conduct.receiver_count + conduct.deleter_count
    return int(stated) + _ADVISED_CONNECTION_COUNT
