"""Knows whether a process group has ended, and how it is ended even if this process dies first."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

_WATCH = """
read -r group || exit
read -r _
kill -TERM "-$group"
sleep 0.5
kill -KILL "-$group"
"""


def has_living(group_id: int) -> bool:
    """Whether a process of this group lives; zombies do not count, as their new parent may be slow to reap them.

    Where /proc shows only one's own processes, those of other users do not count, either.
    """
    try:
        os.killpg(group_id, 0)
    except ProcessLookupError:
        return False
    return any(_is_living(process, group_id) for process in Path("/proc").glob("[0-9]*"))


def _is_living(process: Path, group_id: int) -> bool:
    try:
        stat = (process / "stat").read_text(errors="replace")
    except OSError:  # this process is gone meanwhile, but perhaps not the whole group
        return False
    state, _, group = stat.rpartition(")")[2].split()[:3]
    return int(group) == group_id and state not in {"Z", "X"}


class Watch:
    """A process that ends a group if this process ends without doing so, as after ``kill -9``.

    It waits for the end of a pipe that only this process holds, which Linux closes however this process ends. A signal
    on the parent's death (PR_SET_PDEATHSIG) would reach only the shell, and not what the shell has started.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # the script above
            ["/bin/sh", "-c", _WATCH],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that signals to this process's group do not reach it
        )

    def keep_an_eye_on(self, group_id: int) -> None:
        """Watch this group from now on. The watch runs before the group does, so that little can happen in between."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody has killed it
            self._process.stdin.write(b"%d\n" % group_id)

    def end(self) -> None:
        """End the watch, once the group has ended; to be called before the group's id can be used again."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
