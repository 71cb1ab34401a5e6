"""Knows a real S3 server behind a shaped link, and clients that others wrote as processes on this side of it.

Each transfer, and all of them together, are bounded; each benchmark decides what to compare.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from select import select
from typing import IO, Any, cast

import msgspec

from bench.real_clients import Job, Report, body_of
from bench.surfaces import UPLOADING, BenchSetting, Limits, Transfer
from penstock.client.targets.unadvised import unadvised_settings
from penstock.lab.link import LinkTruth
from penstock.lab.worlds import NEAR, World
from penstock.trial.stage import CREDENTIALS, lab_endpoint
from penstock.units import MiB
from penstock.vocabulary import UNKNOWN, Context, Observation, Place
from tests.real import provision, servers

_TRANSFER_SECONDS_MAX = 90.0
BUCKET = "links"
_THREAD_COUNT_MAX = 32
_REST_SECONDS = 0.3  # before a transfer if requests are limited, so that the limit recovers
# aiobotocore has a pool of ten connections but no transfer manager; its part size here is boto3's.
_SAME_AS = {"aiobotocore": "boto3", "aws": "AWS CLI"}
PROGRAMS = {"s5cmd": provision.s5cmd, "rclone": provision.rclone, "aws": provision.aws_cli}
"""Clients that are programs, and the function that builds each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedLink:
    """A path, and what is moved over it."""

    name: str
    story: str
    truth: LinkTruth
    object_size_bytes: int = 48 * MiB
    object_count: int = 1
    transfer: Transfer = UPLOADING
    request_counts: Sequence[int] = (10, 8, 6, 4, 3, 2)  # into which the object is cut
    # Those that do not exceed the number of requests.
    thread_counts: Sequence[int] = (2, 3, 4, 6, 8, 10)

    @property
    def limits(self) -> Limits:
        """What the optimizer may use."""
        low = self.transfer.request_size_bytes_low
        if self.transfer is not UPLOADING:
            low = min(low, self.object_size_bytes)
        return Limits(
            object_size_bytes=self.object_size_bytes,
            thread_count_max=_THREAD_COUNT_MAX,
            part_size_bytes_min=low,
            part_size_bytes_max=max(self.object_size_bytes, low),
            transfer=self.transfer,
        )

    @property
    def grid(self) -> list[BenchSetting]:
        """Every thread count that makes a difference, with every request count; and a single request."""
        setting = self.transfer.setting
        if self.object_count > 1:
            return [self.whole(n) for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)]
        settings = [setting(1, self.object_size_bytes)]
        for request_count in self.request_counts:
            size = ceil(self.object_size_bytes / request_count / MiB) * MiB
            settings += [setting(n, size) for n in self.thread_counts if n <= request_count]
        return settings

    def whole(self, thread_count: int) -> BenchSetting:
        """This many threads, each with a small object of its own."""
        return self.transfer.setting(thread_count, self.limits.part_size_bytes_min)

    def unadvised(self, client: str) -> BenchSetting:
        """A client's default setting; recorded only, since the client is run without options."""
        known = unadvised_settings(self.transfer.operation, self.object_size_bytes)
        threads, request_size_bytes = map(int, known[_SAME_AS.get(client, client)].values())
        if self.object_count > 1:
            return self.whole(threads)
        return self.transfer.setting(threads, request_size_bytes)

    @property
    def context(self) -> Context:
        """The context for the model."""
        place = Place(operation=self.transfer.operation, region=self.name, instance_type=UNKNOWN)
        return Context(place=place, payload_size_bytes=self.object_size_bytes)

    def job(self, setting: BenchSetting) -> Job:
        """One transfer with this setting."""
        return Job(
            thread_count=setting.thread_count,
            request_size_bytes=setting.request_size_bytes,
            object_size_bytes=self.object_size_bytes,
            object_count=self.object_count,
            operation=self.transfer.operation,
        )


class NotMeasuredError(RuntimeError):
    """A bound was reached or a client failed; the message says which."""


@dataclass(slots=True)
class Purse:
    """What may still be spent; checked before every transfer."""

    bytes_left: int
    seconds_max: float
    began_seconds: float

    def spend(self, size_bytes: int) -> None:
        """Spend these bytes. Raises NotMeasuredError if that is too much."""
        if size_bytes > self.bytes_left:
            raise NotMeasuredError("the bytes of this benchmark are spent")
        if time.monotonic() - self.began_seconds > self.seconds_max:
            raise NotMeasuredError("the time of this benchmark is over")
        self.bytes_left -= size_bytes


class Client:
    """One client process on one link."""

    def __init__(
        self, name: str, link: ShapedLink, command: Sequence[str], *, log: Path, purse: Purse
    ) -> None:
        self.name = name
        self.link = link
        self.moved_bytes = 0
        self._purse = purse
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, **CREDENTIALS, "AWS_REGION": servers.REGION},
            )
        self._jobs = cast("IO[bytes]", self._process.stdin)
        self._reports = cast("IO[bytes]", self._process.stdout)

    def move(self, setting: BenchSetting, *, is_told: bool = True) -> Observation[BenchSetting]:
        """Upload or download once; if not told, the setting is only recorded. Raises NotMeasuredError."""
        job = msgspec.structs.replace(self.link.job(setting), is_told=is_told)
        self._purse.spend(job.transferred_bytes)
        self.moved_bytes += job.transferred_bytes
        if self.link.truth.prefix_request_rate_per_second is not None:
            time.sleep(_REST_SECONDS)
        started_at = datetime.now(UTC)
        report = self._carry_out(job)
        arrived = self.link.object_count - min(report.failed_count, self.link.object_count)
        return Observation(
            context=self.link.context,
            setting=setting,
            started_at=started_at,
            duration_seconds=report.duration_seconds,
            transferred_bytes=arrived * self.link.object_size_bytes,
            request_count=job.part_count * job.object_count + report.throttled_count,
            throttled_count=report.throttled_count,
            failed_count=report.failed_count,
            # A probe without a client's name: the optimizer chose it, and the fit is about this client.
        )

    def close(self) -> None:
        """End the process."""
        self._jobs.close()
        self._process.terminate()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reports.close()

    def _carry_out(self, job: Job) -> Report:
        with contextlib.suppress(BrokenPipeError):
            self._jobs.write(msgspec.json.encode(job) + b"\n")
            self._jobs.flush()
        if not select([self._reports], [], [], _TRANSFER_SECONDS_MAX)[0]:
            raise NotMeasuredError(f"{self.name} did not end {job} within {_TRANSFER_SECONDS_MAX:.0f} s")
        line = self._reports.readline()
        if not line:
            raise NotMeasuredError(f"{self.name} ended: {self._log.read_text()[-300:].strip()}")
        return msgspec.json.decode(line, type=Report)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The server at a link's end, and a folder for what is needed to reach it."""

    server: str
    url: str
    directory: Path
    direct_url: str = ""  # bypasses the link


@contextlib.contextmanager
def _minio(directory: Path) -> Iterator[str]:
    with servers.minio_server(directory) as running:
        yield running.url


SERVERS: Mapping[str, Callable[[Path], contextlib.AbstractContextManager[str]]] = {
    "versitygw": servers.s3_server,
    "minio": _minio,
}


@contextlib.contextmanager
def end_of(link: ShapedLink, directory: Path, server: str = "versitygw") -> Iterator[End]:
    """A real server at the end of the link, or the lab's own S3 if it cannot be built."""
    with contextlib.ExitStack() as stage:
        try:
            direct = stage.enter_context(SERVERS[server](directory))
            url = stage.enter_context(servers.at_the_end_of(link.truth, direct, directory))
            found = End(server=server, url=url, directory=directory, direct_url=direct)
        except (provision.ToolMissingError, provision.BuildError) as trouble:
            print(f"  no real server ({trouble}); instead the lab's own", flush=True)
            world = World(name=link.name, story=link.story, link=link.truth, queue=NEAR.queue)
            direct = stage.enter_context(lab_endpoint("s3", world, directory))
            found = End(server="lab", url=direct, directory=directory, direct_url=direct)
        client = servers.plain_client("s3", direct)
        client.create_bucket(Bucket=BUCKET)
        if link.transfer is not UPLOADING:
            put_what_is_read(client, link)
        yield found


def put_what_is_read(client: Any, link: ShapedLink) -> None:
    """Put what downloads need, under the names in a client's job."""
    job = link.job(link.grid[0])
    for index, key in enumerate(job.keys):
        body = body_of(index, link.object_size_bytes)
        client.put_object(Bucket=BUCKET, Key=job.prefix + key, Body=body)


def begun(name: str, link: ShapedLink, end: End, purse: Purse) -> Client:
    """A client's process, with a folder of its own. Raises NotMeasuredError if the program is missing."""
    folder = end.directory / f"{name}-files"
    folder.mkdir()
    command = [sys.executable, "-m", "bench.real_clients", name, "--endpoint-url", end.url]
    command += ["--region", servers.REGION, "--bucket", BUCKET, "--folder", str(folder)]
    if name in PROGRAMS:
        try:
            command += ["--program", str(PROGRAMS[name]())]
        except (provision.ToolMissingError, provision.BuildError) as trouble:
            raise NotMeasuredError(str(trouble)) from trouble
    return Client(name, link, command, log=end.directory / f"{name}.log", purse=purse)
