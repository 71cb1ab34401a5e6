"""`kill -9` at random instants, held against a truth that is kept outside of the daemon: what passed by the proxies."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.trial.stage import status_of
from tests.daemon_house import DaemonHouse
from tests.real.far_away import CONFIGURATION
from tests.real.fault_proxy import FaultProxy, faulty_ways
from tests.real.servers import plain_client

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]

ALIVE_SECONDS_MAX = 3.0  # as long as a probe, with the fit that follows
SEED = 23
LIMIT_BYTES = 3 << 30


@dataclass(frozen=True)
class Lives:
    """A place for one life after another, and the two truths."""

    house: DaemonHouse
    s3: FaultProxy

    def books(self) -> tuple[list[tuple[str, str, int]], int]:
        """Of the database, between two lives: the measurements, and the bytes that S3 was paid for."""
        with closing(sqlite3.connect(self.house.directory / "state/penstock.db")) as books:
            rows = books.execute("SELECT operation, started_at, payload_size_bytes FROM observations")
            paid = books.execute("SELECT SUM(transferred_bytes) FROM spend WHERE operation LIKE 's3%'")
            return rows.fetchall(), paid.fetchone()[0] or 0


@pytest.fixture
def lives(tmp_path: Path, s3_url: str, sqs_url: str) -> Iterator[Lives]:
    """With a budget that the kills come close to."""
    bucket = f"kills-{time.time_ns()}"
    plain_client("s3", s3_url).create_bucket(Bucket=bucket)
    configuration = CONFIGURATION.replace('"64GiB"', str(LIMIT_BYTES))
    with faulty_ways(
        tmp_path, s3_url, sqs_url, bucket, configuration=configuration, wait_seconds_max=400.0
    ) as (house, ways):
        yield Lives(house, ways["s3"])


@pytest.mark.parametrize(
    "count", [pytest.param(10, id="ten"), pytest.param(200, id="two-hundred", marks=pytest.mark.long)]
)
def test_nothing_is_lost_doubled_or_left_behind(count: int, lives: Lives) -> None:
    """What was told is in the books of every later life, once; what was sent is paid for; nothing stays outside."""
    dice, known = random.Random(SEED), set[tuple[str, str, int]]()
    for number in range(count):
        with lives.house.daemon() as running:
            if number % 3:  # a third dies as it begins
                lives.house.wait_for(lambda status: status["activity"].startswith("probing"))
            told = told_of(lives.house, dice.uniform(0.0, ALIVE_SECONDS_MAX))
            os.kill(running.pid, signal.SIGKILL)
        rows, booked_bytes = lives.books()
        assert len(rows) == len(set(rows)), f"doubled by kill {number}"
        assert known <= set(rows), f"lost by kill {number}: {known - set(rows)}"
        assert len(rows) >= len(known) + told, f"lost by kill {number}: {told} were told"
        assert lives.s3.truth.carried_bytes <= booked_bytes <= LIMIT_BYTES
        known = set(rows)
    with lives.house.daemon():
        lives.house.wait_for(lambda status: any(cycle["is_conclusive"] for cycle in status["cycles"]))
    rows, _ = lives.books()
    measured_uploads = sum(operation == "s3_upload" for operation, _, _ in rows)
    carried_uploads = sum(lives.s3.truth.counts[what] for what in ("CompleteMultipartUpload", "PutObject"))
    assert known < set(rows)
    assert measured_uploads <= carried_uploads
    lives.house.swept_by_next_life("s3_upload", "24MiB")


def told_of(house: DaemonHouse, seconds: float) -> int:
    """How many measurements the daemon told of until this random moment."""
    until, told = time.monotonic() + seconds, set[str]()
    while time.monotonic() < until:
        status = status_of(house.socket_path)
        cycles = status["cycles"] if status else []
        told |= {cycle["at"] for cycle in cycles if cycle["is_conclusive"]}
        time.sleep(0.02)
    return len(told)
