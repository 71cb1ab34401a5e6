"""The package of an earlier version under a real systemd, this one in its place, and its removal."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd import probing
from tests.systemd.machine import SOURCE, Machine, booted, missing
from tests.systemd.probing import SECONDS_MAX, measured, status
from tests.waiting import until

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(3600)]

PREVIOUS = "fa6b2f4"  # its database lacks two steps of today's
PYTHON = "/usr/bin/python3"
FILE = "/etc/penstock/penstock.toml"
# Without it the earlier one cannot fit: it gave up where it may not change its priority.
NO_FILTER = "SystemCallFilter="
READS = """
[probes.s3_download]
is_enabled = true
bucket = "lab"
object_size_bytes = ["8MiB"]
mean_interval_seconds = "1s"
"""
READ_OBJECT = "-reads-"  # stays as long as the daemon runs
LISTING = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The earlier one, and this."""
    if (why := missing()) is not None:
        pytest.skip(why)
    if shutil.which("go") is None:
        pytest.skip("go, which builds the packager, is not here")
    folder = tmp_path_factory.mktemp("packages")
    archive = folder / "source.tar"
    if subprocess.run(
        ["git", "archive", f"--output={archive}", PREVIOUS], cwd=SOURCE, check=False
    ).returncode:
        pytest.skip(f"a shallow clone has no {PREVIOUS}")
    shutil.unpack_archive(archive, folder / "source")
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


def test_an_upgrade_keeps_what_was_learned_and_what_was_said(machine: Machine) -> None:
    """What runs is replaced and runs again; database, budget and configuration are those from before."""
    machine.do("dpkg", "--force-depends", "-i", "/srv/before.deb", seconds=SECONDS_MAX)
    configuration = probing.begin(machine, FILE)
    probing.drop_in(machine, NO_FILTER)
    machine.do("systemctl", "enable", "--now", "penstock.socket", "penstock.service")
    until(lambda: measured(machine) >= 2, SECONDS_MAX)
    before, process = status(machine), machine.shown("MainPID")
    probing.drop_in(machine)
    # As where nobody is there to be asked: what the operator wrote stands, though the example has changed.
    machine.do("dpkg", "--force-depends", "--force-confold", "-i", "/srv/after.deb", seconds=SECONDS_MAX)
    until(lambda: bool(status(machine)), SECONDS_MAX)
    assert machine.shown("MainPID") not in {process, "0"}
    after = status(machine)
    assert measured(machine) >= sum(context["observation_count"] for context in before["contexts"])
    spent = [said["spent_per_day"]["transferred_bytes"] for said in (before, after)]
    assert 0 < spent[0] <= spent[1]
    assert machine.do("cat", FILE) == configuration
    assert machine.do("systemctl", "is-enabled", "penstock.service").strip() == "enabled"
    seen = measured(machine)
    until(lambda: measured(machine) > seen, SECONDS_MAX)


def test_what_a_crash_left_outside_goes_with_the_package(machine: Machine) -> None:
    """The state that knows of it stays, but nothing that could remove it."""
    machine.do("dpkg", "--force-depends", "-i", "/srv/after.deb", seconds=SECONDS_MAX)
    configuration = probing.begin(machine, FILE)
    machine.write(FILE, configuration + READS)
    machine.do("systemctl", "enable", "--now", "penstock.socket", "penstock.service")
    until(lambda: READ_OBJECT in listed(machine, configuration), SECONDS_MAX)
    machine.do("systemctl", "kill", "-s", "KILL", "penstock.service")
    assert READ_OBJECT in listed(machine, configuration)
    machine.do("dpkg", "-r", "penstock", seconds=SECONDS_MAX)
    assert "<Key>" not in listed(machine, configuration)
    assert machine.run("test", "-e", "/run/penstock").returncode != 0
    machine.do("test", "-e", "/var/lib/penstock/penstock.db")


def listed(machine: Machine, configuration: str) -> str:
    """What the lab's bucket holds."""
    endpoint = tomllib.loads(configuration)["aws"]["s3_endpoint_url"]
    return machine.do("/usr/bin/python3", "-c", LISTING, f"{endpoint}/lab?list-type=2")
