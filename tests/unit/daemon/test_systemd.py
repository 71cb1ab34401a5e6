"""The service manager's protocol, spoken over real sockets."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.daemon.systemd import Notifier, inherited_sockets

ROOT = Path(__file__).parents[3]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """What the manager listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.setblocking(False)
        yield channel


def _notifier(manager: socket.socket, **environment: str) -> Notifier:
    return Notifier({"NOTIFY_SOCKET": manager.getsockname(), **environment})


def test_the_life_of_a_service(manager: socket.socket) -> None:
    """Ready, alive, reloading, ready again, stopping: each is one datagram."""
    notifier = _notifier(manager)
    notifier.ready("probing 3 contexts")
    notifier.watchdog()
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading()
    notifier.ready()
    notifier.stopping("bye")
    notifier.extend_timeout(2.5)
    received = [manager.recv(4096).decode() for _ in range(6)]
    assert received[:2] == ["READY=1\nSTATUS=probing 3 contexts", "WATCHDOG=1"]
    assert received[3:] == ["READY=1", "STOPPING=1\nSTATUS=bye", "EXTEND_TIMEOUT_USEC=2500000"]
    reloading, _, microseconds = received[2].partition("\nMONOTONIC_USEC=")
    assert reloading == "RELOADING=1"
    assert int(microseconds) >= before


def test_a_status_is_one_line(manager: socket.socket) -> None:
    """A line break in a status cannot become another field, and an endless one is cut."""
    notifier = _notifier(manager)
    notifier.status("a\nREADY=1 " + "x" * 999)
    text = manager.recv(4096).decode()
    assert text.startswith("STATUS=a READY=1 xxx")
    assert len(text) == len("STATUS=") + 200


def test_an_abstract_address() -> None:
    """`@` stands for the NUL byte."""
    name = f"penstock-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(f"\0{name}")
        channel.setblocking(False)
        Notifier({"NOTIFY_SOCKET": f"@{name}"}).watchdog()
        assert channel.recv(64) == b"WATCHDOG=1"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "relative", "@nobody-listens-here"])
def test_without_a_manager_nothing_happens(address: str) -> None:
    """A manager that is absent or gone never takes the service with it."""
    Notifier({"NOTIFY_SOCKET": address}).ready("fine")


def test_a_manager_that_does_not_read_blocks_nobody(manager: socket.socket) -> None:
    """When its queue is full, messages are lost and the daemon goes on."""
    notifier = _notifier(manager)
    for _ in range(5000):
        notifier.watchdog()
    assert manager.recv(64) == b"WATCHDOG=1"


def test_watchdog_period() -> None:
    """Only when it is meant for this process."""
    assert Notifier({"WATCHDOG_USEC": "60000000"}).watchdog_seconds == 60.0
    assert Notifier({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}).watchdog_seconds == 60.0
    assert Notifier({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}).watchdog_seconds is None
    assert Notifier({}).watchdog_seconds is None


CHILD = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
from penstock.daemon.systemd import inherited_sockets
sockets = inherited_sockets()
listener = sockets["api"]
connection, _ = listener.accept()
connection.sendall(f"{sorted(sockets)} {listener.get_inheritable()} {'LISTEN_FDS' in os.environ}".encode())
"""


def test_a_socket_is_handed_over(tmp_path: Path) -> None:
    """A child that gets descriptor 3 serves on it, under its name, and hands it on to nobody."""
    path = str(tmp_path / "api.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        handle = listener.fileno()
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(handle)],
            env={**os.environ, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "api"},
            pass_fds=[handle],
            cwd=ROOT,
        ) as child:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(20)
                client.connect(path)
                answer = client.recv(99)
            assert child.wait() == 0
    assert answer == b"['api'] False False"


def test_sockets_of_another_process_are_not_ours() -> None:
    """Variables that a parent was meant to read are cleared, not believed."""
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "api", "HOME": "/"}
    assert inherited_sockets(environment) == {}
    assert environment == {"HOME": "/"}
