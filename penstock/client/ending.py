"""Knows how something is done at the end of the process, also of one that `multiprocessing` has forked."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_finalizers: dict[Callable[[], None], Any] = {}


def at_the_end(do: Callable[[], None]) -> None:
    """Call it, unless it is taken back; who asks twice asks once."""
    import atexit

    not_at_the_end(do)  # it may be there already
    atexit.register(do)
    # A child that it forked ends without a look at `atexit`. Another thread may be about to import it.
    finalize = getattr(sys.modules.get("multiprocessing.util"), "Finalize", None)
    if finalize is not None:
        _finalizers[do] = finalize(None, do, exitpriority=0)


def not_at_the_end(do: Callable[[], None]) -> None:
    """It has been done, or there is nothing to do."""
    import atexit

    atexit.unregister(do)
    finalizer = _finalizers.pop(do, None)
    if finalizer is not None:
        finalizer.cancel()
