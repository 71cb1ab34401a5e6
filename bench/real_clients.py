r"""Knows how clients that others wrote upload and download with given threads and sizes: a process for each.

    python -m bench.real_clients boto3|aiobotocore|s5cmd|rclone|aws --endpoint-url URL --region REGION \
        --bucket NAME --folder FOLDER [--program PATH]

carries out one `Job` for each line of JSON on standard input and prints a `Report` as a line. A client's options are
those that `penstock export` prints for it. Each transfer overwrites the one before, so that server and local folder
never hold more than one transfer's objects.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import msgspec

from penstock.client.operations import S3_DOWNLOAD
from penstock.client.targets import launch
from penstock.client.targets.table import TARGETS
from penstock.client.targets.target import APPLICATION, Translation, translate
from penstock.units import MiB


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to move, and how. A client that is not told uses its defaults."""

    thread_count: int
    request_size_bytes: int  # of a part, or of a range
    object_size_bytes: int
    object_count: int = 1
    is_told: bool = True
    operation: str = "s3_upload"

    @property
    def is_reading(self) -> bool:
        """Whether it is a download."""
        return self.operation == S3_DOWNLOAD

    @property
    def prefix(self) -> str:
        """The prefix of objects to download."""
        return f"{self.object_size_bytes}x{self.object_count}/"

    @property
    def keys(self) -> list[str]:
        """Keys below the prefix."""
        return [f"{index:05d}" for index in range(self.object_count)]

    @property
    def transferred_bytes(self) -> int:
        """The bytes of all objects."""
        return self.object_size_bytes * self.object_count

    @property
    def part_count(self) -> int:
        """Parts of one object; 1 is a single PUT."""
        return max(1, ceil(self.object_size_bytes / self.request_size_bytes))

    def translated(self, target: str) -> Translation:
        """The setting as exported for a target."""
        size_knob = "range_size_bytes" if self.is_reading else "part_size_bytes"
        document = {
            "payload_size_bytes": self.object_size_bytes,
            "setting": {"thread_count": self.thread_count, size_knob: self.request_size_bytes},
            "derived": {"connection_pool_count": self.thread_count + 1},
            "demand": {"object_count": self.object_count},
        }
        return translate(TARGETS[f"{target}-download" if self.is_reading else target], document)

    def options(self, target: str) -> dict[str, dict[str, Any]]:
        """The same options by group; empty groups for a client that is not told."""
        groups = self.translated(target).groups()
        return groups if self.is_told else {group: {} for group in groups}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result."""

    duration_seconds: float
    throttled_count: int = 0  # answers of 503, including retried ones
    failed_count: int = 0  # objects that did not arrive


def body_of(index: int, size_bytes: int) -> bytes:
    """The content of the object with this number: a random mebibyte, repeated."""
    block = random.Random(index).randbytes(min(size_bytes, MiB))
    return (block * ceil(size_bytes / len(block)))[:size_bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The place of the objects, and local folders."""

    endpoint_url: str
    region: str
    bucket: str
    folder: Path
    program: str = ""


@dataclass(slots=True, eq=False)  # aiobotocore hashes its listeners
class _Answers:
    """Counts refusals that a client's retries would hide."""

    throttled_count: int = 0

    def __call__(self, response_dict: Mapping[str, Any] | None = None, **_: object) -> None:
        if response_dict is not None and response_dict["status_code"] == 503:
            self.throttled_count += 1


@dataclass(slots=True)
class _Files:
    """Files to upload, made once for each size and number, and a folder for downloads."""

    folder: Path
    _made: dict[tuple[int, int], list[Path]] = field(default_factory=dict)

    def home_of(self, job: Job) -> Path:
        """The folder for downloads. Earlier files stay, and are overwritten."""
        home = self.folder / "downloaded" / job.prefix
        home.mkdir(parents=True, exist_ok=True)
        return home

    def of(self, job: Job) -> list[Path]:
        key = (job.object_size_bytes, job.object_count)
        if key not in self._made:
            home = self.folder / f"{key[0]}x{key[1]}"
            home.mkdir()
            self._made[key] = [home / f"{index:05d}" for index in range(job.object_count)]
            for index, file in enumerate(self._made[key]):
                file.write_bytes(body_of(index, job.object_size_bytes))
        return self._made[key]


_WRITING = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
"""Checksums only where S3 requires them, as over TLS, where neither SDK hashes a body. Reading keeps its default:
without validation, boto3 finds out the size by the first range, which it then reads alone."""


def _config(told: Mapping[str, Any], checksums: Mapping[str, str]) -> dict[str, Any]:
    return {**told, **checksums, "s3": {"addressing_style": "path", "payload_signing_enabled": False}}


def boto3(target: Target, files: _Files, job: Job) -> Report:
    """Its transfer manager, or a pool of threads for many objects; default retries."""
    from boto3 import exceptions
    from boto3.s3.transfer import TransferConfig
    from botocore.exceptions import BotoCoreError, ClientError

    options = job.options("boto3")
    client, answers = _boto3_client(target, _config(options["Config"], {} if job.is_reading else _WRITING))
    transfer = TransferConfig(**options["TransferConfig"])

    def send(file: Path) -> None:
        client.upload_file(str(file), target.bucket, file.name, Config=transfer)

    def fetch(file: Path) -> None:
        client.download_file(target.bucket, job.prefix + file.name, str(file), Config=transfer)

    def is_moved(file: Path) -> bool:
        try:
            (fetch if job.is_reading else send)(file)
        except (BotoCoreError, ClientError, exceptions.S3UploadFailedError):
            return False
        return file.stat().st_size == job.object_size_bytes

    objects = [files.home_of(job) / key for key in job.keys] if job.is_reading else files.of(job)
    started = time.perf_counter()
    with ThreadPoolExecutor(min(len(objects), options[APPLICATION].get("object_concurrency", 10))) as threads:
        arrived_count = sum(threads.map(is_moved, objects))
    return Report(
        duration_seconds=time.perf_counter() - started,
        throttled_count=answers.throttled_count,
        failed_count=len(objects) - arrived_count,
    )


def _boto3_client(target: Target, arguments: Mapping[str, Any]) -> tuple[Any, _Answers]:
    """A client with this configuration, and the count of its refusals."""
    import boto3 as sdk
    from botocore.config import Config

    answers, config = _Answers(), Config(**arguments)
    client = sdk.client("s3", region_name=target.region, endpoint_url=target.endpoint_url, config=config)
    client.meta.events.register("response-received.s3", answers)
    return client, answers


def aiobotocore(target: Target, files: _Files, job: Job) -> Report:
    """As asyncio applications do it: a semaphore around parts or objects; by default with boto3's numbers."""
    return asyncio.run(_upload_with_aiobotocore(target, files, job))


async def _upload_with_aiobotocore(target: Target, files: _Files, job: Job) -> Report:
    from aiobotocore.config import AioConfig
    from aiobotocore.session import AioSession
    from botocore.exceptions import BotoCoreError, ClientError

    answers, bodies = _Answers(), [(file.name, file.read_bytes()) for file in files.of(job)]
    options = job.options("aiobotocore")
    told = options[APPLICATION] or _UNTOLD
    room = asyncio.Semaphore(told["object_concurrency"] * told["part_concurrency"])
    opening = AioSession().create_client(
        "s3",
        region_name=target.region,
        endpoint_url=target.endpoint_url,
        config=AioConfig(**_config(options["AioConfig"], _WRITING)),
    )
    async with opening as client:
        client.meta.events.register("response-received.s3", answers)

        async def send(key: str, body: bytes) -> bool:
            try:
                if len(body) >= told["multipart_threshold_bytes"]:
                    place = {"Bucket": target.bucket, "Key": key}
                    await _send_parts(client, place, body, told["part_size_bytes"], room)
                else:
                    async with room:
                        await client.put_object(Bucket=target.bucket, Key=key, Body=io.BytesIO(body))
            except (BotoCoreError, ClientError):
                return False
            return True

        started = time.perf_counter()
        arrived = await asyncio.gather(*(send(key, body) for key, body in bodies))
        seconds = time.perf_counter() - started
    return Report(
        duration_seconds=seconds,
        throttled_count=answers.throttled_count,
        failed_count=len(bodies) - sum(arrived),
    )


async def _send_parts(
    client: Any, place: Mapping[str, str], body: bytes, size: int, room: asyncio.Semaphore
) -> None:
    upload = {**place, "UploadId": (await client.create_multipart_upload(**place))["UploadId"]}

    async def send(number: int, start: int) -> dict[str, Any]:
        async with room:
            part = io.BytesIO(body[start : start + size])
            answer = await client.upload_part(**upload, PartNumber=number, Body=part)
        return {"PartNumber": number, "ETag": answer["ETag"]}

    starts = enumerate(range(0, len(body), size), start=1)
    parts = await asyncio.gather(*(send(number, start) for number, start in starts))
    await client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})


def s5cmd(target: Target, files: _Files, job: Job) -> Report:
    """A new process for each transfer."""
    command = ["s5cmd", "--log", "debug", "--endpoint-url", target.endpoint_url, "cp"]
    there = f"s3://{target.bucket}/"
    if job.is_reading:
        return _run(target, [*command, f"{there}{job.prefix}*", f"{files.home_of(job)}/"], job, {})
    return _run(target, [*command, f"{files.of(job)[0].parent}/*", there], job, {})


def rclone(target: Target, files: _Files, job: Job) -> Report:
    """A new process for each transfer, with options in its environment; the remote is on its command line."""
    there = (
        f":s3,provider=Other,env_auth,endpoint='{target.endpoint_url}',region={target.region}:{target.bucket}"
    )
    command = ["rclone", "copy", "--config", os.devnull, "--s3-no-check-bucket", "--ignore-times", "-vv"]
    if job.is_reading:
        return _run(target, [*command, f"{there}/{job.prefix}", str(files.home_of(job))], job, {})
    return _run(target, [*command, str(files.of(job)[0].parent), there], job, {})


def aws(target: Target, files: _Files, job: Job) -> Report:
    """A new process for each upload, with a configuration of its own."""
    configuration = target.folder / "aws-config"
    configuration.write_text("")
    url = ["--endpoint-url", target.endpoint_url]
    source = f"{files.of(job)[0].parent}/"
    command = ["aws", *url, "s3", "cp", "--recursive", "--only-show-errors", source, f"s3://{target.bucket}/"]
    return _run(target, command, job, {"AWS_CONFIG_FILE": str(configuration)})


def _run(target: Target, command: list[str], job: Job, environment: Mapping[str, str]) -> Report:
    """Time a program from start to end; when told, with its command changed as by `penstock exec`."""
    program, environment = launch.PROGRAMS[command[0]], dict(environment)
    verb = program.verb_at(command)
    if job.is_told and verb is not None:
        changed = program.apply(command, verb, environment, job.translated(program.target))
        command = list(changed.command)
        environment |= changed.environment
        if changed.aws_settings:
            text = launch.with_aws_settings("", "default", changed.aws_settings)
            Path(environment["AWS_CONFIG_FILE"]).write_text(text)
    started = time.perf_counter()
    ended = subprocess.run(
        [target.program or command[0], *command[1:]],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    said = (ended.stdout + ended.stderr).splitlines()
    failed_count = sum(line.startswith("ERROR") or "upload failed" in line for line in said)
    return Report(
        duration_seconds=seconds,
        throttled_count=sum("SlowDown" in line and any(word in line for word in _RETRIES) for line in said),
        failed_count=min(max(failed_count, 1), job.object_count) if ended.returncode != 0 else 0,
    )


_RETRIES = ("retryable error", "pacer: low level retry")
"""As s5cmd and rclone log them; the AWS CLI does not."""

_UNTOLD = {
    "object_concurrency": 1,
    "part_concurrency": 10,
    "part_size_bytes": 8 * MiB,
    "multipart_threshold_bytes": 8 * MiB,
}
"""boto3's defaults, for the one client without a transfer manager."""

# aiobotocore and the AWS CLI only upload here.
CLIENTS: Mapping[str, Callable[[Target, _Files, Job], Report]] = {
    "boto3": boto3,
    "aiobotocore": aiobotocore,
    "s5cmd": s5cmd,
    "rclone": rclone,
    "aws": aws,
}


def main() -> int:
    """One job after another, until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m bench.real_clients", description="Move as told.")
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--endpoint-url", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--folder", type=Path, required=True, help="an empty one, for the files")
    parser.add_argument("--program", default="", help="where the program is, when it is not on the path")
    parsed = vars(parser.parse_args())
    name, target = parsed.pop("client"), Target(**parsed)
    files = _Files(target.folder)
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line, type=Job)
        report = CLIENTS[name](target, files, job)
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
