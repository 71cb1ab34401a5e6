"""`penstock lab`: boto3 as it is finds an S3 and an SQS, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.client.targets.stores import ENDPOINT_VARIABLES
from penstock.lab.worlds import WORLDS
from penstock.trial.laboratory import FOREIGN, Laboratory
from tests.programs import printed, ran

LAB = [sys.executable, "-m", "penstock", "lab"]
EXPERIMENT = """
import os, sys, boto3
s3, sqs = boto3.client("s3"), boto3.client("sqs")
s3.put_object(Bucket=os.environ["LAB_BUCKET"], Key="key", Body=b"body")
print(s3.get_object(Bucket=os.environ["LAB_BUCKET"], Key="key")["Body"].read().decode())
url = os.environ["LAB_QUEUE_URL"]
sqs.send_message(QueueUrl=url, MessageBody="message")
print(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"][0]["Body"])
print(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]["VisibilityTimeout"])
sys.exit(7)
"""
ELSEWHERE = {
    "AWS_PROFILE": "production",
    "AWS_SESSION_TOKEN": "a-real-one",
    "AWS_ENDPOINT_URL": "http://production.invalid",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
    "HTTP_PROXY": "http://proxy.invalid:3128",
    "http_proxy": "http://proxy.invalid:3128",
    "no_proxy": "intranet",
}


def test_a_command_finds_the_lab_whatever_else_is_configured() -> None:
    """Real boto3, with a profile, a token, an endpoint and a proxy of elsewhere; the exit code is the command's."""
    done = ran(
        [*LAB, "--world", "demo", "--", sys.executable, "-c", EXPERIMENT],
        env={**os.environ, **ELSEWHERE},
        timeout=110,
    )
    assert done.stdout.split() == ["body", "message", str(WORLDS["demo"].queue.visibility_timeout_seconds)]
    assert done.returncode == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_ends_cleanly(number: signal.Signals) -> None:
    """With --json one document; being ended is how it ends, so the code is 0, and nobody listens any more."""
    with subprocess.Popen([*LAB, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        document = json.loads(process.stdout.readline())
        environment = document["environment"]
        assert environment["LAB_QUEUE_URL"].startswith(environment["AWS_ENDPOINT_URL_SQS"])
        process.send_signal(number)
        assert process.wait(60) == 0
        assert process.stderr.read() == b""
    for service in ("S3", "SQS"):
        where = urlsplit(environment[f"AWS_ENDPOINT_URL_{service}"])
        assert where.hostname == "127.0.0.1"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((where.hostname, where.port or 0), timeout=5)


def test_a_shell_reads_what_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are quoted, what leads elsewhere is unset, and a host that is reached without a proxy stays so."""
    found = Laboratory(
        world=WORLDS["near"],
        s3_endpoint_url="http://127.0.0.1:1",
        sqs_endpoint_url="http://127.0.0.1:2",
        queue_url="http://127.0.0.1:2/0/lab",
    )
    monkeypatch.setattr("penstock.cli.lab.laboratory", lambda *_, **__: contextlib.nullcontext(found))
    monkeypatch.setattr("signal.pause", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    for name, value in ELSEWHERE.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(cli, ["lab"])
    assert done.exit_code == 0
    script = (
        done.stdout + 'echo "$AWS_ENDPOINT_URL_S3 $AWS_PROFILE$AWS_SESSION_TOKEN$AWS_ENDPOINT_URL $no_proxy"'
    )
    assert printed(["sh", "-c", script]).split() == ["http://127.0.0.1:1", "intranet,127.0.0.1"]
    assert WORLDS["near"].story in done.stderr


def test_whatever_clients_read_leads_to_the_lab() -> None:
    """s5cmd has a variable of its own, and none that it reads may be left to lead elsewhere."""
    found = Laboratory(world=WORLDS["near"], s3_endpoint_url="s3", sqs_endpoint_url="sqs", queue_url="queue")
    environment = found.environment({})
    assert {environment.get(name, "s3") for name in ENDPOINT_VARIABLES} == {"s3"}
    assert set(ENDPOINT_VARIABLES) <= {*environment, *FOREIGN}


def test_other_hosts_reach_it_where_that_is_said() -> None:
    """At the address that is named, S3 on its port and SQS on the next, with a warning; else nobody does."""
    with socket.create_server(("127.0.0.2", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        [*LAB, "--listen", f"127.0.0.2:{port}", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        environment = json.loads(process.stdout.readline())["environment"]
        assert environment["AWS_ENDPOINT_URL_S3"] == f"http://127.0.0.2:{port}"
        assert environment["AWS_ENDPOINT_URL_SQS"] == f"http://127.0.0.2:{port + 1}"
        assert "127.0.0.2" in environment["no_proxy"]
        process.terminate()
        assert b"Warning: whoever reaches 127.0.0.2 can read, write and delete" in process.stderr.read()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("listen", "sentence"),
    [
        ("0.0.0.0", "is every address: name the one"),  # noqa: S104 - it is refused
        ("::", "is every address: name the one"),
        ("somewhere:9000", "is no address of a host, such as 10.0.0.2"),
        ("10.0.0.2:99999", "is no address of a host"),
    ],
)
def test_no_more_is_opened_than_was_named(listen: str, sentence: str) -> None:
    """Every interface at once would be more than who says it knows of."""
    refused = CliRunner().invoke(cli, ["lab", "--listen", listen])
    assert refused.exit_code == 2
    assert sentence in refused.stderr


def test_each_world_is_told() -> None:
    """By name, with what is to be found out there, over as many lines as that takes."""
    shown = " ".join(CliRunner().invoke(cli, ["lab", "--list"]).stdout.split())
    assert all(world.story in shown for world in WORLDS.values())
    assert json.loads(CliRunner().invoke(cli, ["lab", "--list", "--json"]).stdout).keys() == WORLDS.keys()
