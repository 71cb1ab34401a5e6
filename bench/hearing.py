"""Knows what hearing applications costs: a process that hears like the daemon, and 5,000 datagrams a second.

    python -m bench hearing

The datagrams are botocore's own, two for each call, from another process that paces them by the millisecond. The hearer
is the daemon's, on uvloop as in `penstockd`; its processor time is the kernel's count for its process meanwhile, and
its memory is read before and after.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import socket
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

import uvloop
from botocore.monitoring import APICallAttemptEvent, APICallEvent, CSMSerializer

from bench import results
from penstock.clock import SystemClock
from penstock.daemon.config import ListenSection
from penstock.daemon.heard.hearing import Hearing
from penstock.daemon.troubles import Troubles
from tests.programs import resident_bytes

DATAGRAM_COUNT_PER_SECOND = 5000
CORE_FRACTION_MAX = 0.05
GROWTH_BYTES_MAX = 1 << 20
_SECONDS = {False: 20.0, True: 3600.0}
_WARM_SECONDS = 5.0  # until every latency class has occurred
_APPLICATION_COUNT = 8
_USER_AGENT = (
    "Boto3/1.43.117 md/Botocore#1.43.117 ua/2.1 os/linux#6.1.0-28-amd64 md/arch#x86_64 lang/python#3.11.2 "
    "md/pyimpl#CPython m/N,E,b,Z cfg/retry-mode#standard"
)


@dataclass(frozen=True, slots=True)
class Used:
    """By the hearer, so far."""

    processor_seconds: float
    resident_bytes: int
    heard_count: int
    dropped_count: int


def run(*, long: bool = False) -> dict[str, Any]:
    """Measure, print, keep the figures under `results/`."""
    told, tell = multiprocessing.Pipe()
    port = _free_port()
    hearer = multiprocessing.get_context("spawn").Process(target=_hear, args=(tell, port), daemon=True)
    hearer.start()
    told.recv()
    try:
        _send(port, _WARM_SECONDS)
        before = _asked(told)
        begun_seconds = time.monotonic()
        sent_count = _send(port, _SECONDS[long])
        seconds = time.monotonic() - begun_seconds
        time.sleep(0.1)
        after = _asked(told)
    finally:
        hearer.terminate()
        hearer.join()
    found = _found(before, after, sent_count, seconds)
    print(
        f"{found['datagram_count_per_second']:,.0f} datagrams a second: {found['core_fraction']:.1%} of a core "
        f"(at most {CORE_FRACTION_MAX:.0%}), {found['microseconds_per_datagram']:.1f} us each, "
        f"{found['grown_bytes'] / 1024:.0f} KiB more memory, {found['dropped_count']} lost: {found['verdict']}"
    )
    results.keep("hearing", found)
    return found


def _found(before: Used, after: Used, sent_count: int, seconds: float) -> dict[str, Any]:
    heard_count = after.heard_count - before.heard_count
    used_seconds = after.processor_seconds - before.processor_seconds
    grown_bytes = after.resident_bytes - before.resident_bytes
    # Datagrams that the sender could not send in time are counted as if they had been sent.
    each_seconds = used_seconds / heard_count
    is_met = each_seconds * DATAGRAM_COUNT_PER_SECOND <= CORE_FRACTION_MAX and grown_bytes <= GROWTH_BYTES_MAX
    return {
        "datagram_count_per_second": heard_count / seconds,
        "core_fraction": each_seconds * DATAGRAM_COUNT_PER_SECOND,
        "microseconds_per_datagram": each_seconds * 1e6,
        "grown_bytes": grown_bytes,
        "sent_count": sent_count,
        "dropped_count": after.dropped_count - before.dropped_count,
        "after": asdict(after),
        "verdict": "met" if is_met else "missed",
    }


def _datagrams() -> list[bytes]:
    """One attempt and one call of each application, with latencies of their own."""
    found = []
    for number in range(_APPLICATION_COUNT):
        attempt = APICallAttemptEvent(
            service="S3", operation="UploadPart", timestamp=1_800_000_000_000, latency=40 + 17 * number
        )
        attempt.url = "https://backup.s3.eu-central-1.amazonaws.com/key"
        attempt.http_status_code = 200
        attempt.request_headers = {
            "User-Agent": _USER_AGENT,
            "Authorization": "AWS4-HMAC-SHA256 Credential=NOBODYSKEY/20261122/eu-central-1/s3/aws4_request",
            "X-Amz-Security-Token": "nobody's" * 100,
        }
        attempt.response_headers = {"x-amz-request-id": "0123456789ABCDEF", "x-amz-id-2": "x" * 76}
        call = APICallEvent(
            service="S3", operation="UploadPart", timestamp=1_800_000_000_000, latency=41 + 17 * number
        )
        call.attempts = [attempt]
        serializer = CSMSerializer(csm_client_id=f"application-{number}")
        found += [bytes(serializer.serialize(event)) for event in (attempt, call)]
    return found


def _send(port: int, seconds: float) -> int:
    """Send evenly, by the millisecond; returns the number sent."""
    datagrams, count, begun_seconds = _datagrams(), 0, time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", port))
        while (elapsed_seconds := time.monotonic() - begun_seconds) < seconds:
            # After a pause of this process, missed datagrams are left out: a burst would measure something else.
            due = int(elapsed_seconds * DATAGRAM_COUNT_PER_SECOND)
            for _ in range(min(due - count, 50)):
                sender.send(datagrams[count % len(datagrams)])
                count += 1
            time.sleep(0.001)
    return count


def _asked(told: Connection) -> Used:
    told.send(None)
    used: Used = told.recv()
    return used


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _hear(tell: Connection, port: int) -> None:
    """The hearer's process: reports when it is listening, and answers each question with its usage."""

    async def heard() -> None:
        hearing = Hearing(SystemClock())
        section = ListenSection(is_enabled=True, port=port)
        task = asyncio.create_task(hearing.listen(section, Troubles(SystemClock())))
        while not hearing.is_listening:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        tell.send(None)
        asyncio.get_running_loop().add_reader(tell.fileno(), _answer, tell, hearing)
        await task

    uvloop.run(heard())


def _answer(tell: Connection, hearing: Hearing) -> None:
    tell.recv()
    spent = resource.getrusage(resource.RUSAGE_SELF)
    tell.send(
        Used(
            processor_seconds=spent.ru_utime + spent.ru_stime,
            resident_bytes=resident_bytes(),
            heard_count=hearing.heard_count,
            dropped_count=hearing.dropped_count,
        )
    )
