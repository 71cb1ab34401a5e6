"""Knows how a command is asked to end: by Ctrl-C, by a signal, or by closing its terminal.

It is imported before everything else and imports little itself, so that it takes effect early.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # `typing` would be one more import
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn, TypeAlias

    Handler: TypeAlias = Callable[[int, FrameType | None], NoReturn]


def end_at_once() -> None:
    """From now on such a request ends the process at once; for as long as it holds nothing to clean up.

    A KeyboardInterrupt could get lost or turn into another exception when it arrives in a callback during an import.
    """
    _handle(_leave, _leave)


def end_tidily() -> None:
    """From now on such a request raises KeyboardInterrupt: imports are done, and there will be things to remove."""
    _handle(signal.default_int_handler, _interrupt)


def _handle(ctrl_c: Handler, others: Handler) -> None:
    for number, handler in ((signal.SIGINT, ctrl_c), (signal.SIGTERM, others), (signal.SIGHUP, others)):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
            signal.signal(number, handler)


def _leave(_signal_number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(130)  # as `penstock.cli.trouble` says, which may not be imported yet


def _interrupt(signal_number: int, _frame: FrameType | None) -> NoReturn:
    if signal_number == signal.SIGHUP:  # the shell and the kernel may both send it; one is enough
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise KeyboardInterrupt
