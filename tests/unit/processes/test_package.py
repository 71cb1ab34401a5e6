"""When penstock is no longer the one that a process began with."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from penstock.daemon.outside.aws import AwsOutside
from penstock.daemon.outside.prober import Assignment
from penstock.daemon.outside.prober_process import Bench
from penstock.processes import package
from penstock.processes.companion import Companion


def test_what_python_compiles_beside_the_files_changes_nothing(tmp_path: Path) -> None:
    """The first process that imports a file writes that, which makes it no other file."""
    (tmp_path / "module.py").write_text("")
    before = package.files_below(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/module.cpython-311.pyc").write_bytes(b"compiled")
    assert package.files_below(tmp_path) == before


def test_what_is_no_file_of_it_changes_nothing(tmp_path: Path) -> None:
    """An editor's lock, and what leads nowhere."""
    before = package.files_below(tmp_path)
    (tmp_path / ".module.py.swp").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    assert package.files_below(tmp_path) == before


def test_what_was_installed_again_was_not_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same files with other dates: nothing is kept from measuring until somebody restarts it."""
    file = tmp_path / "module.py"
    file.write_text("1")
    monkeypatch.setattr(package, "_FOLDER", tmp_path)
    began = package.begun.__wrapped__()
    monkeypatch.setattr(package, "begun", lambda: began)
    os.utime(file, (1, 1))
    assert package.trouble() is None
    file.write_text("2")
    assert package.trouble() is not None


@pytest.mark.parametrize("how", ["renamed", "removed", "written", "beside it"])
def test_another_file_is_another_penstock(how: str, tmp_path: Path) -> None:
    """However an installer puts it there; one that keeps its size has another date."""
    file = tmp_path / "module.py"
    file.write_text("1")
    os.utime(file, (1, 1))
    before = package.files_below(tmp_path)
    match how:
        case "renamed":
            file.rename(tmp_path / "other.py")
        case "removed":
            file.unlink()
        case "written":
            file.write_text("2")
        case _:
            (tmp_path / "new.py").write_text("")
    assert package.files_below(tmp_path) != before


def test_who_probes_starts_no_workers_of_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may live for weeks, and be replaced before its first probe wants any."""
    file = tmp_path / "module.py"
    file.write_text("1")
    monkeypatch.setattr(package, "_FOLDER", tmp_path)
    monkeypatch.setattr(package, "begun", cache(package.begun.__wrapped__))
    Bench(cast("Assignment", None), cast("AwsOutside", None))
    file.write_text("22")
    assert package.trouble() is not None


async def test_nothing_of_another_version_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It would be told in words that it does not know, or not be there under its name."""
    replaced = package.Package(package.begun().version, frozenset())
    monkeypatch.setattr(package, "begun", lambda: replaced)
    with pytest.raises(OSError, match="restart it"):
        await Companion.started("penstock.daemon.cycle.thinker_process", None)
