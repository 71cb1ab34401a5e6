"""The file of the socket: made with its mode, replaced when stale, respected when alive."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from penstock.api.listener import SocketPathError, open_socket, remove_socket


def connects(path: Path) -> bool:
    """Whether somebody listens."""
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(path)) == 0


def test_a_socket_has_its_mode_and_listens(tmp_path: Path) -> None:
    """Who may connect is decided by the mode that was asked for."""
    path = tmp_path / "s.sock"
    with open_socket(path, mode=0o660):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert connects(path)
        assert list(tmp_path.iterdir()) == [path]


def test_a_stale_file_is_replaced(tmp_path: Path) -> None:
    """What a killed daemon leaves behind does not keep the next one from starting."""
    path = tmp_path / "s.sock"
    open_socket(path).close()
    assert not connects(path)
    with open_socket(path):
        assert connects(path)


def test_a_living_daemon_keeps_its_socket(tmp_path: Path) -> None:
    """Two daemons on one path: the second is told, the first is not disturbed."""
    path = tmp_path / "s.sock"
    with open_socket(path):
        with pytest.raises(SocketPathError, match="socket path already in use"):
            open_socket(path)
        assert connects(path)


def test_another_kind_of_file_is_not_removed(tmp_path: Path) -> None:
    """A typing error in a path must not cost a file."""
    path = tmp_path / "precious"
    path.write_text("data", encoding="utf-8")
    with pytest.raises(SocketPathError, match="not a socket"):
        open_socket(path)
    assert path.read_text(encoding="utf-8") == "data"


@pytest.mark.parametrize("name", ["file/s.sock", "x" * 120])
def test_a_path_that_cannot_be_says_what_to_do(tmp_path: Path, name: str) -> None:
    """Each failure names the path and a way out."""
    (tmp_path / "file").touch()
    with pytest.raises(SocketPathError, match=r"another path|shorter path"):
        open_socket(tmp_path / name)


def test_a_missing_directory_is_made(tmp_path: Path) -> None:
    """A first start in the foreground needs no preparation."""
    with open_socket(tmp_path / "run/penstock/s.sock"):
        assert (tmp_path / "run/penstock/s.sock").is_socket()


def test_a_directory_that_is_made_keeps_nobody_out(tmp_path: Path) -> None:
    """The daemon of a careful user: who may ask is said by the mode of the socket, and not by that user's umask."""
    own_mask = os.umask(0o077)
    try:
        open_socket(tmp_path / "run" / "penstock" / "s.sock", mode=0o666).close()
    finally:
        os.umask(own_mask)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("run", "run/penstock")]
    assert modes == [0o755, 0o755]


def test_only_a_dead_socket_is_removed(tmp_path: Path) -> None:
    """A daemon that ends late does not take the socket of its successor."""
    path = tmp_path / "s.sock"
    with open_socket(path):
        remove_socket(path)
        assert path.exists()
    remove_socket(path)
    assert not path.exists()
    remove_socket(path)
