"""Knows how somebody else's command is run for one trial: one line in, one line out, and never left behind.

The command is run by the shell in a process group of its own. It is given the proposal as a line of JSON on standard
input, and the last line of its standard output is what it measured. Whatever else it does is expected trouble: a
`Failure` with a sentence. Its output is kept only as far as the end of it is needed.
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
_GRACE_SECONDS = 10.0  # to end in order: to remove what was uploaded
_POLL_SECONDS = 0.05
_DEAF_SECONDS_MAX = 1.0  # a wait goes on where a signal comes just before it, or is taken by another thread
_COUNT_MAX = 10**9
_FAR_RATIO = 4  # of what is reported to what was asked for; bits for bytes is 8
_REST_READ_COUNT_MAX = 64
_LINE_SHOWN_LENGTH = 100
_TROUBLE_SHOWN_LENGTH = 120
_NO_COMMAND = {126: " (not executable)", 127: " (no such command)"}  # as every shell has it


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the command measured; unknown keys are its own business."""

    transferred_bytes: Annotated[float, msgspec.Meta(ge=1, le=2**60)]
    duration_seconds: Annotated[float, msgspec.Meta(ge=1e-6, le=1e8)]
    throttled_count: Annotated[int, msgspec.Meta(ge=0, le=_COUNT_MAX)] = 0
    failed_count: Annotated[int, msgspec.Meta(ge=0, le=_COUNT_MAX)] = 0
    # Of many small objects, as long as there were some left to begin: what a stream of them reaches.
    steady_throughput_bytes_per_second: Annotated[float, msgspec.Meta(gt=0, le=2**60)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a trial measured nothing, and the end of what the command said on standard error."""

    reason: str
    stderr_tail: str = ""
    is_timeout: bool = False
    is_no_command: bool = False  # the shell found nothing that it could run
    is_contradiction: bool = False  # it moved what it says, or the object, and not both


def contradiction(
    report: Report, object_size_bytes: int, unsplit_bytes: int = PART_SIZE_BYTES_MIN
) -> str | None:
    """Why what it reports is hardly bytes of that object, in one sentence; None when it may be.

    Some of an object may be missing, and what is too small for parts is moved many times over. A rate from bytes that
    were not moved is none.
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
    """Why what it reports is hardly seconds of its run, which no transfer in it is longer than; None when it may be."""
    if report.duration_seconds <= _FAR_RATIO * took_seconds:
        return None
    told = f"duration_seconds {report.duration_seconds:.6g} where its run took {took_seconds:.3g} s"
    return (
        f"the command reports {told}. It is believed, and so are the rates that follow; if it counts in another unit, "
        "mend the command and begin anew with --restart"
    )


def run_command(
    command: str,
    request: Mapping[str, int],
    *,
    timeout_seconds: float,
    grace_seconds: float = _GRACE_SECONDS,
    stop: int | None = None,
) -> Report | Failure:
    """Run it once. However this ends, also with KeyboardInterrupt, nothing of its process group is left.

    It is ended in order as soon as the descriptor `stop` can be read: for whoever waits in another thread.
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
                watched.kill_group()  # also children that it left behind
    return _judge(watched, timeout_seconds, has_ended=has_ended)


class _Watched:
    """A running command: its output is drained, and its end is seen without reaping it."""

    def __init__(self, command: str, line: bytes, stop: int | None) -> None:
        self._watch = Watch()
        self._process = process = subprocess.Popen(  # noqa: S602  # the caller's own, and meant for the shell
            command,
            shell=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is ours to pass on, to all of it
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
        with contextlib.suppress(BrokenPipeError):  # it may not want to know
            process.stdin.write(line)  # shorter than any pipe
            process.stdin.close()

    def follow(self, seconds: float) -> bool:
        """Drain its output until it ends; False when it did not in so many seconds, or is to stop."""
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
        """Ask its group to end, and wait a while for all of it; a second Ctrl-C ends the patience.

        A shell ends at once where the client that it runs is still removing what it uploaded.
        """
        deadline = time.monotonic() + grace_seconds
        if self._stop is not None:  # once is enough
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
        """Nothing of it survives this. A command that was not reaped before it keeps its number until here."""
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
        """What it ended with; a signal is negative."""
        return self._process.returncode

    @property
    def last_line(self) -> bytes:
        """Of standard output, without empty ones."""
        lines = [line for line in self._tails["stdout"].splitlines() if line.strip()]
        return lines[-1].strip() if lines else b""

    @property
    def stderr_tail(self) -> str:
        """The end of standard error, readable whatever it was."""
        return self._tails["stderr"].decode(errors="replace").strip()

    def _drain(self, descriptor: int, name: str) -> bool:
        """Read once; False when there is nothing more for now."""
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
        """What is in the pipes when it has ended; a child that goes on writing is not waited for."""
        for key in [key for key in self._selector.get_map().values() if key.data in self._tails]:
            reads = 0
            while reads < _REST_READ_COUNT_MAX and self._drain(key.fd, key.data):
                reads += 1

    def _drain_for(self, seconds: float) -> None:
        """Let it write while it ends, for so long or until there is something."""
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
