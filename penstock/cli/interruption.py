"""Knows how a command is asked to end: by Ctrl-C, by a signal of whoever runs it, or by a terminal that is closed.

It is imported before all else and imports little itself, so that the time in which nobody listens is short.
"""

from __future__ import annotations

import signal

TYPE_CHECKING = False  # `typing` would be one more import
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


def end_as_by_ctrl_c() -> None:
    """From here on, to be asked to end and to lose the terminal are a KeyboardInterrupt, too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as below nohup
            signal.signal(number, _interrupt)


def _interrupt(signal_number: int, _frame: FrameType | None) -> NoReturn:
    if signal_number == signal.SIGHUP:  # the shell and the kernel may both send it: one is enough
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise KeyboardInterrupt
