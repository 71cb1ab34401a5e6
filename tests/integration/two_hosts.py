"""Knows two hosts with one narrow link between them: a daemon and another application here, an S3 and a sink there.

    unshare --user --map-root-user --net --mount python -m tests.integration.two_hosts near FOLDER

Each host is a network namespace. What came of it is printed as one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from aiohttp import web

from penstock.clock import SystemClock
from penstock.lab import worlds
from penstock.lab.http_s3 import s3_application
from penstock.lab.s3 import S3Service
from penstock.trial.stage import daemon, status_of
from tests.daemon_house import BOUNDLESS, HERE
from tests.real.servers import plain_client
from tests.waiting import until

NEAR, FAR, S3_PORT, SINK_PORT = "10.77.0.1", "10.77.0.2", 9000, 9001
IN_NAMESPACE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
LINK = "80mbit"  # which a busy machine fills, too
# Of the 10e6 that the link carries: four more connections leave it a fifth of that.
OTHERS_BYTES_PER_SECOND = 8e6
WAIT_SECONDS_MAX = 80.0
_ENDPOINT = f"http://{FAR}:{S3_PORT}"
_CONFIGURATION = f"""{HERE}
[probes.s3_upload]
is_enabled = true
bucket = "test-bucket"
object_size_bytes = ["64MiB"]
mean_interval_seconds = "0.5s"
duration_seconds_max = "10s"
worker_count_max = 1
{BOUNDLESS}"""


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True)


# --- There


async def _serve() -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(2**16):
            pass
        writer.close()

    service = S3Service(worlds.NEAR.link, clock=SystemClock(), seed=0)
    runner = web.AppRunner(s3_application(service), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, FAR, S3_PORT).start()
    await asyncio.start_server(swallow, FAR, SINK_PORT)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)  # until the near side has ended


def far() -> None:
    """Wait for the link, then serve."""
    sys.stdin.readline()
    _run("ip link set lo up")
    _run(f"ip addr add {FAR}/24 dev far0")
    _run("ip link set far0 up")
    asyncio.run(_serve())


# --- Here


class Other:
    """An application that sends at a steady rate over one connection, as long as the network lets it."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Other:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _send(self) -> None:
        with socket.create_connection((FAR, SINK_PORT)) as connection:
            while not self._is_over.wait(len(_PIECE) / OTHERS_BYTES_PER_SECOND):
                connection.sendall(_PIECE)
                self.sent_bytes += len(_PIECE)


_PIECE = b"x" * 2**16


@contextlib.contextmanager
def _far_host() -> Any:
    command = ["unshare", "--net", sys.executable, "-m", "tests.integration.two_hosts", "far"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        try:
            _run("ip link set lo up")
            _run("ip link add near0 type veth peer name far0")
            mine = Path("/proc/self/ns/net").stat().st_ino
            until(lambda: Path(f"/proc/{host.pid}/ns/net").stat().st_ino != mine)
            _run(f"ip link set far0 netns {host.pid}")
            _run(f"ip addr add {NEAR}/24 dev near0")
            _run("ip link set near0 up")
            _run(f"tc qdisc add dev near0 root tbf rate {LINK} burst 256kb latency 30ms")
            host.stdin.write("go\n")
            host.stdin.flush()
            assert host.stdout.readline() == "ready\n"
            yield
        finally:
            host.stdin.close()


def near(folder: Path) -> dict[str, Any]:
    """Let the daemon probe beside the other application until a probe is broken off (Any: JSON)."""
    _run("mount -t sysfs sysfs /sys")  # of this namespace: its interfaces, and not those of the whole machine
    configuration_file = folder / "penstock.toml"
    configuration_file.write_text(
        _CONFIGURATION.format(directory=folder, region="lab-1", s3_url=_ENDPOINT, sqs_url="")
    )
    for name in ("state", "run"):
        (folder / name).mkdir()
    socket_path = folder / "run/penstock.sock"
    with _far_host():
        s3 = plain_client("s3", _ENDPOINT)
        s3.create_bucket(Bucket="test-bucket")
        with Other() as other, daemon(configuration_file, socket_path):
            found = _broken_off(socket_path, other)
        left = s3.list_objects_v2(Bucket="test-bucket").get("KeyCount", 0)
        unfinished = len(s3.list_multipart_uploads(Bucket="test-bucket").get("Uploads", []))
    return found | {"leftover_count": left + unfinished}


def _broken_off(socket_path: Path, other: Other) -> dict[str, Any]:
    def broken_off() -> dict[str, Any] | None:
        status = status_of(socket_path)
        assert status is not None
        return status if any("broken off" in c["sentence"] for c in status["cycles"]) else None

    status = until(broken_off, WAIT_SECONDS_MAX)
    assert status is not None
    return {
        "sentences": [c["sentence"] for c in status["cycles"]],
        "spent_bytes": status["spent_per_day"]["transferred_bytes"],
        "others_sent_bytes": other.sent_bytes,
    }


if __name__ == "__main__":
    if sys.argv[1] == "far":
        far()
    else:
        sys.stdout.write(json.dumps(near(Path(sys.argv[2]))))
