"""Ctrl-C between the start of a process and the care for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.processes.interruption import held_off
from penstock.trial import stage
from penstock.tuning import command as tuning_command

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(60)
"""


def test_what_came_is_delivered_behind_the_block() -> None:
    """The block is finished, and then Ctrl-C is what it always was."""
    done = []

    def act() -> None:
        with held_off():
            signal.raise_signal(signal.SIGINT)
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        act()
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_need_nothing() -> None:
    """No signal is handled there, and no handler can be set."""
    done = []

    def act() -> None:
        with held_off():
            done.append(True)

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    assert done == [True]


def a_process() -> None:
    """Start one as the demo does."""
    with stage.process(SLEEPER):
        pass


def a_command() -> None:
    """Start one as `penstock tune` does."""
    tuning_command.run_command("exec sleep 60", {}, timeout_seconds=60, grace_seconds=5)


@pytest.mark.parametrize("start", [a_process, a_command])
def test_a_process_that_was_just_started_is_ended(
    start: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at the very moment at which it exists and nobody knows it yet."""
    children = []
    real = subprocess.Popen

    def popen(*arguments: Any, **options: Any) -> Any:
        children.append(real(*arguments, **options))
        signal.raise_signal(signal.SIGINT)
        return children[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        start()
    assert children[-1].returncode == -signal.SIGTERM


def test_a_second_ctrl_c_does_not_leave_a_process_that_will_not_end() -> None:
    """Who cannot wait for an orderly end gets a quick one."""
    pids = []

    def act() -> None:
        with stage.process([sys.executable, "-c", DEAF]) as child:
            assert child.first_line() == "deaf\n"
            pids.append(child.pid)
            threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()

    with pytest.raises(KeyboardInterrupt):
        act()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
