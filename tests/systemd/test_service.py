"""The unit under a real systemd, from `penstock service install` on."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.systemd import probing
from tests.systemd.machine import Machine, booted, missing
from tests.waiting import until

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(600)]

CONFIGURATION = (
    '[host]\nregion = "eu-central-1"\ninstance_type = "m7i.large"\n[daemon]\nlog_level = "{level}"\n'
)
FILE = "/etc/penstock/penstock.toml"
SOCKET = "/run/penstock/penstock.sock"
PENSTOCK, PYTHON = "/opt/penstock/bin/penstock", "/opt/penstock/bin/python3"
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
# One question after another, each over a connection of its own, at least one, until a file is there.
ASKING = f"""
import os, time
from penstock.client.connection import ask
count, slowest = 0, 0.0
while not count or not os.path.exists("/run/enough"):
    began = time.monotonic()
    answer = ask({SOCKET!r}, "GET", "/v1/status", timeout_seconds=60.0)
    assert answer.status == 200, answer
    count, slowest = count + 1, max(slowest, time.monotonic() - began)
print(count, slowest)
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A system with the service installed and started, where somebody had tried it as root."""
    if (why := missing()) is not None:
        pytest.skip(why)
    with booted() as machine:
        machine.do("install", "-D", "-m", "644", "/dev/null", "/var/lib/penstock/penstock.db")
        machine.write(FILE, CONFIGURATION.format(level="info"))
        machine.do(PENSTOCK, "service", "install", "--commands", "/opt/penstock/bin", "--enable")
        yield machine


@pytest.fixture(autouse=True)
def _may_start(machine: Machine) -> None:
    """The unit starts five times in ten minutes at the most, and tests in some orders start it more often."""
    machine.do("systemctl", "reset-failed")


def answers(machine: Machine) -> bool:
    return machine.run(PENSTOCK, "status", "--json").returncode == 0


def test_it_is_ready_when_systemd_says_so(machine: Machine) -> None:
    """A start returns when the socket answers, and the daemon says what it does."""
    machine.do("systemctl", "restart", "penstock.service")
    assert answers(machine)
    assert machine.shown("ActiveState") == "active"
    assert machine.shown("Type") == "notify"
    until(lambda: machine.shown("StatusText") not in {"", "serving"})


def test_its_exposure_is_low(machine: Machine) -> None:
    """At most 1.5 of 10, as systemd judges the unit that runs."""
    said = machine.run("systemd-analyze", "security", "--no-pager", "--threshold=15", "penstock.service")
    assert said.returncode == 0, said.stdout[-2000:]


def test_it_leaves_no_core_with_credentials(machine: Machine) -> None:
    """Whatever kills it."""
    limits = machine.do("cat", f"/proc/{machine.shown('MainPID')}/limits")
    assert re.search(r"Max core file size +0 +0 ", limits)


def test_everybody_reads_and_root_controls(machine: Machine) -> None:
    """A stranger gets advice and no control, and cannot look into the state."""
    machine.do(*AS_NOBODY, PENSTOCK, "query", "s3-upload", "--object-size", "1GiB", "--json")
    refused = machine.run(*AS_NOBODY, PENSTOCK, "reload")
    assert refused.returncode == 1
    assert machine.run(*AS_NOBODY, "ls", "/var/lib/penstock").returncode != 0
    machine.do(PENSTOCK, "reload")
    state = machine.do("stat", "-c", "%U:%G %a", "/var/lib/penstock", SOCKET).splitlines()
    assert state[0] == "penstock:penstock 750"
    assert state[1].endswith(" 666")


def test_a_reload_takes_up_what_is_right_and_refuses_what_is_wrong(machine: Machine) -> None:
    """The process stays the same, also with a mistake in the file, and goes on with what it had."""
    before = machine.shown("MainPID")
    machine.write(FILE, CONFIGURATION.format(level="debug"))
    machine.do("systemctl", "reload", "penstock.service")
    machine.write(FILE, CONFIGURATION.format(level="loud"))
    assert machine.run("systemctl", "reload", "penstock.service").returncode != 0
    assert answers(machine)
    assert machine.shown("MainPID") == before
    machine.write(FILE, CONFIGURATION.format(level="info"))
    machine.do("systemctl", "reload", "penstock.service")


def test_no_request_fails_across_a_restart(machine: Machine) -> None:
    """The socket outlives the daemon: who asks meanwhile waits, and is answered by the next one."""
    machine.do("rm", "-f", "/run/enough")
    asking = machine.start(PYTHON, "-c", ASKING)
    for _ in range(2):
        before = machine.shown("MainPID")
        machine.do("systemctl", "restart", "penstock.service")
        assert machine.shown("MainPID") != before
    machine.do("touch", "/run/enough")
    said, _ = asking.communicate(timeout=120.0)
    assert re.fullmatch(r"\d+ [\d.]+\n", said), said
    assert int(said.split()[0]) > 2


def test_a_question_starts_what_was_stopped(machine: Machine) -> None:
    """Only the socket is left, and it is enough."""
    machine.do("systemctl", "stop", "penstock.service")
    assert machine.shown("ActiveState") == "inactive"
    machine.do("touch", "/run/enough")
    machine.do(PYTHON, "-c", ASKING)
    assert machine.shown("ActiveState") == "active"


def test_it_measures_and_learns_within_its_bounds(machine: Machine) -> None:
    """The unit forbids much, and nothing that probes and fits need."""
    before = machine.do("cat", FILE)
    probing.begin(machine, FILE)
    machine.do("systemctl", "restart", "penstock.service")
    process = machine.shown("MainPID")
    until(lambda: probing.measured(machine) >= 2, probing.SECONDS_MAX)
    assert machine.shown("MainPID") == process
    machine.write(FILE, before)
    machine.do("systemctl", "reload", "penstock.service")


def test_a_daemon_that_hangs_is_replaced(machine: Machine) -> None:
    """A loop that does not turn sends no sign of life; the watchdog ends it, and the next one answers."""
    drop_in = "/etc/systemd/system/penstock.service.d/soon.conf"
    machine.write(drop_in, "[Service]\nWatchdogSec=5s\nTimeoutAbortSec=2s\nRestartSec=1s\n")
    machine.do("systemctl", "daemon-reload")
    machine.do("systemctl", "restart", "penstock.service")
    before = machine.shown("MainPID")
    machine.do("kill", "-STOP", before)
    until(lambda: machine.shown("MainPID") not in {before, "0"})
    until(lambda: answers(machine))
    assert int(machine.shown("NRestarts")) >= 1
    said = machine.do("journalctl", "-u", "penstock.service", "--no-pager")
    assert "watchdog" in said.lower()
