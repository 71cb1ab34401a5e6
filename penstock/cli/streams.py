"""Knows what becomes of output that cannot be written: a sentence on standard error, where anybody reads that."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from penstock.cli.trouble import TroubleError


class LostOutputError(TroubleError):
    """Standard output cannot be written."""


@contextlib.contextmanager
def guarded_streams() -> Iterator[None]:
    """Within, standard output raises LostOutputError, and neither stream is None, as what is closed is for Python.

    A reader that leaves is a BrokenPipeError as before.
    """
    if sys.stderr is None:
        sys.stderr = _opened(os.O_WRONLY)
    output = (
        _opened(os.O_RDONLY) if sys.stdout is None else sys.stdout
    )  # a closed one fails when it is written
    with contextlib.redirect_stdout(cast("TextIO", _Output(output))):
        try:
            yield
            sys.stdout.flush()
        except (LostOutputError, BrokenPipeError):
            # What is left in the buffer is dropped: Python would complain when it flushes at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
            raise


def _opened(flags: int) -> TextIO:
    return os.fdopen(os.open(os.devnull, flags), "w")


class _Output:
    """A stream whose trouble has a name."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, written: str) -> int:
        with _named():
            return self._stream.write(written)

    def flush(self) -> None:
        with _named():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:  # Any: whatever else the stream has
        return getattr(self._stream, name)


@contextlib.contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as trouble:
        raise LostOutputError(f"standard output cannot be written: {trouble.strerror}") from trouble
