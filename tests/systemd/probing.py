"""Knows how the daemon in the container probes a lab beside it, and what it says of that."""

from __future__ import annotations

import json
from typing import Any

from tests.systemd.machine import Machine
from tests.waiting import until

SECONDS_MAX = 900.0  # of a busy machine
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
# As on an idle machine, however busy this one is.
_DROP_IN = "[Service]\nNice=0\nEnvironment=AWS_ACCESS_KEY_ID=lab AWS_SECRET_ACCESS_KEY=lab-secret\n"


def begin(machine: Machine, file: str) -> str:
    """The lab, and the configuration for it, which is returned; the daemon has it when it starts the next time."""
    machine.do("systemd-run", "--unit=lab", "sh", "-c", LAB)
    until(lambda: machine.run("test", "-s", "/run/lab.json").returncode == 0, SECONDS_MAX)
    lab = json.loads(machine.do("cat", "/run/lab.json"))["environment"]
    configuration = CONFIGURATION.format(s3=lab["AWS_ENDPOINT_URL_S3"], bucket=lab["LAB_BUCKET"])
    machine.write(file, configuration)
    drop_in(machine)
    return configuration


def drop_in(machine: Machine, *lines: str) -> None:
    """What the unit says besides, and these lines."""
    machine.write(
        "/etc/systemd/system/penstock.service.d/lab.conf", _DROP_IN + "".join(f"{x}\n" for x in lines)
    )
    machine.do("systemctl", "daemon-reload")


def status(machine: Machine) -> dict[str, Any]:
    """What the daemon says; nothing while it does not answer."""
    said = machine.run("/opt/penstock/bin/penstock", "status", "--json")
    found: dict[str, Any] = json.loads(said.stdout) if said.returncode == 0 else {}
    return found


def measured(machine: Machine) -> int:
    """How often, in all lives."""
    return sum(context["observation_count"] for context in status(machine).get("contexts", ()))
