"""`penstock measure list`, `show`, `run --lab` and `report`, as people call them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.experiments.table import EXPERIMENTS, STUDIES


def measure(*words: str) -> Result:
    """One command."""
    return CliRunner().invoke(cli, ["measure", *words])


def test_what_there_is_and_what_it_costs() -> None:
    """Every experiment with the most that it takes, before anything is spent; no bytes without requests."""
    listed = json.loads(measure("list", "--json").stdout)["experiments"]
    assert [row["name"] for row in listed] == list(EXPERIMENTS)
    assert sum(row["figure_count"] for row in listed) == 84
    dry = json.loads(measure("run", "surge", "--dry-run", "--json").stdout)
    shown = json.loads(measure("show", "surge", "--json").stdout)
    assert dry["usd"] == shown["usd"] > 0
    assert dry["request_count"] == sum(
        s["copy_count"] * s["cost_max"]["request_count"] for s in shown["steps"]
    )
    assert "at most" in measure("run", "surge", "--dry-run").stdout


def test_a_study_is_named_by_who_made_it() -> None:
    """A number says nothing to who reads it first."""
    listed = measure("list").stdout
    assert all(f"{study}: {title}" in listed for study, title in STUDIES.items())
    assert f"\n{STUDIES['001']}: 5.7, figure 8.\n" in measure("show", "surge").stdout


def test_a_run_in_the_lab_is_kept_and_reported(tmp_path: Path) -> None:
    """Published, lab and difference in a table; the page has the figures; the report reads what the run kept."""
    kept = ("--directory", str(tmp_path))
    ran = measure("run", "parallel-curls", "--lab", *kept)
    assert ran.exit_code == 0, ran.output
    assert "up/ssl/12: 223.0 s" in ran.stderr.splitlines()  # each step, as it ends
    (row,) = [line.split() for line in ran.stdout.splitlines() if line.startswith("up.ssl.12")]
    assert row == ["up.ssl.12", "53.8", "MB/s", "53.8", "MB/s", "+0.0", "%", "fitted", "reproduced"]
    page = tmp_path / "page.html"
    report = measure("report", "parallel-curls", "--output", str(page), *kept)
    assert report.stdout == ran.stdout
    assert "in the lab" not in report.stderr
    assert page.read_text().count("<svg") == 8  # four figures, each as published and of the lab
    document = json.loads(measure("report", "parallel-curls", "--json", *kept).stdout)
    assert {fact["verdict"] for fact in document["facts"]} == {"reproduced", "missed"}
    link = tmp_path / "link.html"
    link.symlink_to(page)
    refused = measure("report", "parallel-curls", "--output", str(link), *kept)
    assert refused.exit_code == 1
    # root may be led by whoever may put one there
    assert f"is a link to {page}: name that file" in refused.stderr
    elsewhere = measure("report", "parallel-curls", "--directory", str(tmp_path / "other"))
    assert elsewhere.stderr == "parallel-curls: in the lab ...\n"  # and not each of its steps


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("show", "nothing"), "there is no experiment nothing: say one of sqs-blast"),
        (("run", "surge", "--lab", "--directory", "/proc/1/none"), "cannot be written"),
        (("run", "surge", "--lab", "--dry-run"), "in the lab it costs nothing"),
        (("report", "surge", "--directory", "/dev/null/none"), "cannot be read"),
        (("report",), "say an experiment, or --all"),
        (("report", "surge", "--all"), "say an experiment, or --all"),
    ],
)
def test_mistakes_are_sentences(words: tuple[str, ...], sentence: str) -> None:
    """No traceback, and what to do."""
    result = measure(*words)
    assert result.exit_code in {1, 2}
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_another_host_has_to_be_named(tmp_path: Path) -> None:
    """Else what S3 does would be shown as what a host does; nothing is asked before."""
    configuration = tmp_path / "penstock.toml"
    configuration.write_text(
        f'[daemon]\nstate_directory = "{tmp_path}"\nruntime_directory = "{tmp_path}"\n'
        '[probes.s3_download]\nbucket = "a-bucket"\nregions = ["eu-central-1"]\n'
    )
    refused = measure("run", "host-to-host", "--short", "--config", str(configuration))
    assert refused.exit_code == 1
    assert "name that as aws.s3_endpoint_url" in refused.stderr


def test_a_short_run_in_the_lab_says_that_it_is_one(tmp_path: Path) -> None:
    """Else each figure that a minute misses would look like the lab's failure."""
    ran = measure("run", "parallel-curls", "--lab", "--short", "--directory", str(tmp_path))
    assert ran.exit_code == 0, ran.output
    assert "This was the short form" in " ".join(ran.output.split())
    assert not list(tmp_path.iterdir())  # nothing that a report would take for a measurement of real services
    for name in EXPERIMENTS:
        if name.startswith(("locations", "host")):
            assert measure("run", name, "--lab", "--short", "--directory", str(tmp_path)).exit_code == 0
    assert "missed" not in ran.stdout
    zones = measure("run", "sqs-zones", "--lab", "--short", "--directory", str(tmp_path))
    assert zones.exit_code == 0, zones.output
    assert "The same window of ten carried near" in zones.stdout
    clients = measure("run", "upload-clients", "--lab", "--short", "--directory", str(tmp_path)).stdout
    assert "Upload by client and file, MB/s (short form)" in clients
    assert "rclone," in clients  # as one that would run
    assert "rclone " not in clients  # and not as a column of figures that no rclone made
