"""Experiments over HTTP on the lab's services: budgeted, resumable after `kill -9`, and leaving nothing behind."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.daemon.instance import machine
from penstock.lab.worlds import CROSS_REGION, REGIONAL, UNHINDERED
from penstock.trial.stage import CREDENTIALS, lab_endpoint
from tests.daemon_house import HERE, lab_endpoints
from tests.real.servers import plain_client
from tests.waiting import until

PENSTOCK = [sys.executable, "-c", "from penstock.cli.entry import main; main()"]
TRY_COUNT_MAX = 12  # a busy machine spoils what takes a fifth of a second
CONFIGURATION = f"""{HERE}
[probes.s3_upload]
bucket = "measured"
[probes.s3_download]
bucket = "measured"
"""


@dataclass(frozen=True)
class House:
    """A configuration, its services, and where records are kept."""

    directory: Path
    s3: Any  # boto3 makes its clients at run time
    sqs: Any

    def words(self, *words: str) -> list[str]:
        """Of a command."""
        return ["measure", "run", *words, "--config", str(self.directory / "penstock.toml")]

    def run(self, *words: str) -> Result:
        """To its end."""
        return CliRunner().invoke(cli, self.words(*words))

    def run_all_of(self, *words: str) -> Result:
        """Until every step was measured: what a busy machine has spoilt is measured by the next run."""
        for _ in range(TRY_COUNT_MAX):
            ran = self.run(*words)
            if all(line.endswith(" s") for line in ran.stderr.splitlines()):
                break
        return ran

    def left(self) -> list[str]:
        """Whatever is outside."""
        objects = self.s3.list_objects_v2(Bucket="measured").get("Contents", [])
        uploads = self.s3.list_multipart_uploads(Bucket="measured").get("Uploads", [])
        queues: list[str] = self.sqs.list_queues().get("QueueUrls", [])
        return [*(entry["Key"] for entry in (*objects, *uploads)), *queues]


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with lab_endpoints(tmp_path_factory.mktemp("lab"), REGIONAL, "measured") as urls:
        yield urls


@pytest.fixture
def house(tmp_path: Path, endpoints: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """A configuration of its own."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    s3, sqs = (plain_client(service, url) for service, url in endpoints.items())
    urls = {f"{service}_url": url for service, url in endpoints.items()}
    text = CONFIGURATION.format(directory=tmp_path, region="lab-1", **urls)
    (tmp_path / "penstock.toml").write_text(text)
    yield House(tmp_path, s3, sqs)
    s3.close()
    sqs.close()


def test_a_run_is_kept_taught_and_gone_outside(house: House) -> None:
    """Records, observations for the models, what it cost in the book; nothing in the bucket, nothing left to do."""
    ran = house.run_all_of("parallel-curls", "--short", "--json")
    assert ran.exit_code == 0, ran.output
    here = {fact["name"]: fact["here"] for fact in json.loads(ran.stdout)["facts"]}
    assert here["down.plain.2"] > 0
    assert here["down.ssl.2"] is None  # this endpoint has no TLS
    (address,) = json.loads(ran.stdout)["addresses"]
    assert address["address"] == "127.0.0.1"
    assert address["request_count"] >= 6  # those with a body, and those around them
    assert house.left() == []
    with closing(sqlite3.connect(house.directory / "state" / "penstock.db")) as database:
        (observations,) = database.execute("SELECT count(*) FROM observations").fetchone()
        spent = dict(database.execute("SELECT operation, transferred_bytes FROM spend").fetchall())
    assert observations == 4
    bodies_bytes = 3 * 4_000_000  # of one stream and of two
    assert spent == {"s3_upload": bodies_bytes, "s3_download": pytest.approx(bodies_bytes + 2 * 4_000_000)}
    page = house.directory / "page.html"
    words = ("--config", str(house.directory / "penstock.toml"), "--output", str(page))
    assert CliRunner().invoke(cli, ["report", *words]).exit_code == 0
    assert '<section id="parallel-curls">' in page.read_text()
    assert "<td>127.0.0.1</td>" in page.read_text()
    again = house.run("parallel-curls", "--short", "--json")
    assert again.stdout == ran.stdout
    assert again.stderr == ""


def started(house: House, *words: str) -> subprocess.Popen[str]:
    """A run in a process of its own, which can be ended."""
    return subprocess.Popen(
        [*PENSTOCK, *house.words(*words)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )


def test_a_run_of_queues_is_taught_as_well(house: House) -> None:
    """Each step says how long requests take; the next daemon, and the report, read it like a probe."""
    ran = house.run_all_of("sqs-window", "--short", "--json")
    assert ran.exit_code == 0, ran.output
    with closing(sqlite3.connect(house.directory / "state" / "penstock.db")) as database:
        rows = database.execute("SELECT operation, document FROM observations").fetchall()
    assert {operation for operation, _ in rows} == {"sqs_delivery"}
    assert len(rows) == 3
    assert all(json.loads(document)["measures"]["send_seconds_mean"] > 0 for _, document in rows)
    page = house.directory / "page.html"
    words = ("--config", str(house.directory / "penstock.toml"), "--output", str(page))
    assert CliRunner().invoke(cli, ["report", *words]).exit_code == 0


def test_one_run_has_both_ends(house: House, tmp_path: Path) -> None:
    """What is near and what is far by its own configuration, compared; both buckets are empty afterwards."""
    far = tmp_path / "far"
    with lab_endpoint("s3", CROSS_REGION, tmp_path) as far_url:
        s3 = plain_client("s3", far_url)
        s3.create_bucket(Bucket="measured")
        far.mkdir()
        text = CONFIGURATION.format(directory=far, region="lab-1", s3_url=far_url, sqs_url=far_url)
        (far / "far.toml").write_text(text)
        words = ("threads-by-size", "--short", "--json", "--far", str(far / "far.toml"))
        ran = house.run_all_of(*words)
        assert ran.exit_code == 0, ran.output
        assert not s3.list_objects_v2(Bucket="measured").get("Contents")
        s3.close()
    assert house.left() == []
    answers = " ".join(json.loads(ran.stdout)["answers"])
    assert "Distance, without TLS: one request of 1 KB takes" in answers
    assert "too few to name the best one" in answers
    with closing(sqlite3.connect(far / "state" / "penstock.db")) as database:
        assert database.execute("SELECT count(*) FROM observations").fetchone() == (4,)
    assert "far end needs" in house.run(*words[:-1], str(house.directory / "penstock.toml")).stderr
    assert house.run("surge", *words[1:]).exit_code == 2


def test_places_are_measured_each_by_itself_and_compared(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two hosts by the same command; what one measured is taken to the other, and nothing is left in either."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-of-the-lab"))
    far = tmp_path / "far"
    far.mkdir()
    with lab_endpoint("s3", CROSS_REGION, tmp_path) as far_url:
        s3 = plain_client("s3", far_url)
        s3.create_bucket(Bucket="measured")
        text = CONFIGURATION.format(directory=far, region="lab-1", s3_url=far_url, sqs_url=far_url)
        (far / "penstock.toml").write_text(text)
        there = House(far, s3, house.sqs)
        assert there.run_all_of("locations", "--short").exit_code == 0
        assert not s3.list_objects_v2(Bucket="measured").get("Contents")
        s3.close()
    assert house.run_all_of("locations", "--short").exit_code == 0
    assert house.left() == []

    def report(folder: Path, *words: str) -> Result:
        named = ["measure", "report", "locations", "--config", str(folder / "penstock.toml")]
        return CliRunner().invoke(cli, [*named, *words])

    taken = tmp_path / "oregon.jsonl"
    assert report(far, "--output", str(taken)).exit_code == 0
    document = json.loads(report(house.directory, "--with", str(taken), "--json").stdout)
    assert [row[0] for row in document["tables"][0]["rows"]] == ["oregon", "here"]
    assert "two places do not tell" in " ".join(document["answers"])


def test_another_host_is_read_from(house: House, tmp_path: Path) -> None:
    """As `penstock lab` serves it where nothing hinders: what each stream adds, and how many are enough."""
    with lab_endpoint("s3", UNHINDERED, tmp_path) as url:
        s3 = plain_client("s3", url)
        s3.create_bucket(Bucket="measured")
        text = CONFIGURATION.format(directory=tmp_path, region="lab-1", s3_url=url, sqs_url=url)
        (tmp_path / "penstock.toml").write_text(text)
        ran = house.run("host-to-host", "--short", "--json")
        assert not s3.list_objects_v2(Bucket="measured").get("Contents")
        s3.close()
    assert ran.exit_code == 0, ran.output
    here = {fact["name"]: fact["here"] for fact in json.loads(ran.stdout)["facts"]}
    assert here["host.1"] > 0
    assert "What each further stream adds" in " ".join(json.loads(ran.stdout)["answers"])


def test_no_more_is_begun_than_is_allowed(house: House) -> None:
    """The full form moves more than ten gigabytes: not one request is made."""
    refused = house.run("surge")
    assert refused.exit_code == 1
    assert "--bytes-max" in refused.stderr
    assert house.left() == []
    assert not list(house.directory.glob("state/experiments/*"))


@pytest.mark.long
def test_a_killed_run_goes_on_and_removes_what_was_left(house: House) -> None:
    """After `kill -9` in the middle of a queue: the next one removes it, keeps what was measured, and ends."""
    with started(house, "producer-consumer", "--short", "--usd-max", "10") as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("guide/one-host")
        while not house.left():
            pass
        process.send_signal(signal.SIGKILL)
    assert len(house.left()) == 1
    with closing(sqlite3.connect(house.directory / "state/penstock.db")) as database:
        (entry,) = (
            json.loads(document) for (document,) in database.execute("SELECT document FROM leftovers")
        )
    assert entry["machine"] == machine()  # so that a copy of this disk leaves it alone
    resumed = house.run("producer-consumer", "--short", "--usd-max", "10")
    assert resumed.exit_code == 0, resumed.output
    begun = [line.split(":")[0] for line in resumed.stderr.splitlines()]
    assert begun == ["guide/two-hosts", "guide/batch", "guide/one-thread"]
    assert house.left() == []


@pytest.mark.long
def test_an_interrupted_run_says_where_it_goes_on(house: House) -> None:
    """Ctrl-C: exit code 130, the queue is gone at once, and the same command goes on."""
    with started(house, "sqs-window", "--short") as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("window/2")
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "goes on from" in rest
    assert house.left() == []


@pytest.mark.long
def test_an_interrupted_client_is_ended_and_removes_what_it_sent(house: House) -> None:
    """Ctrl-C while a real client uploads: it ends at once, not when it is done; 130, and nothing is left."""
    with started(house, "upload-clients", "--bytes-max", "100GiB", "--usd-max", "100") as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("client/transfer-manager/128"):
            pass
        until(lambda: any(left.startswith("penstock-tune/") for left in house.left()))
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert rest.startswith("Interrupted")
    assert house.left() == []


def test_a_bucket_that_nobody_named_is_asked_for(house: House) -> None:
    """A sentence, before anything is made."""
    path = house.directory / "penstock.toml"
    path.write_text(path.read_text().replace('bucket = "measured"', ""))
    refused = house.run("surge", "--short")
    assert refused.exit_code == 1
    assert "it needs probes.s3_download.bucket" in refused.stderr
