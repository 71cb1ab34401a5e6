"""Whoever cleans /run does not lock the applications out."""

from __future__ import annotations

import logging
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.api.listener import open_socket
from penstock.daemon.entrance import Entrance


def answers(path: Path) -> bool:
    """Whether somebody listens."""
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(path)) == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """In a folder that may be removed as well."""
    return tmp_path / "run" / "s.sock"


@pytest.fixture
def entrance(path: Path) -> Iterator[Entrance]:
    """A socket of the daemon's own."""
    opened = Entrance(path, mode=0o660, gid=None, inherited=None)
    yield opened
    opened.close()


def test_a_file_that_is_there_is_left_alone(entrance: Entrance, path: Path) -> None:
    """Looking changes nothing."""
    before = path.lstat().st_ino
    assert not entrance.mend()
    assert (path.lstat().st_ino, entrance.trouble) == (before, None)


def test_a_removed_file_is_made_again_with_its_mode(
    entrance: Entrance, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also with its folder; a line in the log says so, once."""
    path.unlink()
    path.parent.rmdir()
    with caplog.at_level(logging.WARNING):
        assert entrance.mend()
        assert not entrance.mend()
    assert answers(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert [record.getMessage() for record in caplog.records] == [
        f"the socket {path} was removed or replaced; it is there again"
    ]


def test_another_daemon_on_the_path_is_not_disturbed(entrance: Entrance, path: Path) -> None:
    """It is trouble for as long as it lasts."""
    path.unlink()
    with open_socket(path):
        assert not entrance.mend()
        assert entrance.trouble is not None
        assert "another daemon listens" in entrance.trouble
    assert entrance.mend()
    assert entrance.trouble is None


def test_a_socket_of_systemd_is_not_made_again(tmp_path: Path) -> None:
    """The manager alone can: the sentence says how to have it do so."""
    path = tmp_path / "s.sock"
    entrance = Entrance(path, mode=0o666, gid=None, inherited=open_socket(path))
    path.unlink()
    assert not entrance.mend()
    assert entrance.trouble is not None
    assert "systemctl restart penstock.socket" in entrance.trouble
    assert not path.exists()
    entrance.close()
