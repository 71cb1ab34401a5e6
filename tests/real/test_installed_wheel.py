"""Every experiment in the lab, from a wheel that was built and installed, far from the checkout."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.experiments.table import EXPERIMENTS
from tests.programs import ran

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel brings and nothing else."""
    wheels, folder = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, ROOT], check=True
    )
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", folder, wheel], check=True)
    return folder


def run_installed(installed: Path, directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Python with what was installed before all else, in a directory of its own."""
    return ran(
        [sys.executable, *command],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(installed), "XDG_STATE_HOME": str(directory / "state")},
    )


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs_from_the_wheel(name: str, installed: Path, tmp_path: Path) -> None:
    """It ends, says what was published and what came out, and draws its figures."""
    where = run_installed(installed, tmp_path, "-c", "import penstock; print(penstock.__file__)")
    assert Path(where.stdout.strip()).is_relative_to(installed)
    command = ("-m", "penstock", "measure")
    ran = run_installed(installed, tmp_path, *command, "run", name, "--lab", "--json")
    assert ran.returncode == 0, ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout)
    wanting = [fact["name"] for fact in document["facts"] if fact["lab"] is None]
    assert wanting == [fact["name"] for fact in document["facts"] if fact["verdict"] == "not possible"]
    page = tmp_path / "page.html"
    drawn = run_installed(installed, tmp_path, *command, "report", name, "--output", str(page))
    assert drawn.returncode == 0, drawn.stderr
    assert document["answers"][0].split(".")[0] in html.unescape(page.read_text(encoding="utf-8"))
    assert "<svg" in page.read_text(encoding="utf-8")
