"""A new operation is a row: configured, probed, advised, explained and asked about with not a line elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.advice import Adviser
from penstock.client.connection import NoDaemonError, ask
from penstock.client.lease import Lease
from penstock.trial.faces.face import Clients
from penstock.trial.stage import CREDENTIALS, Process, lab_endpoint, process
from tests.daemon_house import BOUNDLESS, FAST, HERE
from tests.integration import made_up
from tests.programs import ran
from tests.waiting import until

ROOT = Path(__file__).parents[2]
WITH_MADE_UP = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests/integration/with_made_up'}"}
NOBODY = "http://127.0.0.1:9"  # an address of this host where nothing listens
QUESTION = f"/v1/recommendation?operation={made_up.NAME}&payload_size_bytes=1GiB"
CONFIGURATION = f"""{HERE}
[probes.s3_made_up]
is_enabled = true
bucket = "{{bucket}}"
object_size_bytes = ["6MiB"]
thread_count_max = 8
{BOUNDLESS}"""


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One command of a penstock that knows the operation."""
    return ran(
        [sys.executable, "-m", "penstock", *arguments],
        timeout=90,
        env={**os.environ, **CREDENTIALS, **WITH_MADE_UP},
    )


def configured(directory: Path, endpoint_url: str = NOBODY, bucket: str = "made-up") -> str:
    """The path of a configuration that probes the operation and no other."""
    for name in ("state", "run"):
        (directory / name).mkdir(exist_ok=True)
    file = directory / "penstock.toml"
    where = {"region": "eu-west-1", "s3_url": endpoint_url, "sqs_url": NOBODY}
    file.write_text(CONFIGURATION.format(directory=directory, bucket=bucket, **where), encoding="utf-8")
    return str(file)


@contextlib.contextmanager
def a_daemon(directory: Path, configuration: str) -> Iterator[Process]:
    """One that has fitted: until then it answers with the SDK's default, and between two questions it would change."""
    command = [sys.executable, "-m", "penstock.daemon.main", "--config", configuration]
    with process(command, WITH_MADE_UP) as child:

        def has_fitted() -> bool:
            child.check()
            with contextlib.suppress(NoDaemonError):
                answer = ask(str(directory / "run/penstock.sock"), "GET", QUESTION)
                return bool(json.loads(answer.body)["basis"] != "default")
            return False

        until(has_fitted)
        yield child


def test_its_section_is_read_and_its_mistakes_are_told(tmp_path: Path) -> None:
    """Keys, types, contradictions and slips of the pen, by its own path."""
    assert penstock("config", "check", "--config", configured(tmp_path)).returncode == 0
    missing = penstock("config", "check", "--config", configured(tmp_path, bucket=""))
    assert missing.returncode == 1
    assert "probes.s3_made_up.bucket: missing; expected the name of a bucket" in missing.stderr
    Path(configured(tmp_path)).write_text("[probes.s3_made]\nbucket = 7", encoding="utf-8")
    slip = penstock("config", "check", "--config", str(tmp_path / "penstock.toml"))
    assert "did you mean s3_made_up?" in slip.stderr


@pytest.mark.parametrize("command", ["query", "explain", "probe"])
def test_each_command_that_takes_an_operation_takes_it(command: str) -> None:
    """Under its own word, with an example."""
    shown = penstock(command, "--help").stdout
    assert "  s3-made-up  " in shown
    assert f"penstock {command} s3-made-up --object-size" in shown


def test_it_is_probed_and_advised_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """`penstock run` names it where nothing is enabled, and measures it where it is."""
    assert "or [probes.s3_made_up]" in penstock("run", "--once", "--config", "/dev/null").stderr
    with lab_endpoint("s3", FAST, tmp_path) as endpoint_url:
        s3 = Clients(endpoint_url, "").s3()
        failed = penstock("run", "--once", "--config", configured(tmp_path, endpoint_url))
        assert failed.returncode == 1
        assert "nothing was measured: s3_made_up" in failed.stderr
        s3.create_bucket(Bucket="made-up")
        done = penstock("run", "--once", "--json", "--config", configured(tmp_path, endpoint_url))
        assert done.returncode == 0, done.stderr
        assert s3.list_objects_v2(Bucket="made-up").get("Contents", []) == []
    document: dict[str, Any] = json.loads(done.stdout)
    assert {cycle["operation"] for cycle in document["cycles"]} == {made_up.NAME}
    assert "gave" in document["cycles"][0]["sentence"]
    report = penstock("report", "--config", str(tmp_path / "penstock.toml"), "--output", "-")
    assert "s3 made up" in report.stdout
    told = penstock("report", "--config", str(tmp_path / "penstock.toml"), "--format", "markdown")
    assert re.search(r"^ *part_size_bytes = [0-9]+$", told.stdout, re.MULTILINE), told.stdout


def test_a_daemon_answers_about_it(tmp_path: Path) -> None:
    """Shell and application ask for it by name; the application's penstock is older and has never heard of it."""
    socket, configuration = str(tmp_path / "run/penstock.sock"), configured(tmp_path)
    with a_daemon(tmp_path, configuration):
        asked = penstock("query", "s3-made-up", "--object-size", "1GiB", "--socket", socket, "--json")
        assert asked.returncode == 0, asked.stderr
        adviser = Adviser(socket=socket, snapshot=str(tmp_path / "nowhere"))
        advice = adviser.advise("s3_made_up", 1 << 30)  # type: ignore[arg-type]  # it is made up
        with Lease("s3_made_up", 1 << 30, socket=socket) as lease:  # type: ignore[arg-type]
            leased = dict(lease.advice.setting)
    document = json.loads(asked.stdout)
    assert leased == document["setting"]  # all of the host, for nobody else is there
    assert document["operation"] == made_up.NAME
    assert dict(advice.setting) == document["setting"]
    assert advice.setting  # without an answer it would be empty: no SDK has a default for it
