"""Knows how a service and systemd talk: it sends readiness, status and watchdog beats, and inherits sockets."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, MutableMapping

LISTEN_FDS_START = 3
STATUS_LENGTH_MAX = 200


class Notifier:
    """Tells the manager the state of the service; does nothing without a manager. Never blocks and never fails."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self.watchdog_seconds = _watchdog_seconds(environment)

    def ready(self, status: str = "") -> None:
        """The service is ready. Also ends a reload."""
        self._send("READY=1", *_status_lines(status))

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._send(*_status_lines(status))

    def watchdog(self) -> None:
        """The service is alive; to be called every half of `watchdog_seconds`."""
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """The service reloads its configuration; `ready` must follow."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str = "") -> None:
        """The service is shutting down in good order."""
        self._send("STOPPING=1", *_status_lines(status))

    def extend_timeout(self, seconds: float) -> None:
        """Starting or stopping takes up to this much longer."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def _send(self, *lines: str) -> None:
        if not self._address or not lines:
            return
        flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        try:
            with socket.socket(socket.AF_UNIX, flags) as channel:
                channel.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            # A manager that is gone or busy must not stop the service; the next message may arrive.
            return


def inherited_sockets(environment: MutableMapping[str, str] = os.environ) -> dict[str, socket.socket]:
    """The listening sockets passed by the manager, by name. Removes its variables, so that no child takes them, too."""
    pid, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()) or not count.isdigit():
        return {}
    sockets: dict[str, socket.socket] = {}
    for index in range(int(count)):
        descriptor = LISTEN_FDS_START + index
        os.set_inheritable(descriptor, False)  # noqa: FBT003  # it takes no keyword
        name = names[index] if index < len(names) and names[index] else f"fd{descriptor}"
        sockets[name] = socket.socket(fileno=descriptor)
    return sockets


def _address(text: str) -> str:
    """`@` stands for the NUL byte of an abstract address."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else ""


def _status_lines(status: str) -> list[str]:
    text = " ".join(status.split())[:STATUS_LENGTH_MAX]  # a line break would begin another field
    return [f"STATUS={text}"] if text else []


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    microseconds, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not microseconds.isdigit() or pid not in {"", str(os.getpid())}:
        return None
    return int(microseconds) / 1e6 or None
