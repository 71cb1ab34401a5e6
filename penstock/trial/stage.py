"""Knows how the lab and a real daemon are run as processes of their own, and ended whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from penstock.client.connection import NoDaemonError, ask
from penstock.lab.server import HERE, truth_json
from penstock.lab.worlds import World
from penstock.processes.interruption import held_off

START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
_ANSWER_SECONDS_MAX = 30.0  # an answer takes milliseconds, unless the machine stalls
_POLL_SECONDS = 0.1
_LOG_LINE_COUNT = 40

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "lab",
    "AWS_SECRET_ACCESS_KEY": "lab-secret",  # long enough for servers that require a length
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Arbitrary credentials: the lab checks no signatures."""


class StageError(RuntimeError):
    """A process of the stage did not start or died; the message contains the end of its log."""


@contextlib.contextmanager
def lab_endpoint(
    service: str, world: World, directory: Path, *, address: str = HERE, port: int = 0
) -> Iterator[str]:
    """Serve the lab's S3 (``"s3"``) or SQS (``"sqs"``) in a process of its own; yields its URL. Raises StageError."""
    truth = directory / f"{service}-truth.json"
    truth.write_text(truth_json(world.link if service == "s3" else world.queue))
    command = [sys.executable, "-m", "penstock.lab.server", service, "--truth", str(truth)]
    command += ["--address", address, "--port", str(port)]
    if service == "s3" and world.inbound is not None:
        inbound = directory / "s3-inbound.json"
        inbound.write_text(truth_json(world.inbound))
        command += ["--inbound", str(inbound)]
    with process(command) as server:
        yield json.loads(server.first_line())["endpoint_url"]


class Process:
    """A child process whose output is read, and which is ended with its whole process group."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._name = " ".join(command[1:4])
        self._process = subprocess.Popen(  # noqa: S603  # the commands are ours
            [sys.executable, "-m", "penstock.processes.attached", str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that Ctrl-C does not reach children, which are ended in order
            env={**os.environ, **CREDENTIALS, **environment},
        )
        self._log: deque[str] = deque(maxlen=_LOG_LINE_COUNT)
        assert self._process.stderr is not None
        self._reader = threading.Thread(target=self._keep_log, args=(self._process.stderr,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return self._process.pid

    def first_line(self) -> str:
        """The first line of output, which says that the child is ready. Raises StageError if there is none."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self.failure("ended before it was ready")
        return line

    def check(self) -> None:
        """Raise StageError if the child has ended."""
        if self._process.poll() is not None:
            raise self.failure(f"ended with status {self._process.returncode}")

    def failure(self, what: str) -> StageError:
        """An error that says what happened, with the end of the log."""
        self._reader.join(timeout=1.0)
        return StageError(f"{self._name} {what}; its log ends:\n" + "".join(self._log))

    def stop(self) -> None:
        """Ask the child to end, and kill it if it does not in time; a second Ctrl-C kills it at once."""
        self._process.terminate()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS_MAX)
        finally:
            with held_off():
                self._insist()

    def _insist(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(timeout=1.0)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _keep_log(self, stream: IO[str]) -> None:
        with contextlib.suppress(ValueError):  # the stream is closed at the end
            self._log.extend(stream)


@contextlib.contextmanager
def process(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Process]:
    """Run a child process while the context lasts."""
    child = None
    try:
        with held_off():
            child = Process(command, environment or {})
        yield child
    finally:
        if child:
            child.stop()


@contextlib.contextmanager
def daemon(configuration_file: Path, socket_path: Path) -> Iterator[Process]:
    """Run a real `penstockd` that answers on its socket. Raises StageError if it does not start."""
    with process(
        [sys.executable, "-m", "penstock.daemon.main", "--config", str(configuration_file)]
    ) as child:
        deadline = time.monotonic() + START_SECONDS_MAX
        while status_of(socket_path) is None:
            child.check()
            if time.monotonic() > deadline:
                raise child.failure("did not answer in time")
            time.sleep(_POLL_SECONDS)
        yield child


def status_of(socket_path: Path) -> dict[str, Any] | None:
    """The daemon's status document; None while no daemon answers (Any: JSON)."""
    try:
        answer = ask(str(socket_path), "GET", "/v1/status", timeout_seconds=_ANSWER_SECONDS_MAX)
    except NoDaemonError:
        return None
    document: dict[str, Any] = json.loads(answer.body)
    return document
