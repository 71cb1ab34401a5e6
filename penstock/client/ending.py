"""Knows how to run something at the end of the process, including processes forked by `multiprocessing` or Celery."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_undo: dict[Callable[[], None], list[Callable[[], object]]] = {}


def at_the_end(do: Callable[[], None]) -> None:
    """Have this called at the end of the process, unless it is taken back; registering it again changes nothing."""
    import atexit

    not_at_the_end(do)  # it may be registered already
    atexit.register(do)
    undo = _undo[do] = [lambda: atexit.unregister(do)]
    # A child that either of these forked ends without running `atexit`. Another thread may be importing them just now.
    util: Any = sys.modules.get("multiprocessing.util")
    if hasattr(util, "Finalize"):
        finalizer = util.Finalize(None, do, exitpriority=0)
        undo.append(finalizer.cancel)
        # A child of a fork server imports the program, and loses what was registered meanwhile.
        util.register_after_fork(finalizer, lambda _: at_the_end(do))
    shutdown = getattr(sys.modules.get("celery.signals"), "worker_process_shutdown", None)
    if shutdown is not None:
        shutdown.connect(lambda **_: do(), weak=False, dispatch_uid=do)
        undo.append(lambda: shutdown.disconnect(dispatch_uid=do))


def not_at_the_end(do: Callable[[], None]) -> None:
    """Take it back: it has been done, or is not needed any more."""
    for each in _undo.pop(do, ()):
        each()
