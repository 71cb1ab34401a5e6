"""Knows how to serve a lab service on a real socket, in this process or in a process of its own.

    python -m penstock.lab.server s3|sqs --truth truth.json [--inbound inbound.json] [--address 127.0.0.1] [--port 0]
        [--seed 0]

It prints one JSON line, `{"endpoint_url": "http://127.0.0.1:PORT"}`, when it is ready, and ends on SIGTERM and on
SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web

from penstock.clock import SystemClock
from penstock.lab.http_s3 import s3_application
from penstock.lab.http_sqs import sqs_application
from penstock.lab.link import LinkTruth
from penstock.lab.s3 import S3Service
from penstock.lab.sqs import QueueTruth, SqsService
from penstock.units import KiB

HERE = "127.0.0.1"  # not reachable from other hosts
# How much a client may have sent that the link has not carried yet: much less than a part, so that the client meets the
# rate of the link and not that of the loopback interface.
_RECEIVE_BUFFER_BYTES = 128 * KiB


@asynccontextmanager
async def serving(application: web.Application, *, address: str = HERE, port: int = 0) -> AsyncIterator[str]:
    """Serve on this address while the context lasts, and yield the URL of the endpoint; port 0 is any free one."""
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    is_long = ":" in address  # IPv6
    listener = socket.socket(socket.AF_INET6 if is_long else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        listener.bind((address, port))
        await web.SockSite(runner, listener, backlog=1024).start()
        yield f"http://{f'[{address}]' if is_long else address}:{listener.getsockname()[1]}"
    finally:
        await runner.cleanup()
        listener.close()


def truth_json(truth: LinkTruth | QueueTruth) -> str:
    """The JSON document of a truth, as `--truth` reads it."""
    return msgspec.json.encode(truth).decode()


def make_application(
    service: str, truth: bytes, *, seed: int, inbound: bytes | None = None
) -> web.Application:
    """The application of one service, from the JSON document of its truth. Raises msgspec.ValidationError."""
    if service == "s3":
        link = msgspec.json.decode(truth, type=LinkTruth)
        reads = None if inbound is None else msgspec.json.decode(inbound, type=LinkTruth)
        return s3_application(S3Service(link, clock=SystemClock(), seed=seed, inbound=reads))
    queue_truth = msgspec.json.decode(truth, type=QueueTruth)
    return sqs_application(SqsService(queue_truth, clock=SystemClock(), seed=seed))


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m penstock.lab.server", description="A service of known truth."
    )
    parser.add_argument("service", choices=("s3", "sqs"))
    parser.add_argument(
        "--truth", type=Path, required=True, help="JSON: the fields of LinkTruth or QueueTruth"
    )
    parser.add_argument("--inbound", type=Path, help="the same of reads from S3, where they differ")
    parser.add_argument("--address", default=HERE, help="of this host, where others may reach it")
    parser.add_argument("--port", type=int, default=0, help="0 is any that is free")
    parser.add_argument("--seed", type=int, default=0)
    parsed = parser.parse_args(arguments)
    try:
        inbound = None if parsed.inbound is None else parsed.inbound.read_bytes()
        application = make_application(
            parsed.service, parsed.truth.read_bytes(), seed=parsed.seed, inbound=inbound
        )
    except (OSError, msgspec.DecodeError) as error:
        parser.error(f"the truth cannot be read: {error}")
    try:
        asyncio.run(serve_until_stopped(application, parsed.port, address=parsed.address))
    except OSError as error:
        parser.error(f"{parsed.address}, port {parsed.port}, cannot be used: {error}")
    return 0


async def serve_until_stopped(application: web.Application, port: int, *, address: str = HERE) -> None:
    """Print the endpoint, and serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving(application, address=address, port=port) as endpoint_url:
        sys.stdout.write(json.dumps({"endpoint_url": endpoint_url}) + "\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    raise SystemExit(main())
