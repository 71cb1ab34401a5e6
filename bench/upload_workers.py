"""Knows whether several processes send more than one event loop can: parts into a sink that only counts them.

    python -m bench upload-workers

The sink is a process of its own that discards what it reads, so that the sender is the limit and not a service. The
number of sending processes is not given: `Staffing` learns it from how busy they are, as in the probe; the first round,
with one event loop, is the baseline. On a host with few processors, sink and senders share them, which understates the
gain.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import socket
import statistics
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from bench import results
from bench.figures import Figure
from penstock.probes.aws.access import Access, Credentials
from penstock.probes.measurement import Effort
from penstock.probes.s3.workers import Staffing, hired, processor_count
from penstock.units import MiB

GAIN_MIN = 1.1  # of all processes over one event loop, if there is a second processor
_BODY_BYTES = 5 * MiB
_THREAD_COUNT = 16
_PART_COUNT = 96  # per measurement: half a GiB
_ROUND_COUNT = {False: 3, True: 9}
_LESSONS_MAX = 4  # rounds after which the number of processes may change
_TICK_SECONDS = 0.05
_START_SECONDS_MAX = 20.0
_BUFFER_BYTES = MiB


@dataclass(frozen=True, slots=True)
class Staffed:
    """The result with this many processes, medians over the rounds."""

    worker_count: int
    bytes_per_second: float
    client_cpu_fraction: float  # of one processor, for the busiest process


def run(*, long: bool = False) -> dict[str, Any]:
    """Measure, print the table, keep the figures under `results/`."""
    with _sink() as url:
        rows = asyncio.run(_measured(url, _ROUND_COUNT[long]))
    gain = rows[-1].bytes_per_second / rows[0].bytes_per_second
    print(f"{'processes':>9s} {'MB/s':>8s} {'processor of the busiest':>25s}")
    for row in rows:
        print(f"{row.worker_count:9d} {row.bytes_per_second / 1e6:8.0f} {row.client_cpu_fraction:25.2f}")
    gained = gain if processor_count() > 1 else None
    figure = Figure("bytes a second of all processes, over one event loop's", gained, low=GAIN_MIN)
    print(f"\n{figure.line()}")
    found = {"rows": [asdict(row) for row in rows], "gain": gain, "verdict": figure.verdict}
    results.keep("upload_workers", found)
    return found


async def _measured(url: str, rounds: int) -> list[Staffed]:
    """One event loop, and the number of processes that it leads to, equally often and in turns."""
    staffing, learned = Staffing(worker_count_max=processor_count()), 1
    for _ in range(_LESSONS_MAX):
        _, busiest = await _sent(url, learned)
        staffing.learn(busiest, thread_count=_THREAD_COUNT, worker_count=learned, body_bytes=_BODY_BYTES)
        learned = staffing.worker_count(_THREAD_COUNT, _BODY_BYTES)
    counts = list(dict.fromkeys((1, learned)))
    turns = [(count, await _sent(url, count)) for _ in range(rounds) for count in counts]
    return [
        Staffed(
            worker_count=count,
            bytes_per_second=statistics.median(rate for c, (rate, _) in turns if c == count),
            client_cpu_fraction=statistics.median(e.client_cpu_fraction for c, (_, e) in turns if c == count),
        )
        for count in counts
    ]


async def _sent(url: str, worker_count: int) -> tuple[float, Effort]:
    """Bytes per second of one measurement, and the effort of the busiest process."""
    credentials = Credentials(access_key="AKIDSINK", secret_key="of-the-sink")  # noqa: S106  # it opens nothing
    access = Access(region="eu-west-1", endpoint_url=url, credentials=credentials)
    body = bytes(_BODY_BYTES)
    async with hired(worker_count, _BODY_BYTES, 1, access=access, loop_tick_seconds=_TICK_SECONDS) as workers:
        slots = asyncio.Semaphore(_THREAD_COUNT)

        async def part(number: int) -> None:
            async with slots:
                await workers.upload_part("sink", "key", "upload", number, body)

        async def parts(first: int, count: int) -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(first, first + count):
                    group.create_task(part(number))

        await parts(1, _THREAD_COUNT)  # opens connections, and imports what is imported on first use
        async with workers.measured() as efforts:
            began = perf_counter()
            await parts(1 + _THREAD_COUNT, _PART_COUNT)
            seconds = perf_counter() - began
    return _PART_COUNT * _BODY_BYTES / seconds, max(efforts, key=lambda effort: effort.client_cpu_fraction)


# --- The sink. ---


@contextlib.contextmanager
def _sink() -> Iterator[str]:
    """The address of a process that answers every PUT with 200 and discards it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        if not ours.poll(_START_SECONDS_MAX):
            raise RuntimeError("the sink did not start")
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def _serve(told: Any) -> None:  # Any: the child's end of the pipe
    with socket.create_server(("127.0.0.1", 0), backlog=4 * _THREAD_COUNT) as listener:
        told.send(listener.getsockname()[1])
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_swallow, args=(connection,), daemon=True).start()


def _swallow(connection: socket.socket) -> None:
    """One request after another: a head, and as many bytes as it announces."""
    buffer, pending = bytearray(_BUFFER_BYTES), b""
    with connection, contextlib.suppress(ConnectionError):
        while True:
            while b"\r\n\r\n" not in pending:
                count = connection.recv_into(buffer)
                if not count:
                    return
                pending += bytes(buffer[:count])
            head, _, pending = pending.partition(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            if b"expect" in fields:
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            left = int(fields[b"content-length"]) - len(pending)
            while left > 0 and (count := connection.recv_into(buffer, min(left, _BUFFER_BYTES))):
                left -= count
            pending = b""
            connection.sendall(b'HTTP/1.1 200 OK\r\nETag: "sink"\r\nContent-Length: 0\r\n\r\n')
