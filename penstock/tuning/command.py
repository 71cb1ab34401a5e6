"""Knows how to run somebody else's command for one trial: one line in, one line out, and nothing left running.

The shell runs the command in a process group of its own. It gets the proposal as a line of JSON on standard input; the
last line of its standard output is its report. Everything else is expected trouble: a `Failure` with a sentence. Only
the end of its output is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import msgspec

from penstock.models.s3.parts import PART_SIZE_BYTES_MIN
from penstock.processes.group import Watch, has_living
from penstock.processes.interruption import held_off

_STDOUT_TAIL_BYTES = 64 * 1024
_STDERR_TAIL_BYTES = 4 * 1024
_READ_BYTES = 64 * 1024
_GRACE_SECONDS = 10.0  # to end orderly and remove what was uploaded
_POLL_SECONDS = 0.05
_DEAF_SECONDS_MAX = 1.0  # a signal just before a wait, or handled by another thread, does not end the wait
_COUNT_MAX = 10**9
_FAR_RATIO = 4  # between reported and requested amounts; bits for bytes would be 8
_REST_READ_COUNT_MAX = 64
_LINE_SHOWN_LENGTH = 100
_TROUBLE_SHOWN_LENGTH = 120
_NO_COMMAND = {126: " (not executable)", 127: " (no such command)"}  # the shells' exit codes


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the command measured; unknown keys are ignored."""

    transferred_bytes: Annotated[float, msgspec.Meta(ge=1, le=2**60)]
    duration_seconds: Annotated[float, msgspec.Meta(ge=1e-6, le=1e8)]
    throttled_count: Annotated[int, msgspec.Meta(ge=0, le=_COUNT_MAX)] = 0
    failed_count: Annotated[int, msgspec.Meta(ge=0, le=_COUNT_MAX)] = 0
    # For many small objects: the rate of an endless stream, from the time while objects were left to start.
    steady_throughput_bytes_per_second: Annotated[float, msgspec.Meta(gt=0, le=2**60)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a trial measured nothing, and the end of what the command said on standard error."""

    reason: str
    stderr_tail: str = ""
    is_timeout: bool = False
    is_no_command: bool = False  # the shell found no such command
    is_contradiction: bool = False  # its report contradicts the size of the object


def contradiction(
    report: Report, object_size_bytes: int, unsplit_bytes: int = PART_SIZE_BYTES_MIN
) -> str | None:
    """Why the reported bytes cannot be those of the object, in one sentence; None if they can.

    Some of an object may be missing, and an object too small for parts is moved many times. Without the right bytes, a
    rate would be meaningless.
    """
    ratio = report.transferred_bytes / object_size_bytes
    is_split = object_size_bytes > unsplit_bytes
    if ratio >= 1 / _FAR_RATIO and (ratio <= _FAR_RATIO or not is_split):
        return None
    return (
        f"it reports transferred_bytes {report.transferred_bytes:.0f} where it was asked to move an object of "
        f"{object_size_bytes} bytes: let it move object_size_bytes, or name what it moves with --object-size, and "
        "count in bytes"
    )


def doubt(report: Report, *, took_seconds: float) -> str | None:
    """Why the reported seconds are implausible for its run, which bounds every transfer in it; None if they are not."""
    if report.duration_seconds <= _FAR_RATIO * took_seconds:
        return None
    told = f"duration_seconds {report.duration_seconds:.6g} where its run took {took_seconds:.3g} s"
    return (
        f"the command reports {told}. The report and the rates that follow from it are taken as true; if "
        "it counts in another unit, correct the command and start again with --restart"
    )


def run_command(
    command: str,
    request: Mapping[str, int],
    *,
    timeout_seconds: float,
    grace_seconds: float = _GRACE_SECONDS,
    stop: int | None = None,
) -> Report | Failure:
    """Run it once. However this ends, even with KeyboardInterrupt, nothing of its process group is left.

    The command is ended orderly as soon as the descriptor `stop` is readable, so that another thread can end it.
    """
    line = json.dumps(request).encode() + b"\n"
    watched = None
    try:
        with held_off():
            watched = _Watched(command, line, stop)
        has_ended = watched.follow(timeout_seconds)
        if not has_ended:
            watched.end_in_order(grace_seconds)
    except BaseException:
        if watched:
            watched.end_in_order(grace_seconds)
        raise
    finally:
        if watched:
            with held_off():
                watched.kill_group()  # including children that it left behind
    return _judge(watched, timeout_seconds, has_ended=has_ended)


class _Watched:
    """A running command: its output is drained, and its end is noticed without reaping it."""

    def __init__(self, command: str, line: bytes, stop: int | None) -> None:
        self._watch = Watch()
        self._process = process = subprocess.Popen(  # noqa: S602  # the caller's own, and meant for the shell
            command,
            shell=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches only us, and we pass it on to the whole group
        )
        self._watch.keep_an_eye_on(process.pid)
        self._tails = {"stdout": b"", "stderr": b""}
        self._limits = {"stdout": _STDOUT_TAIL_BYTES, "stderr": _STDERR_TAIL_BYTES}
        self._selector = selectors.DefaultSelector()
        self._pidfd = os.pidfd_open(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream.fileno(), selectors.EVENT_READ, name)
        self._selector.register(self._pidfd, selectors.EVENT_READ, "end")
        self._stop = stop
        if stop is not None:
            self._selector.register(stop, selectors.EVENT_READ, "stop")
        with contextlib.suppress(BrokenPipeError):  # it may not read its input
            process.stdin.write(line)  # fits into any pipe's buffer
            process.stdin.close()

    def follow(self, seconds: float) -> bool:
        """Drain its output until it ends; False if it did not within these seconds, or is to stop."""
        deadline = time.monotonic() + seconds
        while (left_seconds := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(min(left_seconds, _DEAF_SECONDS_MAX)):
                if key.data == "end":
                    self._drain_rest()
                    return True
                if key.data == "stop":
                    return False
                self._drain(key.fd, key.data)
        return False

    def end_in_order(self, grace_seconds: float) -> None:
        """Ask its group to end, and wait a while for all of it; a second Ctrl-C ends the wait.

        A shell ends at once, while the client that it runs may still be removing what it uploaded.
        """
        deadline = time.monotonic() + grace_seconds
        if self._stop is not None:  # one stop is enough
            self._selector.unregister(self._stop)
            self._stop = None
        with contextlib.suppress(ProcessLookupError, KeyboardInterrupt):
            os.killpg(self._process.pid, signal.SIGTERM)
            if self.follow(grace_seconds):
                self._process.wait()
                self._selector.unregister(self._pidfd)
                while time.monotonic() < deadline and has_living(self._process.pid):
                    self._drain_for(_POLL_SECONDS)

    def kill_group(self) -> None:
        """Kill the whole group. The command was not reaped before, so its process id is still its own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._watch.end()
        self._process.wait()
        self._selector.close()
        os.close(self._pidfd)
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()

    @property
    def status(self) -> int:
        """Its exit status; negative for a signal."""
        return self._process.returncode

    @property
    def last_line(self) -> bytes:
        """The last line of standard output that is not empty."""
        lines = [line for line in self._tails["stdout"].splitlines() if line.strip()]
        return lines[-1].strip() if lines else b""

    @property
    def stderr_tail(self) -> str:
        """The end of standard error, as text."""
        return self._tails["stderr"].decode(errors="replace").strip()

    def _drain(self, descriptor: int, name: str) -> bool:
        """Read once; False if there is nothing more for now."""
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(descriptor)
            return False
        self._tails[name] = (self._tails[name] + data)[-self._limits[name] :]
        return True

    def _drain_rest(self) -> None:
        """Read what is left in the pipes after its end; a child that goes on writing is not waited for."""
        for key in [key for key in self._selector.get_map().values() if key.data in self._tails]:
            reads = 0
            while reads < _REST_READ_COUNT_MAX and self._drain(key.fd, key.data):
                reads += 1

    def _drain_for(self, seconds: float) -> None:
        """Drain its output while it ends, for this long or until there is some."""
        if not self._selector.get_map():
            time.sleep(seconds)
        for key, _ in self._selector.select(seconds):
            self._drain(key.fd, key.data)


def _judge(watched: _Watched, timeout_seconds: float, *, has_ended: bool) -> Report | Failure:
    failed = partial(Failure, stderr_tail=watched.stderr_tail)
    if not has_ended:
        return failed(reason=f"it took longer than {timeout_seconds:g} s", is_timeout=True)
    if watched.status != 0:
        return failed(reason=_describe_status(watched.status), is_no_command=watched.status in _NO_COMMAND)
    if not watched.last_line:
        return failed(reason="it printed nothing")
    try:
        return msgspec.json.decode(watched.last_line, type=Report)
    except (msgspec.DecodeError, RecursionError) as trouble:
        said = _shown(repr(watched.last_line.decode(errors="replace")), _LINE_SHOWN_LENGTH)
        why = _shown(str(trouble), _TROUBLE_SHOWN_LENGTH)
        expected = "one line of JSON is expected as the last line"
        return failed(reason=f"its last line is not a report ({expected}): {why}; it is {said}")


def _describe_status(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"it was ended by {signal.Signals(-status).name}"
        return f"it was ended by signal {-status}"
    return f"it ended with status {status}{_NO_COMMAND.get(status, '')}"


def _shown(message: str, length_max: int) -> str:
    return message if len(message) <= length_max else message[:length_max] + "..."
