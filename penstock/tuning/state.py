"""Knows the file from which a tuning resumes: a line that says what is tuned, then a line for each trial.

A trial is appended and synchronised before the next one starts, so a crash costs only the running trial; a last line
that it tore is dropped. One process at a time holds the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from penstock.models.s3.ranges import Ranges, TransferSetting
from penstock.tuning.command import Failure, Report

_StructT = TypeVar("_StructT", bound=msgspec.Struct)

# Variables by which the same command line finds its S3: trials with one store say nothing about another.
_SAYS_WHERE = (
    "AWS_CONFIG_FILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROFILE",
    "AWS_REGION",
    "RCLONE_S3_ENDPOINT",
    "RCLONE_S3_REGION",
    "S3_ENDPOINT_URL",
)


class TuningStateError(RuntimeError):
    """The file cannot be used; the message says what to do."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What is tuned. Trials of one subject say nothing about another."""

    command: str
    object_size_bytes: int
    ranges: dict[str, int]
    environment: dict[str, str]
    schema: Literal[1] = 1

    @classmethod
    def of(
        cls, command: str, object_size_bytes: int, ranges: Ranges, environment: Mapping[str, str]
    ) -> Subject:
        """The subject of a command line; bytes that are not text are escaped."""
        return cls(
            command=_text(command),
            object_size_bytes=object_size_bytes,
            ranges=asdict(ranges),
            environment={name: _text(environment[name]) for name in _SAYS_WHERE if environment.get(name)},
        )

    def file_name(self, working_directory: str) -> str:
        """A unique file name, which also depends on the working directory, as a command's meaning does."""
        told_apart = msgspec.json.encode(self) + b"\n" + os.fsencode(working_directory)
        return f"tune-{hashlib.sha256(told_apart).hexdigest()[:16]}.jsonl"


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the command and its outcome, whatever its setting was."""

    probe_index: int
    reason: str
    started_at: datetime
    took_seconds: float | None = None
    report: Report | None = None
    failure: Failure | None = None


class Trial(_Run, frozen=True, kw_only=True):
    """One run of the command with its setting and outcome."""

    setting: TransferSetting


class _Written(_Run, frozen=True, kw_only=True):
    """A trial as in the file, where the names in its setting tell the setting's type."""

    setting: dict[str, int]

    def trial(self, setting_type: type[TransferSetting]) -> Trial:
        """Raises TypeError if it is not such a setting."""
        return Trial(**msgspec.structs.asdict(self) | {"setting": setting_type(**self.setting)})


def default_path(subject: Subject, environment: Mapping[str, str]) -> Path:
    """A file in the user's state directory. Raises TuningStateError."""
    try:
        working_directory = os.getcwd()  # noqa: PTH109  # it may contain any bytes, and may be gone
    except OSError as trouble:
        raise TuningStateError(
            f"the working directory is gone ({trouble.strerror}): go to another one, or name a file with --state"
        ) from trouble
    return users_directory(environment) / subject.file_name(working_directory)


def users_directory(environment: Mapping[str, str]) -> Path:
    """Where penstock keeps this user's data, by the XDG base directory specification."""
    base = environment.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path("~/.local/state").expanduser()) / "penstock"


class StateFile:
    """The trials so far; each new one is on disk when `append` returns."""

    def __init__(self, descriptor: int, path: Path, trials: tuple[Trial, ...]) -> None:
        self._descriptor = descriptor
        self._path = path
        self.trials = trials

    def append(self, trial: Trial) -> None:
        """Add a trial. Raises TuningStateError if it cannot be written; `trials` has it all the same."""
        self.trials = (*self.trials, trial)
        advice = "free space, or copy it and name the copy with --state"
        _write_line(self._descriptor, self._path, msgspec.json.encode(trial), advice)


@contextlib.contextmanager
def open_state(
    path: Path, subject: Subject, setting_type: type[TransferSetting], *, restart: bool
) -> Iterator[StateFile]:
    """Open and hold the state of this subject. Raises TuningStateError.

    If no trial in it ever worked, it is restarted: then the command was broken, and not its settings.
    """
    descriptor = _open(path)
    try:
        _refuse_what_is_no_file(descriptor, path)
        _lock(descriptor, path)
        trials = _read(descriptor, path, None if restart else subject, setting_type)
        if restart or not any(trial.report for trial in trials):
            trials = ()
            os.ftruncate(descriptor, 0)
            advice = "free space, or name another file with --state"
            _write_line(descriptor, path, msgspec.json.encode(subject), advice)
        yield StateFile(descriptor, path, trials)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """The file's descriptor; does not wait for the other end of a pipe."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    except OSError as trouble:
        raise TuningStateError(
            f"{path} cannot be written ({trouble.strerror}): name another file with --state"
        ) from trouble


def _refuse_what_is_no_file(descriptor: int, path: Path) -> None:
    """Raise TuningStateError for a device or a pipe, which cannot be read from the beginning to an end."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise TuningStateError(f"{path} is not a regular file: name one with --state")


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as trouble:
        raise TuningStateError(f"another penstock tune is at work with {path}") from trouble


def _read(
    descriptor: int, path: Path, subject: Subject | None, setting_type: type[TransferSetting]
) -> tuple[Trial, ...]:
    """The trials; what follows the last whole line is cut off. A file that is not ours is left alone.

    Without a subject no trials are returned; the first line still tells whether the file is ours.
    """
    with open(descriptor, "rb", closefd=False) as file:
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    if not content or (subject is not None and msgspec.json.encode(subject).startswith(content)):
        return ()  # new, or torn in its first line
    first, *rest = whole.splitlines() or [content]
    found = _decoded(
        first,
        Subject,
        f"{path} does not hold the state of a tuning, and is left alone: name another file with --state",
    )
    if subject is None:
        return ()
    if found != subject:
        raise TuningStateError(
            f"{path} belongs to another command, size, range, endpoint, region or profile: name another file with "
            "--state, or start again with --restart"
        )
    damaged = f"{path} is damaged: name another file with --state, or start again with --restart"
    try:
        trials = tuple(_decoded(line, _Written, damaged).trial(setting_type) for line in rest)
    except TypeError as trouble:
        raise TuningStateError(damaged) from trouble
    os.ftruncate(descriptor, len(whole))
    return trials


def _text(argument: str) -> str:
    return os.fsencode(argument).decode(errors="backslashreplace")


def _decoded(line: bytes, kind: type[_StructT], complaint: str) -> _StructT:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, RecursionError) as trouble:
        raise TuningStateError(complaint) from trouble


def _write_line(descriptor: int, path: Path, line: bytes, advice: str) -> None:
    data = line + b"\n"
    try:
        os.lseek(descriptor, 0, os.SEEK_END)
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    except OSError as trouble:
        raise TuningStateError(f"{path} cannot be written ({trouble.strerror}): {advice}") from trouble
