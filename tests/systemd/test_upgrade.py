"""The package of an earlier version under a real systemd, and this one in its place."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.systemd.machine import SOURCE, Machine, booted, missing, until

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(3600)]

PREVIOUS = "fa6b2f4"  # its database lacks two steps of today's
PYTHON = "/usr/bin/python3"
UNPACKING_SECONDS_MAX = 900.0
LAB = "/opt/penstock/bin/penstock lab --world near --json > /run/lab.json"
CONFIGURATION = """\
# mine
[host]
region = "eu-central-1"
instance_type = "m7i.large"
[aws]
s3_endpoint_url = "{s3}"
[probes.s3_upload]
is_enabled = true
bucket = "{bucket}"
object_size_bytes = ["8MiB"]
mean_interval_seconds = "1s"
usd_per_day = 100
[budget]
usd_per_day = 100
host_cpu_fraction_max = 1
host_network_fraction_max = 1
"""
KEYS = "[Service]\nEnvironment=AWS_ACCESS_KEY_ID=lab AWS_SECRET_ACCESS_KEY=lab-secret\n"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The earlier one, and this."""
    if (why := missing()) is not None:
        pytest.skip(why)
    if shutil.which("go") is None:
        pytest.skip("go, which builds the packager, is not here")
    archive = subprocess.run(["git", "archive", PREVIOUS], cwd=SOURCE, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"a shallow clone has no {PREVIOUS}")
    folder = tmp_path_factory.mktemp("packages")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as archived:
        archived.extractall(folder / "source", filter="data")
    subprocess.run(["make", "build/nfpm"], cwd=SOURCE, check=True)
    for tree, output in ((folder / "source", folder / "before"), (SOURCE, folder / "after")):
        nfpm = ["--nfpm", str(SOURCE / "build/nfpm"), "--output", str(output), "--python", PYTHON]
        subprocess.run([sys.executable, "distribution/build.py", *nfpm], cwd=tree, check=True)
    (before,), (after,) = (folder / "before").glob("*.deb"), (folder / "after").glob("*.deb")
    return before, after


@pytest.fixture
def machine(packages: tuple[Path, Path]) -> Iterator[Machine]:
    """Both lie there, neither is installed."""
    with booted(dict(zip(("before.deb", "after.deb"), packages, strict=True))) as machine:
        yield machine


def status(machine: Machine) -> dict[str, Any]:
    """What the daemon says; nothing while it does not answer."""
    said = machine.run("/usr/bin/penstock", "status", "--json")
    found: dict[str, Any] = json.loads(said.stdout) if said.returncode == 0 else {}
    return found


def measured(machine: Machine) -> int:
    """How often, in all lives."""
    return sum(context["observation_count"] for context in status(machine).get("contexts", ()))


def test_an_upgrade_keeps_what_was_learned_and_what_was_said(machine: Machine) -> None:
    """What runs is replaced and runs again; database, budget and configuration are those from before."""
    machine.do("dpkg", "--force-depends", "-i", "/srv/before.deb", seconds=UNPACKING_SECONDS_MAX)
    machine.do("systemd-run", "--unit=lab", "sh", "-c", LAB)
    until(lambda: machine.run("test", "-s", "/run/lab.json").returncode == 0)
    lab = json.loads(machine.do("cat", "/run/lab.json"))["environment"]
    configuration = CONFIGURATION.format(s3=lab["AWS_ENDPOINT_URL_S3"], bucket=lab["LAB_BUCKET"])
    machine.write("/etc/penstock/penstock.toml", configuration)
    machine.write("/etc/systemd/system/penstock.service.d/keys.conf", KEYS)
    machine.do("systemctl", "daemon-reload")
    machine.do("systemctl", "enable", "--now", "penstock.socket", "penstock.service")
    until(lambda: measured(machine) >= 2)
    before, process = status(machine), machine.shown("MainPID")
    machine.do("dpkg", "--force-depends", "-i", "/srv/after.deb", seconds=UNPACKING_SECONDS_MAX)
    until(lambda: bool(status(machine)))
    assert machine.shown("MainPID") not in {process, "0"}
    after = status(machine)
    assert measured(machine) >= sum(context["observation_count"] for context in before["contexts"])
    assert after["budget"]["spent"]["transferred_bytes"] >= before["budget"]["spent"]["transferred_bytes"]
    assert machine.do("cat", "/etc/penstock/penstock.toml") == configuration
    assert machine.do("systemctl", "is-enabled", "penstock.service").strip() == "enabled"
    seen = measured(machine)
    until(lambda: measured(machine) > seen)
