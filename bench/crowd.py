"""Knows whether a crowd leaves traces: the daemon's memory and descriptors while watchers and leases come and go.

    python -m bench crowd --long

A thousand watchers and two hundred leases at any time, for an hour (five minutes without `--long`), while the daemon
probes the lab's S3 and SQS and tells all of them what it learns. Each second some of them leave and others come. The
first sixth of the time is for growing; after it, median memory at the beginning is compared with that at the end.
"""

from __future__ import annotations

import json
import random
import select
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import footprint, results
from penstock.trial.stage import status_of
from tests.programs import descriptor_count

_SECONDS = {False: 300.0, True: 3600.0}
_WATCHER_COUNT, _LEASE_COUNT = 1000, 200
_LEAVING_COUNT = 4  # per second
_SAMPLE_SECONDS = 5.0
_GROWING_FRACTION = 1 / 6
_GROWTH_FRACTION_MAX = 0.02
_READ_BYTES = 1 << 18
_WATCH = b"GET /v1/watch HTTP/1.0\r\nHost: localhost\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The daemon and the processes that it has started."""

    seconds: float
    rss_bytes: float
    descriptor_count: int
    children_rss_bytes: float
    crowd_count: int  # connections open on this side


class Crowd:
    """This many connections of one kind, each read as lines arrive."""

    def __init__(self, path: Path, count: int, request: Callable[[], bytes]) -> None:
        self._path = path
        self._request = request
        self._ready = select.epoll()
        self._members: dict[int, socket.socket] = {}
        self.heard_bytes = 0
        self.closed_count = 0  # by the daemon, which should close none
        for _ in range(count):
            self._come()

    def __len__(self) -> int:
        return len(self._members)

    def change(self, count: int) -> None:
        """Replace this many random connections."""
        for descriptor in random.sample(sorted(self._members), count):
            self._leave(descriptor)
            self._come()

    def hear(self) -> None:
        """Read what has arrived."""
        for descriptor, _ in self._ready.poll(0):
            try:
                heard = self._members[descriptor].recv(_READ_BYTES)
            except ConnectionResetError:
                heard = b""
            self.heard_bytes += len(heard)
            if not heard:
                self.closed_count += 1
                self._leave(descriptor)
                self._come()

    def _come(self) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._path))
        connection.sendall(self._request())
        self._ready.register(connection, select.EPOLLIN)
        self._members[connection.fileno()] = connection

    def _leave(self, descriptor: int) -> None:
        self._ready.unregister(descriptor)
        self._members.pop(descriptor).close()


def run(*, long: bool = False) -> dict[str, Any]:
    """Measure, print the table, keep the figures under `results/`."""
    with (
        tempfile.TemporaryDirectory() as name,
        footprint.probing(Path(name), interval="1min") as child,
    ):
        path = Path(name) / "run/penstock.sock"
        crowds = [Crowd(path, _WATCHER_COUNT, lambda: _WATCH), Crowd(path, _LEASE_COUNT, _claim)]
        samples = _lived(child.pid, crowds, _SECONDS[long])
        closed_count = sum(crowd.closed_count for crowd in crowds)
        heard_bytes = sum(crowd.heard_bytes for crowd in crowds)
        status = status_of(path) or {}
        observation_count = sum(context["observation_count"] for context in status.get("contexts", ()))
    figures = {
        **_verdict(samples),
        "closed_by_the_daemon_count": closed_count,
        "heard_bytes": heard_bytes,
        "observation_count": observation_count,
    }
    _print(samples, figures)
    results.keep("crowd", {**figures, "samples": [asdict(sample) for sample in samples]})
    return figures


def _claim() -> bytes:
    operation, size = random.choice(
        (("s3_upload", 1 << 30), ("s3_download", 1 << 26), ("sqs_delivery", 1024))
    )
    claim = {"operation": operation, "payload_size_bytes": size, "weight": random.choice((0.5, 1, 2))}
    body = json.dumps(claim).encode()
    head = f"POST /v1/leases HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body


def _lived(process_id: int, crowds: list[Crowd], seconds: float) -> list[Sample]:
    began, samples, next_change = time.monotonic(), list[Sample](), time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        for crowd in crowds:
            crowd.hear()
        if time.monotonic() >= next_change:
            next_change += 1.0
            for crowd in crowds:
                crowd.change(_LEAVING_COUNT)
        if elapsed >= len(samples) * _SAMPLE_SECONDS:
            samples.append(_sample(process_id, elapsed, sum(map(len, crowds))))
        time.sleep(0.05)
    return samples


def _sample(process_id: int, elapsed: float, crowd_count: int) -> Sample:
    children = footprint.descendants(process_id)
    return Sample(
        seconds=elapsed,
        rss_bytes=footprint.memory_bytes(process_id)["Rss"],
        descriptor_count=descriptor_count(process_id),
        children_rss_bytes=sum(map(_rss_bytes, children)),
        crowd_count=crowd_count,
    )


def _rss_bytes(process_id: int) -> float:
    try:
        return footprint.memory_bytes(process_id)["Rss"]
    except (OSError, KeyError):  # the process has just ended
        return 0.0


def _verdict(samples: list[Sample]) -> dict[str, Any]:
    steady = samples[int(len(samples) * _GROWING_FRACTION) :]
    part = max(1, len(steady) // 5)
    first, last = (statistics.median(s.rss_bytes for s in some) for some in (steady[:part], steady[-part:]))
    extra = [s.descriptor_count - s.crowd_count for s in steady]
    begun, ended = (statistics.median(some) for some in (extra[:part], extra[-part:]))
    return {
        "rss_bytes_first": first,
        "rss_bytes_last": last,
        "rss_bytes_max": max(s.rss_bytes for s in samples),
        "growth_fraction": last / first - 1.0,
        "descriptors_beside_the_crowd_first": begun,
        "descriptors_beside_the_crowd_last": ended,
        "is_flat": last / first - 1.0 <= _GROWTH_FRACTION_MAX and ended <= begun,
    }


def _print(samples: list[Sample], figures: dict[str, Any]) -> None:
    print(f"{'minute':>8}{'RSS MB':>9}{'descriptors':>13}{'crowd':>8}{'children MB':>13}")
    for sample in samples[:: max(1, len(samples) // 20)]:
        print(
            f"{sample.seconds / 60:>8.1f}{sample.rss_bytes / 1e6:>9.1f}{sample.descriptor_count:>13}"
            f"{sample.crowd_count:>8}{sample.children_rss_bytes / 1e6:>13.1f}"
        )
    for name, value in figures.items():
        print(f"{name}: {value}")
