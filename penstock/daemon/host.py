"""Knows this machine's counters of processor and network use, which part of that is penstock's own, and its groups."""

from __future__ import annotations

import ctypes
import fcntl
import grp
import re
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

STATISTIC_COUNT_MAX = 4096
_SIOCETHTOOL = 0x8946
_GET_DRIVER, _GET_STRINGS, _GET_STATISTICS = 0x03, 0x1B, 0x1D
_STATISTIC_NAMES = 1  # which set of strings
_STRING_LENGTH = 32

Statistics = Callable[[str], Mapping[str, int]]
"""The driver's counters of one interface."""


def group_id(name: str) -> int | None:
    """The id of a group of this machine; None where there is no such group."""
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):  # ValueError for a name that contains NUL
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """Counters since the machine started; all zero where they cannot be read."""

    total_ticks: int = 0
    busy_ticks: int = 0
    own_ticks: int = 0  # of this process and its children, such as the one that fits
    received_bytes: int = 0
    transmitted_bytes: int = 0
    received_packet_count: int = 0
    transmitted_packet_count: int = 0
    own_received_bytes: int = 0  # by its children; includes pipes and files, which are little
    own_transmitted_bytes: int = 0
    allowance_exceeded: Mapping[str, int] = field(default_factory=dict)  # ENA: by counter name


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUsage:
    """The use between two samples. Fractions are of all processors together."""

    others_busy_fraction: float  # without this process and its children
    received_bytes: int
    transmitted_bytes: int
    own_received_bytes: int
    own_transmitted_bytes: int


def sample(root: Path = Path("/"), statistics: Statistics | None = None) -> HostSample:
    """Read the counters now. Takes well under a millisecond."""
    total, busy = _processor_ticks(text_of(root / "proc/stat"))
    interfaces = _interfaces(root / "sys/class/net")

    def moved(counter: str) -> int:
        return sum(_number(interface / "statistics" / counter) for interface in interfaces)

    children = _children(root / "proc")
    own_received, own_transmitted = _moved_by(root / "proc", children)
    exceeded: dict[str, int] = {}
    for interface in interfaces:
        for name, count in (statistics or driver_statistics)(interface.name).items():
            if name.endswith("_allowance_exceeded"):
                exceeded[name] = exceeded.get(name, 0) + count
    return HostSample(
        total_ticks=total,
        busy_ticks=busy,
        own_ticks=sum(_ticks(text_of(root / f"proc/{process}/stat")) for process in ("self", *children)),
        received_bytes=moved("rx_bytes"),
        transmitted_bytes=moved("tx_bytes"),
        received_packet_count=moved("rx_packets"),
        transmitted_packet_count=moved("tx_packets"),
        own_received_bytes=own_received,
        own_transmitted_bytes=own_transmitted,
        allowance_exceeded=exceeded,
    )


def usage(before: HostSample, after: HostSample) -> HostUsage:
    """The use between two samples; a counter that went back (a driver was reloaded) counts as unchanged."""

    def counted(name: str) -> int:
        grown: int = getattr(after, name) - getattr(before, name)
        return max(0, grown)

    ticks, others = counted("total_ticks"), max(0, counted("busy_ticks") - counted("own_ticks"))
    return HostUsage(
        others_busy_fraction=min(1.0, others / ticks) if ticks else 0.0,
        received_bytes=counted("received_bytes"),
        transmitted_bytes=counted("transmitted_bytes"),
        own_received_bytes=counted("own_received_bytes"),
        own_transmitted_bytes=counted("own_transmitted_bytes"),
    )


def driver_statistics(interface: str) -> dict[str, int]:
    """The counters that `ethtool -S` shows, which need no privileges; empty where the driver has none."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            information = _ethtool(channel, interface, struct.pack("=I192x", _GET_DRIVER))
            (count,) = struct.unpack_from("=I", information, 180)  # ethtool_drvinfo.n_stats
            count = min(count, STATISTIC_COUNT_MAX)
            request = struct.pack("=III", _GET_STRINGS, _STATISTIC_NAMES, count)
            names = _ethtool(channel, interface, request + bytes(_STRING_LENGTH * count))[len(request) :]
            request = struct.pack("=II", _GET_STATISTICS, count)
            values = _ethtool(channel, interface, request + bytes(8 * count))[len(request) :]
    except OSError:
        return {}
    labels = (
        names[i * _STRING_LENGTH : (i + 1) * _STRING_LENGTH].split(b"\0")[0].decode("ascii", "replace")
        for i in range(count)
    )
    return dict(zip(labels, struct.unpack(f"={count}Q", values), strict=True))


def _ethtool(channel: socket.socket, interface: str, request: bytes) -> bytes:
    """One ethtool call: an ifreq with the interface's name and the request's address; the answer overwrites it."""
    data = ctypes.create_string_buffer(request, len(request))
    fcntl.ioctl(
        channel, _SIOCETHTOOL, struct.pack("16sP16x", interface.encode()[:15], ctypes.addressof(data))
    )
    return data.raw


def _processor_ticks(stat: str) -> tuple[int, int]:
    """Total and busy ticks. Waiting for a disk counts as idle; stolen time counts in the total alone."""
    match = re.match(r"cpu +((?:\d+ ?){8})", stat)
    if match is None:
        return 0, 0
    user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen = map(int, match.group(1).split())
    busy = user + nice + system + interrupts + soft_interrupts
    return busy + idle + waiting + stolen, busy


def _children(proc: Path, process: str = "self") -> list[str]:
    """All descendants of a process: the probing process has worker processes of its own."""
    found: list[str] = []
    with suppress(OSError):  # the process may end while its threads are listed
        for file in proc.glob(f"{process}/task/*/children"):
            found += text_of(file).split()
    return found + [theirs for child in found for theirs in _children(proc, child)]


def _moved_by(proc: Path, children: Sequence[str]) -> tuple[int, int]:
    """Bytes that the descendants of this process have read and written with read(2) and write(2), as uvloop does.

    The kernel counts these for each process, but counts no bytes of sockets alone. Only descendants speak to AWS; they
    also use pipes, but little. This process is left out, because it reads and writes much else: its database, /proc,
    and megabytes a second of answers. Where the kernel does not count, all traffic looks like that of others.
    """
    accounts = [text_of(proc / child / "io") for child in children]
    found = [
        sum(int(match.group(1)) for text in accounts if (match := re.search(pattern, text, re.MULTILINE)))
        for pattern in (r"^rchar: (\d+)$", r"^wchar: (\d+)$")
    ]
    return found[0], found[1]


def _ticks(stat: str) -> int:
    """User and system time of the process and of its ended children; the name in brackets may contain anything."""
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def _interfaces(directory: Path) -> list[Path]:
    """Interfaces with a device behind them; where there are none (a container), all but the loopback."""
    with suppress(OSError):
        interfaces = sorted(path for path in directory.iterdir() if path.name != "lo" and path.is_dir())
        return [path for path in interfaces if (path / "device").exists()] or interfaces
    return []


def _number(path: Path) -> int:
    text = text_of(path).strip()
    return int(text) if text.isdigit() else 0


def text_of(path: Path) -> str:
    """The text of a file; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
