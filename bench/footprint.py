"""Knows what the daemon costs at rest: memory, processor time, and the time to its first answer.

    python -m bench footprint

Three daemons of the same installation: one that never probed, one on a database with a year of observations whose
probes are not due yet, and one that has just probed the lab's S3 and SQS, both ways, and now rests. For comparison, in
the same run, other services of a host: the distribution's chronyd, and node_exporter and Telegraf built from their
modules.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench import results
from bench.figures import held
from penstock.client.connection import NoDaemonError, ask
from penstock.daemon.memory.store import Store
from penstock.lab import worlds
from penstock.models.s3.download import S3DownloadSetting
from penstock.models.s3.upload import S3UploadSetting
from penstock.models.sqs.setting import SqsDeliverySetting
from penstock.operations.table import setting_types
from penstock.trial.stage import CREDENTIALS, status_of
from penstock.units import GiB, MiB
from penstock.vocabulary import Context, Observation, Place, Setting
from tests.daemon_house import lab_endpoints
from tests.real import provision

RSS_BYTES_MAX = 70e6
PSS_BYTES_MAX = 55e6
CPU_FRACTION_MAX = 0.0005
FIRST_ANSWER_SECONDS_MAX = 0.7
_SETTLE_SECONDS = 10.0
_REST_SECONDS = {False: 30.0, True: 600.0}
_START_COUNT = {False: 5, True: 20}
_WAIT_SECONDS_MAX = 300.0
_QUESTION = f"/v1/recommendation?operation=s3_upload&payload_size_bytes={GiB}"
_REGION, _INSTANCE_TYPE, _BUCKET = "eu-central-1", "m7i.large", "bench"
_PROBES_A_DAY = 8  # per context, through a year
_CONTEXTS: tuple[tuple[str, int, Setting], ...] = (
    ("s3_upload", 64 * MiB, S3UploadSetting(thread_count=16, part_size_bytes=8 * MiB)),
    ("s3_download", 64 * MiB, S3DownloadSetting(thread_count=16, range_size_bytes=8 * MiB)),
    (
        "sqs_delivery",
        1024,
        SqsDeliverySetting(
            sender_thread_count=2, receiver_thread_count=2, deleter_thread_count=2, batch_message_count=10
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The cost of one process at rest."""

    rss_bytes: float
    pss_bytes: float
    anonymous_bytes: float
    cpu_fraction: float  # of one processor


def run(*, long: bool = False) -> dict[str, Any]:
    """Measure, print the table, keep the figures under `results/`."""
    rest_seconds = _REST_SECONDS[long]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first_answers = [_first_answer_seconds(folder / f"start-{i}") for i in range(_START_COUNT[long])]
        found = {
            "penstockd, never probed": _of_daemon(folder / "never", rest_seconds),
            "penstockd, a year of observations": _of_daemon(folder / "year", rest_seconds, is_full=True),
            "penstockd, after probes": _after_probes(folder / "probed", rest_seconds),
            **_others(folder / "others", rest_seconds),
        }
    _print(found, first_answers)
    figures = {
        "first_answer_seconds": first_answers,
        "footprints": {who: asdict(footprint) for who, footprint in found.items()},
        "verdict": _verdict(found, statistics.median(first_answers)),
    }
    results.keep("footprint", figures)
    return figures


def resting(process_id: int, seconds: float) -> Footprint:
    """The cost of a process while nobody uses it, after the processes that it started have ended."""
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while descendants(process_id) and time.monotonic() < deadline:
        time.sleep(1.0)
    time.sleep(_SETTLE_SECONDS)
    if left := descendants(process_id):
        raise RuntimeError(f"{process_id} does not rest: {left} are still there")
    before, began = _cpu_seconds(process_id), time.monotonic()
    time.sleep(seconds)
    used = _cpu_seconds(process_id) - before
    memory = memory_bytes(process_id)
    return Footprint(
        rss_bytes=memory["Rss"],
        pss_bytes=memory["Pss"],
        anonymous_bytes=memory["Anonymous"],
        cpu_fraction=used / (time.monotonic() - began),
    )


def descendants(process_id: int) -> list[int]:
    """The processes that it has started, and in turn theirs."""
    files = Path(f"/proc/{process_id}/task").glob("*/children")
    found = [int(child) for file in files for child in file.read_text(encoding="ascii").split()]
    return found + [theirs for child in found for theirs in descendants(child)]


def memory_bytes(process_id: int) -> dict[str, float]:
    """The kernel's totals."""
    lines = Path(f"/proc/{process_id}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    return {name: 1024.0 * int(value.split()[0]) for name, value in (line.split(":") for line in lines)}


def _cpu_seconds(process_id: int) -> float:
    """Processor time of all threads, from the kernel's count in nanoseconds."""
    tasks = Path(f"/proc/{process_id}/task").glob("*/schedstat")
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9


# --- The daemon


def _of_daemon(folder: Path, rest_seconds: float, *, is_full: bool = False) -> Footprint:
    configuration = _configuration(folder, probes=_PROBES.format(interval="30d") if is_full else "")
    if is_full:
        _fill(folder / "state/penstock.db")
    with _running_daemon(folder, configuration) as child:
        _wait_for_answer(folder)
        if is_full:
            _wait_until(folder, lambda status: status["activity"] == "idle")
        return resting(child.pid, rest_seconds)


def _first_answer_seconds(folder: Path) -> float:
    configuration = _configuration(folder)
    began = time.monotonic()
    with _running_daemon(folder, configuration):
        _wait_for_answer(folder)
        return time.monotonic() - began


def _after_probes(folder: Path, rest_seconds: float) -> Footprint:
    """Two probes of each context, with the fits that follow; the next ones are weeks away."""
    with probing(_made(folder), interval="30d") as child:
        for count in (1, 2):
            _probe_until(folder, count)
        _wait_until(folder, lambda status: status["activity"] == "idle")
        return resting(child.pid, rest_seconds)


@contextlib.contextmanager
def probing(folder: Path, *, interval: str) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon that answers, and probes the lab."""
    with lab_endpoints(folder, worlds.DEMO, _BUCKET) as lab:
        aws = f'[aws]\ns3_endpoint_url = "{lab["s3"]}"\nsqs_endpoint_url = "{lab["sqs"]}"\n'
        configuration = _configuration(folder, probes=_PROBES.format(interval=interval) + aws)
        with _running_daemon(folder, configuration) as child:
            _wait_for_answer(folder)
            yield child


def _probe_until(folder: Path, count: int) -> None:
    """Wait until every context was measured this often; on a busy machine failed probes are requested again."""
    missing = {operation for operation, _, _ in _CONTEXTS}
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while missing and time.monotonic() < deadline:
        for operation, size, _ in _CONTEXTS:
            if operation in missing:
                document = f'{{"operation": "{operation}", "payload_size_bytes": {size}}}'.encode()
                ask(str(folder / "run/penstock.sock"), "POST", "/v1/probe", body=document)
        time.sleep(_SETTLE_SECONDS)
        _wait_until(folder, lambda status: status["activity"] == "idle")
        contexts = (status_of(folder / "run/penstock.sock") or {"contexts": ()})["contexts"]
        missing -= {c["operation"] for c in contexts if c["observation_count"] >= count}


_PROBES = f"""
[probes.s3_upload]
is_enabled = true
bucket = "{_BUCKET}"
object_size_bytes = ["64MiB"]
mean_interval_seconds = "{{interval}}"
[probes.s3_download]
is_enabled = true
bucket = "{_BUCKET}"
object_size_bytes = ["64MiB"]
mean_interval_seconds = "{{interval}}"
[probes.sqs_delivery]
is_enabled = true
mean_interval_seconds = "{{interval}}"
[budget]
usd_per_day = 100.0
"""


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _configuration(folder: Path, probes: str = "") -> Path:
    for name in ("run", "state"):
        _made(folder / name)
    path = folder / "penstock.toml"
    path.write_text(
        f'[daemon]\nruntime_directory = "{folder}/run"\nstate_directory = "{folder}/state"\n'
        f'[host]\nregion = "{_REGION}"\ninstance_type = "{_INSTANCE_TYPE}"\n{probes}',
        encoding="utf-8",
    )
    return path


@contextlib.contextmanager
def _running_daemon(folder: Path, configuration: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon that runs until the block ends."""
    command = [sys.executable, "-m", "penstock.daemon.main", "--config", str(configuration)]
    with (folder / "log").open("wb") as log, _running(command, log) as child:
        yield child


@contextlib.contextmanager
def _running(command: list[str], log: Any) -> Iterator[subprocess.Popen[bytes]]:  # Any: a file, or DEVNULL
    environment = {**os.environ, **CREDENTIALS}
    with subprocess.Popen(command, stdout=log, stderr=log, env=environment) as child:
        try:
            yield child
        finally:
            child.terminate()


def _wait_for_answer(folder: Path) -> None:
    """Wait until it gives advice."""
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        with contextlib.suppress(NoDaemonError):
            if ask(str(folder / "run/penstock.sock"), "GET", _QUESTION).status == 200:
                return
        time.sleep(0.005)
    raise RuntimeError(f"no answer; the log: {(folder / 'log').read_text()}")


def _wait_until(folder: Path, holds: Any) -> None:  # Any: of a status, which is JSON
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        status = status_of(folder / "run/penstock.sock")
        if status is not None and holds(status):
            return
        time.sleep(0.2)
    raise RuntimeError(
        f"did not come to pass; last status: {status}; the log: {(folder / 'log').read_text()}"
    )


def _fill(path: Path) -> None:
    """A year of probes of every context, and the fits of each place."""
    store = Store(path, setting_types())
    now = datetime.now(UTC)
    try:
        for operation, size, setting in _CONTEXTS:
            place = Place(operation=operation, region=_REGION, instance_type=_INSTANCE_TYPE)
            first = Observation(
                context=Context(place=place, payload_size_bytes=size),
                setting=setting,
                started_at=now,
                duration_seconds=2.0,
                transferred_bytes=size,
                request_count=10,
            )
            count = 365 * _PROBES_A_DAY
            store.add_observations(
                dataclasses.replace(
                    first,
                    started_at=now - timedelta(days=365 * (count - i) / count),
                    duration_seconds=2.0 + 0.1 * (i % 7),
                )
                for i in range(count)
            )
    finally:
        store.close()


# --- Others


def _others(folder: Path, rest_seconds: float) -> dict[str, Footprint]:
    found = {}
    for name, (provide, arguments) in _commands(_made(folder)).items():
        try:
            program = provide()
        except (provision.ToolMissingError, provision.BuildError) as trouble:
            print(f"nothing is compared with {name}: {trouble}")
            continue
        with _running([str(program), *arguments], subprocess.DEVNULL) as child:
            found[name] = resting(child.pid, rest_seconds)
            if child.poll() is not None:
                raise RuntimeError(f"{program} ended with {child.returncode}")
    return found


def _commands(folder: Path) -> dict[str, tuple[Callable[[], Path], list[str]]]:
    """None of them sets the clock, listens beyond the loopback, or sends anything."""
    chrony, telegraf = folder / "chrony.conf", folder / "telegraf.conf"
    chrony.write_text(
        f"server 127.0.0.1 port 9\nport 0\ncmdport 0\npidfile {folder}/chronyd.pid\nbindcmdaddress /\n",
        encoding="utf-8",
    )
    inputs = "".join(f"[[inputs.{name}]]\n" for name in provision.TELEGRAF_INPUTS)
    telegraf.write_text(f"[agent]\ninterval = '10s'\n[[outputs.discard]]\n{inputs}", encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "chronyd": (provision.chronyd, ["-x", "-d", "-u", "root", "-f", str(chrony)]),
        "node_exporter": (provision.node_exporter, [f"--web.listen-address=127.0.0.1:{port}"]),
        "telegraf, of few plugins": (provision.telegraf, ["--config", str(telegraf)]),
    }


# --- The verdict


def _verdict(found: dict[str, Footprint], first_answer_seconds: float) -> dict[str, Any]:
    own = {who: footprint for who, footprint in found.items() if who.startswith("penstockd")}
    rows = {"median seconds to the first answer": (first_answer_seconds, FIRST_ANSWER_SECONDS_MAX)}
    for who, footprint in own.items():
        rows[f"{who}: resident bytes"] = (footprint.rss_bytes, RSS_BYTES_MAX)
        rows[f"{who}: proportional bytes"] = (footprint.pss_bytes, PSS_BYTES_MAX)
        rows[f"{who}: processor at rest"] = (footprint.cpu_fraction, CPU_FRACTION_MAX)
    return held(rows)


def _print(found: dict[str, Footprint], first_answers: list[float]) -> None:
    print(f"{'at rest':36}{'RSS MB':>9}{'PSS MB':>9}{'anonymous':>11}{'CPU %':>9}")
    for who, f in found.items():
        print(
            f"{who:36}{f.rss_bytes / 1e6:>9.1f}{f.pss_bytes / 1e6:>9.1f}{f.anonymous_bytes / 1e6:>11.1f}"
            f"{100 * f.cpu_fraction:>9.3f}"
        )
    print(f"\nfirst answer after {min(first_answers):.2f} to {max(first_answers):.2f} s")
