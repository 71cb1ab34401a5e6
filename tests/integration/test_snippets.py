"""What the pages show can be pasted: Python runs against the lab, commands are understood, configurations are read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.client.advice import Advice
from penstock.daemon import config_files
from penstock.lab.worlds import NEAR
from penstock.trial.stage import CREDENTIALS, lab_endpoint
from penstock.units import GiB, MiB
from tests.integration.scripted_advisor import (
    SETTINGS,
    ScriptedAdvisor,
    Served,
    a_recommendation,
    served_in_thread,
)

ROOT = Path(__file__).parents[2]
PAGES = {
    path.name: path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))
}
ANSWERED = ("query", "status", "explain")  # by any daemon, and in a moment
_SDKS = ("boto3", "aiobotocore", "awscrt", "s3fs")


def blocks(page: str, language: str) -> list[str]:
    """All of them, in the order of the page."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES[page], re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[list[str]]:
    """The words of each penstock that is to be typed, also within a pipe or a substitution."""
    found = []
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            for command in re.findall(r"(?:^|\| |&& |\$\()(penstock [^|&)\n]+)", line):
                words = shlex.split(re.sub(r"\s>.*$", "", command.replace('"', "")), comments=True)
                found.append(words[1:])
    return found


COMMANDS = [words for page in PAGES for words in commands(page)]
PYTHON = [page for page in PAGES if blocks(page, "python")]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A daemon that is found."""
    advisor = ScriptedAdvisor([a_recommendation(operation) for operation in SETTINGS])
    with served_in_thread(tmp_path, advisor) as running:
        monkeypatch.setenv("PENSTOCK_SOCKET", str(running.socket_path))
        monkeypatch.setenv("PENSTOCK_SNAPSHOT", str(running.snapshot_path))
        yield running


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An S3 and an SQS that any session finds."""
    with lab_endpoint("s3", NEAR, tmp_path) as s3, lab_endpoint("sqs", NEAR, tmp_path) as sqs:
        region = {"AWS_DEFAULT_REGION": "eu-west-1"}
        endpoints = {"AWS_ENDPOINT_URL_S3": s3, "AWS_ENDPOINT_URL_SQS": sqs}
        for name, value in {**CREDENTIALS, **region, **endpoints}.items():
            monkeypatch.setenv(name, value)
        yield


def what_a_reader_has(folder: Path) -> dict[str, Any]:
    """The names that a page takes for granted: clients, a file, a bucket, a queue with a message, and code for both."""
    import boto3

    s3: Any = boto3.client("s3")
    sqs: Any = boto3.client("sqs")
    s3.create_bucket(Bucket="my-bucket")
    queue_url = sqs.create_queue(QueueName="work")["QueueUrl"]
    sqs.send_message(QueueUrl=queue_url, MessageBody="one")
    (folder / "backup.tar").write_bytes(bytes(6 * MiB))
    for name in ("one.jpg", "2026/two.jpg"):
        (folder / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "photos" / name).write_bytes(bytes(1000))
    names: dict[str, Any] = {
        "s3": s3,
        "sqs": sqs,
        "queue_url": queue_url,
        "bucket": "my-bucket",
        "key": "key",
        "path": "backup.tar",
        "paths": ["backup.tar"],
        "upload": lambda path, threads, part_size_bytes: (path, threads, part_size_bytes),
        **dict.fromkeys(("size", "size_bytes", "payload_size_bytes"), GiB),
    }
    names["handle"] = lambda _message: names["consumer"].stop()
    return names


@pytest.mark.parametrize("page", PYTHON)
def test_python_runs(
    page: str, server: Served, lab: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Block after block, as somebody reads them, and with advice: none fell back to what the SDK does."""
    monkeypatch.chdir(tmp_path)
    names = what_a_reader_has(tmp_path)
    for number, block in enumerate(blocks(page, "python")):
        exec(compile(block, f"{page}, block {number}", "exec"), names)  # noqa: S102 - our own pages
    assert all(found.basis == "measured" for found in names.values() if isinstance(found, Advice))
    for name in ("s3", "sqs"):
        names[name].close()


@pytest.mark.parametrize("page", PYTHON)
def test_no_snippet_hides_a_library(page: str) -> None:
    """Who pastes `from penstock.client import boto3` below `import boto3` has lost the SDK."""
    for block in blocks(page, "python"):
        for imported in re.findall(r"^from penstock\.client import (.+)$", block, re.MULTILINE):
            assert not {name.strip() for name in imported.split(",")} & set(_SDKS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_is_understood(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It exists, with all of its options, and takes the files that it is given."""
    monkeypatch.chdir(tmp_path)
    for word in words:
        if word.endswith(".jsonl"):
            Path(word).touch()
    command: click.Command | None = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command = command.get_command(click.Context(command), words[0])
        words = words[1:]
    assert command is not None
    # With the settings of the whole: what a command is first asked with, it remembers.
    parent = click.Context(cli, help_option_names=["-h", "--help"])
    command.make_context(command.name, list(words), parent=parent)


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] in ANSWERED], ids=" ".join)
def test_a_question_is_answered(words: list[str], server: Served) -> None:
    """By a daemon that knows something."""
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")])
def test_a_configuration_is_read(page: str, tmp_path: Path) -> None:
    """Without a mistake."""
    for block in blocks(page, "toml"):
        (tmp_path / "penstock.toml").write_text(block)
        config_files.load(tmp_path / "penstock.toml", root=tmp_path)


def test_there_are_snippets() -> None:
    """The patterns above find what they are for."""
    assert {"README.md", "clients.md", "leases.md", "reporting.md"} <= set(PYTHON)
    assert len(COMMANDS) >= 15
