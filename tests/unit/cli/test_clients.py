"""`penstock clients`: what a unit is told, and how it is undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli import clients
from penstock.cli.main import cli
from tests.integration.scripted_advisor import CLIENTS

DROP_IN = "etc/systemd/system/backup.service.d/penstock-clients.conf"


def enable(root: Path, *arguments: str) -> Result:
    """With another folder in the place of /."""
    return CliRunner().invoke(cli, ["clients", "enable", "--root", str(root), *arguments])


def test_a_unit_is_told_by_a_drop_in(tmp_path: Path) -> None:
    """Its SDKs tell what they do under its name, and the operator is told how to take that back."""
    result = enable(tmp_path, "--unit", "backup.service", "--port", "31001")
    assert result.exit_code == 0, result.output
    lines = (tmp_path / DROP_IN).read_text().splitlines()
    assert lines[1:] == [
        "[Service]",
        "Environment=AWS_CSM_ENABLED=true",
        "Environment=AWS_CSM_PORT=31001",
        "Environment=AWS_CSM_CLIENT_ID=backup",
    ]
    assert "systemctl restart backup.service" in result.output
    assert f"rm {tmp_path / DROP_IN}" in result.output


def test_a_dry_run_only_says_it(tmp_path: Path) -> None:
    """Nothing is written."""
    assert DROP_IN in enable(tmp_path, "--unit", "backup", "--dry-run").output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("unit", ["../../etc/passwd", "a b", "x\ny", "", "backup.timer"])
def test_what_is_no_unit_is_refused(tmp_path: Path, unit: str) -> None:
    """A name becomes a path and a line of a unit: it is one word."""
    assert enable(tmp_path, "--unit", unit).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_a_port_that_no_sdk_can_send_to_is_refused(tmp_path: Path) -> None:
    """It would be written, and nobody heard."""
    assert enable(tmp_path, "--unit", "backup", "--port", "99999").exit_code == 2
    assert not list(tmp_path.iterdir())


def test_what_is_advised_is_said_of_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advice of another region than the daemon's own would look like a contradiction of what the status says."""
    monkeypatch.setattr(clients, "call", lambda *_: CLIENTS)
    result = CliRunner().invoke(cli, ["clients"])
    assert result.exit_code == 0, result.output
    assert "s3_upload in eu-west-1: 10.0 parts in flight" in " ".join(result.output.split())
