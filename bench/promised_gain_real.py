"""Knows whether unmodified SDKs gain what `penstock clients` promises them, on a server that others wrote.

    python -m bench promised-gain-real

boto3 and the AWS CLI upload 512 MiB to versitygw, each through links of random physics (`bench.relay`), with threads of
their own choosing and heard by what they tell; then as advised. The optimizer that the daemon uses has learned the same
physics in virtual time. Links are slow, so that a few cores are no part of what is measured; the time is that from the
first request at the relay to the last answer.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from bench import promised_gain, results
from bench.promised_gain import CONTEXT, ROW, Kept, own_setting
from bench.relay import Relay
from penstock.clock import SystemClock
from penstock.daemon.hearing import Hearing
from penstock.lab.link import LinkTruth
from penstock.lab.s3 import S3Service
from penstock.lab.server import serving
from penstock.lab.virtual_time import run_virtually
from penstock.models.s3.upload import S3UploadSetting
from penstock.operations.heard import by_operation
from penstock.trial.stage import CREDENTIALS
from penstock.units import MiB
from tests.real import provision, servers
from tests.unit.daemon.test_hearing import listening

RUN_COUNT = {False: 6, True: 30}
_SEED = 1904
_BUCKET = "gain"
_BOTO3 = """
import sys, boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
threads = int(sys.argv[3])
s3 = boto3.client("s3", endpoint_url=sys.argv[1], config=Config(max_pool_connections=threads))
config = TransferConfig(multipart_chunksize=int(sys.argv[4]), max_concurrency=threads)
s3.upload_file(sys.argv[2], "gain", "key", Config=config)
"""
_AWS_SETTINGS = "[default]\ns3 =\n  max_concurrent_requests = {}\n  multipart_chunksize = {}\n"


def _boto3(url: str, file: Path, setting: S3UploadSetting) -> list[str]:
    return [
        *(sys.executable, "-c", _BOTO3, url, str(file)),
        *(str(setting.thread_count), str(setting.part_size_bytes)),
    ]


def _aws_cli(url: str, file: Path, setting: S3UploadSetting) -> list[str]:
    settings = _AWS_SETTINGS.format(setting.thread_count, setting.part_size_bytes)
    (file.parent / "aws-config").write_text(settings)
    there = f"s3://{_BUCKET}/key"
    return [str(provision.aws_cli()), "s3", "cp", str(file), there, "--endpoint-url", url, "--quiet"]


class _TimedRelay(Relay):
    """Notes when the first request came, and when the last was answered."""

    def __init__(self, target: str, path: S3Service, upstream: aiohttp.ClientSession) -> None:
        super().__init__(target, path, upstream)
        self.began_seconds, self.ended_seconds = float("inf"), 0.0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.began_seconds = min(self.began_seconds, time.monotonic())
        response = await super().answer(request)
        self.ended_seconds = time.monotonic()
        return response


def run(*, long: bool = False) -> dict[str, Any]:
    """Both clients in turns, a link each; prints each, and keeps the figures under `results/`."""
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="penstock-gain-") as name:
        folder = Path(name)
        file = folder / "file"
        file.write_bytes(os.urandom(MiB) * (CONTEXT.payload_size_bytes // MiB))
        with servers.s3_server(folder) as url:
            servers.plain_client("s3", url).create_bucket(Bucket=_BUCKET)
            for number in range(RUN_COUNT[long]):
                client = (_boto3, _aws_cli)[number % 2]
                kept = asyncio.run(_played(random.Random(f"{_SEED}/{number}"), url, file, client))
                if kept is not None:
                    runs.append(asdict(kept) | {"client": client.__name__, "is_within": kept.is_within})
                    print(client.__name__, promised_gain.line(number, kept), flush=True)
    within = sum(one["is_within"] for one in runs) / max(len(runs), 1)
    found = {"seed": _SEED, "within_fraction": within, "runs": runs, "load": os.getloadavg()[0]}
    print(f"{len(runs)} runs, seed {_SEED}: {within:.0%} gained what they were promised")
    results.keep("promised_gain_real", found)
    return found


async def _played(
    chance: random.Random,
    server_url: str,
    file: Path,
    client: Callable[[str, Path, S3UploadSetting], list[str]],
) -> Kept | None:
    connection_rate = chance.uniform(2e6, 4e6)
    truth = LinkTruth(
        round_trip_seconds=chance.uniform(0.01, 0.06),
        connection_rate_bytes_per_second=connection_rate,
        host_rate_bytes_per_second=connection_rate * chance.uniform(4.0, 8.0),
        service_latency_seconds_median=chance.uniform(0.03, 0.06),
        service_latency_sigma=0.3,
    )
    seed, own, hearing = chance.randrange(2**31), own_setting(chance, (2, 3, 4, 10)), Hearing(SystemClock())

    def learned() -> promised_gain.Learned:
        return run_virtually(
            lambda clock: promised_gain.learned(S3Service(truth, clock=clock, seed=seed), clock),
            start_at=promised_gain.START_AT,
        )

    known = await asyncio.to_thread(learned)
    seconds = {}
    async with aiohttp.ClientSession(auto_decompress=False) as upstream, listening(hearing) as sender:
        for setting, csm in ((own, "true"), (known.advice.setting, "false")):
            path = S3Service(truth, clock=SystemClock(), seed=seed)
            relay = _TimedRelay(server_url, path, upstream)
            async with serving(relay.application()) as url:
                told = {"AWS_CSM_ENABLED": csm, "AWS_CSM_PORT": str(sender.getpeername()[1])}
                environment = {
                    "PATH": os.environ["PATH"],
                    "HOME": str(file.parent),
                    **CREDENTIALS,
                    **told,
                    "AWS_DEFAULT_REGION": servers.REGION,
                    "AWS_CONFIG_FILE": str(file.parent / "aws-config"),
                }
                running = await asyncio.create_subprocess_exec(*client(url, file, setting), env=environment)
                if await running.wait():
                    raise RuntimeError(f"{client.__name__} failed")
            seconds[setting] = relay.ended_seconds - relay.began_seconds
            if setting is own:
                apis = next(apis for row, _, apis in by_operation(hearing.series()) if row is ROW)
    return promised_gain.kept(known, apis, own, seconds[own] / seconds[known.advice.setting])
