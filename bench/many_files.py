"""Knows what moving many files at a time gains: a folder of equal files and one of all sizes, each in several ways.

    python -m bench many-files

A link of known physics, 20 ms away, with slow connections. A few uploads of one large file teach the model; its advice
reaches the application over the real socket. Then boto3 moves a folder as in its documentation, by the pattern for one
file, by ten threads as applications often have, and by `upload_files`: with the advice, and with fixed thread counts,
the best of which is what was possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
import msgspec
from aiobotocore.session import get_session
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

from bench import results
from bench.advice_server import Upload, advice_server
from penstock.client import boto3 as advised
from penstock.client.advice import Advice, Adviser
from penstock.client.boto3 import files_below, upload_files
from penstock.client.reporting import Reporter
from penstock.client.transfers import aiobotocore_transfers
from penstock.lab.link import LinkTruth
from penstock.lab.worlds import DEMO
from penstock.trial.stage import CREDENTIALS, lab_endpoint
from penstock.units import KiB, MiB

LINK = LinkTruth(
    round_trip_seconds=0.020,
    connection_rate_bytes_per_second=2.4e6,
    host_rate_bytes_per_second=40e6,
    service_latency_seconds_median=0.020,
    service_latency_sigma=0.25,
    oversubscription_loss=0.1,
)
BUCKET = "many-files"
_PROBE_BYTES = 200 * MiB
_PROBES = ((4, 8), (8, 8), (16, 8), (25, 8), (40, 5), (30, 6))  # threads, MiB per part; some beyond the knee
_GRID = (10, 20, 40, 80)
FOLDERS: Mapping[str, Mapping[int, int]] = {  # number of files by size
    "equal": {MiB: 500},
    "mixed": {100 * KiB: 300, MiB: 150, 16 * MiB: 6, 64 * MiB: 1},
}
# Files of a folder for the ways that move one at a time, whose rate does not depend on the number.
_ONE_BY_ONE_COUNT = {False: 60, True: 500}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One folder moved in one way."""

    folder: str
    way: str
    file_count: int
    transferred_bytes: int
    duration_seconds: float

    def __str__(self) -> str:
        """One line of the table."""
        rate = self.transferred_bytes / self.duration_seconds / 1e6
        return f"{self.folder:6} {self.way:28} {self.file_count:4} files {rate:6.1f} MB/s"


def run(*, long: bool = False) -> dict[str, Any]:
    """Measure, print the table, keep the figures under `results/`."""
    with tempfile.TemporaryDirectory(prefix="penstock-many-files-") as name, contextlib.ExitStack() as stage:
        folder = Path(name)
        url = stage.enter_context(lab_endpoint("s3", dataclasses.replace(DEMO, link=LINK), folder))
        variables = {**CREDENTIALS, "AWS_DEFAULT_REGION": "eu-west-1", "AWS_ENDPOINT_URL_S3": url}
        stage.enter_context(mock.patch.dict(os.environ, variables))
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        (folder / "observations.json").write_bytes(msgspec.json.encode(list(_probed(folder))))
        stage.enter_context(advice_server(folder))
        stage.enter_context(mock.patch.dict(os.environ, PENSTOCK_SOCKET=str(folder / "penstock.sock")))
        reporter = Reporter(socket=str(folder / "nobody"))  # keeps these measurements from the daemon
        _say_advice()
        rows = [row for kind in FOLDERS for row in _moved(kind, _made(folder, kind), reporter, long=long)]
    found = {"link": asdict(LINK), "rows": [asdict(row) for row in rows]}
    results.keep("many_files", found)
    return found


def _say_advice() -> None:
    counts = {size: count for kind in FOLDERS.values() for size, count in kind.items()}
    for size, count in sorted(counts.items()):
        advice = Adviser(socket=os.environ["PENSTOCK_SOCKET"]).advise("s3_upload", size, object_count=count)
        print(f"advice for {count} files of {size / MiB:.1f} MiB: {dict(advice.setting)}", flush=True)


def _probed(folder: Path) -> Iterator[Upload]:
    """A few uploads of one large file to teach the model."""
    path = folder / "large"
    path.write_bytes(random.Random(1).randbytes(MiB) * (_PROBE_BYTES // MiB))
    for thread_count, mebibytes in _PROBES:
        client = boto3.client("s3", config=Config(max_pool_connections=thread_count))
        setting = {"thread_count": thread_count, "part_size_bytes": mebibytes * MiB}
        config = TransferConfig(max_concurrency=thread_count, multipart_chunksize=mebibytes * MiB)
        began = time.perf_counter()
        client.upload_file(str(path), BUCKET, "large", Config=config)
        seconds = time.perf_counter() - began
        yield Upload(**setting, object_size_bytes=_PROBE_BYTES, duration_seconds=seconds)


def _made(folder: Path, kind: str) -> Path:
    root = folder / kind
    for size, count in FOLDERS[kind].items():
        for number in range(count):
            path = root / f"{size}" / f"{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(random.Random(number).randbytes(min(size, MiB)) * max(1, size // MiB))
    return root


def _moved(kind: str, root: Path, reporter: Reporter, *, long: bool) -> Iterator[Row]:
    everything = dict(files_below(root, f"{kind}/"))
    count = min(_ONE_BY_ONE_COUNT[long], len(everything))
    some = dict(random.Random(1).sample(sorted(everything.items()), count))
    ways: list[tuple[str, dict[str, str], Callable[[dict[str, str]], object]]] = [
        ("boto3, one by one", some, _one_by_one),
        ("advised, one by one", some, _advised_one_by_one),
        ("boto3, ten threads", everything, _in_ten_threads),
        ("upload_files", everything, partial(_upload, reporter=reporter)),
        ("upload_files, aiobotocore", everything, partial(_with_aiobotocore, reporter=reporter)),
    ]
    ways += [
        (
            f"upload_files, {threads} threads",
            everything,
            partial(_upload, reporter=reporter, advice=_fixed(threads)),
        )
        for threads in _GRID
    ]
    for way, files, move in ways:
        began = time.perf_counter()
        move(files)
        seconds = time.perf_counter() - began
        size = sum(Path(path).stat().st_size for path in files)
        row = Row(
            folder=kind, way=way, file_count=len(files), transferred_bytes=size, duration_seconds=seconds
        )
        print(row, flush=True)
        yield row


def _one_by_one(files: dict[str, str]) -> None:
    client = boto3.client("s3")
    for path, key in files.items():
        client.upload_file(path, BUCKET, key)


def _advised_one_by_one(files: dict[str, str]) -> None:
    """The documented pattern for one file, applied to each."""
    largest = max(Path(path).stat().st_size for path in files)
    client = boto3.client("s3", config=advised.client_config(largest))
    for path, key in files.items():
        client.upload_file(path, BUCKET, key, Config=advised.transfer_config(Path(path).stat().st_size))


def _in_ten_threads(files: dict[str, str]) -> None:
    client = boto3.client("s3")
    with ThreadPoolExecutor(10) as pool:
        for done in [pool.submit(client.upload_file, path, BUCKET, key) for path, key in files.items()]:
            done.result()


def _upload(files: dict[str, str], *, reporter: Reporter, advice: Advice | None = None) -> None:
    upload_files(boto3.Session(), files, BUCKET, advice=advice, reporter=reporter).raise_for_failed()


def _with_aiobotocore(files: dict[str, str], *, reporter: Reporter) -> None:
    moving = aiobotocore_transfers.upload_files(get_session(), files, BUCKET, reporter=reporter)
    asyncio.run(moving).raise_for_failed()


def _fixed(threads: int) -> Advice:
    document = Adviser(socket=os.environ["PENSTOCK_SOCKET"]).advise("s3_upload", MiB).document
    return Advice({**document, "setting": {"thread_count": threads, "part_size_bytes": 8 * MiB}})
