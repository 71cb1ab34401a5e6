"""Knows how the real servers are run: on a free port of the loopback interface, bounded, and never longer than we."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.lab.link import LinkTruth
from penstock.lab.server import truth_json
from penstock.probes.aws.access import Credentials
from penstock.trial.stage import CREDENTIALS, process
from tests.real import provision
from tests.waiting import until

HOST = "127.0.0.1"
REGION = "eu-central-1"
KEY = Credentials(
    access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"], secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
)
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 2.0  # they hold nothing that is worth a farewell
_LOG_BYTES_SHOWN = 3000
JAVA_OPTIONS = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # a short life: start, not peak

_ELASTICMQ_CONFIGURATION = """\
include classpath("application.conf")
node-address {{ protocol = http, host = "{host}", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-hostname = "{host}", bind-port = {port}, sqs-limits = strict }}
rest-stats {{ enabled = false }}
"""


class ServerError(RuntimeError):
    """A server did not start; the message holds the end of its log."""


@contextlib.contextmanager
def s3_server(directory: Path) -> Iterator[str]:
    """The URL of a versitygw over an empty folder; it knows one key pair, that of the stage."""
    binary = provision.versitygw()
    objects = directory / "s3-objects"
    objects.mkdir()
    versions = directory / "s3-versions"  # of the buckets that are told to keep them
    versions.mkdir()
    port = _free_port()
    command = [str(binary), "--port", f"{HOST}:{port}", "--region", REGION, "--keep-alive", "--quiet"]
    environment = {
        "ROOT_ACCESS_KEY": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "ROOT_SECRET_KEY": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    }
    # Its rename of finished parts must not cross a file system: `posix` keeps them below the same folder.
    backend = ["posix", "--versioning-dir", str(versions), str(objects)]
    with _server([*command, *backend], environment, port, directory / "s3.log") as url:
        yield url


@dataclass(frozen=True)
class Minio:
    """One that runs, over a folder of its own."""

    url: str
    folder: Path

    def unfinished_uploads(self) -> list[str]:
        """It lists them only to who knows their keys, so they are looked up on its disk."""
        found = (self.folder / ".minio.sys/multipart").glob("*/*/xl.meta")
        return sorted(file.parent.name for file in found)


@contextlib.contextmanager
def minio_server(directory: Path) -> Iterator[Minio]:
    """A MinIO over an empty folder; it knows the same key pair."""
    binary = provision.minio()
    folder = directory / "minio-objects"
    folder.mkdir()
    port = _free_port()
    environment = {
        "MINIO_ROOT_USER": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "MINIO_ROOT_PASSWORD": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        "MINIO_REGION": REGION,
        **dict.fromkeys(("MINIO_UPDATE", "MINIO_BROWSER", "MINIO_CALLHOME_ENABLE"), "off"),
    }
    command = [str(binary), "server", str(folder), "--address", f"{HOST}:{port}", "--quiet"]
    with _server(command, environment, port, directory / "minio.log") as url:
        yield Minio(url, folder)


@contextlib.contextmanager
def sqs_server(directory: Path) -> Iterator[str]:
    """The URL of an ElasticMQ with SQS's own limits and no queue."""
    jars = provision.elasticmq()
    port = _free_port()
    configuration = directory / "elasticmq.conf"
    configuration.write_text(_ELASTICMQ_CONFIGURATION.format(host=HOST, port=port))
    command = ["java", *JAVA_OPTIONS, f"-Dconfig.file={configuration}", "-cp", f"{jars}/*"]
    with _server([*command, "org.elasticmq.server.Main"], {}, port, directory / "sqs.log") as url:
        yield url


def plain_client(service: str, endpoint_url: str) -> Any:
    """An unmodified boto3 client, to look from outside (Any: boto3 makes its clients at run time)."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        service,
        endpoint_url=endpoint_url,
        region_name=REGION,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        config=Config(s3={"addressing_style": "path"}),
    )


@contextlib.contextmanager
def at_the_end_of(truth: LinkTruth, target_url: str, directory: Path) -> Iterator[str]:
    """The URL under which that server is as far away as the truth says."""
    file = directory / "path.json"
    file.write_text(truth_json(truth))
    command = [sys.executable, "-m", "bench.relay", "--target", target_url, "--truth", str(file)]
    with process(["setpriv", "--pdeathsig", "TERM", *command]) as relay:
        yield json.loads(relay.first_line())["endpoint_url"]


@contextlib.contextmanager
def _server(command: Sequence[str], environment: Mapping[str, str], port: int, log: Path) -> Iterator[str]:
    """Run it while the context lasts; when this process is killed, the kernel kills the server."""
    provision.require("setpriv")
    with log.open("wb") as output:
        running = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is ours to pass on, after the daemon has cleaned up
            env={**os.environ, **environment},
        )
    try:
        _await_answer(running, port, log)
        yield f"http://{HOST}:{port}"
    finally:
        _stop(running)


def _await_answer(running: subprocess.Popen[bytes], port: int, log: Path) -> None:
    with contextlib.suppress(AssertionError):
        until(lambda: _answers(port) or running.poll() is not None, START_SECONDS_MAX)
    if not _answers(port):
        end = log.read_bytes()[-_LOG_BYTES_SHOWN:].decode(errors="replace")
        raise ServerError(f"no server on port {port}; its log ends:\n{end}")


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1.0):
        return True
    return False


def _stop(running: subprocess.Popen[bytes]) -> None:
    running.send_signal(signal.SIGTERM)
    try:
        running.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        port: int = found.getsockname()[1]
        return port
