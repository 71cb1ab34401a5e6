"""Knows how one boto3 process uploads: as it is told, with a lease, or by default.

    python -m bench.lease_client ENDPOINT FILE FOLDER

carries out one `Job` for each line of JSON on standard input and prints a `Report`. Before uploads without a given
setting it prints "ready" and waits for another line, so that several processes can begin together. FOLDER contains the
daemon's socket. It imports what an application would: boto3 and penstock's client.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

from penstock.client.advice import Adviser
from penstock.client.lease import Lease

MiB = 1 << 20
BUCKET = "leases"
BOTO3_DEFAULT = {"thread_count": 10, "part_size_bytes": 8 * MiB}

Setting = dict[str, int]


class Uploader:
    """boto3, used as by an application."""

    def __init__(self, endpoint_url: str, source: Path, folder: Path) -> None:
        self._endpoint_url = endpoint_url
        self._source = source
        self._socket_path = str(folder / "penstock.sock")

    def carry_out(self, job: dict[str, Any]) -> dict[str, Any]:
        """`strategy` is "told" (a `setting`), "default", "optimum" or "lease"; `file_count` files, one by one."""
        size = self._source.stat().st_size
        with contextlib.ExitStack() as held:
            setting_now = self._strategy(job, size, held)
            if job["strategy"] != "told":
                print("ready", flush=True)
                sys.stdin.readline()
            client = self._client()
            began, settings = time.perf_counter(), []
            for _ in range(job["file_count"]):
                settings.append(setting_now())
                self._send(client, settings[-1])
        return {
            "duration_seconds": time.perf_counter() - began,
            "transferred_bytes": size * job["file_count"],
            "rss_bytes_max": _rss_bytes_max(),
            "thread_count": settings[0]["thread_count"],
        }

    def _strategy(self, job: dict[str, Any], size: int, held: contextlib.ExitStack) -> Callable[[], Setting]:
        """A function that returns the setting for the next file."""
        if job["strategy"] == "lease":
            lease = held.enter_context(Lease("s3_upload", size, client="boto3", socket=self._socket_path))
            return lambda: dict(lease.setting)
        if job["strategy"] == "optimum":
            adviser = Adviser(socket=self._socket_path)
            return lambda: dict(adviser.advise("s3_upload", size).setting)
        return lambda: job.get("setting", BOTO3_DEFAULT)

    def _client(self) -> Any:  # boto3 has no types
        config = Config(
            max_pool_connections=64,
            request_checksum_calculation="when_required",
            s3={"addressing_style": "path", "payload_signing_enabled": False},
            retries={"total_max_attempts": 10},
        )
        client = boto3.client("s3", endpoint_url=self._endpoint_url, config=config)
        known = client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists
        with contextlib.suppress(*known):
            client.create_bucket(Bucket=BUCKET)
        return client

    def _send(self, client: Any, setting: Setting) -> None:
        config = TransferConfig(
            max_concurrency=int(setting["thread_count"]),
            multipart_chunksize=int(setting["part_size_bytes"]),
            multipart_threshold=int(setting["part_size_bytes"]),
            preferred_transfer_client="classic",
        )
        client.upload_file(str(self._source), BUCKET, f"object-{os.getpid()}", Config=config)


def _rss_bytes_max() -> int:
    """This program's peak memory; getrusage would include its parent's from before the exec."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def main() -> None:
    """One job after another, until standard input ends."""
    uploader = Uploader(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    for line in iter(sys.stdin.readline, ""):
        print(json.dumps(uploader.carry_out(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
