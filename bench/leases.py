"""Knows what leases gain: several boto3 processes on one host, each with its share, at the optimum, or by default.

    python -m bench leases

Two, four and eight processes upload at the same time through one link of known physics which, like a real one, carries
less when it is crowded beyond its knee. The advice comes from a model fitted to a few uploads by one of them, and
reaches the others over the real socket. Then a holder is killed, and another waits for its new share.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any, cast

import msgspec

from bench import results
from bench.advice_server import Upload, advice_server
from penstock.client.advice import Advice, Adviser
from penstock.client.lease import Lease
from penstock.lab.link import LinkTruth
from penstock.lab.worlds import DEMO
from penstock.trial.stage import CREDENTIALS, lab_endpoint
from penstock.units import MiB

LINK = LinkTruth(
    round_trip_seconds=0.004,
    connection_rate_bytes_per_second=4e6,
    host_rate_bytes_per_second=60e6,  # filled by fifteen connections
    service_latency_seconds_median=0.030,
    service_latency_sigma=0.3,
    oversubscription_loss=0.15,  # as in the lab's busy region
)
OBJECT_SIZE_BYTES = 128 * MiB
_PROBES = ((4, 8), (8, 8), (13, 5), (16, 8), (25, 5), (9, 5))  # threads, MiB per part
_PROCESS_COUNTS = (2, 4, 8)
_FILE_COUNT = {False: 1, True: 3}  # per process, one after another
_ROUND_COUNT = {False: 1, True: 3}
_KILL_COUNT = 10
_HEAR_SECONDS_MAX = 10.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one process."""

    transferred_bytes: int
    duration_seconds: float
    rss_bytes_max: int
    thread_count: int  # for its first file

    @property
    def bytes_per_second(self) -> float:
        """Its rate while it was working."""
        return self.transferred_bytes / self.duration_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Several processes with one strategy: medians over the rounds."""

    process_count: int
    strategy: str
    bytes_per_second: float  # all bytes, until the last process has ended
    fairness: float  # Jain's index of the processes' rates: 1 is equal, 1/n is all to one
    thread_count: int  # over all processes, at the beginning
    rss_bytes: float  # the peak of one process


def run(*, long: bool = False) -> dict[str, Any]:
    """Measure, print the table, keep the figures under `results/`."""
    with tempfile.TemporaryDirectory(prefix="penstock-leases-") as name, contextlib.ExitStack() as stage:
        folder = Path(name)
        source = folder / "object"
        source.write_bytes(os.urandom(MiB) * (OBJECT_SIZE_BYTES // MiB))
        endpoint_url = stage.enter_context(lab_endpoint("s3", dataclasses.replace(DEMO, link=LINK), folder))
        uploads = _probe(endpoint_url, source, folder)
        (folder / "observations.json").write_bytes(msgspec.json.encode(uploads))
        stage.enter_context(advice_server(folder))
        adviser = Adviser(socket=str(folder / "penstock.sock"))
        advice = adviser.advise("s3_upload", OBJECT_SIZE_BYTES)
        print(f"advice after {len(uploads)} uploads: {dict(advice.setting)} ({advice.basis})", flush=True)
        rows = []
        for count in _PROCESS_COUNTS:
            for strategy in ("default", "optimum", "lease"):
                job = {"strategy": strategy, "file_count": _FILE_COUNT[long]}
                rounds = [
                    _together(count, job, endpoint_url, source, folder) for _ in range(_ROUND_COUNT[long])
                ]
                rows.append(_row(count, strategy, rounds))
                print(_line(rows[-1]), flush=True)
        heard = _heard_of_kills(folder)
    print(
        f"a killed holder's share is heard of after {1e3 * median(heard):.1f} ms, {1e3 * max(heard):.1f} at most"
    )
    found = {
        "advice": dict(advice.setting),
        "link": asdict(LINK),
        "rows": [asdict(row) for row in rows],
        "seconds_until_a_killed_holders_share_was_heard_of": heard,
    }
    results.keep("leases", found)
    return found


def jain_index(values: Sequence[float]) -> float:
    """(sum x)^2 / (n sum x^2): 1 when all are equal, 1/n when one has everything."""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def _row(count: int, strategy: str, rounds: Sequence[Sequence[Report]]) -> Row:
    def together(reports: Sequence[Report]) -> float:
        return sum(r.transferred_bytes for r in reports) / max(r.duration_seconds for r in reports)

    return Row(
        process_count=count,
        strategy=strategy,
        bytes_per_second=median(together(reports) for reports in rounds),
        fairness=median(jain_index([r.bytes_per_second for r in reports]) for reports in rounds),
        thread_count=round(median(sum(r.thread_count for r in reports) for reports in rounds)),
        rss_bytes=median(r.rss_bytes_max for reports in rounds for r in reports),
    )


def _line(row: Row) -> str:
    return (
        f"{row.process_count} processes, {row.strategy:8}{row.bytes_per_second / 1e6:6.1f} MB/s in all, "
        f"Jain {row.fairness:.3f}, {row.thread_count:4} threads in all, {row.rss_bytes / MiB:5.1f} MiB each"
    )


# --- Processes


@contextlib.contextmanager
def _client(endpoint_url: str, source: Path, folder: Path) -> Iterator[tuple[IO[str], IO[str]]]:
    """A boto3 process: its input for jobs and its output of reports."""
    command = [sys.executable, "-m", "bench.lease_client", endpoint_url, str(source), str(folder)]
    environment = {**os.environ, **CREDENTIALS, "AWS_REGION": "eu-west-1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
        finally:
            process.terminate()


def _tell(jobs: IO[str], line: str) -> None:
    jobs.write(line + "\n")
    jobs.flush()


def _hear(reports: IO[str]) -> str:
    line = reports.readline()
    if not line:
        raise RuntimeError("a client process ended; its message is above")
    return line


def _report(reports: IO[str]) -> Report:
    return msgspec.json.decode(_hear(reports), type=Report)


def _probe(endpoint_url: str, source: Path, folder: Path) -> list[Upload]:
    """A few uploads by one process to teach the model."""
    uploads = []
    with _client(endpoint_url, source, folder) as (jobs, reports):
        for thread_count, mebibytes in _PROBES:
            setting = {"thread_count": thread_count, "part_size_bytes": mebibytes * MiB}
            _tell(jobs, json.dumps({"strategy": "told", "setting": setting, "file_count": 1}))
            seconds = _report(reports).duration_seconds
            uploads.append(Upload(**setting, object_size_bytes=OBJECT_SIZE_BYTES, duration_seconds=seconds))
    return uploads


def _together(
    count: int, job: Mapping[str, object], endpoint_url: str, source: Path, folder: Path
) -> list[Report]:
    """The reports of processes that begin at the same time."""
    with contextlib.ExitStack() as processes:
        clients = [processes.enter_context(_client(endpoint_url, source, folder)) for _ in range(count)]
        for jobs, _ in clients:
            _tell(jobs, json.dumps(job))
        for _, reports in clients:  # all hold their leases before any begins
            _hear(reports)
        for jobs, _ in clients:
            _tell(jobs, "go")
        return [_report(reports) for _, reports in clients]


def _heard_of_kills(folder: Path) -> list[float]:
    """The time from SIGKILL until another holder has the whole host again."""
    socket_path = str(folder / "penstock.sock")
    told: queue.SimpleQueue[tuple[float, Advice]] = queue.SimpleQueue()
    program = (
        "import sys, time; from penstock.client.lease import Lease\n"
        f"Lease('s3_upload', {OBJECT_SIZE_BYTES}, socket=sys.argv[1]).__enter__(); time.sleep(600)"
    )

    def until(*, lease_count: int) -> float:
        while True:
            at, advice = told.get(timeout=_HEAR_SECONDS_MAX)
            if advice.document["lease_count"] == lease_count:
                return at

    seconds = []
    with Lease(
        "s3_upload",
        OBJECT_SIZE_BYTES,
        socket=socket_path,
        on_change=lambda advice: told.put((time.perf_counter(), advice)),
    ):
        for _ in range(_KILL_COUNT):
            with subprocess.Popen([sys.executable, "-c", program, socket_path]) as holder:
                until(lease_count=2)
                killed_at = time.perf_counter()
                holder.send_signal(signal.SIGKILL)
                seconds.append(until(lease_count=1) - killed_at)
    return seconds
