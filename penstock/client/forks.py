"""Knows how an object begins anew in a forked child: once, whichever of the child's threads uses it first."""

from __future__ import annotations

import os
from _thread import RLock  # `threading` costs an application an import

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import Any

_lock = RLock()  # which who holds it may enter again: what begins anew may log, or be interrupted by a signal


class OfOneProcess:
    """What a forked child may not go on with as its parent left it."""

    _process_id: int  # in which it began

    def _notice_fork(self) -> None:
        """Begin anew in a child. Who asks meanwhile in another thread waits, and goes on with what is whole."""
        if self._process_id != os.getpid():
            with _lock:
                if self._process_id != os.getpid():
                    self._begin_anew()
                    self._process_id = os.getpid()

    def _begin_anew(self) -> None:
        raise NotImplementedError


def close_inherited(client: Any) -> None:
    """In a child: close the connections of a client of boto3, which go on in its parent, and in other children.

    Who reads from a connection that others read from, too, has the answers to what they asked. What is closed here are
    the child's own ends; the client opens others.
    """
    if hasattr(client, "close"):
        client.close()


def _renew_lock() -> None:
    """In a forked child: a thread of the parent may have held it."""
    global _lock  # noqa: PLW0603
    _lock = RLock()


if hasattr(os, "register_at_fork"):  # where there is no fork, there is no such thing
    os.register_at_fork(after_in_child=_renew_lock)
