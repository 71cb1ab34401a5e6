"""What speaks to AWS in a process of its own: it measures, goes, comes back with what it knew, and may be killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.clock import SystemClock
from penstock.daemon.config import AwsSection, Configuration, ProbesSection
from penstock.daemon.memory.database import DiskTrouble
from penstock.daemon.outside import prober
from penstock.daemon.outside.prober import Prober
from penstock.lab.http_s3 import s3_application
from penstock.lab.http_sqs import sqs_application
from penstock.lab.s3 import S3Service
from penstock.lab.server import serving
from penstock.lab.sqs import ActionTruth, QueueTruth, SqsService
from penstock.operations.operation import Equipment
from penstock.operations.s3.upload import UPLOAD
from penstock.operations.sections.objects import ObjectSection
from penstock.operations.sections.queues import QueueSection
from penstock.operations.sqs.delivery import DELIVERY
from penstock.operations.table import OPERATIONS
from penstock.probes.outside import Missing
from penstock.probes.probe import Probe
from penstock.processes import dialogue
from penstock.units import MiB
from penstock.vocabulary import Cost, Inconclusive, Observation
from tests.factories import a_link
from tests.unit.probes.fakes import MemoryJournal, a_delivery_plan, an_upload_plan
from tests.waiting import comes

REGION = "eu-west-1"
UNJUDGED_SECONDS = 3600.0  # between ticks
ACTION = ActionTruth(request_seconds=0.002)


@dataclass
class House:
    """A prober, what it reaches, and the journal of its probes."""

    prober: Prober
    s3: S3Service
    sqs: SqsService
    journal: MemoryJournal

    def is_empty(self) -> bool:
        """Whether nothing is in the bucket."""
        return not (list(self.s3.shelf.objects("bucket")) or self.s3.shelf.uploads("bucket"))

    def probe(self, operation: str) -> Probe:  # type: ignore[type-arg]  # of any setting
        row = OPERATIONS[operation]
        equipment = Equipment(
            clock=SystemClock(),
            journal=self.journal,
            outside=self.prober,
            region=REGION,
            host_name="host",
            loop_tick_seconds=UNJUDGED_SECONDS,
        )
        return self.prober.probe(row, Configuration().section_of(row), equipment)


@pytest.fixture
async def house(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDLAB")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-lab")
    link = a_link(connection_rate_bytes_per_second=200e6, host_rate_bytes_per_second=400e6)
    s3 = S3Service(link, clock=SystemClock(), seed=1)
    s3.shelf.create_bucket("bucket")
    sqs = SqsService(QueueTruth(send=ACTION, receive=ACTION, delete=ACTION), clock=SystemClock(), seed=1)
    async with serving(s3_application(s3)) as s3_url, serving(sqs_application(sqs)) as sqs_url:
        configuration = Configuration(
            aws=AwsSection(s3_endpoint_url=s3_url, sqs_endpoint_url=sqs_url),
            probes=ProbesSection(
                s3_upload=ObjectSection(is_enabled=True, bucket="bucket"),
                sqs_delivery=QueueSection(is_enabled=True),
            ),
        )
        async with Prober(configuration, "host", UNJUDGED_SECONDS) as prober:
            yield House(prober, s3, sqs, MemoryJournal())
    assert not probers()


def probers() -> set[int]:
    """Of those that this process started."""
    return {
        int(child)
        for file in Path("/proc/self/task").glob("*/children")
        for child in file.read_text().split()
        if b"prober_process" in Path(f"/proc/{child}/cmdline").read_bytes()
    }


async def test_a_probe_measures_from_there(house: House) -> None:
    """With its cost, its entries in the journal, and nothing left behind."""
    probe = house.probe(UPLOAD.name)
    outcome = await probe.run(an_upload_plan(size=32 * MiB))
    assert isinstance(outcome, Observation), outcome
    assert probe.used.transferred_bytes == 32 * MiB
    assert house.journal.log[0] == "record"
    assert not house.journal.entries
    assert house.is_empty()


async def test_one_that_somebody_stopped_is_replaced(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no mistake of the daemon, which goes on with another, and counts all that may have been spent."""
    probe, plan, store = (
        house.probe(UPLOAD.name),
        an_upload_plan(size=32 * MiB),
        house.prober.object_store(REGION),
    )
    await (await store).list_objects("bucket", "")
    (stopped,) = probers()
    os.kill(stopped, signal.SIGSTOP)
    with monkeypatch.context() as soon:
        soon.setattr(prober, "BEYOND_SECONDS_MAX", 0.2 - plan.cost_max.duration_seconds)
        soon.setattr(dialogue, "CANCEL_SECONDS_MAX", 0.1)
        outcome = await probe.run(plan)
    assert isinstance(outcome, Inconclusive)
    assert "did somebody stop it?" in outcome.reason
    there = house.prober._there
    assert there is not None
    await comes(lambda: there.is_gone)
    assert isinstance(await probe.run(plan), Observation)
    assert stopped not in probers()


async def test_requests_go_one_by_one(house: House) -> None:
    """What sweeps and fleets ask for; trouble is that of the seam."""
    store = await house.prober.object_store(REGION)
    etag = await store.put_if("bucket", "key", b"body", None)
    found = await store.get_unless("bucket", "key", None, size_bytes_max=100)
    assert found is not None
    assert (found.body, found.etag) == (b"body", etag)
    queues = await house.prober.message_queues(REGION)
    with pytest.raises(Missing):
        await queues.find_queue("none")


async def test_what_probes_know_outlives_the_process(house: House) -> None:
    """The queue that is kept between two runs is used again by the next process, and removed at the end."""
    probe = house.probe(DELIVERY.name)
    plan = a_delivery_plan(cost_max=Cost(transferred_bytes=MiB, request_count=100, duration_seconds=20.0))
    assert isinstance(await probe.run(plan), Observation)
    (first,), (queue,) = probers(), house.sqs.queue_names()
    await house.prober._rest()
    assert not probers()
    assert house.sqs.queue_names() == [queue]

    assert isinstance(await probe.run(plan), Observation)
    assert probers() != {first}
    assert house.sqs.queue_names() == [queue]
    assert not house.prober._assignment.put_away, "after an end by itself the next would know what is no more"
    await house.prober._rest()
    await probe.close()
    assert not house.sqs.queue_names()
    assert not house.journal.entries


async def test_closing_without_credentials_leaves_what_is_kept_to_the_sweep(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they went while no process was there: a stop goes on with the other probes, and closes the database."""
    probe = house.probe(DELIVERY.name)
    plan = a_delivery_plan(cost_max=Cost(transferred_bytes=MiB, request_count=100, duration_seconds=20.0))
    assert isinstance(await probe.run(plan), Observation)
    await house.prober._rest()
    monkeypatch.setenv("AWS_PROFILE", "gone")
    await probe.close()
    assert len(house.journal.entries) == 1


async def test_a_probe_that_is_cancelled_has_removed_what_it_made(house: House) -> None:
    """When the cancellation returns, and its cost is known."""
    probe = house.probe(UPLOAD.name)
    running = asyncio.create_task(probe.run(an_upload_plan(size=2000 * MiB)))
    await comes(lambda: not house.is_empty())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert house.is_empty()
    assert not house.journal.entries
    assert probe.used.request_count


async def test_a_killed_process_is_told_and_replaced(house: House) -> None:
    """What it left is given to the sweep, all that its plan allowed counts as used, and the next probe measures."""
    probe = house.probe(UPLOAD.name)
    plan = an_upload_plan(size=2000 * MiB)
    running = asyncio.create_task(probe.run(plan))
    await comes(lambda: house.journal.entries)
    (process,) = probers()
    os.kill(process, signal.SIGKILL)
    outcome = await running
    assert isinstance(outcome, Inconclusive)
    assert "memory" in outcome.reason
    assert probe.used == plan.cost_max
    assert isinstance(await probe.run(an_upload_plan(size=32 * MiB)), Observation)
    assert house.journal.entries == house.journal.abandoned[:1]


async def test_a_run_that_cannot_begin_costs_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the one before it used."""
    probe = house.probe(UPLOAD.name)
    assert isinstance(await probe.run(an_upload_plan(size=16 * MiB)), Observation)
    await house.prober._rest()

    async def refuse(*_command: object, **_options: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    assert isinstance(await probe.run(an_upload_plan(size=16 * MiB)), Inconclusive)
    assert probe.used == Cost()


async def test_a_disk_that_takes_no_entry_keeps_the_probe_from_beginning(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made outside that was not written down before."""

    async def refuse(_leftover: object) -> None:
        raise DiskTrouble("no space left")

    monkeypatch.setattr(house.journal, "record", refuse)
    with pytest.raises(DiskTrouble, match="no space left"):
        await house.probe(UPLOAD.name).run(an_upload_plan(size=32 * MiB))
    assert house.is_empty()
