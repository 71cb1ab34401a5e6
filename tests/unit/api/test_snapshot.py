"""The file that applications read."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from penstock.api.snapshot import write_snapshot


def test_the_file_is_replaced_whole_and_readable_by_all(tmp_path: Path) -> None:
    """A reader that has the old file open keeps reading the old content."""
    path = tmp_path / "recommendations.json"
    write_snapshot(path, [b"old"])
    with path.open("rb") as reader:
        write_snapshot(path, [b"new"])
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk costs the new advice, not the old."""
    path = tmp_path / "recommendations.json"
    write_snapshot(path, [b"old"])

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fchmod", fail)
    with pytest.raises(OSError, match="No space"):
        write_snapshot(path, [b"new"])
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
