"""Knows how something is done at the end of the process, also of one that `multiprocessing` or Celery has forked."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_undo: dict[Callable[[], None], list[Callable[[], object]]] = {}


def at_the_end(do: Callable[[], None]) -> None:
    """Call it, unless it is taken back; who asks twice asks once."""
    import atexit

    not_at_the_end(do)  # it may be there already
    atexit.register(do)
    undo = _undo[do] = [lambda: atexit.unregister(do)]
    # A child that either of these forked ends without a look at `atexit`. Another thread may be about to import them.
    util: Any = sys.modules.get("multiprocessing.util")
    if hasattr(util, "Finalize"):
        finalizer = util.Finalize(None, do, exitpriority=0)
        undo.append(finalizer.cancel)
        # One of a fork server imports the program, and forgets what was registered meanwhile.
        util.register_after_fork(finalizer, lambda _: at_the_end(do))
    shutdown = getattr(sys.modules.get("celery.signals"), "worker_process_shutdown", None)
    if shutdown is not None:
        shutdown.connect(lambda **_: do(), weak=False, dispatch_uid=do)
        undo.append(lambda: shutdown.disconnect(dispatch_uid=do))


def not_at_the_end(do: Callable[[], None]) -> None:
    """It has been done, or there is nothing to do."""
    for each in _undo.pop(do, ()):
        each()
