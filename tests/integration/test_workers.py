"""Real processes that send the bodies of a probe: they work as one, and none outlives its probe."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.clock import SystemClock
from penstock.lab.http_s3 import s3_application
from penstock.lab.s3 import S3Service
from penstock.lab.server import serving
from penstock.probes.aws.access import Access, Credentials
from penstock.probes.outside import Missing, Unreachable
from penstock.probes.s3.workers import WorkerError, Workers, hired
from penstock.units import MiB
from tests.factories import a_link
from tests.waiting import comes

UNJUDGED_SECONDS = 3600.0  # between ticks


@contextlib.asynccontextmanager
async def two_workers(
    body_bytes: int = 5 * MiB, rate: float = 400e6
) -> AsyncIterator[tuple[Workers, S3Service]]:
    """Two processes on a bucket of the lab's S3, and that S3 itself."""
    link = a_link(connection_rate_bytes_per_second=rate, host_rate_bytes_per_second=rate)
    service = S3Service(link, clock=SystemClock(), seed=1)
    service.shelf.create_bucket("bucket")
    credentials = Credentials(access_key="AKIDLAB", secret_key="of-the-lab")  # noqa: S106  # it opens nothing
    async with serving(s3_application(service)) as url:
        access = Access(region="eu-west-1", endpoint_url=url, credentials=credentials)
        hiring = hired(2, body_bytes, 7, access=access, loop_tick_seconds=UNJUDGED_SECONDS)
        async with hiring as workers:
            yield workers, service


def worker_ids() -> set[int]:
    """Of those that this process started."""
    return children_of(os.getpid())


def children_of(process_id: int) -> set[int]:
    """Which are workers, by what they were started as."""
    children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
    return {
        int(child) for child in children if b"probes.s3.worker" in Path(f"/proc/{child}/cmdline").read_bytes()
    }


async def test_parts_of_one_upload_go_through_all_processes() -> None:
    """They share the bodies, bring back the ETags and the services' refusals, and are gone afterwards."""
    async with two_workers() as (workers, service):
        assert len(worker_ids()) == 2
        upload_id = service.shelf.create_upload("bucket", "key")
        async with workers.measured() as efforts:
            etags = await asyncio.gather(
                *(workers.upload_part("bucket", "key", upload_id, n, bytes(5 * MiB)) for n in range(1, 5))
            )
            await workers.put_object("bucket", "small", bytes(1000))
            with pytest.raises(Missing, match="unfinished upload no longer exists"):
                await workers.upload_part("bucket", "key", "another", 1, bytes(MiB))
        assert len(efforts) == 2
        assert all(effort.client_cpu_fraction > 0 for effort in efforts)  # both had work
        service.shelf.complete_upload("bucket", "key", upload_id, list(enumerate(etags, start=1)))
        sizes = {stored.key: stored.body.size_bytes for stored in service.shelf.objects("bucket", "")}
        assert sizes == {"key": 20 * MiB, "small": 1000}
    assert not worker_ids()


async def test_what_workers_move_is_counted_as_our_own() -> None:
    """Otherwise a probe would take its own traffic for that of others, and yield to itself."""
    async with two_workers() as (workers, service):
        service.shelf.put("bucket", "key", service.shelf.body(4 * MiB, None))
        before = children_bytes()
        upload_id = service.shelf.create_upload("bucket", "other")
        await workers.upload_part("bucket", "other", upload_id, 1, bytes(5 * MiB))
        await workers.read_range("bucket", "key", 0, 4 * MiB, object_size_bytes=4 * MiB)
        read, written = (after - earlier for after, earlier in zip(children_bytes(), before, strict=True))
    assert written > 5 * MiB
    assert read > 4 * MiB


def children_bytes() -> tuple[int, int]:
    """What the workers have read and written, as the daemon counts what is its own."""
    accounts = [Path(f"/proc/{child}/io").read_text().split() for child in worker_ids()]
    read, written = (sum(int(account[place]) for account in accounts) for place in (1, 3))
    return read, written


async def test_ranges_are_read_by_all_processes() -> None:
    """They share the ranges, tell when each began, and bring back what the service refused."""
    async with two_workers(body_bytes=0) as (workers, service):
        service.shelf.put("bucket", "key", service.shelf.body(8 * MiB, None))
        async with workers.measured() as efforts:
            readings = await asyncio.gather(
                *(
                    workers.read_range("bucket", "key", n * MiB, (n + 1) * MiB, object_size_bytes=8 * MiB)
                    for n in range(8)
                )
            )
            with pytest.raises(Missing):
                await workers.read_range("bucket", "nothing", 0, 1, object_size_bytes=8)
        assert all(reading.first_byte_seconds > 0 for reading in readings)
        assert all(effort.client_cpu_fraction > 0 for effort in efforts)
        assert service.downlink.carried_bytes == pytest.approx(8 * MiB)


async def test_what_is_not_wanted_any_more_is_broken_off() -> None:
    """A cancelled part must not arrive after its upload was aborted."""
    async with two_workers(rate=1e3) as (workers, service):  # a part takes a quarter of an hour
        upload_id = service.shelf.create_upload("bucket", "key")
        part = asyncio.create_task(workers.upload_part("bucket", "key", upload_id, 1, bytes(MiB)))
        await comes(lambda: service.uplink.stream_count >= 1)
        part.cancel()
        await asyncio.wait({part})
        assert part.cancelled()
        service.shelf.abort_upload("bucket", "key", upload_id)
        # Both are free.
        await asyncio.gather(*(workers.put_object("bucket", name, bytes(10)) for name in "ab"))
        assert [stored.key for stored in service.shelf.objects("bucket", "")] == ["a", "b"]
    assert not worker_ids()


async def test_a_process_that_is_killed_keeps_nobody_waiting() -> None:
    """Its orders fail at once, those on their way and those to come."""
    async with two_workers(rate=1e3) as (workers, service):
        upload_id = service.shelf.create_upload("bucket", "key")
        parts = [
            asyncio.create_task(workers.upload_part("bucket", "key", upload_id, n, bytes(MiB)))
            for n in (1, 2)
        ]
        await comes(lambda: service.uplink.stream_count >= 2)
        for process_id in worker_ids():
            os.kill(process_id, 9)
        for part in parts:
            with pytest.raises(Unreachable, match="lack of memory"):
                await part
        with pytest.raises(Unreachable):
            await workers.put_object("bucket", "small", bytes(10))


async def test_nothing_is_imported_from_where_the_daemon_happens_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that anybody may write to must not run code with the credentials of the daemon."""
    (tmp_path / "ctypes.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    async with two_workers() as (workers, service):
        await workers.put_object("bucket", "small", bytes(10))
        assert [stored.key for stored in service.shelf.objects("bucket", "")] == ["small"]


async def test_a_process_that_is_no_worker_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program under that name, which says something and hangs up, is no worker; and nothing is left of it."""
    stand_in(tmp_path / "python", "exec <&-", monkeypatch)
    with pytest.raises(WorkerError, match="ended unexpectedly"):
        async with two_workers():
            pass
    assert not worker_ids()


async def test_a_library_that_prints_disturbs_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said and answered goes another way than what a process prints."""
    stand_in(tmp_path / "python", f'exec {sys.executable} "$@"', monkeypatch)
    async with two_workers() as (workers, _):
        await workers.put_object("bucket", "small", bytes(10))


def stand_in(path: Path, then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python says hello first."""
    path.write_text(f"#!/bin/sh\necho hello\n{then}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


PARENT = """
import asyncio, sys
from penstock.probes.aws.access import Access, Credentials
from penstock.probes.s3.workers import hired

async def main():
    credentials = Credentials(access_key="a", secret_key="s")
    access = Access(region="r", endpoint_url="http://127.0.0.1:9", credentials=credentials)
    async with hired(2, 1, 0, access=access, loop_tick_seconds=1.0):
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_no_process_outlives_a_parent_that_is_killed() -> None:
    """Nothing can be cleaned up after SIGKILL: the kernel ends them."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        workers = children_of(parent.pid)
        descriptors = [os.pidfd_open(worker) for worker in workers]
        parent.kill()
    assert len(workers) == 2
    for descriptor in descriptors:
        assert has_ended(descriptor)
        os.close(descriptor)


def has_ended(descriptor: int) -> bool:
    """Whether the process ends within a while."""
    return bool(select.select([descriptor], [], [], 10.0)[0])
