"""How many processes send the bodies of a probe, and what is measured of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from penstock.lab.virtual_time import VirtualClock
from penstock.models.s3.upload import S3UploadSetting
from penstock.probes.measurement import Effort
from penstock.probes.s3.download import S3DownloadProbe
from penstock.probes.s3.upload import S3UploadProbe
from penstock.probes.s3.workers import BODIES_BYTES_MAX, Staffing, WorkerError, Workers
from penstock.probes.s3.workspace import Workspace
from penstock.units import MiB
from penstock.vocabulary import Observation
from tests.unit.probes.fakes import MemoryJournal, MemoryStore, a_download_plan, an_upload_plan, virtually

FULL = Effort(duration_seconds=1.0, client_cpu_fraction=0.95)


class BusyWorkers(MemoryStore):
    """Some processes that are all full; the bodies go straight into another store's books."""

    def __init__(self) -> None:
        super().__init__()
        self.hired: list[int] = []
        self.trouble_at_start: str | None = None

    @contextlib.asynccontextmanager
    async def hire(self, worker_count: int, _body_bytes: int, _body_seed: int) -> AsyncIterator[Workers]:
        if self.trouble_at_start is not None:
            raise WorkerError(self.trouble_at_start)
        self.hired.append(worker_count)
        yield self

    @contextlib.asynccontextmanager
    async def measured(self) -> AsyncIterator[list[Effort]]:
        efforts: list[Effort] = []
        yield efforts
        efforts.append(FULL)


def test_who_stands_apart_hires_one() -> None:
    """What is to be as a host of its own has its bodies moved by another process, busy or not."""
    workers = BusyWorkers()
    outcome = virtually(
        lambda clock: S3DownloadProbe(
            Workspace(workers, clock, MemoryJournal(), "bucket", hire=workers.hire), is_apart=True
        ).run(a_download_plan())
    )
    assert isinstance(outcome, Observation)
    assert workers.hired == [1]
    assert workers.reads


def observed_twice(workers: BusyWorkers, *, worker_count_max: int = 4) -> Observation[S3UploadSetting]:
    """The second of two probes of which the first filled its process, in an S3 that is the workers' own."""

    async def story(clock: VirtualClock) -> Observation[S3UploadSetting]:
        probe = S3UploadProbe(
            Workspace(
                workers,
                clock,
                MemoryJournal(),
                "bucket",
                loop_tick_seconds=0.1,
                hire=workers.hire,
                worker_count_max=worker_count_max,
            )
        )
        plan = an_upload_plan(size=256 * MiB, threads=16)
        # As a real clock would.
        probe._staff.staffing.learn(FULL, thread_count=16, worker_count=1, body_bytes=8 * MiB)
        outcome = await probe.run(plan)
        assert isinstance(outcome, Observation)
        return outcome

    return virtually(story)


def test_a_process_that_was_full_gets_help_next_time() -> None:
    """The observation says how many they were and how busy the busiest was."""
    workers = BusyWorkers()
    observation = observed_twice(workers)
    assert workers.hired == [2]
    assert observation.measures["worker_count"] == 2
    assert 0.95 <= observation.measures["client_cpu_demand_fraction"] <= 1.0  # without create and complete
    assert not workers.objects


def test_a_host_with_one_processor_never_hires() -> None:
    """A second process would take turns with the first."""
    workers = BusyWorkers()
    assert observed_twice(workers, worker_count_max=1).measures["worker_count"] == 1
    assert not workers.hired


def test_processes_that_do_not_start_are_no_reason_not_to_measure(caplog: pytest.LogCaptureFixture) -> None:
    """One process measures less, and says that it was one; the log says why."""
    workers = BusyWorkers()
    workers.trouble_at_start = "no memory"
    assert observed_twice(workers).measures["worker_count"] == 1
    assert "no memory" in caplog.text


def test_so_many_processes_as_the_threads_need() -> None:
    """Full processes get half the threads each next time; few threads need no help; other sizes are another matter."""
    staffing = Staffing(worker_count_max=8)
    assert staffing.worker_count(256, 8 * MiB) == 1
    staffing.learn(FULL, thread_count=64, worker_count=1, body_bytes=8 * MiB)
    assert [staffing.worker_count(n, 8 * MiB) for n in (4, 32, 64, 1024)] == [1, 1, 2, 8]
    staffing.learn(FULL, thread_count=64, worker_count=2, body_bytes=8 * MiB)
    assert staffing.worker_count(64, 8 * MiB) == 4
    assert staffing.worker_count(64, 64 * MiB) == 1


def test_processes_that_were_idle_are_fewer_next_time() -> None:
    """What was learned at a busy hour is unlearned."""
    staffing = Staffing(worker_count_max=8)
    staffing.learn(FULL, thread_count=64, worker_count=1, body_bytes=8 * MiB)
    idle = Effort(duration_seconds=1.0, client_cpu_fraction=0.2)
    staffing.learn(idle, thread_count=64, worker_count=2, body_bytes=8 * MiB)
    assert staffing.worker_count(64, 8 * MiB) == 1


def test_a_process_that_others_crowd_gets_no_help() -> None:
    """Where processors are short, more processes make them shorter."""
    staffing = Staffing(worker_count_max=8)
    crowded = Effort(duration_seconds=1.0, client_cpu_fraction=0.5, client_cpu_wait_fraction=0.5)
    staffing.learn(crowded, thread_count=64, worker_count=1, body_bytes=8 * MiB)
    assert staffing.worker_count(64, 8 * MiB) == 1


def test_bodies_are_held_by_few_processes_when_they_are_large() -> None:
    """Each process holds the body of a part."""
    staffing = Staffing(worker_count_max=8)
    large = BODIES_BYTES_MAX // 2
    staffing.learn(FULL, thread_count=4, worker_count=1, body_bytes=large)
    staffing.learn(FULL, thread_count=4, worker_count=2, body_bytes=large)
    assert staffing.worker_count(64, large) == 2
