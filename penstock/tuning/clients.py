"""Knows how boto3, s5cmd, rclone and the AWS CLI are told threads and sizes: ready-made commands to be tuned.

    python -m penstock.tuning.clients s5cmd --bucket my-bucket [--endpoint-url URL] [--region REGION]

reads one proposal from standard input, uploads a generated file with the real client, removes what it uploaded, and
prints what it measured. A proposal with a range size is one for a download: the file is uploaded first, without being
timed, and read back into another folder. Credentials come from where the client itself finds them. An object that is
too small to be split is moved many times over, because then threads are objects in flight.
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
from dataclasses import asdict, dataclass
from functools import partial
from math import ceil
from pathlib import Path
from types import FrameType
from typing import NoReturn

from penstock.probes.outside import RequestError
from penstock.processes.interruption import held_off
from penstock.tuning.remains import Remains, remove, write_note
from penstock.units import MiB

_SMALL_BYTES = 5 * MiB  # up to here S3 takes no parts
_SMALL_READ_BYTES = MiB  # up to here no range of it is worth a request
_PUTTING_THREAD_COUNT = 8  # what is only to be read back
_PUTTING_PART_BYTES = 16 * MiB
_PART_COUNT_MAX = 10_000
# Services admit some at once before they count, and who was refused waits half a second and more: fewer objects
# would show that, and no limit.
_SMALL_OBJECTS_MIN = 300
_SMALL_OBJECTS_PER_THREAD = 128
_SMALL_OBJECTS_MANY = 8192  # from here on only so many more as give each thread
_SMALL_OBJECTS_PER_MANY_THREADS = 32
_SMALL_OBJECTS_BYTES_MAX = 512 * MiB  # together, beyond the least
_SMALL_OBJECTS_PER_THREAD_MIN = 4
_SINGLE_PUT_BYTES_MAX = 5 * 1024 * MiB
_PREFIX = "penstock-tune/"
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_REMOVAL_PAUSES_SECONDS = (0.5, 2.0)  # between tries, after a run that worked


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

    @property
    def remains(self) -> Remains:
        """What may be there when it ends. Small objects are not uploaded in parts."""
        return Remains(
            **asdict(self.target),
            prefix=self.prefix,
            file_names=tuple(sorted(file.name for file in self.folder.iterdir())),
            is_in_parts=self.file_size_bytes > _SMALL_BYTES,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """One proposal to read what an upload has put, into another folder."""

    upload: Upload
    into: Path
    thread_count: int
    range_size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one transfer took."""

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
    return _boto3(upload, upload.thread_count, upload.part_size_bytes)


def boto3_download(download: Download) -> Measured:
    """The same for downloads."""
    return _boto3(download.upload, download.thread_count, download.range_size_bytes, into=str(download.into))


def _boto3(upload: Upload, threads: int, request_size_bytes: int, **more: str) -> Measured:
    wanted = asdict(upload.target) | {
        "folder": str(upload.folder),
        "prefix": upload.prefix,
        "thread_count": threads,
        "request_size_bytes": request_size_bytes,
        **more,
    }
    command = [sys.executable, "-m", "penstock.tuning.boto3_transfers"]
    with _started(command, os.environ, stdin=subprocess.PIPE) as running:
        said, _ = running.communicate(json.dumps(wanted) + "\n")
    if running.returncode != 0:
        raise ClientError(f"boto3 ended with status {running.returncode}")
    told = json.loads(said)
    if "trouble" in told:
        raise (ClientError if told["has_begun"] else NothingSentError)(told["trouble"])
    return Measured(**told)


def s5cmd(upload: Upload) -> Measured:
    """Workers are files at a time; concurrency is parts at a time of each; parts are whole MiB.

    It tells of a retry on the level "debug" alone.
    """
    part = max(5, ceil(upload.part_size_bytes / MiB))
    return _s5cmd(upload, upload.thread_count, part, f"{upload.folder}/*", upload.url)


def s5cmd_download(download: Download) -> Measured:
    """The same for downloads."""
    size, source = ceil(download.range_size_bytes / MiB), f"{download.upload.url}*"
    return _s5cmd(download.upload, download.thread_count, size, source, f"{download.into}/")


def _s5cmd(upload: Upload, threads: int, part_mib: int, source: str, destination: str) -> Measured:
    where = ["--endpoint-url", upload.target.endpoint_url] if upload.target.endpoint_url else []
    program = ["s5cmd", "--log", "debug", *where]
    copy = [
        *("--numworkers", str(threads if upload.file_count > 1 else 1)),
        *("cp", "--concurrency", str(threads if upload.file_count == 1 else 1)),
        *("--part-size", str(part_mib)),
        *(source, destination),
    ]
    return _timed([*program, *copy], _region(upload))


def rclone(upload: Upload) -> Measured:
    """A remote that is written on the command line; credentials from the environment.

    It tells of a retry on the level "debug" alone.
    """
    copy = [
        *("rclone", "copy", str(upload.folder), _rclone_remote(upload), *_rclone_options(upload.target)),
        *("--transfers", str(upload.thread_count if upload.file_count > 1 else 1)),
        *("--s3-upload-concurrency", str(upload.thread_count)),
        *("--s3-chunk-size", f"{upload.part_size_bytes}B"),
        *("--s3-upload-cutoff", f"{min(upload.part_size_bytes, _SINGLE_PUT_BYTES_MAX)}B"),
    ]
    return _timed(copy, {})


def rclone_download(download: Download) -> Measured:
    """The same for downloads; its streams are those of one file."""
    upload, is_one = download.upload, download.upload.file_count == 1
    copy = [
        *("rclone", "copy", _rclone_remote(upload), str(download.into), *_rclone_options(upload.target)),
        *("--transfers", str(1 if is_one else download.thread_count)),
        *("--multi-thread-streams", str(download.thread_count if is_one else 1)),
        *("--multi-thread-chunk-size", f"{download.range_size_bytes}B"),
        *("--multi-thread-cutoff", f"{download.range_size_bytes + 1}B"),
    ]
    return _timed(copy, {})


def _rclone_remote(upload: Upload) -> str:
    return f":s3:{upload.target.bucket}/{upload.prefix}"


def _rclone_options(target: Target) -> list[str]:
    return [
        *("--s3-env-auth", "--s3-no-check-bucket", "--config", os.devnull),
        *("--s3-provider", "Other" if target.endpoint_url else "AWS"),
        *(("--s3-endpoint", target.endpoint_url) if target.endpoint_url else ()),
        *(("--s3-region", target.region) if target.region else ()),
        *("--log-level", "DEBUG"),
    ]


def aws(upload: Upload) -> Measured:
    """`aws s3 cp`, with a copy of your own configuration in which the transfer settings are set."""
    return _aws(upload, upload.thread_count, upload.part_size_bytes, str(upload.folder), upload.url)


def aws_download(download: Download) -> Measured:
    """The same for downloads."""
    source, into = download.upload.url, str(download.into)
    return _aws(download.upload, download.thread_count, download.range_size_bytes, source, into)


def _aws(upload: Upload, threads: int, size_bytes: int, source: str, destination: str) -> Measured:
    where = ["--endpoint-url", upload.target.endpoint_url] if upload.target.endpoint_url else []
    settings: dict[str, int | str] = {
        "max_concurrent_requests": threads,
        "multipart_chunksize": size_bytes,
        "multipart_threshold": size_bytes + 1,
        # The other one ignores the number of threads.
        "preferred_transfer_client": "classic",
    }
    if upload.target.endpoint_url:
        settings["addressing_style"] = "path"
    configuration = _aws_configuration(settings, os.environ)
    with tempfile.NamedTemporaryFile("w", prefix="penstock-aws-", encoding="utf-8") as file:
        configuration.write(file)
        file.flush()
        environment = {"AWS_CONFIG_FILE": file.name} | _region(upload)
        copy = ["aws", "s3", "cp", "--recursive", "--only-show-errors", source, destination]
        return _timed([*copy, *where], environment)


CLIENTS: Mapping[str, Callable[[Upload], Measured]] = {
    "boto3": boto3,
    "s5cmd": s5cmd,
    "rclone": rclone,
    "aws": aws,
}
READERS: Mapping[str, Callable[[Download], Measured]] = {
    "boto3": boto3_download,
    "s5cmd": s5cmd_download,
    "rclone": rclone_download,
    "aws": aws_download,
}


def command_line(client: str, target: Target) -> str:
    """What runs this file for a client, as a line for the shell, to which `noting` may be added."""
    options = {
        "--bucket": target.bucket,
        "--endpoint-url": target.endpoint_url,
        "--region": target.region,
    }
    words = [word for name, value in options.items() if value is not None for word in (name, value)]
    return shlex.join([sys.executable, "-m", "penstock.tuning.clients", client, *words])


def noting(folder: Path) -> str:
    """The option by which what may be left is noted in this folder."""
    return shlex.join(["--notes", str(folder)])


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
        if signal.getsignal(number) is not signal.SIG_IGN:  # as below nohup
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
    """How many objects that go whole a trial moves: enough to be past what a service admits at once."""
    usual = min(_SMALL_OBJECTS_PER_THREAD * thread_count, _SMALL_OBJECTS_MANY)
    wanted = max(usual, _SMALL_OBJECTS_PER_MANY_THREADS * thread_count, _SMALL_OBJECTS_MIN)
    affordable = _SMALL_OBJECTS_BYTES_MAX // max(size_bytes, 1)
    return max(min(wanted, affordable), _SMALL_OBJECTS_PER_THREAD_MIN * thread_count)


def carry_out(
    client: str, target: Target, proposal: Mapping[str, int], notes: Path | None = None
) -> dict[str, float]:
    """Make the files, move them, remove them; what was measured, whether or not they could be removed.

    What may be left is noted in that folder.
    """
    size, threads = proposal["object_size_bytes"], proposal["thread_count"]
    reads = "range_size_bytes" in proposal
    small = _SMALL_READ_BYTES if reads else _SMALL_BYTES
    count = 1 if size > small else small_object_count(size, threads)
    unique = str(uuid.uuid4())
    with _folder_of_files(size, count) as folder:
        upload = Upload(
            target=target,
            folder=folder,
            prefix=f"{_PREFIX}{unique}/",
            thread_count=_PUTTING_THREAD_COUNT if reads else threads,
            part_size_bytes=_putting_part_bytes(size) if reads else proposal["part_size_bytes"],
            file_size_bytes=size,
            file_count=count,
        )
        note = write_note(upload.remains, notes or folder.parent, unique)
        move = partial(_put_and_read, client, proposal) if reads else CLIENTS[client]
        measured = _uploaded_and_removed(move, upload, note)
    return {
        "transferred_bytes": size * count,
        "duration_seconds": measured.duration_seconds,
        "throttled_count": measured.throttled_count,
    }


def _putting_part_bytes(size_bytes: int) -> int:
    return max(_PUTTING_PART_BYTES, ceil(size_bytes / _PART_COUNT_MAX))


def _put_and_read(client: str, proposal: Mapping[str, int], upload: Upload) -> Measured:
    """What reading took. Raises ClientError, also where not all of it came."""
    CLIENTS[client](upload)
    into = upload.folder.with_name("read")
    into.mkdir()
    download = Download(
        upload=upload,
        into=into,
        thread_count=proposal["thread_count"],
        range_size_bytes=proposal["range_size_bytes"],
    )
    measured = READERS[client](download)
    came = sum(file.stat().st_size for file in into.iterdir())
    if came != upload.file_size_bytes * upload.file_count:
        raise ClientError(f"{came} bytes came of {upload.file_size_bytes * upload.file_count}")
    return measured


def _uploaded_and_removed(client: Callable[[Upload], Measured], upload: Upload, note: Path) -> Measured:
    """The note goes when nothing can be left; after a client that failed, it stays for one more look."""
    try:
        measured = client(upload)
    except NothingSentError:
        note.unlink()
        raise
    except BaseException:
        _is_removed(upload.remains)
        raise
    if _is_removed(upload.remains, pauses_seconds=_REMOVAL_PAUSES_SECONDS):
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


def _timed(copy: Sequence[str], environment: Mapping[str, str]) -> Measured:
    """Time the client's own command, as its user would wait for it."""
    started = time.perf_counter()
    throttled_count = _run(copy, {**os.environ, **environment})
    return Measured(duration_seconds=time.perf_counter() - started, throttled_count=throttled_count)


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


def _aws_configuration(
    settings: Mapping[str, int | str], environment: Mapping[str, str]
) -> configparser.RawConfigParser:
    """The user's own, with the profile's transfer settings replaced."""
    configuration = configparser.RawConfigParser(default_section="no section has defaults for the others")
    configuration.read(Path(environment.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser())
    profile = environment.get("AWS_PROFILE", "default")
    section = "default" if profile == "default" else f"profile {profile}"
    if not configuration.has_section(section):
        configuration.add_section(section)
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
