"""Knows how boto3, s5cmd, rclone and the AWS CLI are told threads and part size: ready-made commands to be tuned.

    python -m penstock.trial.tuning_clients s5cmd --bucket my-bucket [--endpoint-url URL] [--region REGION]

reads one proposal from standard input, uploads a generated file with the real client, removes what it uploaded, and
prints what it measured. Credentials come from where the client itself finds them. An object that is too small for
parts is uploaded many times over, because then threads are objects in flight.
"""

from __future__ import annotations

import argparse
import configparser
import contextlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from penstock.trial.interruption import held_off
from penstock.units import MiB

_SMALL_BYTES = 5 * MiB  # up to here S3 takes no parts
_SMALL_OBJECTS_PER_THREAD = 4
_SINGLE_PUT_BYTES_MAX = 5 * 1024 * MiB
_PREFIX = "penstock-tune/"
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_REMOVAL_COUNT_MAX = 16
_ABORT_ROUND_COUNT = 2  # a request that was under way when its client ended may still begin an upload


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to upload to."""

    bucket: str
    endpoint_url: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """One proposal, made concrete: the files of a folder, to be put under a prefix of their own."""

    target: Target
    folder: Path
    prefix: str
    thread_count: int
    part_size_bytes: int
    file_size_bytes: int
    file_count: int

    @property
    def url(self) -> str:
        """The destination as S3 clients write it."""
        return f"s3://{self.target.bucket}/{self.prefix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one upload took."""

    duration_seconds: float
    throttled_count: int = 0


class ClientError(RuntimeError):
    """The client is missing or failed; the message says so in a sentence."""


class NothingSentError(ClientError):
    """The client failed before anything arrived: there is nothing to remove."""


def boto3(upload: Upload) -> Measured:
    """The classic transfer manager: the one that obeys both knobs. 503s are counted, also those that it retries.

    It runs in a process of its own, because an upload by it can be ended only with its process.
    """
    try:
        measured = _uploaded_by_boto3(upload)
    except NothingSentError:
        raise
    except BaseException:
        _abort_unfinished(upload)
        try:
            _remove_objects(upload)
        except ClientError as trouble:
            print(trouble, file=sys.stderr)  # noqa: T201
        raise
    _remove_objects(upload)
    return measured


def s5cmd(upload: Upload) -> Measured:
    """Workers are files at a time; concurrency is parts at a time of each; parts are whole MiB.

    It tells of a retry on the level "debug" alone.
    """
    where = ["--endpoint-url", upload.target.endpoint_url] if upload.target.endpoint_url else []
    program = ["s5cmd", "--log", "debug", *where]
    copy = [
        *("--numworkers", str(upload.thread_count if upload.file_count > 1 else 1)),
        *("cp", "--concurrency", str(upload.thread_count if upload.file_count == 1 else 1)),
        *("--part-size", str(max(5, ceil(upload.part_size_bytes / MiB)))),
        *(f"{upload.folder}/*", upload.url),
    ]
    return _timed(upload, [*program, *copy], [*program, "rm", f"{upload.url}*"], _region(upload))


def rclone(upload: Upload) -> Measured:
    """A remote that is written on the command line; credentials from the environment.

    It tells of a retry on the level "debug" alone.
    """
    target = upload.target
    options = [
        *("--s3-env-auth", "--s3-no-check-bucket", "--config", os.devnull),
        *("--s3-provider", "Other" if target.endpoint_url else "AWS"),
        *(("--s3-endpoint", target.endpoint_url) if target.endpoint_url else ()),
        *(("--s3-region", target.region) if target.region else ()),
        *("--log-level", "DEBUG"),
    ]
    remote = f":s3:{target.bucket}/{upload.prefix}"
    copy = [
        *("rclone", "copy", str(upload.folder), remote, *options),
        *("--transfers", str(upload.thread_count if upload.file_count > 1 else 1)),
        *("--s3-upload-concurrency", str(upload.thread_count)),
        *("--s3-chunk-size", f"{upload.part_size_bytes}B"),
        *("--s3-upload-cutoff", f"{min(upload.part_size_bytes, _SINGLE_PUT_BYTES_MAX)}B"),
    ]
    return _timed(upload, copy, ["rclone", "delete", remote, *options], {})


def aws(upload: Upload) -> Measured:
    """`aws s3 cp`, with a copy of your own configuration in which the transfer settings are set."""
    where = ["--endpoint-url", upload.target.endpoint_url] if upload.target.endpoint_url else []
    configuration = _aws_configuration(upload, os.environ)
    with tempfile.NamedTemporaryFile("w", prefix="penstock-aws-", encoding="utf-8") as file:
        configuration.write(file)
        file.flush()
        environment = {"AWS_CONFIG_FILE": file.name} | _region(upload)
        copy = ["aws", "s3", "cp", "--recursive", "--only-show-errors", str(upload.folder), upload.url]
        remove = ["aws", "s3", "rm", "--recursive", "--only-show-errors", upload.url]
        return _timed(upload, [*copy, *where], [*remove, *where], environment)


CLIENTS: Mapping[str, Callable[[Upload], Measured]] = {
    "boto3": boto3,
    "s5cmd": s5cmd,
    "rclone": rclone,
    "aws": aws,
}


def command_line(client: str, target: Target) -> str:
    """What runs this file for a client, as a line for the shell."""
    options = {
        "--bucket": target.bucket,
        "--endpoint-url": target.endpoint_url,
        "--region": target.region,
    }
    words = [word for name, value in options.items() if value is not None for word in (name, value)]
    return shlex.join([sys.executable, "-m", "penstock.trial.tuning_clients", client, *words])


def what_is_missing(client: str) -> str | None:
    """One sentence when the client is not installed here."""
    if client == "boto3":
        found: object = importlib.util.find_spec("boto3")
        advice = "install it into penstock's environment (`pip install 'penstock[demo]'`)"
    else:
        found, advice = shutil.which(client), "install it, or put it on the PATH"
    return None if found else f"{client} is not installed here: {advice}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one proposal; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m penstock.trial.tuning_clients",
        description="Upload a generated file as a line of JSON on standard input proposes, and measure.",
    )
    parser.add_argument("client", choices=sorted(CLIENTS))
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--endpoint-url")
    parser.add_argument("--region")
    given = parser.parse_args(arguments)
    for number in _ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as below nohup
            signal.signal(number, _leave)
    if (missing := what_is_missing(given.client)) is not None:
        print(missing, file=sys.stderr)  # noqa: T201  # this is a command
        return 1
    target = Target(bucket=given.bucket, endpoint_url=given.endpoint_url, region=given.region)
    try:
        report = carry_out(given.client, target, json.loads(sys.stdin.readline()))
    except ClientError as trouble:
        print(trouble, file=sys.stderr)  # noqa: T201
        return 1
    print(json.dumps(report))  # noqa: T201
    return 0


def carry_out(client: str, target: Target, proposal: Mapping[str, int]) -> dict[str, float]:
    """Make the files, upload them, remove them; what was measured."""
    size, threads = proposal["object_size_bytes"], proposal["thread_count"]
    count = 1 if size > _SMALL_BYTES else _SMALL_OBJECTS_PER_THREAD * threads
    with _folder_of_files(size, count) as folder:
        upload = Upload(
            target=target,
            folder=folder,
            prefix=f"{_PREFIX}{uuid.uuid4()}/",
            thread_count=threads,
            part_size_bytes=proposal["part_size_bytes"],
            file_size_bytes=size,
            file_count=count,
        )
        measured = CLIENTS[client](upload)
    return {
        "transferred_bytes": size * count,
        "duration_seconds": measured.duration_seconds,
        "throttled_count": measured.throttled_count,
    }


@contextlib.contextmanager
def _folder_of_files(size_bytes: int, count: int) -> Iterator[Path]:
    """Files of random bytes, written out to the disk before anything is timed; small ones are links to one."""
    with tempfile.TemporaryDirectory(prefix="penstock-tune-") as directory:
        folder = Path(directory) / "files"
        folder.mkdir()
        first = folder / "000000"
        block = os.urandom(min(MiB, size_bytes))
        with first.open("wb") as file:
            for _ in range(size_bytes // len(block)):
                file.write(block)
            file.write(block[: size_bytes % len(block)])
            file.flush()
            os.fsync(file.fileno())
        for number in range(1, count):
            os.link(first, folder / f"{number:06}")
        yield folder


def _timed(
    upload: Upload, copy: Sequence[str], remove: Sequence[str], environment: Mapping[str, str]
) -> Measured:
    """Time the client's own command, as its user would wait for it; what it uploaded goes whatever happens."""
    whole_environment = {**os.environ, **environment}
    try:
        started = time.perf_counter()
        throttled_count = _run(copy, whole_environment)
        return Measured(duration_seconds=time.perf_counter() - started, throttled_count=throttled_count)
    except BaseException:
        _abort_unfinished(upload)
        raise
    finally:
        with contextlib.suppress(ClientError):
            _run(remove, whole_environment)


def _abort_unfinished(upload: Upload) -> None:
    """Abort the multipart uploads that an interrupted client left, with the SDK: the clients cannot."""
    from botocore.exceptions import BotoCoreError
    from botocore.exceptions import ClientError as RefusedError

    target = upload.target
    try:
        client = _sdk_client(target)
        for _ in range(_ABORT_ROUND_COUNT):
            listing = client.list_multipart_uploads(Bucket=target.bucket, Prefix=upload.prefix)
            for unfinished in listing.get("Uploads", []):
                key, upload_id = unfinished["Key"], unfinished["UploadId"]
                client.abort_multipart_upload(Bucket=target.bucket, Key=key, UploadId=upload_id)
    except (BotoCoreError, RefusedError) as trouble:
        print(f"An unfinished upload may be left under {upload.url}: {trouble}", file=sys.stderr)  # noqa: T201


def _uploaded_by_boto3(upload: Upload) -> Measured:
    wanted = asdict(upload.target) | {
        "folder": str(upload.folder),
        "prefix": upload.prefix,
        "thread_count": upload.thread_count,
        "part_size_bytes": upload.part_size_bytes,
    }
    command = [sys.executable, "-m", "penstock.trial.tuning_boto3"]
    with _started(command, os.environ, stdin=subprocess.PIPE) as running:
        said, _ = running.communicate(json.dumps(wanted) + "\n")
    if running.returncode != 0:
        raise ClientError(f"boto3 ended with status {running.returncode}")
    told = json.loads(said)
    if "trouble" in told:
        raise (ClientError if told["has_begun"] else NothingSentError)(told["trouble"])
    return Measured(**told)


def _remove_objects(upload: Upload) -> None:
    """Remove what may have been uploaded, several at a time. Raises ClientError, for what is left must be known."""
    from botocore.exceptions import BotoCoreError
    from botocore.exceptions import ClientError as RefusedError

    keys = [upload.prefix + file.name for file in upload.folder.iterdir()]
    try:
        client = _sdk_client(upload.target)
        with ThreadPoolExecutor(_REMOVAL_COUNT_MAX) as pool:
            list(pool.map(lambda key: client.delete_object(Bucket=upload.target.bucket, Key=key), keys))
    except (BotoCoreError, RefusedError) as trouble:
        raise ClientError(f"what was uploaded may be left under {upload.url}: {trouble}") from trouble


def _sdk_client(target: Target) -> Any:  # botocore has no types
    """For cleaning up, which must not take long."""
    import botocore.session
    from botocore.config import Config

    style = {"addressing_style": "path"} if target.endpoint_url else {}
    config = Config(
        s3=style,
        connect_timeout=2,
        read_timeout=3,
        retries={"total_max_attempts": 2},
        max_pool_connections=_REMOVAL_COUNT_MAX,
    )
    return botocore.session.get_session().create_client(
        "s3", region_name=target.region, endpoint_url=target.endpoint_url, config=config
    )


_RETRY = re.compile(r"retryable error|pacer: low level retry")  # in the words of s5cmd and of rclone
_REFUSAL = re.compile(r"SlowDown|ServiceUnavailable|Throttl|RequestLimitExceeded|\b503\b")
_CHATTER = re.compile(r"^(DEBUG|cp|rm) |^\s+status code: |\b(DEBUG|INFO) *:")  # in theirs, too


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """How many of its requests it says were throttled. What else it says that matters goes to standard error."""
    throttled_count = 0
    with _started(command, environment, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if _RETRY.search(line) and _REFUSAL.search(line):
                throttled_count += 1
            elif not _CHATTER.search(line):
                sys.stderr.write(line)
    if running.returncode != 0:
        raise ClientError(f"{command[0]} ended with status {running.returncode}")
    return throttled_count


@contextlib.contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str], *, stdin: int, stderr: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A client that is waited for; it is told to end when the block is broken off."""
    running = None
    try:
        with held_off():
            running = subprocess.Popen(  # noqa: S603  # a client of the table above, or a file beside this one
                command,
                env=dict(environment),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                errors="replace",
            )
        yield running
    except BaseException:
        if running:
            running.terminate()
        raise
    finally:
        if running:
            with running:  # closes what is open, and waits
                pass


def _region(upload: Upload) -> dict[str, str]:
    return (
        {"AWS_REGION": upload.target.region, "AWS_DEFAULT_REGION": upload.target.region}
        if upload.target.region
        else {}
    )


def _aws_configuration(upload: Upload, environment: Mapping[str, str]) -> configparser.RawConfigParser:
    """The user's own, with the profile's transfer settings replaced."""
    configuration = configparser.RawConfigParser(default_section="no section has defaults for the others")
    configuration.read(Path(environment.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser())
    profile = environment.get("AWS_PROFILE", "default")
    section = "default" if profile == "default" else f"profile {profile}"
    if not configuration.has_section(section):
        configuration.add_section(section)
    settings = {
        "max_concurrent_requests": upload.thread_count,
        "multipart_chunksize": upload.part_size_bytes,
        "multipart_threshold": upload.part_size_bytes + 1,
        "preferred_transfer_client": "classic",  # the other one ignores the number of threads
    }
    if upload.target.endpoint_url:
        settings["addressing_style"] = "path"
    lines = [f"{name} = {value}" for name, value in settings.items()]
    configuration.set(section, "s3", "\n" + "\n".join(lines))
    return configuration


def _leave(_signal_number: int, _frame: FrameType | None) -> NoReturn:
    """Leave through every `finally` on the way: what was uploaded is removed. Being asked twice changes nothing."""
    for number in _ENDING_SIGNALS:
        signal.signal(number, lambda *_: None)
    sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
