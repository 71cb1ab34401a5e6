"""Unmodified clients on an S3 that others wrote: what is heard of them against what came at the server."""

from __future__ import annotations

import asyncio
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from bench.relay import Relay
from penstock.clock import SystemClock
from penstock.daemon.heard.hearing import Hearing
from penstock.lab.link import LinkTruth
from penstock.lab.s3 import S3Service
from penstock.lab.server import serving
from penstock.listening.tally import Series
from penstock.models.inference.histogram import quantile
from penstock.trial.stage import CREDENTIALS
from penstock.units import MiB
from tests.real import provision, servers
from tests.unit.daemon.heard.test_hearing import listening

pytestmark = [pytest.mark.real, pytest.mark.timeout(provision.BUILD_SECONDS_MAX)]

PART_COUNT = 12
PATH = LinkTruth(  # parts take seconds, so that a busy machine's milliseconds are little beside them
    round_trip_seconds=0.02,
    connection_rate_bytes_per_second=2e6,
    host_rate_bytes_per_second=50e6,
    service_latency_seconds_median=0.05,
)
# In waves for every client, so that the median is of connections and of a client that have long begun.
_AWS_CONFIG = "[default]\ns3 =\n  max_concurrent_requests = 4\n"
_UPLOAD = """
import sys, boto3
from boto3.s3.transfer import TransferConfig
s3 = boto3.client("s3", endpoint_url=sys.argv[1])
s3.upload_file(sys.argv[2], "heard", "key", Config=TransferConfig(multipart_chunksize=8 << 20, max_concurrency=4))
"""
_APIS = {"POST uploads": "CreateMultipartUpload", "PUT": "UploadPart", "POST": "CompleteMultipartUpload"}


def _boto3(url: str, file: Path) -> list[str]:
    return [sys.executable, "-c", _UPLOAD, url, str(file)]


def _aws_cli(url: str, file: Path) -> list[str]:
    copy = ["s3", "cp", str(file), "s3://heard/key", "--endpoint-url", url, "--quiet"]
    return [str(provision.aws_cli()), *copy]


def _go_sdk_1(url: str, file: Path) -> list[str]:
    """It ends with its last call, whatever its SDK still had to say of it: so it waits for more to do."""
    upload = f"cp --concurrency 4 --part-size 8 {shlex.quote(str(file))} s3://heard/key"
    run = shlex.join([str(provision.s5cmd()), "--endpoint-url", url, "run"])
    return ["sh", "-c", f"{{ printf '%s\\n' {shlex.quote(upload)}; cat; }} | {run}"]


class WatchedRelay(Relay):
    """Notes when each call came and when it was answered."""

    def __init__(self, target: str, path: S3Service, upstream: aiohttp.ClientSession) -> None:
        super().__init__(target, path, upstream)
        self.spans: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        began_seconds = time.monotonic()
        kind = f"{request.method}{' uploads' * ('uploads' in request.query)}"
        response = await super().answer(request)
        self.spans[_APIS.get(kind, kind)].append((began_seconds, time.monotonic()))
        return response


@pytest.mark.parametrize(
    ("client", "product"), [(_boto3, "Boto3"), (_aws_cli, "aws-cli"), (_go_sdk_1, "aws-sdk-go")]
)
def test_what_is_heard_is_what_the_server_saw(
    client: Callable[[str, Path], list[str]], product: str, tmp_path: Path
) -> None:
    """Calls and attempts are exact; latency is within 5 % and requests in flight within 10 %."""
    client("", tmp_path)  # builds it before anything is timed
    file = tmp_path / "file"
    file.write_bytes(os.urandom(PART_COUNT * 8 * MiB))
    with servers.s3_server(tmp_path) as server_url:
        servers.plain_client("s3", server_url).create_bucket(Bucket="heard")
        heard, spans = asyncio.run(_upload(server_url, lambda url: client(url, file), tmp_path))
    told = {series.key.api: series for series in heard}
    assert {series.key.application.product for series in heard} == {product}
    seen = {api: len(of_api) for api, of_api in spans.items() if api in _APIS.values()}
    assert seen == {"CreateMultipartUpload": 1, "UploadPart": PART_COUNT, "CompleteMultipartUpload": 1}
    for api, count in seen.items():
        assert (told[api].call_count, told[api].attempt_count) == (count, count)
    parts, durations = told["UploadPart"], [ended - began for began, ended in spans["UploadPart"]]
    in_flight = sum(durations) / _covered_seconds(spans["UploadPart"])
    assert quantile(parts.latencies, 0.5) == pytest.approx(statistics.median(durations), rel=0.05), product
    assert parts.in_flight_count_mean == pytest.approx(in_flight, rel=0.1), product


async def _upload(
    server_url: str, command: Callable[[str], list[str]], folder: Path
) -> tuple[list[Series], dict[str, list[tuple[float, float]]]]:
    hearing = Hearing(SystemClock())
    path = S3Service(PATH, clock=SystemClock(), seed=0)
    config = folder / "aws_config"
    config.write_text(_AWS_CONFIG)
    async with aiohttp.ClientSession(auto_decompress=False) as upstream:
        relay = WatchedRelay(server_url, path, upstream)
        async with serving(relay.application()) as url, listening(hearing) as sender:
            port = sender.getpeername()[1]
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "AWS_CONFIG_FILE": str(config),
                **CREDENTIALS,
                "AWS_REGION": servers.REGION,
                "AWS_DEFAULT_REGION": servers.REGION,
                "AWS_CSM_ENABLED": "true",
                "AWS_CSM_PORT": str(port),
                "AWS_CSM_HOST": "127.0.0.1",
            }
            application = await asyncio.create_subprocess_exec(
                *command(url), env=environment, stdin=subprocess.PIPE
            )
            deadline = time.monotonic() + 60.0
            while not _is_all_heard(hearing, relay) and time.monotonic() < deadline:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
            await application.communicate(b"")
            assert application.returncode == 0
            return hearing.series(), dict(relay.spans)


def _is_all_heard(hearing: Hearing, relay: WatchedRelay) -> bool:
    """Every call of an upload that was completed."""
    expected = Counter({api: len(of_api) for api, of_api in relay.spans.items() if api in _APIS.values()})
    told = Counter({series.key.api: series.call_count for series in hearing.series()})
    return "CompleteMultipartUpload" in expected and told >= expected


def _covered_seconds(spans: list[tuple[float, float]]) -> float:
    """With at least one in flight."""
    covered, until = 0.0, float("-inf")
    for began, ended in sorted(spans):
        covered += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return covered
