"""`penstock service`: all of it in place or nothing, and nothing of anybody else's lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli import installation
from penstock.cli.installation import MARK, Layout, Run, unreachable
from penstock.cli.main import cli

UNIT = "usr/local/lib/systemd/system/penstock.service"
CONFIGURATION = "etc/penstock/penstock.toml"
STATE = "var/lib/penstock/penstock.db"
OPT = Path("/opt/penstock/bin")


def service(root: Path, *arguments: str) -> Result:
    """One command, with another folder in the place of /."""
    return CliRunner().invoke(cli, ["service", arguments[0], "--root", str(root), *arguments[1:]])


def install(root: Path, commands: Path = OPT) -> Result:
    """From an environment that is, or will be, there."""
    return service(root, "install", "--commands", str(commands))


def files(root: Path) -> set[str]:
    """Files and links below it."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or path.is_file()}


def test_units_name_the_commands_that_are_there(tmp_path: Path) -> None:
    """Service, reload and links lead to the environment that penstock was installed into."""
    assert install(tmp_path).exit_code == 0
    unit = (tmp_path / UNIT).read_text()
    assert f"\nExecStart={OPT}/penstockd\n" in unit
    assert f"\nExecReload={OPT}/penstock config check\n" in unit
    assert "/usr/bin" not in unit
    assert (tmp_path / "usr/local/bin/penstockd").readlink() == OPT / "penstockd"
    assert "u penstock " in (tmp_path / "usr/local/lib/sysusers.d/penstock.conf").read_text()
    assert json.loads((tmp_path / "usr/local/share/penstock/iam-policy.json").read_text())["Statement"]


def test_folders_are_for_all_users_whatever_the_mask_of_root(tmp_path: Path) -> None:
    """The daemon's user must read its configuration; a hardened root makes folders of 0700."""
    own_mask = os.umask(0o077)
    try:
        assert install(tmp_path).exit_code == 0
        assert os.umask(0o077) == 0o077  # as it was
    finally:
        os.umask(own_mask)
    closed = [path for path in tmp_path.rglob("*") if path.is_dir() and path.stat().st_mode & 0o777 != 0o755]
    assert not closed


def test_an_upgrade_keeps_what_is_configured_and_known(tmp_path: Path) -> None:
    """Units and links follow the newer environment; the operator's file and the database stay, byte for byte."""
    install(tmp_path)
    (tmp_path / CONFIGURATION).write_text("# mine\n")
    (tmp_path / STATE).parent.mkdir(parents=True)
    (tmp_path / STATE).write_bytes(b"what was measured")
    newer = Path("/opt/newer/bin")
    assert install(tmp_path, newer).exit_code == 0
    assert f"ExecStart={newer}/penstockd" in (tmp_path / UNIT).read_text()
    assert (tmp_path / "usr/local/bin/penstock").readlink() == newer / "penstock"
    assert service(tmp_path, "uninstall").exit_code == 0
    assert files(tmp_path) == {CONFIGURATION, STATE}
    assert (tmp_path / CONFIGURATION).read_text() == "# mine\n"
    assert service(tmp_path, "uninstall", "--purge").exit_code == 0
    assert files(tmp_path) == set()


@pytest.mark.parametrize("place", [UNIT, "usr/local/bin/penstock"])
def test_what_others_put_there_is_refused_before_anything_is_done(tmp_path: Path, place: str) -> None:
    """A unit or a program that penstock did not write stands, and nothing was half installed."""
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text("[Service]\nExecStart=/mine\n")
    refused = install(tmp_path)
    assert refused.exit_code == 1
    assert place in refused.stderr
    assert files(tmp_path) == {place}
    assert service(tmp_path, "uninstall").exit_code == int(place == UNIT)
    assert files(tmp_path) == {place}


def test_the_units_of_a_package_are_not_hidden(tmp_path: Path) -> None:
    """Two installations of one service: updates of the package would change nothing, and its removal break both."""
    assert service(tmp_path, "install", "--prefix", "/usr", "--commands", str(OPT)).exit_code == 0
    before = files(tmp_path)
    refused = install(tmp_path)
    assert refused.exit_code == 1
    assert "remove that package first" in refused.output
    assert files(tmp_path) == before


def test_a_look_changes_nothing(tmp_path: Path) -> None:
    """--dry-run names each step, also for programs, and needs no rights."""
    looked = service(tmp_path, "install", "--commands", str(OPT), "--dry-run", "--json")
    assert any(UNIT in action for action in json.loads(looked.stdout)["actions"])
    assert files(tmp_path) == set()


def test_on_a_living_system_systemd_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user is made before the units are read; what runs is started anew, and only if it runs."""
    monkeypatch.setattr(installation, "_BOOTED", Path("/"))
    layout = Layout(commands=OPT, prefix=Path("/nonexistent"))
    for is_enabled in (False, True):
        run = [
            a.command for a in installation.installation(layout, is_enabled=is_enabled) if isinstance(a, Run)
        ]
        assert [command[0] for command in run[:2]] == ["systemd-sysusers", "systemd-tmpfiles"]
        assert run[2] == ("systemctl", "daemon-reload")
        assert ("systemctl", "try-restart", "penstock.service") in run
        assert any("enable" in command for command in run) == is_enabled
    (stop, *_) = installation.removal(layout, is_purged=False)
    assert stop == Run(
        ("systemctl", "disable", "--now", "penstock.service", "penstock.socket"), may_fail=True
    )


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sentence, before anything is done."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("penstock.cli.service.unreachable", lambda _: None)
    monkeypatch.setattr("penstock.cli.service.refusals", lambda _: [])
    monkeypatch.setattr("penstock.cli.service.carry_out", lambda action: pytest.fail(f"did {action}"))
    refused = CliRunner().invoke(cli, ["service", "install", "--prefix", "/nonexistent"])
    assert refused.exit_code == 1
    assert "only root" in refused.stderr
    assert refused.stdout == ""  # nothing was written, and nobody shall read that it was


def test_a_step_that_fails_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the system said of it."""

    def fail(action: object) -> None:
        raise subprocess.CalledProcessError(1, "x", stderr="no space for users")

    monkeypatch.setattr("penstock.cli.service.carry_out", fail)
    refused = install(tmp_path)
    assert (refused.exit_code, "no space for users" in refused.stderr) == (1, True)
    assert refused.stdout == ""


def test_a_reader_that_leaves_does_not_end_it_half_way(tmp_path: Path) -> None:
    """As `grep -q` does when it has found its line."""
    whole, seen = tmp_path / "whole", tmp_path / "seen"
    assert install(whole).exit_code == 0
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "penstock", "service", "install", "--root", str(seen)]
    subprocess.run([*command, "--commands", str(OPT)], stdout=writer, check=False)
    os.close(writer)
    assert files(seen) == files(whole)


def test_what_was_never_there_is_not_kept(tmp_path: Path) -> None:
    """Whoever takes away what was not installed looks for a state that there is not."""
    assert service(tmp_path, "uninstall").stdout == "nothing is there to be kept\n"


def test_commands_that_the_service_could_not_run_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing, in a home that the unit hides, in a closed folder, with a Python of somebody's home, or unwritable."""
    monkeypatch.setattr(installation, "_HIDDEN", (str(tmp_path / "home"),))
    monkeypatch.setattr(installation, "_is_closed", lambda folder: folder.name == "closed")
    told = {}
    for name in ("missing", "home", "closed", "borrowed", "sp ace", "open"):
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        for command in ("penstock", "penstockd", "python3"):
            (folder / command).write_text("#!/bin/sh\n")
            (folder / command).chmod(0o755)
        told[name] = folder
    (told["missing"] / "penstockd").unlink()
    (told["borrowed"] / "python3").unlink()
    (told["borrowed"] / "python3").symlink_to(told["home"] / "python3")
    sentences = {name: unreachable(folder) or "" for name, folder in told.items()}
    assert "there is no" in sentences["missing"]
    assert "hidden" in sentences["home"]
    assert f"may not enter {tmp_path / 'closed'}: chmod o+x" in sentences["closed"]
    assert f"{told['home']}/python3 is hidden" in sentences["borrowed"]
    assert sentences["open"] == ""
    assert "characters" in sentences["sp ace"]


def test_the_mark_is_a_comment() -> None:
    """Of units, sysusers and tmpfiles alike, in a line of its own."""
    assert MARK.startswith("# ")
    assert MARK.count("\n") == 1
