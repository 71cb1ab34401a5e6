"""The shipped units, judged by systemd's own tools."""

import json
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest

from penstock.cli.installation import COMMANDS, Layout, carry_out, installation
from penstock.daemon.config import Configuration
from tests.programs import ran

UNITS = Path(__file__).parents[2] / "penstock/cli/systemd"
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is not installed: the units cannot be judged here",
)


def _installed(folder: Path) -> list[str]:
    """The units as `penstock service install` writes them; systemd wants the programs to exist."""
    commands = folder / "bin"
    commands.mkdir()
    for name in COMMANDS:
        (commands / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (commands / name).chmod(0o755)
    layout = Layout(root=folder / "root", commands=commands)
    for action in installation(layout, is_enabled=False):
        carry_out(action)
    return [str(layout.at(f"lib/systemd/system/penstock.{kind}")) for kind in ("service", "socket")]


def _run(*command: str) -> tuple[int, str]:
    done = ran(command, timeout=60)
    return done.returncode, done.stdout + done.stderr


@needs_systemd
def test_units_verify_without_a_word(tmp_path: Path) -> None:
    """An unknown key is only a message with exit code 0, so that silence is what counts."""
    _, output = _run("systemd-analyze", "verify", *_installed(tmp_path))
    ours = [line for line in output.splitlines() if "penstock" in line]
    assert ours == []


@needs_systemd
def test_the_verification_would_notice(tmp_path: Path) -> None:
    """The check above fails for a key that systemd does not know."""
    service, _ = _installed(tmp_path)
    text = Path(service).read_text(encoding="utf-8")
    Path(service).write_text(text.replace("[Install]", "Colour=green\n\n[Install]"), encoding="utf-8")
    _, output = _run("systemd-analyze", "verify", service)
    assert "penstock.service" in output


@needs_systemd
def test_exposure_is_low(tmp_path: Path) -> None:
    """At most 1.5 of 10, by systemd's own score."""
    code, output = _run(
        "systemd-analyze", "security", "--offline=true", "--threshold=15", _installed(tmp_path)[0]
    )
    assert code == 0, output


def _directives(name: str) -> dict[str, list[str]]:
    directives: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text(encoding="utf-8").splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            directives.setdefault(key, []).append(value)
    return directives


def test_the_units_keep_what_clients_rely_on() -> None:
    """Each of these was seen to lock clients out, hide them or distort probes when it is otherwise."""
    service = _directives("penstock.service")
    assert service["Type"] == ["notify"]
    assert service["RuntimeDirectoryPreserve"] == ["yes"]
    assert service["PrivateUsers"] == ["no"]
    assert service["ExecReload"] == ["/usr/bin/penstock config check", "/bin/sh -c 'kill -HUP $MAINPID'"]
    assert not {"CPUQuota", "DynamicUser", "ProcSubset"} & set(service)


def test_units_and_defaults_name_the_same_places() -> None:
    """The directories, the socket, its mode, the user and the group."""
    daemon, service, unit = (
        Configuration().daemon,
        _directives("penstock.service"),
        _directives("penstock.socket"),
    )
    assert daemon.state_directory == f"/var/lib/{service['StateDirectory'][0]}"
    assert daemon.runtime_directory == f"/run/{service['RuntimeDirectory'][0]}"
    assert unit["ListenStream"] == [str(daemon.socket_path)]
    assert unit["SocketMode"] == [daemon.socket_mode]
    assert service["Group"] == [daemon.control_group]
    assert f"u {service['User'][0]} " in (UNITS / "penstock.sysusers").read_text(encoding="utf-8")


def test_the_policy_covers_the_default_names() -> None:
    """What the probes write by default lies within what the policy allows, and nothing allows everything."""
    probes = Configuration().probes
    policy = json.loads((UNITS / "iam-policy.json").read_text(encoding="utf-8"))
    resources = {statement["Sid"]: statement["Resource"] for statement in policy["Statement"]}
    assert fnmatch(f"arn:aws:s3:::YOUR-BUCKET/{probes.s3_upload.key_prefix}x", resources["ProbeUploads"])
    assert fnmatch(f"arn:aws:s3:::YOUR-BUCKET/{probes.s3_download.key_prefix}x", resources["ProbeDownloads"])
    assert probes.s3_download.key_prefix == probes.s3_upload.key_prefix  # the rest is as for uploads
    assert fnmatch(f"arn:aws:sqs:r:1:{probes.sqs_delivery.queue_name_prefix}-x", resources["ProbeQueues"])
    assert not any("*" in str(statement["Action"]) for statement in policy["Statement"])
