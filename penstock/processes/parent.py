"""Knows how a process ends together with the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal

from penstock.processes import memory

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent_process_id: int, signal_number: signal.Signals) -> None:
    """Have Linux send this process a signal when the thread that started it ends, however it ends.

    The parent passes its own id, because if it has ended already, getppid names another process by now.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent_process_id:
        os._exit(0)  # the parent was gone before the request took effect


def settle_in(parent_process_id: int) -> None:
    """End with the parent, however it ends, ignore signals meant for it, and be killed before it if memory runs out."""
    end_with_parent(parent_process_id, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM):  # systemd sends them to all processes of a service
        signal.signal(number, signal.SIG_IGN)
    memory.go_first()
