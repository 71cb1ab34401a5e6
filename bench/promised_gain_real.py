"""Knows whether unmodified SDKs gain what `penstock clients` promises them, on a server that others wrote.

    python -m bench promised-gain-real

boto3 and the AWS CLI upload 512 MiB to versitygw, each through links of random physics (`bench.relay`), first with
threads of their own choice and heard by their own reports, then as advised. Before that, the daemon's optimizer has
learned the same physics in virtual time, and how long this server takes to complete an object from its parts. The links
are slow, so that a few cores do not matter; five run at once. The time is from the first request at the relay to the
last answer.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
from aiohttp import web

from bench import promised_gain, results
from bench.penstock_tuner import START_AT
from bench.promised_gain import CONTEXT, ROW, Kept, own_setting
from bench.relay import Relay
from penstock.clock import SystemClock
from penstock.daemon.heard.hearing import Hearing
from penstock.lab.link import LinkTruth
from penstock.lab.s3 import S3Service
from penstock.lab.server import serving
from penstock.lab.virtual_time import run_virtually
from penstock.models.s3.upload import S3UploadSetting
from penstock.operations.heard import by_operation
from penstock.trial.stage import CREDENTIALS
from penstock.units import MiB
from tests.real import provision, servers
from tests.unit.daemon.heard.test_hearing import listening

RUN_COUNT = {False: 6, True: 30}
_SEED = 2311
_PARALLEL_COUNT = 5
_BUCKET = "gain"
_BOTO3 = """
import sys, boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
threads = int(sys.argv[3])
s3 = boto3.client("s3", endpoint_url=sys.argv[1], config=Config(max_pool_connections=threads))
config = TransferConfig(multipart_chunksize=int(sys.argv[4]), max_concurrency=threads)
s3.upload_file(sys.argv[2], "gain", sys.argv[5], Config=config)
"""
_AWS_SETTINGS = "[default]\ns3 =\n  max_concurrent_requests = {}\n  multipart_chunksize = {}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Upload:
    """One upload for a client."""

    url: str
    file: Path
    key: str
    setting: S3UploadSetting

    @property
    def aws_config(self) -> Path:
        """The AWS CLI's own settings."""
        return self.file.parent / f"aws-config-{self.key}"


def _boto3(upload: _Upload) -> list[str]:
    setting = upload.setting
    return [
        *(sys.executable, "-c", _BOTO3, upload.url, str(upload.file)),
        *(str(setting.thread_count), str(setting.part_size_bytes), upload.key),
    ]


def _aws_cli(upload: _Upload) -> list[str]:
    setting = upload.setting
    upload.aws_config.write_text(_AWS_SETTINGS.format(setting.thread_count, setting.part_size_bytes))
    there = f"s3://{_BUCKET}/{upload.key}"
    return [
        *(str(provision.aws_cli()), "s3", "cp", str(upload.file), there),
        *("--endpoint-url", upload.url, "--quiet"),
    ]


_CLIENTS = (_boto3, _aws_cli)


class _TimedRelay(Relay):
    """Notes when the first request arrived, and when the last was answered."""

    def __init__(self, target: str, path: S3Service, upstream: aiohttp.ClientSession) -> None:
        super().__init__(target, path, upstream)
        self.began_seconds, self.ended_seconds = float("inf"), 0.0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.began_seconds = min(self.began_seconds, time.monotonic())
        response = await super().answer(request)
        self.ended_seconds = time.monotonic()
        return response


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A link, what was learned about it, and the application's own setting."""

    number: int
    truth: LinkTruth
    seed: int
    own: S3UploadSetting
    known: promised_gain.Learned

    @property
    def client(self) -> Callable[[_Upload], list[str]]:
        """The clients take turns."""
        return _CLIENTS[self.number % len(_CLIENTS)]


def run(*, long: bool = False) -> dict[str, Any]:
    """Run both clients in turns, a link each; print each, and keep the figures under `results/`."""
    with tempfile.TemporaryDirectory(prefix="penstock-gain-") as name:
        folder = Path(name)
        file = folder / "file"
        file.write_bytes(os.urandom(MiB) * (CONTEXT.payload_size_bytes // MiB))
        with servers.s3_server(folder) as url:
            s3 = servers.plain_client("s3", url)
            s3.create_bucket(Bucket=_BUCKET)
            merge_seconds = median(_merge_seconds(s3, file) for _ in range(3))
            print(f"the server makes one object of its parts in {merge_seconds:.2f} s", flush=True)
            with ProcessPoolExecutor() as pool:
                cases = list(pool.map(partial(_case, merge_seconds), range(RUN_COUNT[long])))
            runs = asyncio.run(_all_played(cases, url, file))
    within = sum(one["is_within"] for one in runs) / max(len(runs), 1)
    found = {"seed": _SEED, "within_fraction": within, "runs": runs, "load": os.getloadavg()[0]}
    print(f"{len(runs)} runs, seed {_SEED}: {within:.0%} gained what they were promised")
    results.keep("promised_gain_real", found)
    return found


def _merge_seconds(s3: Any, file: Path) -> float:  # Any: boto3 makes its clients at run time
    """The time to complete an object with boto3's parts."""
    where = {"Bucket": _BUCKET, "Key": "merged"}
    where["UploadId"] = s3.create_multipart_upload(**where)["UploadId"]
    parts = []
    with file.open("rb") as body:
        for number, part in enumerate(iter(partial(body.read, promised_gain.PART_SIZE_BYTES), b""), start=1):
            etag = s3.upload_part(**where, PartNumber=number, Body=part)["ETag"]
            parts.append({"PartNumber": number, "ETag": etag})
    began = time.monotonic()
    s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    return time.monotonic() - began


def _case(merge_seconds: float, number: int) -> _Case:
    chance = random.Random(f"{_SEED}/{number}")
    connection_rate = chance.uniform(2e6, 4e6)
    truth = LinkTruth(
        round_trip_seconds=chance.uniform(0.01, 0.06),
        connection_rate_bytes_per_second=connection_rate,
        host_rate_bytes_per_second=connection_rate * chance.uniform(4.0, 8.0),
        service_latency_seconds_median=chance.uniform(0.03, 0.06),
        service_latency_sigma=0.3,
        merge_seconds=merge_seconds,
    )
    seed, own = chance.randrange(2**31), own_setting(chance, (2, 3, 4, 10))
    known = run_virtually(
        lambda clock: promised_gain.learned(S3Service(truth, clock=clock, seed=seed), clock),
        start_at=START_AT,
    )
    return _Case(number=number, truth=truth, seed=seed, own=own, known=known)


async def _all_played(cases: Sequence[_Case], server_url: str, file: Path) -> list[dict[str, Any]]:
    """A few at a time."""
    turn = asyncio.Semaphore(_PARALLEL_COUNT)

    async def one(case: _Case) -> dict[str, Any] | None:
        async with turn:
            kept = await _played(case, server_url, file)
        if kept is None:
            return None
        print(case.client.__name__, promised_gain.line(case.number, kept), flush=True)
        return asdict(kept) | {"client": case.client.__name__, "is_within": kept.is_within}

    return [found for found in await asyncio.gather(*map(one, cases)) if found is not None]


async def _played(case: _Case, server_url: str, file: Path) -> Kept | None:
    hearing, seconds = Hearing(SystemClock()), {}
    own, advised = case.own, case.known.advice.setting
    async with aiohttp.ClientSession(auto_decompress=False) as upstream, listening(hearing) as sender:
        for setting, csm in ((own, "true"), (advised, "false")):
            path = S3Service(case.truth, clock=SystemClock(), seed=case.seed)
            relay = _TimedRelay(server_url, path, upstream)
            async with serving(relay.application()) as url:
                upload = _Upload(url=url, file=file, key=f"key-{case.number}", setting=setting)
                environment = {
                    "PATH": os.environ["PATH"],
                    "HOME": str(file.parent),
                    **CREDENTIALS,
                    "AWS_CSM_ENABLED": csm,
                    "AWS_CSM_PORT": str(sender.getpeername()[1]),
                    "AWS_DEFAULT_REGION": servers.REGION,
                    "AWS_CONFIG_FILE": str(upload.aws_config),
                }
                running = await asyncio.create_subprocess_exec(*case.client(upload), env=environment)
                if await running.wait():
                    raise RuntimeError(f"{case.client.__name__} failed")
            seconds[setting] = relay.ended_seconds - relay.began_seconds
    apis = next(apis for row, _, apis in by_operation(hearing.series()) if row is ROW)
    return promised_gain.kept(case.known, apis, own, seconds[own] / seconds[advised])
