"""`penstock clients`: what a unit is told, and how it is undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli import clients
from penstock.cli.main import cli
from tests.integration.scripted_advisor import CLIENTS

DROP_IN = "etc/systemd/system/backup.service.d/penstock-clients.conf"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A system with a service of that name, and a template."""
    folder = tmp_path / "usr/lib/systemd/system"
    folder.mkdir(parents=True)
    for name in ("backup.service", "copy@.service"):
        (folder / name).touch()
    return tmp_path


def enable(root: Path, *arguments: str) -> Result:
    """With another folder in the place of /."""
    return CliRunner().invoke(cli, ["clients", "enable", "--root", str(root), *arguments])


def test_a_unit_is_told_by_a_drop_in(root: Path) -> None:
    """Its SDKs tell what they do under its name, and the operator is told how to take that back."""
    result = enable(root, "--unit", "backup.service", "--port", "31001")
    assert result.exit_code == 0, result.output
    lines = (root / DROP_IN).read_text().splitlines()
    assert lines[1:] == [
        "[Service]",
        "Environment=AWS_CSM_ENABLED=true",
        "Environment=AWS_CSM_PORT=31001",
        "Environment=AWS_CSM_CLIENT_ID=backup",
    ]
    assert "systemctl restart backup.service" in result.output
    assert f"rm {root / DROP_IN}" in result.output


def test_a_dry_run_only_says_it(root: Path) -> None:
    """Nothing is written."""
    assert DROP_IN in enable(root, "--unit", "backup", "--dry-run").output
    assert not (root / "etc").exists()


@pytest.mark.parametrize("unit", ["../../etc/passwd", "a b", "x\ny", "", "backup.timer"])
def test_what_is_no_unit_is_refused(tmp_path: Path, unit: str) -> None:
    """A name becomes a path and a line of a unit: it is one word."""
    assert enable(tmp_path, "--unit", unit).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_a_port_that_no_sdk_can_send_to_is_refused(tmp_path: Path) -> None:
    """It would be written, and nobody heard."""
    assert enable(tmp_path, "--unit", "backup", "--port", "99999").exit_code == 2
    assert not list(tmp_path.iterdir())


def test_a_service_that_is_not_there_is_refused_as_systemctl_edit_does(root: Path) -> None:
    """A slip of the pen would be told of nothing, and leave a folder behind; whoever knows better says so."""
    for more in ((), ("--dry-run",)):
        refused = enable(root, "--unit", "bakcup", *more)
        assert refused.exit_code == 1
        assert "systemd knows no bakcup.service" in refused.output
        assert "write" not in refused.output.replace("nothing was written", "")
    assert not (root / "etc").exists()
    assert enable(root, "--unit", "bakcup", "--force").exit_code == 0


def test_an_instance_has_the_file_of_its_template(root: Path) -> None:
    """As systemd looks for it."""
    assert enable(root, "--unit", "copy@nightly").exit_code == 0
    assert enable(root, "--unit", "move@nightly").exit_code == 1


def test_what_is_advised_is_said_of_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advice of another region than the daemon's own would look like a contradiction of what the status says."""
    monkeypatch.setattr(clients, "call", lambda *_: CLIENTS)
    result = CliRunner().invoke(cli, ["clients"])
    assert result.exit_code == 0, result.output
    assert "s3_upload in eu-west-1: 10.0 parts in flight" in " ".join(result.output.split())
