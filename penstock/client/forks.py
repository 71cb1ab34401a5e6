"""Knows how an object starts anew in a forked child: once, whichever of the child's threads uses it first."""

from __future__ import annotations

import os
from _thread import RLock  # `threading` costs an application an import

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import Any

_lock = RLock()  # reentrant: starting anew may log, or be interrupted by a signal handler


class OfOneProcess:
    """An object whose state a forked child must not share with its parent."""

    _process_id: int  # of the process in which it began

    def _notice_fork(self) -> None:
        """Start anew in a child. Other threads that ask meanwhile wait until that is complete."""
        if self._process_id != os.getpid():
            with _lock:
                if self._process_id != os.getpid():
                    self._begin_anew()
                    self._process_id = os.getpid()

    def _begin_anew(self) -> None:
        raise NotImplementedError


def close_inherited(client: Any) -> None:
    """In a child: close the inherited connections of a boto3 client; its parent and other children go on using them.

    A process that reads from a shared connection receives answers to other processes' requests. This closes only the
    child's own descriptors; the client opens new connections.
    """
    if hasattr(client, "close"):
        client.close()


def _renew_lock() -> None:
    """In a forked child: replace the lock, which a thread of the parent may have held."""
    global _lock  # noqa: PLW0603
    _lock = RLock()


if hasattr(os, "register_at_fork"):  # missing on systems without fork
    os.register_at_fork(after_in_child=_renew_lock)
