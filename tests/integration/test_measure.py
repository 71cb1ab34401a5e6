"""`penstock measure` as people run it: over HTTP against the lab's SQS, to its end and with Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.lab.worlds import NEAR
from penstock.trial.stage import lab_endpoint
from tests.real.servers import plain_client

pytestmark = pytest.mark.usefixtures("credentials")

PENSTOCK = [sys.executable, "-c", "from penstock.cli.entry import main; main()"]


@pytest.fixture(scope="module")
def endpoint_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The lab's SQS, in which no test leaves a queue."""
    with lab_endpoint("sqs", NEAR, tmp_path_factory.mktemp("lab")) as url:
        yield url


def measure(*arguments: str) -> Result:
    """One run of the command."""
    return CliRunner().invoke(cli, ["measure", "sqs-delivery", *arguments])


def queues_left(url: str) -> list[str]:
    """As another client sees it."""
    client = plain_client("sqs", url)
    urls: list[str] = client.list_queues().get("QueueUrls", [])
    client.close()
    return urls


def test_the_three_modes_are_measured_one_after_another(endpoint_url: str) -> None:
    """A throttled deleter is noticed and answered with batches; no queue is left. What copies come back is of time."""
    slow = ("--visibility-timeout", "1s", "--throttle-deletes", "5", "--seconds", "3s")
    result = measure("--endpoint-url", endpoint_url, *slow, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["was_interrupted"] is False
    blast, published, advised = document["results"]
    assert [r["mode"] for r in document["results"]] == ["blast", "rate-controlled", "advised"]
    assert all(result["deleted_count"] > 0 for result in (blast, published, advised))
    assert blast["sent_count"] > blast["deleted_count"]
    assert advised["conduct"]["delete_batch"] > 1  # ten, or less where the measured costs say so
    assert advised["conditions"]["delete_seconds"] > 0.1  # two tenths, and what a busy machine adds
    assert queues_left(endpoint_url) == []
    assert "  blast  " in result.stderr.splitlines()[0]


def test_a_run_without_a_whole_second_tells_nothing_of_its_end(endpoint_url: str) -> None:
    """Of messages that it deleted for good, none are said to be deleted at the end."""
    result = measure("--endpoint-url", endpoint_url, "--mode", "rate-controlled", "--seconds", "600ms")
    assert result.exit_code == 0, result.stderr
    row = next(line for line in result.stdout.splitlines() if line.startswith("rate-controlled"))
    goodput, at_the_end = row.split()[1:3]
    assert goodput != "0.0/s"
    assert at_the_end == "-"


def test_people_read_a_table(endpoint_url: str) -> None:
    """One row for each mode, the price below it, progress apart from it."""
    result = measure("--endpoint-url", endpoint_url, "--mode", "rate-controlled", "--seconds", "1.2s")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "Messages deleted for good, with a visibility timeout of 5 s"
    assert lines[1].endswith("overdue after")  # a queue may recover from it, which is no collapse
    assert lines[2].startswith("rate-controlled")
    assert lines[2].endswith("never")
    assert "at AWS's list price $0.00" in lines[-1]
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_removes_the_queue_and_shows_what_there_is(endpoint_url: str, number: int) -> None:
    """Ctrl-C, a service manager's end, or a terminal that goes, in the middle of a run."""
    words = ["measure", "sqs-delivery", "--endpoint-url", endpoint_url, "--seconds", "1h", "--json"]
    with subprocess.Popen(
        [*PENSTOCK, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        assert process.stderr is not None
        assert "blast" in process.stderr.readline()
        assert len(queues_left(endpoint_url)) == 1
        process.send_signal(number)
        if number == signal.SIGHUP:
            process.send_signal(number)  # as the shell and the kernel do
        out, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    document = json.loads(out)
    assert document["was_interrupted"] is True
    assert document["results"][0]["sent_count"] > 0
    assert "Traceback" not in rest
    assert queues_left(endpoint_url) == []


def test_trouble_in_a_later_mode_keeps_what_was_measured(endpoint_url: str) -> None:
    """A queue that somebody deletes ends the run with exit code 1, and with the results until then."""
    words = ["measure", "sqs-delivery", "--endpoint-url", endpoint_url, "--seconds", "2s", "--json"]
    with subprocess.Popen(
        [*PENSTOCK, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        assert process.stderr is not None
        while "rate-controlled" not in process.stderr.readline():
            pass
        (url,) = queues_left(endpoint_url)
        client = plain_client("sqs", endpoint_url)
        client.delete_queue(QueueUrl=url)
        client.close()
        out, rest = process.communicate(timeout=60)
    assert process.returncode == 1
    document = json.loads(out)
    assert [result["mode"] for result in document["results"]] == ["blast", "rate-controlled"]
    assert document["results"][0]["deleted_count"] > 0
    assert document["trouble"].split(" (")[0] in rest
    assert "does not exist" in document["trouble"]


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        ([], 2, "say --region, or --endpoint-url"),
        (["--region", "r", "--visibility-timeout", "0.5s"], 2, "whole number of seconds"),
        (["--region", "r", "--visibility-timeout", "13h"], 2, "whole number of seconds"),
        (["--region", "r", "--seconds", "0s"], 2, "more than 0"),
        (["--region", "r", "--queue-prefix", "a b"], 2, "letters, digits"),
        (["--region", "r", "--queue-prefix", "a" * 51], 2, "at most 50"),
        (["--region", "r", "--throttle-deletes", "0"], 2, "not in the range"),
        (["--endpoint-url", "http://127.0.0.1:9"], 1, "refused the connection"),
        (["--region", "r", "--profile", "nobody-has-this"], 1, "the profile does not exist"),
    ],
)
def test_mistakes_are_sentences(arguments: list[str], status: int, sentence: str) -> None:
    """Wrong usage ends with 2 before anything is asked, a server that is not there with 1."""
    result = measure(*arguments)
    assert result.exit_code == status, result.output
    assert sentence in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
