"""Knows how to delay Ctrl-C where it would do harm, such as between starting a process and taking care of it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeAlias

_Handler: TypeAlias = Callable[[int, FrameType | None], Any]  # Any: as the signal module has it

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def held_off() -> Iterator[None]:
    """Delay the signals that end a command until the block has ended.

    Only signals that have a handler: others end the process at once. They are not blocked, because a child that is
    started meanwhile would inherit that. Outside the main thread there is nothing to delay.
    """
    came: list[int] = []
    with _handled(lambda number, _: came.append(number)):
        yield
    for number in came:
        signal.raise_signal(number)


@contextlib.contextmanager
def put_up_with_one() -> Iterator[list[int]]:
    """Note the first of these signals and go on with the block; the second has its usual effect.

    When a terminal is closed, SIGHUP may come from both the shell and the kernel, so it never counts as the second.
    """
    came: list[int] = []
    handlers = _caught()

    def note(number: int, frame: FrameType | None) -> None:
        if came and number != signal.SIGHUP:
            handlers[signal.Signals(number)](number, frame)
        came.append(number)

    with _handled(note):
        yield came


@contextlib.contextmanager
def _handled(handle: _Handler) -> Iterator[None]:
    """Replace the handlers of these signals for the duration of the block."""
    handlers = _caught()
    try:
        for number in handlers:
            signal.signal(number, handle)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _caught() -> dict[signal.Signals, _Handler]:
    """The present handlers of these signals; empty outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    return {number: handler for number, handler in handlers.items() if callable(handler)}
