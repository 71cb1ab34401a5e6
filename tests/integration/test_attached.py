"""Children of the demo, when the demo itself is killed."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.programs import printed, ran

ATTACHED = [sys.executable, "-m", "penstock.processes.attached"]
SPEAKER = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]


def test_a_child_ends_with_its_parent() -> None:
    """Also when that is killed without a chance to say so."""
    parent = (
        "import os, subprocess, time\n"
        f"subprocess.Popen([*{ATTACHED!r}, str(os.getpid()), *{SPEAKER!r}])\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.kill()
        assert process.stdout.read() == ""  # comes to an end only when the child's copy of the pipe is closed


def test_a_child_whose_parent_is_gone_already_does_not_begin() -> None:
    """The parent may end while its child is being loaded."""
    ended = ran([*ATTACHED, str(os.getppid()), *SPEAKER], timeout=60)
    assert ended.returncode == 0
    assert ended.stdout == ""


def test_a_program_is_found_by_its_name() -> None:
    """As a shell would find it."""
    assert printed([*ATTACHED, str(os.getpid()), "echo", "found"], timeout=60) == "found\n"
