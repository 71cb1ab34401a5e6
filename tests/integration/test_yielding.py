"""A real daemon beside another application, on a narrow link between two hosts that are namespaces."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.integration.two_hosts import IN_NAMESPACE
from tests.programs import printed, ran


def why_not() -> str | None:
    """Why there can be no such hosts here."""
    for tool in ("unshare", "ip", "tc", "mount"):
        if shutil.which(tool) is None:
            return f"there is no {tool} here"
    trial = (
        "mount -t sysfs sysfs /sys && ip link add a0 type veth peer name a1 && "
        "tc qdisc add dev a0 root tbf rate 9mbit burst 9kb latency 9ms"
    )
    tried = ran([*IN_NAMESPACE, "sh", "-c", trial])
    return None if tried.returncode == 0 else f"no network namespaces here: {tried.stderr.strip()}"


@pytest.mark.timeout(240)
def test_a_probe_that_takes_the_link_from_an_application_is_broken_off(tmp_path: Path) -> None:
    """By the counters of the interface: what it moved is booked, and nothing of it stays at the other end."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    command = [*IN_NAMESPACE, sys.executable, "-m", "tests.integration.two_hosts", "near", str(tmp_path)]
    found = json.loads(printed(command))
    broken_off = [sentence for sentence in found["sentences"] if "broken off" in sentence]
    assert broken_off, found
    assert "MB/s out before the probe" in broken_off[0]
    assert found["spent_bytes"] > 0
    assert found["leftover_count"] == 0
