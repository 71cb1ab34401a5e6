"""Knows how Ctrl-C is kept from falling where it would do harm, as between the start of a process and its care."""

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
    """Hold off the signals that end a command for as long as the block lasts; what came is delivered behind it.

    Only those that are caught: what is not ends the process at once. They are not blocked, as a child that is started
    meanwhile would never hear of them. In other threads than the first nothing needs to be held off.
    """
    came: list[int] = []
    with _handled(lambda number, _: came.append(number)):
        yield
    for number in came:
        signal.raise_signal(number)


@contextlib.contextmanager
def put_up_with_one() -> Iterator[list[int]]:
    """Note the first of these signals and go on with the block; the second is what it always was.

    When a terminal is closed, SIGHUP may come from the shell and from the kernel, so it is never the second.
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
    """Have what is caught handled so, for as long as the block lasts."""
    handlers = _caught()
    try:
        for number in handlers:
            signal.signal(number, handle)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _caught() -> dict[signal.Signals, _Handler]:
    """Who handles them now; nobody in other threads than the first."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    return {number: handler for number, handler in handlers.items() if callable(handler)}
