"""Knows how Ctrl-C is kept from falling between the start of a process and the care for it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def held_off() -> Iterator[None]:
    """Hold off the signals that end a command for as long as the block lasts; what came is delivered behind it.

    Only those that are caught: what is not ends the process at once. They are not blocked, as a child that is started
    meanwhile would never hear of them. In other threads than the first nothing needs to be held off.
    """
    came: list[int] = []
    is_first = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in _ENDING if is_first}
    caught = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in caught:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in caught.items():
            signal.signal(number, handler)
    for number_that_came in came:
        signal.raise_signal(number_that_came)
