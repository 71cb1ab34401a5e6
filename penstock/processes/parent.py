"""Knows how a process ends together with the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal

from penstock.processes import memory

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent_process_id: int, signal_number: signal.Signals) -> None:
    """Have Linux send this process a signal when the thread that started it ends, whatever ends it.

    The parent tells its number: asked only now, Linux would name another one where it has ended already.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent_process_id:
        os._exit(0)  # it was gone before the request took effect


def settle_in(parent_process_id: int) -> None:
    """End with the parent, whatever kills it, leave signals to it, and go before it where memory ends."""
    end_with_parent(parent_process_id, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM):  # systemd sends to all processes of a service
        signal.signal(number, signal.SIG_IGN)
    memory.go_first()
