"""Knows how boto3, s5cmd, rclone and the AWS CLI are given threads and sizes: ready-made commands to be tuned.

    python -m penstock.tuning.clients s5cmd --bucket my-bucket [--endpoint-url URL] [--region REGION]

reads one proposal from standard input, uploads a generated file with the real client, removes what it uploaded, and
prints what it measured. A proposal with a range size is for a download: the file is first uploaded without timing, and
read back into another folder. Each client finds its credentials in its usual way. An object too small to be split is
moved many times, so that threads are objects in flight.
"""

from __future__ import annotations

import argparse
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
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import NoReturn

from penstock.client.targets import launch
from penstock.client.targets.advised import SINGLE_PUT_BYTES_MAX
from penstock.client.targets.table import TARGETS
from penstock.client.targets.target import translate
from penstock.models.s3.parts import PART_COUNT_MAX, PART_SIZE_BYTES_MIN, READ_WHOLE_BYTES_MAX
from penstock.probes.outside import RequestError
from penstock.processes.interruption import held_off
from penstock.tuning.remains import Remains, remove, write_note
from penstock.tuning.streams import steady_rate_per_second
from penstock.units import MiB

_PUTTING_THREAD_COUNT = 8  # to upload what is to be read back
_PUTTING_PART_BYTES = 16 * MiB
# Services admit a burst before they limit, and refused clients wait for half a second or more: fewer objects would
# measure these effects, and not the limit.
_SMALL_OBJECTS_MIN = 300
_SMALL_OBJECTS_PER_THREAD = 128
_SMALL_OBJECTS_MANY = 8192  # above this, only as many as give each thread the next number
_SMALL_OBJECTS_PER_MANY_THREADS = 32
_SMALL_OBJECTS_BYTES_MAX = 512 * MiB  # of all together, unless the minimum needs more
_SMALL_OBJECTS_PER_THREAD_MIN = 4
_PREFIX = "penstock-tune/"
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_REMOVAL_PAUSES_SECONDS = (0.5, 2.0)  # between attempts, after a run that worked


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to upload to."""

    bucket: str
    endpoint_url: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One proposal, made concrete: the files of a folder, to be uploaded under a prefix of their own.

    With `into`, they have been uploaded, and are to be read back into that folder.
    """

    target: Target
    folder: Path
    prefix: str
    thread_count: int
    request_size_bytes: int
    file_size_bytes: int
    file_count: int
    into: Path | None = None

    @property
    def url(self) -> str:
        """The destination as S3 clients write it."""
        return f"s3://{self.target.bucket}/{self.prefix}"

    @property
    def remains(self) -> Remains:
        """What may exist when it ends; small objects are not uploaded in parts."""
        return Remains(
            **asdict(self.target),
            prefix=self.prefix,
            file_names=tuple(sorted(file.name for file in self.folder.iterdir())),
            is_in_parts=self.file_size_bytes > PART_SIZE_BYTES_MIN,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The duration of one transfer, and if observed, when each file had arrived, in seconds from any origin."""

    duration_seconds: float
    throttled_count: int = 0
    file_seconds: Sequence[float] = ()


class ClientError(RuntimeError):
    """The client is missing or failed; the message says so in a sentence."""


class NothingSentError(ClientError):
    """The client failed before anything arrived, so there is nothing to remove."""


def boto3(transfer: Transfer) -> Measured:
    """The classic transfer manager, which obeys both knobs. Counts 503s, including retried ones.

    It runs in a process of its own, because only ending the process ends an upload.
    """
    wanted = json.dumps(asdict(transfer.target) | asdict(transfer), default=str)
    command = [sys.executable, "-m", "penstock.tuning.boto3_transfers"]
    with _started(command, os.environ, stdin=subprocess.PIPE) as running:
        said, _ = running.communicate(f"{wanted}\n")
    if running.returncode != 0:
        raise ClientError(f"boto3 ended with status {running.returncode}")
    told = json.loads(said)
    if "trouble" in told:
        raise (ClientError if told["has_begun"] else NothingSentError)(told["trouble"])
    return Measured(**told)


def s5cmd(transfer: Transfer) -> Measured:
    """It logs retries only at level "debug"."""
    into = transfer.into
    ways = [f"{transfer.url}*", f"{into}/"] if into else [f"{transfer.folder}/*", transfer.url]
    told = _told(["s5cmd", "--log", "debug", *_endpoint(transfer.target), "cp", *ways], transfer)
    return _timed(told.command, _region(transfer.target))


def rclone(transfer: Transfer) -> Measured:
    """A remote given on the command line, with credentials from the environment.

    It logs retries only at level "debug".
    """
    target, into = transfer.target, transfer.into
    remote = f":s3:{target.bucket}/{transfer.prefix}"
    command = [
        *("rclone", "copy", *((remote, str(into)) if into else (str(transfer.folder), remote))),
        *("--s3-env-auth", "--s3-no-check-bucket", "--config", os.devnull),
        *("--s3-provider", "Other" if target.endpoint_url else "AWS"),
        *(("--s3-endpoint", target.endpoint_url) if target.endpoint_url else ()),
        *(("--s3-region", target.region) if target.region else ()),
        *("--log-level", "DEBUG"),
    ]
    told = _told(command, transfer)
    return _timed(told.command, told.environment)


def aws(transfer: Transfer) -> Measured:
    """`aws s3 cp`, with a copy of the user's configuration that has the transfer settings."""
    into, where = transfer.into, _endpoint(transfer.target)
    ways = [transfer.url, str(into)] if into else [str(transfer.folder), transfer.url]
    copy = ["aws", "s3", "cp", "--recursive", "--only-show-errors", *ways, *where]
    settings = {**_told(copy, transfer).aws_settings, **({"addressing_style": "path"} if where else {})}
    with tempfile.NamedTemporaryFile("w", prefix="penstock-aws-", encoding="utf-8") as file:
        file.write(launch.aws_configuration(copy, os.environ, settings))
        file.flush()
        return _timed(copy, {"AWS_CONFIG_FILE": file.name} | _region(transfer.target))


def _told(command: Sequence[str], transfer: Transfer) -> launch.Launch:
    """The command with the proposal's options, as `penstock export` gives them; they override the environment."""
    threads, size, is_reading = transfer.thread_count, transfer.request_size_bytes, transfer.into is not None
    document = {
        "payload_size_bytes": transfer.file_size_bytes,
        "setting": {"thread_count": threads, "range_size_bytes" if is_reading else "part_size_bytes": size},
        "derived": {
            "connection_pool_count": threads + 1,
            "multipart_threshold_bytes": min(size + 1, SINGLE_PUT_BYTES_MAX),
        },
        "demand": {"object_count": transfer.file_count},
    }
    program = launch.PROGRAMS[command[0]]
    verb = program.verb_at(command)
    assert verb is not None
    target = TARGETS[program.download_target if is_reading else program.target]
    return program.apply(command, verb, {}, translate(target, document))


CLIENTS: Mapping[str, Callable[[Transfer], Measured]] = {
    "boto3": boto3,
    "s5cmd": s5cmd,
    "rclone": rclone,
    "aws": aws,
}


def command_line(client: str, target: Target) -> str:
    """The shell command that runs this file for a client; `noting` may be appended."""
    region = ["--region", target.region] if target.region else []
    words = ["--bucket", target.bucket, *_endpoint(target), *region]
    return shlex.join([sys.executable, "-m", "penstock.tuning.clients", client, *words])


def noting(folder: Path) -> str:
    """The option that names the folder for notes of what may be left."""
    return shlex.join(["--notes", str(folder)])


def what_is_missing(client: str) -> str | None:
    """A sentence if the client is not installed here; else None."""
    if client == "boto3":
        found: object = importlib.util.find_spec("boto3")
        advice = "install it into penstock's environment (`pip install 'penstock[demo]'`)"
    else:
        found, advice = shutil.which(client), "install it, or put it on the PATH"
    return None if found else f"{client} is not installed here: {advice}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one proposal; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m penstock.tuning.clients",
        description="Move a generated file as a line of JSON on standard input proposes, and measure.",
    )
    parser.add_argument("client", choices=sorted(CLIENTS))
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--endpoint-url")
    parser.add_argument("--region")
    parser.add_argument("--notes", type=Path, help="a folder for what could not be removed")
    given = parser.parse_args(arguments)
    for number in _ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
            signal.signal(number, _leave)
    if (missing := what_is_missing(given.client)) is not None:
        print(missing, file=sys.stderr)  # noqa: T201  # this is a command
        return 1
    target = Target(bucket=given.bucket, endpoint_url=given.endpoint_url, region=given.region)
    try:
        report = carry_out(given.client, target, json.loads(sys.stdin.readline()), given.notes)
    except ClientError as trouble:
        print(trouble, file=sys.stderr)  # noqa: T201
        return 1
    print(json.dumps(report))  # noqa: T201
    return 0


def small_object_count(size_bytes: int, thread_count: int) -> int:
    """How many unsplit objects a trial moves: enough to get past a service's initial burst."""
    usual = min(_SMALL_OBJECTS_PER_THREAD * thread_count, _SMALL_OBJECTS_MANY)
    wanted = max(usual, _SMALL_OBJECTS_PER_MANY_THREADS * thread_count, _SMALL_OBJECTS_MIN)
    affordable = _SMALL_OBJECTS_BYTES_MAX // max(size_bytes, 1)
    return max(min(wanted, affordable), _SMALL_OBJECTS_PER_THREAD_MIN * thread_count)


def carry_out(
    client: str, target: Target, proposal: Mapping[str, int], notes: Path | None = None
) -> dict[str, float]:
    """Make the files, move them, remove them; returns the measurement, even if they could not be removed.

    Notes of what may be left are written into the folder `notes`.
    """
    size, threads = proposal["object_size_bytes"], proposal["thread_count"]
    reads = "range_size_bytes" in proposal
    small = READ_WHOLE_BYTES_MAX if reads else PART_SIZE_BYTES_MIN
    count = 1 if size > small else small_object_count(size, threads)
    unique = str(uuid.uuid4())
    with _folder_of_files(size, count) as folder:
        upload = Transfer(
            target=target,
            folder=folder,
            prefix=f"{_PREFIX}{unique}/",
            thread_count=_PUTTING_THREAD_COUNT if reads else threads,
            request_size_bytes=(
                max(_PUTTING_PART_BYTES, ceil(size / PART_COUNT_MAX))
                if reads
                else proposal["part_size_bytes"]
            ),
            file_size_bytes=size,
            file_count=count,
        )
        note = write_note(upload.remains, notes or folder.parent, unique)
        move = partial(_put_and_read, client, proposal) if reads else CLIENTS[client]
        measured = _uploaded_and_removed(move, upload, note)
    report = {
        "transferred_bytes": size * count,
        "duration_seconds": measured.duration_seconds,
        "throttled_count": measured.throttled_count,
    }
    rate = steady_rate_per_second(measured.file_seconds, threads)
    if rate is not None and len(measured.file_seconds) == count:
        report["steady_throughput_bytes_per_second"] = rate * size
    return report


def _put_and_read(client: str, proposal: Mapping[str, int], upload: Transfer) -> Measured:
    """What reading took. Raises ClientError, also if not all bytes arrived."""
    CLIENTS[client](upload)
    into = upload.folder.with_name("read")
    into.mkdir()
    threads, size = proposal["thread_count"], proposal["range_size_bytes"]
    measured = CLIENTS[client](replace(upload, into=into, thread_count=threads, request_size_bytes=size))
    came = sum(file.stat().st_size for file in into.iterdir())
    if came != upload.file_size_bytes * upload.file_count:
        raise ClientError(f"{came} bytes came of {upload.file_size_bytes * upload.file_count}")
    return measured


def _uploaded_and_removed(client: Callable[[Transfer], Measured], upload: Transfer, note: Path) -> Measured:
    """Delete the note when nothing can be left; after a failed client it stays for one more attempt.

    An interrupted run may have little time, and no note names the local files, so these are deleted first.
    """
    remains = upload.remains
    try:
        measured = client(upload)
    except NothingSentError:
        note.unlink()
        raise
    except BaseException:
        shutil.rmtree(upload.folder.parent, ignore_errors=True)
        _is_removed(remains)
        raise
    if _is_removed(remains, pauses_seconds=_REMOVAL_PAUSES_SECONDS):
        note.unlink()
    return measured


def _is_removed(remains: Remains, *, pauses_seconds: Sequence[float] = ()) -> bool:
    try:
        remove(remains, pauses_seconds=pauses_seconds)
    except RequestError as trouble:
        print(f"What was uploaded may be left under {remains.url}: {trouble}", file=sys.stderr)  # noqa: T201
        return False
    return True


@contextlib.contextmanager
def _folder_of_files(size_bytes: int, count: int) -> Iterator[Path]:
    """Files of random bytes, flushed to disk before anything is timed; small ones are links to one file."""
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


def _timed(copy: Sequence[str], environment: Mapping[str, str]) -> Measured:
    """Time the client's own command, as its user would experience it."""
    started = perf_counter()
    throttled_count, file_seconds = _run(copy, {**os.environ, **environment})
    seconds = perf_counter() - started
    return Measured(duration_seconds=seconds, throttled_count=throttled_count, file_seconds=file_seconds)


_RETRY = re.compile(r"retryable error|pacer: low level retry")  # as s5cmd and rclone log it
_REFUSAL = re.compile(r"SlowDown|ServiceUnavailable|Throttl|RequestLimitExceeded|\b503\b")
_MOVED = re.compile(r"^cp |\bINFO *: .*: Copied \(")
_CHATTER = re.compile(r"^(DEBUG|cp|rm) |^\s+status code: |\b(DEBUG|INFO) *:")  # of both


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, list[float]]:
    """How many requests it logged as throttled, and when it logged each file as done.

    Other relevant output goes to standard error.
    """
    throttled_count, file_seconds = 0, list[float]()
    with _started(command, environment, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if _RETRY.search(line) and _REFUSAL.search(line):
                throttled_count += 1
            elif _MOVED.search(line):
                file_seconds.append(perf_counter())
            elif not _CHATTER.search(line):
                sys.stderr.write(line)
    if running.returncode != 0:
        raise ClientError(f"{command[0]} ended with status {running.returncode}")
    return throttled_count, file_seconds


@contextlib.contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str], *, stdin: int, stderr: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A running client, which is waited for; an exception in the block ends it."""
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
            with running:  # closes the pipes, and waits
                pass


def _endpoint(target: Target) -> list[str]:
    return ["--endpoint-url", target.endpoint_url] if target.endpoint_url else []


def _region(target: Target) -> dict[str, str]:
    names = ("AWS_REGION", "AWS_DEFAULT_REGION")
    return dict.fromkeys(names, target.region) if target.region else {}


def _leave(_signal_number: int, _frame: FrameType | None) -> NoReturn:
    """Exit through every `finally` on the way, which removes what was uploaded. A second signal changes nothing."""
    for number in _ENDING_SIGNALS:
        signal.signal(number, lambda *_: None)
    sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
