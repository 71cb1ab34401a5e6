"""The lab's services as processes of their own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.lab.server import truth_json
from penstock.lab.worlds import DEMO
from tests.programs import ran

COMMAND = [sys.executable, "-m", "penstock.lab.server"]


@contextmanager
def a_server(service: str, truth: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a service; its process and its port."""
    path = folder / "truth.json"
    path.write_text(truth)
    with subprocess.Popen(
        [*COMMAND, service, "--truth", str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["endpoint_url"]
            yield process, int(url.rpartition(":")[2])
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("service", ["s3", "sqs"])
def test_a_signal_ends_it_and_frees_the_port(service: str, number: signal.Signals, tmp_path: Path) -> None:
    """It says where it listens, ends with 0 when it is told to, and its port can be used again."""
    truth = truth_json(DEMO.link if service == "s3" else DEMO.queue)
    with a_server(service, truth, tmp_path) as (process, port):
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            process.send_signal(number)
        assert process.wait(timeout=20) == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.mark.parametrize("text", ["", "{}", '{"round_trip_seconds": "long"}'])
def test_a_truth_that_cannot_be_read_is_named(text: str, tmp_path: Path) -> None:
    """A bad file is a usage error with a sentence, not a traceback."""
    path = tmp_path / "truth.json"
    path.write_text(text)
    command = [*COMMAND, "s3", "--truth", str(path)]
    ended = ran(command, timeout=60)
    assert ended.returncode == 2
    assert "the truth cannot be read" in ended.stderr
    assert "Traceback" not in ended.stderr
