"""Two real users at a real daemon's port: the kernel tells whose a datagram is, and only both together are believed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.connection import ask
from tests.fuzz.daemon import FuzzedDaemon, fuzzed_daemon
from tests.unit.daemon.heard.test_hearing import a_datagram
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

WAIT_SECONDS_MAX = 200.0
BACKUP, ARCHIVE = 1, 2
# Nothing answers there: what is probed comes to nothing, and the advice stays what it is before anything was measured.
PROBED = """
[aws]
s3_endpoint_url = "http://127.0.0.1:9"
[probes.s3_upload]
is_enabled = true
bucket = "no-bucket"
object_size_bytes = ["1GiB"]
"""
_REFUSED = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.connect(("127.0.0.1", int(sys.argv[1])))
    while True:
        sender.send(sys.argv[2].encode())
        time.sleep(0.2)
"""


@contextlib.contextmanager
def an_application(user_id: int, port: int) -> Iterator[None]:
    """One upload at a time, of which each part is refused, as its SDK tells it."""
    said = a_datagram(Region="eu-west-1", HttpStatusCode=503).decode()
    process = subprocess.Popen(
        ["/usr/bin/env", "python3", "-c", _REFUSED, str(port), said],
        user=user_id,
        group=user_id,
        extra_groups=[],
        cwd="/",
        env={"PATH": os.environ["PATH"]},
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_one_user_moves_nothing_and_two_halve_the_advice(tmp_path: Path) -> None:
    """Each is named by the kernel, whatever he sends; what both say halves the threads."""
    with fuzzed_daemon(tmp_path, PROBED) as daemon, contextlib.ExitStack() as applications:
        until(lambda: _advice(daemon)["basis"] != "default")
        before = _advice(daemon)["setting"]
        applications.enter_context(an_application(BACKUP, daemon.port))
        until(lambda: f"requests of user {BACKUP} are refused" in daemon.log_path.read_text())
        assert _advice(daemon)["setting"] == before
        applications.enter_context(an_application(ARCHIVE, daemon.port))
        until(lambda: _advice(daemon)["setting"] != before)
        held = _advice(daemon)
        assert held["setting"]["thread_count"] == before["thread_count"] // 2
        assert f"user {BACKUP} and user {ARCHIVE} were refused" in json.dumps(held)


def _advice(daemon: FuzzedDaemon) -> dict[str, Any]:
    target = "/v1/recommendation?operation=s3_upload&payload_size_bytes=64GiB"
    document: dict[str, Any] = json.loads(ask(str(daemon.socket_path), "GET", target).body)
    return document
