"""Knows how much memory this process may use, by its control groups: those of a pod, a container, a unit of systemd."""

from __future__ import annotations

import os
import time

_SHARE = 0.5  # for what is being moved: the other half is the application's own
_UNLIMITED_BYTES = 1 << 60  # how version 1 says that there is no limit: the largest number of whole pages
_LOOK_SECONDS = 60.0  # a limit may be changed while a pod runs


class _Seen:
    """What was found, and until when it holds."""

    until_seconds = 0.0
    share_bytes: int | None = None


_seen = _Seen()


def memory_share_bytes() -> int | None:
    """How much of it what is moved may take, where an application does not state it; None where nothing limits it."""
    now = time.monotonic()
    if now >= _seen.until_seconds:
        limit = memory_limit_bytes()
        _seen.share_bytes = None if limit is None else int(_SHARE * limit)
        _seen.until_seconds = now + _LOOK_SECONDS
    return _seen.share_bytes


def memory_limit_bytes(root: str = "") -> int | None:
    """The least that the groups of this process, and those that they are in, allow."""
    limits: list[int] = []
    for line in _text(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        if "memory" in controllers.split(","):
            limits += _limits(f"{root}/sys/fs/cgroup/memory", group, ("memory.limit_in_bytes",))
        elif not controllers:
            limits += _limits(f"{root}/sys/fs/cgroup", group, ("memory.max", "memory.high"))
    return min(limits, default=None)


def _limits(top: str, group: str, names: tuple[str, ...]) -> list[int]:
    """Of a group and of those that it is in. A container sees its own at the top, whatever it is called outside.

    Nothing is no limit: by a `memory.high` of 0 an agent has all reclaimed that can be.
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
        return ""  # there is none, as on every other system than Linux
    try:
        return os.read(descriptor, 1 << 16).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
