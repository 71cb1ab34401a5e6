"""Knows how much memory this process may use, by its control groups: those of a pod, a container or a systemd unit."""

from __future__ import annotations

import os
import time

_SHARE = 0.5  # for data being moved; the other half is for the application itself
_UNLIMITED_BYTES = 1 << 60  # cgroup version 1 says "no limit" by the largest number of whole pages
_LOOK_SECONDS = 60.0  # how long a limit is remembered: it may change while a pod runs


class _Seen:
    """The last result, and until when it is valid."""

    until_seconds = 0.0
    share_bytes: int | None = None


_seen = _Seen()


def memory_share_bytes() -> int | None:
    """Bytes that data being moved may take unless the application states a limit; None if the process has no limit."""
    now = time.monotonic()
    if now >= _seen.until_seconds:
        limit = memory_limit_bytes()
        _seen.share_bytes = None if limit is None else int(_SHARE * limit)
        _seen.until_seconds = now + _LOOK_SECONDS
    return _seen.share_bytes


def memory_limit_bytes(root: str = "") -> int | None:
    """The smallest limit in bytes of this process's control groups and of all groups above them; None without one."""
    limits: list[int] = []
    for line in _text(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        if "memory" in controllers.split(","):
            limits += _limits(f"{root}/sys/fs/cgroup/memory", group, ("memory.limit_in_bytes",))
        elif not controllers:
            limits += _limits(f"{root}/sys/fs/cgroup", group, ("memory.max", "memory.high"))
    return min(limits, default=None)


def _limits(top: str, group: str, names: tuple[str, ...]) -> list[int]:
    """The limits of a group and of those above it; a container sees its own at the top, whatever its path outside.

    0 counts as no limit: agents set `memory.high` to 0 to have all possible memory reclaimed.
    """
    folders = [top]
    for part in group.split("/") if ".." not in group else ():
        folders.append(f"{folders[-1]}/{part}")
    texts = (_text(f"{folder}/{name}").strip() for folder in folders for name in names)
    return [int(text) for text in texts if text.isdigit() and 0 < int(text) < _UNLIMITED_BYTES]


def _text(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return ""  # no such file, as on any system but Linux
    try:
        return os.read(descriptor, 1 << 16).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
