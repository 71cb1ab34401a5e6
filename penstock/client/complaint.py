"""Knows how the client writes to the application's log, without ever failing because of it."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from typing import Any


def complain(sentence: str, *parts: Any, trouble: BaseException | None = None) -> bool:
    """Log one line: a warning, or with `trouble` an error with its traceback. Returns whether it was logged."""
    try:
        import logging  # may fail: it opens files, and the interpreter may be ending

        level = logging.WARNING if trouble is None else logging.ERROR
        logging.getLogger("penstock.client").log(level, sentence, *parts, exc_info=trouble)
    except Exception:  # noqa: BLE001 - a handler of the application's own may raise anything
        return False
    return True
