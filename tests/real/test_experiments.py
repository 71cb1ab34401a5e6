"""Every published experiment in its short form on servers that others wrote: killed, and to the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.daemon.config_files import load
from penstock.experiments.experiment import Form
from penstock.experiments.really import steps_here
from penstock.experiments.table import EXPERIMENTS
from penstock.trial.stage import CREDENTIALS
from penstock.tuning.clients import what_is_missing
from tests.integration.test_experiments import CONFIGURATION
from tests.real.far_away import A_REGION_AWAY
from tests.real.servers import REGION, at_the_end_of, plain_client

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the build

PENSTOCK = [sys.executable, "-c", "from penstock.cli.entry import main; main()"]
TRY_COUNT_MAX = 12  # a busy machine spoils what takes a fifth of a second


def killed_after_its_first_step(words: list[str]) -> str | None:
    """The label of what was measured until then."""
    with subprocess.Popen(
        [*PENSTOCK, *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **CREDENTIALS},
    ) as process:
        assert process.stderr is not None
        label, _, came = process.stderr.readline().partition(": ")
        process.send_signal(signal.SIGKILL)
    return label if came.strip().endswith(" s") else None


def kept_in(directory: Path) -> dict[str, Any]:
    """What was measured, by the label of its step."""
    (kept,) = directory.glob("*.short.jsonl")
    records = [json.loads(line)["record"] for line in kept.read_text().splitlines()]
    return {record["label"]: record for record in records if record["reason"] is None}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_survives_a_kill_and_ends(
    name: str, s3_url: str, sqs_url: str, bucket: str, tmp_path: Path
) -> None:
    """Killed after its first step, it goes on with the second; all measured, within their cost; nothing is left."""
    with at_the_end_of(A_REGION_AWAY, s3_url, tmp_path) as far_url:
        text = CONFIGURATION.format(directory=tmp_path, region="lab-1", s3_url=far_url, sqs_url=sqs_url)
        text = text.replace('"measured"', f'"{bucket}"').replace('"lab-1"', f'"{REGION}"')
        (tmp_path / "penstock.toml").write_text(text)
        words = ["measure", "run", name, "--short", "--config", str(tmp_path / "penstock.toml")]
        words += ["--directory", str(tmp_path / "kept")]
        near = load(tmp_path / "penstock.toml").configuration
        far = None
        if any(step.is_far for step in EXPERIMENTS[name].steps(Form.SHORT)):
            text = text.replace(str(tmp_path), str(tmp_path / "far")).replace(far_url, s3_url)
            (tmp_path / "far.toml").write_text(text)
            words += ["--far", str(tmp_path / "far.toml")]
            far = load(tmp_path / "far.toml").configuration
        killed = killed_after_its_first_step(words)
        steps = {
            step.label: step
            for step in steps_here(EXPERIMENTS[name].steps(Form.SHORT), near, far)
            if not step.client or what_is_missing(step.client) is None
        }
        for _ in range(TRY_COUNT_MAX):  # what a busy machine has spoilt is measured by the next run
            ran = CliRunner().invoke(cli, words, env=CREDENTIALS)
            assert killed not in [line.split(":")[0] for line in ran.stderr.splitlines()]
            records = kept_in(tmp_path / "kept")
            if steps.keys() == records.keys():
                break
    assert ran.exit_code == 0, ran.output
    assert steps.keys() == records.keys()
    for label, record in records.items():
        assert record["values"]["request_count"] <= steps[label].cost_of_all.request_count
    client = plain_client("s3", s3_url)
    assert not client.list_objects_v2(Bucket=bucket).get("Contents")
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")
    assert not plain_client("sqs", sqs_url).list_queues(QueueNamePrefix="penstock-").get("QueueUrls")
