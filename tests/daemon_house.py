"""Knows a configured place for a real daemon: its folders, the servers as strangers see them, and what can be asked."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.client.connection import ask
from penstock.lab.link import LinkTruth
from penstock.lab.worlds import NEAR, World
from penstock.trial.stage import CREDENTIALS, Process, daemon, lab_endpoint, status_of
from tests.programs import printed
from tests.real.servers import REGION, plain_client
from tests.waiting import until

FAST = World(
    name="fast",
    story="quick enough for a test",
    link=LinkTruth(
        round_trip_seconds=0.001,
        connection_rate_bytes_per_second=8e6,
        host_rate_bytes_per_second=40e6,
        service_latency_seconds_median=0.005,
    ),
    queue=NEAR.queue,
)
HERE = """
[daemon]
state_directory = "{directory}/state"
runtime_directory = "{directory}/run"
seed = 1
[host]
region = "{region}"
instance_type = "lab"
[aws]
s3_endpoint_url = "{s3_url}"
sqs_endpoint_url = "{sqs_url}"
"""
"""How a configuration begins: more of `[aws]` may follow."""
BOUNDLESS = """
[budget]
usd_per_day = 100
transferred_bytes_per_day = "64GiB"
duty_cycle_fraction = 1
host_cpu_fraction_max = 1
host_network_fraction_max = 1
"""


@contextlib.contextmanager
def lab_bucket(directory: Path, world: World, bucket: str = "bucket") -> Iterator[str]:
    """The URL of the lab's S3, with a bucket."""
    with lab_endpoint("s3", world, directory) as url, contextlib.closing(plain_client("s3", url)) as client:
        client.create_bucket(Bucket=bucket)
        yield url


@contextlib.contextmanager
def lab_endpoints(directory: Path, world: World, bucket: str) -> Iterator[dict[str, str]]:
    """The URLs of the lab's S3, with a bucket, and of its SQS: for all tests of a module, which leave nothing there."""
    with lab_bucket(directory, world, bucket) as s3, lab_endpoint("sqs", world, directory) as sqs:
        yield {"s3": s3, "sqs": sqs}


class DaemonHouse:
    """A daemon's folders and configuration; `s3` and `sqs` are unmodified clients of the servers that it probes.

    `urls` are those that it is told of the two, and `direct_urls` the shorter ways there, if there are any.
    """

    def __init__(
        self,
        directory: Path,
        configuration: str,
        *,
        urls: Mapping[str, str],
        bucket: str,
        direct_urls: Mapping[str, str] | None = None,
        region: str = REGION,
        wait_seconds_max: float = 120.0,
    ) -> None:
        where = {f"{service}_url": url for service, url in urls.items()}
        self.directory = directory
        self.socket_path = directory / "run/penstock.sock"
        self.configuration_file = directory / "penstock.toml"
        self.configuration_file.write_text(
            configuration.format(directory=directory, region=region, bucket=bucket, **where)
        )
        for name in ("state", "run"):
            (directory / name).mkdir()
        direct_urls = direct_urls or urls
        self.s3, self.sqs = (plain_client(service, direct_urls[service]) for service in ("s3", "sqs"))
        self._bucket = bucket
        self._wait_seconds_max = wait_seconds_max

    def daemon(self) -> contextlib.AbstractContextManager[Process]:
        """A running one, that answers."""
        return daemon(self.configuration_file, self.socket_path)

    def once(self) -> dict[str, Any]:
        """The document of one cycle in the foreground."""
        penstock = str(Path(sys.executable).with_name("penstock"))
        command = [penstock, "run", "--once", "--json", "--config", str(self.configuration_file)]
        environment = {**os.environ, **CREDENTIALS}
        document: dict[str, Any] = json.loads(
            printed(command, timeout=self._wait_seconds_max, env=environment)
        )
        return document

    def ask(self, target: str) -> dict[str, Any]:
        """The document that the daemon answers with."""
        document: dict[str, Any] = json.loads(ask(str(self.socket_path), "GET", target).body)
        return document

    def advice(self, operation: str, payload: str) -> dict[str, Any]:
        """The recommendation for a payload size, such as "6MiB"."""
        return self.ask(f"/v1/recommendation?operation={operation}&payload_size_bytes={payload}")

    def wait_for(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first status of which this holds."""
        status: dict[str, Any] | None = None

        def has_come() -> bool:
            nonlocal status
            status = status_of(self.socket_path)
            return status is not None and holds(status)

        try:
            until(has_come, self._wait_seconds_max)
        except AssertionError as late:
            raise AssertionError(f"{late}; last status: {status}") from late
        assert status is not None
        return status

    def swept_by_next_life(self, operation: str, payload: str) -> dict[str, Any]:
        """The advice of a life that probes nothing, which also removes what is left of the one before."""
        configured = self.configuration_file.read_text()
        self.configuration_file.write_text(configured.replace("is_enabled = true", "is_enabled = false"))
        with self.daemon():
            advice = self.advice(operation, payload)
            until(lambda: not self.leftovers(), self._wait_seconds_max)
        assert self.leftovers() == []
        return advice

    def leftovers(self) -> list[str]:
        """Objects, unfinished uploads and queues that are there."""
        objects = self.s3.list_objects_v2(Bucket=self._bucket).get("Contents", [])
        uploads = self.s3.list_multipart_uploads(Bucket=self._bucket).get("Uploads", [])
        return [*(o["Key"] for o in (*objects, *uploads)), *self.sqs.list_queues().get("QueueUrls", [])]


def has_measured(count: int) -> Callable[[dict[str, Any]], bool]:
    """Of a status: every context was measured so often."""
    return lambda status: (
        bool(status["contexts"])
        and all(context["observation_count"] >= count for context in status["contexts"])
    )
