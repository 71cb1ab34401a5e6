"""Knows what asking costs: the snapshot, the socket and the watch, beside redis and a plain file in the same run.

    python -m bench sockets

The server is the daemon's own board, routes and listener in a process of its own, on uvloop as in `penstockd`, with
advice from prior fits. All that is compared takes turns, so that other load on the machine affects all alike. The redis
side is redis-py with a real redis-server over a unix socket: the nearest thing to "as fast as a local service gets from
Python". One process reads all watchers with epoll.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import select
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

from bench import results
from bench.advice_server import advice_server
from bench.figures import held
from penstock.client.advice import Advice, Adviser, advise
from penstock.client.connection import Connections
from penstock.units import GiB, KiB
from tests.programs import resident_bytes

CACHED_READ_OVER_REDIS_MAX = 1 / 15
QUERY_OVER_REDIS_MAX = 2.5
WATCH_SECONDS_MAX = 0.050  # until the median of a thousand watchers has received it
_MEMORY = next((name for name in ("/dev/shm",) if Path(name).is_dir()), None)  # noqa: S108 - a tmpfs, like /run
_ROUND_COUNT = {False: 20, True: 100}
_CALLS_A_ROUND = 100
_THROUGHPUT_SECONDS = {False: 2.0, True: 10.0}
_CLIENT_COUNT = 8
_START_SECONDS = 0.5
_CHANGE_COUNT = {False: 8, True: 40}
_VALUE_BYTES = 435  # in redis: a small answer; ours are three times as large
_TARGET = f"/v1/recommendation?operation=s3_upload&payload_size_bytes={GiB}"


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of one call from Python."""

    p50_seconds: float
    p99_seconds: float


@dataclass(frozen=True, slots=True)
class FanOut:
    """From the moment when the daemon publishes; medians over the changes."""

    watcher_count: int
    line_bytes: int
    median_seconds: float  # until half of the watchers have received it
    last_seconds: float
    rss_bytes_per_watcher: float


def run(*, long: bool = False) -> dict[str, Any]:
    """Measure, print the table, keep the figures under `results/`."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as name, contextlib.ExitStack() as processes:
        folder = Path(name)
        server = processes.enter_context(advice_server(folder))
        redis_path = processes.enter_context(_redis(folder))
        latencies = measured(_calls(folder, redis_path), rounds=_ROUND_COUNT[long])
        rates = {
            name: _throughput(who, str(path), _THROUGHPUT_SECONDS[long])
            for name, who, path in (
                ("socket query", _ask_for, folder / "penstock.sock"),
                ("redis GET", _get_for, redis_path),
            )
            if path is not None
        }
        fan_outs = [_fan_out(server, folder, count, _CHANGE_COUNT[long]) for count in (200, 1000)]
    _print(latencies, rates, fan_outs)
    found = {
        "latencies": {name: asdict(latency) for name, latency in latencies.items()},
        "queries_per_second_with_8_clients": rates,
        "watch": [asdict(fan_out) for fan_out in fan_outs],
        "verdict": _verdict(latencies, fan_outs),
    }
    results.keep("sockets", found)
    return found


# --- One call


def _calls(folder: Path, redis_path: Path | None) -> dict[str, Callable[[], object]]:
    """The compared calls by name; `advise` reads the environment at each call, an `Adviser` at its first."""
    socket_path, snapshot = str(folder / "penstock.sock"), folder / "recommendations.json"
    adviser = Adviser(socket=socket_path, snapshot=str(snapshot))
    if adviser.advise("s3_upload", GiB).basis == "default":
        raise RuntimeError("the server publishes no advice: the benchmark would measure the fallback")
    os.environ["PENSTOCK_SOCKET"], os.environ["PENSTOCK_SNAPSHOT"] = socket_path, str(snapshot)
    connections = Connections(socket_path)

    def query() -> Advice:
        return Advice(json.loads(connections.ask("GET", _TARGET).body))

    calls: dict[str, Callable[[], object]] = {
        "cached read": lambda: adviser.advise("s3_upload", GiB),
        "the same by advise()": lambda: advise("s3_upload", GiB),
        "plain file read": snapshot.read_bytes,
        "file read and json.loads": lambda: json.loads(snapshot.read_bytes()),
        "socket query": query,
    }
    if redis_path is not None:
        client = _redis_client(str(redis_path))
        client.set("advice", b"x" * _VALUE_BYTES)
        calls["redis GET"] = lambda: client.get("advice")
    return calls


def measured(calls: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, Latency]:
    """The latency of each call, in alternating rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            for _ in range(_CALLS_A_ROUND):
                began = time.perf_counter()
                call()
                took = time.perf_counter() - began
                if turn:  # the first round warms caches and connections
                    seconds[name].append(took)
    return {name: Latency(*_percentiles(values)) for name, values in seconds.items()}


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


# --- Many clients


def _ask_for(path: str, seconds: float) -> int:
    connections = Connections(path)
    return _count(lambda: connections.ask("GET", _TARGET), seconds)


def _get_for(path: str, seconds: float) -> int:
    client = _redis_client(path)
    return _count(lambda: client.get("advice"), seconds)


def _count(call: Callable[[], object], seconds: float) -> int:
    for _ in range(_CALLS_A_ROUND):
        call()
    count, ends_at = 0, time.perf_counter() + seconds
    while time.perf_counter() < ends_at:
        call()
        count += 1
    return count


def _throughput(who: Callable[[str, float], int], path: str, seconds: float) -> float:
    """Calls per second of eight client processes together."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_CLIENT_COUNT, mp_context=spawn) as pool:
        for duration in (_START_SECONDS, seconds):  # the first lets all processes start, the second measures
            counts = list(pool.map(who, [path] * _CLIENT_COUNT, [duration] * _CLIENT_COUNT))
    return sum(counts) / seconds


# --- Many watchers


def _fan_out(server: subprocess.Popen[str], folder: Path, count: int, change_count: int) -> FanOut:
    _allow_open_files(count + 100)
    before = resident_bytes(server.pid)
    commands, said = cast("IO[str]", server.stdin), cast("IO[str]", server.stdout)
    with contextlib.ExitStack() as connections, contextlib.closing(select.epoll()) as ready:
        watchers = {}
        for _ in range(count):
            connection = connections.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(folder / "penstock.sock"))
            connection.sendall(b"GET /v1/watch HTTP/1.0\r\nHost: localhost\r\n\r\n")
            connection.setblocking(False)  # noqa: FBT003 - the method takes no other
            ready.register(connection, select.EPOLLIN)
            watchers[connection.fileno()] = connection
        line_bytes = _hear(watchers, ready)[1]
        changes = []
        for _ in range(change_count):
            commands.write("publish\n")
            commands.flush()
            heard = _hear(watchers, ready)[0]
            began = float(said.readline())
            changes.append([at - began for at in heard])
        rss = resident_bytes(server.pid) - before
    return FanOut(
        watcher_count=count,
        line_bytes=line_bytes,
        median_seconds=statistics.median(statistics.median(change) for change in changes),
        last_seconds=statistics.median(max(change) for change in changes),
        rss_bytes_per_watcher=rss / count,
    )


def _hear(watchers: Mapping[int, socket.socket], ready: select.epoll) -> tuple[list[float], int]:
    """When each watcher received its next whole line, and the length of the lines."""
    heard: list[float] = []
    sizes, buffer = dict.fromkeys(watchers, 0), bytearray(256 * KiB)
    while len(heard) < len(watchers):
        for descriptor, _ in ready.poll():
            size = watchers[descriptor].recv_into(buffer)
            if not size:
                raise RuntimeError("the server closed a watch")
            sizes[descriptor] += size
            if buffer.endswith(b"}\n", 0, size):
                heard.append(time.perf_counter())
    return heard, max(sizes.values())


def _allow_open_files(count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


# --- Redis


@contextlib.contextmanager
def _redis(folder: Path) -> Iterator[Path | None]:
    """A redis-server on a unix socket; None, with a printed sentence, if it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        print("redis-server is not installed, so nothing is compared with it: apt-get install redis-server")
        yield None
        return
    path = folder / "redis.sock"
    options = {"port": "0", "unixsocket": str(path), "save": "", "appendonly": "no", "dir": str(folder)}
    command = [program, *(word for name, value in options.items() for word in (f"--{name}", value))]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            while not path.exists():
                if process.poll() is not None:
                    raise RuntimeError(f"{program} ended with {process.returncode}")
                time.sleep(0.01)
            yield path
        finally:
            process.terminate()


def _redis_client(path: str) -> Any:  # redis-py's types are not followed here
    import redis

    return redis.Redis(unix_socket_path=path)


# --- The verdict


def _verdict(latencies: Mapping[str, Latency], fan_outs: Sequence[FanOut]) -> dict[str, Any]:
    """The targets and what was reached."""
    rows = {"median of 1,000 watchers": (fan_outs[-1].median_seconds, WATCH_SECONDS_MAX)}
    if "redis GET" in latencies:
        redis_seconds = latencies["redis GET"].p50_seconds
        rows["cached read / redis GET"] = (
            latencies["cached read"].p50_seconds / redis_seconds,
            CACHED_READ_OVER_REDIS_MAX,
        )
        rows["socket query / redis GET"] = (
            latencies["socket query"].p50_seconds / redis_seconds,
            QUERY_OVER_REDIS_MAX,
        )
    return held(rows)


def _print(latencies: Mapping[str, Latency], rates: Mapping[str, float], fan_outs: Sequence[FanOut]) -> None:
    print(f"{'one call from Python':28}{'p50 us':>10}{'p99 us':>10}")
    for name, latency in latencies.items():
        print(f"{name:28}{1e6 * latency.p50_seconds:>10.1f}{1e6 * latency.p99_seconds:>10.1f}")
    print()
    for name, rate in rates.items():
        print(f"{name}, {_CLIENT_COUNT} client processes: {rate:,.0f} a second")
    print(f"\n{'watchers':>10}{'line bytes':>12}{'median ms':>12}{'last ms':>10}{'bytes each':>12}")
    for f in fan_outs:
        print(
            f"{f.watcher_count:>10}{f.line_bytes:>12,}{1e3 * f.median_seconds:>12.1f}{1e3 * f.last_seconds:>10.1f}"
            f"{f.rss_bytes_per_watcher:>12,.0f}"
        )
    print()
