"""What goes into the packages, and what their scripts say; tests/real/test_packages.py makes and installs them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from distribution import build
from tests.programs import printed, ran


def test_the_description_keeps_what_the_operator_writes(tmp_path: Path) -> None:
    """The configuration is no file of the package: dpkg would ask about it. The Python is the distribution's."""
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/penstock").symlink_to("/opt/penstock/bin/penstock")
    (tmp_path / "usr/bin/file").touch()
    description = build.describe(tmp_path, Path("/usr/bin/python3.11"))
    places = {entry["dst"]: entry.get("type", "file") for entry in description["contents"]}
    assert places == {  # and no folder that is another package's
        "/opt/penstock": "tree",
        "/usr/bin/penstock": "symlink",
        "/usr/bin/file": "file",
    }
    assert "python3.11" in description["depends"]
    assert description["release"] == "1.py311"
    assert re.fullmatch(r"\d+\.\d+\.\d+", description["version"])


@pytest.mark.parametrize("name", build.SCRIPTS)
def test_a_script_is_one_that_any_shell_reads(name: str, tmp_path: Path) -> None:
    """And it is the one that the description names."""
    script = Path(build.describe(tmp_path, Path("/usr/bin/python3.11"))["scripts"][name])
    assert subprocess.run(["sh", "-n", str(script)], capture_output=True, check=True).stderr == b""


@pytest.mark.parametrize(
    ("arguments", "is_stopped"), [("remove", True), ("0", True), ("upgrade", False), ("1", False)]
)
def test_an_upgrade_stops_nothing(arguments: str, is_stopped: bool, tmp_path: Path) -> None:
    """Dpkg says "remove" or "upgrade", rpm how many will be left; only the last one is disabled."""
    script = (build.HERE / "preremove.sh").read_text().replace("/run/systemd/system", str(tmp_path))
    told = printed(["sh", "-c", f'systemctl() {{ echo "$@"; }}\n{script}', "preremove", arguments])
    assert ("disable --now" in told) == is_stopped


def test_a_daemon_that_does_not_start_again_leaves_the_package_installed(tmp_path: Path) -> None:
    """A mistake in the configuration, found by an upgrade, had dpkg stop half way, and apt with it."""
    script = (build.HERE / "postinstall.sh").read_text().replace("/run/systemd/system", str(tmp_path))
    script = script.replace("/etc/penstock", str(tmp_path / "etc")).replace(
        "/usr/share/penstock", str(tmp_path)
    )
    (tmp_path / "penstock.toml").touch()
    for name in ("systemctl", "systemd-sysusers", "systemd-tmpfiles"):
        (tmp_path / name).write_text('#!/bin/sh\ntest "$1" != try-restart\n')
        (tmp_path / name).chmod(0o755)
    command = ["sh", "-c", script, "postinstall", "configure", "0.1.0"]
    ended = ran(command, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert ended.returncode == 0
    assert (tmp_path / "etc/penstock.toml").exists()


def test_what_the_daemon_never_reads_is_left_out(tmp_path: Path) -> None:
    """The services that penstock speaks with stay, and so does what is not a test."""
    packages = tmp_path / "lib/python3.11/site-packages"
    for name in ("botocore/data/s3", "botocore/data/ec2", "numpy/tests/deep/tests", "numpy/testing"):
        (packages / name).mkdir(parents=True)
    (packages / "botocore/data/endpoints.json").touch()
    build.slim(tmp_path)
    left = {str(path.relative_to(packages)) for path in packages.rglob("*")}
    assert {"botocore/data/s3", "botocore/data/endpoints.json", "numpy/testing"} <= left
    assert not {"botocore/data/ec2", "numpy/tests"} & left
