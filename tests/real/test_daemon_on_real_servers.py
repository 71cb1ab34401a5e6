"""The real daemon on an S3 and an SQS that others wrote: it learns, advises, survives a kill and leaves nothing."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.trial.stage import process
from tests.daemon_house import DaemonHouse, has_measured
from tests.real.far_away import a_region_away

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the build


@pytest.fixture
def house(tmp_path: Path, s3_url: str, sqs_url: str, bucket: str) -> Iterator[DaemonHouse]:
    """A configured place for a daemon; whatever the test does, its servers are clean at the end."""
    with a_region_away(tmp_path, s3_url, sqs_url, bucket) as house:
        yield house
        assert house.leftovers() == []


def test_it_learns_and_advises_from_what_it_measured(house: DaemonHouse) -> None:
    """After four probes of each operation the advice rests on them and promises what a server of this kind can do."""
    with house.daemon():
        assert house.advice("s3_upload", "24MiB")["basis"] in {"default", "prior"}
        house.wait_for(has_measured(4))
        upload, delivery = house.advice("s3_upload", "24MiB"), house.advice("sqs_delivery", "1KiB")
        download = house.advice("s3_download", "24MiB")

    for advice in (upload, download, delivery):
        assert advice["basis"] in {"model", "measured"}
        assert advice["observation_count"] >= 4
    assert 1 <= upload["setting"]["thread_count"] <= 8
    assert upload["setting"]["part_size_bytes"] >= 5 * 2**20
    assert upload["prediction"]["throughput_bytes_per_second"]["expected"] > 1e6
    assert 1 <= download["setting"]["thread_count"] <= 8
    assert download["prediction"]["first_byte_seconds"]["expected"] > 0.01
    assert delivery["setting"]["deleter_thread_count"] >= 1


def test_a_killed_daemon_advises_at_once_and_its_next_life_sweeps(house: DaemonHouse) -> None:
    """`kill -9` in the middle of an upload leaves an upload and a queue; the next life removes both."""
    with house.daemon() as running:
        house.wait_for(has_measured(2))
        house.wait_for(lambda status: status["activity"].startswith("probing s3"))
        os.kill(running.pid, signal.SIGKILL)
    assert house.leftovers() != []  # the queue at least

    again = house.swept_by_next_life("s3_upload", "24MiB")
    assert again["basis"] in {"model", "measured"}
    assert again["observation_count"] >= 2


def test_a_wrong_secret_is_told_in_the_status(house: DaemonHouse) -> None:
    """The server refuses the signature; the daemon lives, answers, and says which of the two keys to look at."""
    command = [sys.executable, "-m", "penstock.daemon.main", "--config", str(house.configuration_file)]
    with process(command, {"AWS_SECRET_ACCESS_KEY": "wrong"}):
        status = house.wait_for(lambda status: any("secret key" in s for s in sentences_of(status)))
        assert house.advice("s3_upload", "24MiB")["setting"]["thread_count"] >= 1

    said = "does not match the access key: check the credentials"
    assert any(said in sentence for sentence in sentences_of(status))


def sentences_of(status: dict[str, Any]) -> list[str]:
    """Of the cycles that were about uploads."""
    return [c["sentence"] for c in status["cycles"] if c["operation"] == "s3_upload"]


def test_one_cycle_in_the_foreground(house: DaemonHouse) -> None:
    """`penstock run --once --json` measures every operation on them and prints one document."""
    document = house.once()
    assert {cycle["operation"] for cycle in document["cycles"]} == {
        "s3_upload",
        "s3_download",
        "sqs_delivery",
    }
    assert len(document["recommendations"]) > 0
