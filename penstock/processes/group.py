"""Knows how a process group is seen to its end: whether any of it lives, and who ends it when we no longer can."""

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
    """Whether a process of this group lives; one that only waits to be reaped does not, and its new parent may be slow.

    Where /proc shows only one's own processes, those of others are not waited for.
    """
    try:
        os.killpg(group_id, 0)
    except ProcessLookupError:
        return False
    return any(_is_living(process, group_id) for process in Path("/proc").glob("[0-9]*"))


def _is_living(process: Path, group_id: int) -> bool:
    try:
        stat = (process / "stat").read_text(errors="replace")
    except OSError:  # gone meanwhile: this one, and not the whole group
        return False
    state, _, group = stat.rpartition(")")[2].split()[:3]
    return int(group) == group_id and state not in {"Z", "X"}


class Watch:
    """A process that ends a group when this one ends without having done so, as after ``kill -9``.

    It waits for the end of a pipe that is held here alone, which Linux closes whatever ends this process. A signal on
    the death of a parent (PR_SET_PDEATHSIG) would reach the shell only, and not what that has started.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # the script above
            ["/bin/sh", "-c", _WATCH],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # what ends the group of its parent does not end it
        )

    def keep_an_eye_on(self, group_id: int) -> None:
        """From now on; it was started before the group, so that little can happen in between."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody has killed it
            self._process.stdin.write(b"%d\n" % group_id)

    def end(self) -> None:
        """The group has been seen to. Its number must not have been given to another one yet."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
