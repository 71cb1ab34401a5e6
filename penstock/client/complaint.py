"""Knows how the client says a line in the application's log, which must not fail for it."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import Any


def complain(sentence: str, *parts: Any, trouble: BaseException | None = None) -> bool:
    """One line at warning, or an error with where the trouble came from; whether there is one."""
    try:
        import logging  # which takes files, and may come too late when the interpreter ends

        level = logging.WARNING if trouble is None else logging.ERROR
        logging.getLogger("penstock.client").log(level, sentence, *parts, exc_info=trouble)
    except Exception:  # noqa: BLE001 - a handler of the application's own may raise anything
        return False
    return True
