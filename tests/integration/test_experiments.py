"""Experiments over HTTP on the lab's services: budgeted, resumable after `kill -9`, and leaving nothing behind."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.daemon.instance import machine
from penstock.lab.worlds import CROSS_REGION, REGIONAL, UNHINDERED, World
from tests.daemon_house import HERE, DaemonHouse, lab_bucket, lab_endpoints
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("credentials")

PENSTOCK = [sys.executable, "-c", "from penstock.cli.entry import main; main()"]
TRY_COUNT_MAX = 12  # a busy machine spoils what takes a fifth of a second
CONFIGURATION = f"""{HERE}
[probes.s3_upload]
bucket = "measured"
[probes.s3_download]
bucket = "measured"
"""


class House(DaemonHouse):
    """A configuration, its services, and where records are kept."""

    def words(self, *words: str) -> list[str]:
        """Of a command."""
        return ["measure", "run", *words, "--config", str(self.configuration_file)]

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

    def page(self) -> str:
        """What the report makes of it."""
        page = self.directory / "page.html"
        words = ["report", "--config", str(self.configuration_file), "--output", str(page)]
        assert CliRunner().invoke(cli, words).exit_code == 0
        return page.read_text()


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with lab_endpoints(tmp_path_factory.mktemp("lab"), REGIONAL, "measured") as urls:
        yield urls


def a_house(directory: Path, urls: Mapping[str, str]) -> House:
    """A configuration of its own."""
    return House(directory, CONFIGURATION, urls=urls, bucket="measured", region="lab-1")


@pytest.fixture
def house(tmp_path: Path, endpoints: dict[str, str]) -> House:
    """Where most is measured."""
    return a_house(tmp_path, endpoints)


@contextmanager
def elsewhere(directory: Path, world: World, sqs_url: str) -> Iterator[House]:
    """Another one, with an S3 of this world, which is empty again afterwards."""
    directory.mkdir(exist_ok=True)
    with lab_bucket(directory, world, "measured") as url:
        house = a_house(directory, {"s3": url, "sqs": sqs_url})
        yield house
        assert house.leftovers() == []


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
    assert house.leftovers() == []
    with closing(sqlite3.connect(house.directory / "state" / "penstock.db")) as database:
        (observations,) = database.execute("SELECT count(*) FROM observations").fetchone()
        spent = dict(database.execute("SELECT operation, transferred_bytes FROM spend").fetchall())
    assert observations == 4
    bodies_bytes = 3 * 4_000_000  # of one stream and of two
    assert spent == {"s3_upload": bodies_bytes, "s3_download": pytest.approx(bodies_bytes + 2 * 4_000_000)}
    page = house.page()
    assert '<section id="parallel-curls">' in page
    assert "<td>127.0.0.1</td>" in page
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
    assert house.page()


def test_one_run_has_both_ends(house: House, endpoints: dict[str, str], tmp_path: Path) -> None:
    """What is near and what is far by its own configuration, compared; both buckets are empty afterwards."""
    with elsewhere(tmp_path / "far", CROSS_REGION, endpoints["sqs"]) as far:
        words = ("threads-by-size", "--short", "--json", "--far", str(far.configuration_file))
        ran = house.run_all_of(*words)
        assert ran.exit_code == 0, ran.output
    assert house.leftovers() == []
    answers = " ".join(json.loads(ran.stdout)["answers"])
    assert "Distance, without TLS: one request of 1 KB takes" in answers
    assert "too few to name the best one" in answers
    with closing(sqlite3.connect(far.directory / "state" / "penstock.db")) as database:
        assert database.execute("SELECT count(*) FROM observations").fetchone() == (4,)
    assert "far end needs" in house.run(*words[:-1], str(house.configuration_file)).stderr
    assert house.run("surge", *words[1:]).exit_code == 2


def test_places_are_measured_each_by_itself_and_compared(
    house: House, endpoints: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two hosts by the same command; what one measured is taken to the other, and nothing is left in either."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-of-the-lab"))
    with elsewhere(tmp_path / "far", CROSS_REGION, endpoints["sqs"]) as far:
        assert far.run_all_of("locations", "--short").exit_code == 0
    assert house.run_all_of("locations", "--short").exit_code == 0
    assert house.leftovers() == []

    def report(of: House, *words: str) -> Result:
        named = ["measure", "report", "locations", "--config", str(of.configuration_file)]
        return CliRunner().invoke(cli, [*named, *words])

    taken = tmp_path / "oregon.jsonl"
    assert report(far, "--output", str(taken)).exit_code == 0
    document = json.loads(report(house, "--with", str(taken), "--json").stdout)
    assert [row[0] for row in document["tables"][0]["rows"]] == ["oregon", "here"]
    assert "Two places do not tell" in " ".join(document["answers"])


def test_another_host_is_read_from(endpoints: dict[str, str], tmp_path: Path) -> None:
    """As `penstock lab` serves it where nothing hinders: what each stream adds, and how many are enough."""
    with elsewhere(tmp_path, UNHINDERED, endpoints["sqs"]) as house:
        ran = house.run("host-to-host", "--short", "--json")
    assert ran.exit_code == 0, ran.output
    here = {fact["name"]: fact["here"] for fact in json.loads(ran.stdout)["facts"]}
    assert here["host.1"] > 0
    assert "Each further stream adds" in " ".join(json.loads(ran.stdout)["answers"])


def test_no_more_is_begun_than_is_allowed(house: House) -> None:
    """The full form moves more than ten gigabytes: not one request is made."""
    refused = house.run("surge")
    assert refused.exit_code == 1
    assert "--bytes-max" in refused.stderr
    assert house.leftovers() == []
    assert not list(house.directory.glob("state/experiments/*"))


@pytest.mark.long
def test_a_killed_run_goes_on_and_removes_what_was_left(house: House) -> None:
    """After `kill -9` in the middle of a queue: the next one removes it, keeps what was measured, and ends."""
    with started(house, "producer-consumer", "--short", "--usd-max", "10") as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("guide/one-host")
        while not house.leftovers():
            pass
        process.send_signal(signal.SIGKILL)
    assert len(house.leftovers()) == 1
    with closing(sqlite3.connect(house.directory / "state/penstock.db")) as database:
        (entry,) = (
            json.loads(document) for (document,) in database.execute("SELECT document FROM leftovers")
        )
    assert entry["machine"] == machine()  # so that a copy of this disk leaves it alone
    resumed = house.run("producer-consumer", "--short", "--usd-max", "10")
    assert resumed.exit_code == 0, resumed.output
    begun = [line.split(":")[0] for line in resumed.stderr.splitlines()]
    assert begun == ["guide/two-hosts", "guide/batch", "guide/one-thread"]
    assert house.leftovers() == []


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
    assert house.leftovers() == []


@pytest.mark.long
def test_an_interrupted_client_is_ended_and_removes_what_it_sent(house: House) -> None:
    """Ctrl-C while a real client uploads: it ends at once, not when it is done; 130, and nothing is left."""
    with started(house, "upload-clients", "--bytes-max", "100GiB", "--usd-max", "100") as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("client/transfer-manager/128"):
            pass
        until(lambda: any(left.startswith("penstock-tune/") for left in house.leftovers()))
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert rest.startswith("Interrupted")
    assert house.leftovers() == []


def test_a_bucket_that_nobody_named_is_asked_for(house: House) -> None:
    """A sentence, before anything is made."""
    path = house.configuration_file
    path.write_text(path.read_text().replace('bucket = "measured"', ""))
    refused = house.run("surge", "--short")
    assert refused.exit_code == 1
    assert "it needs probes.s3_download.bucket" in refused.stderr
