"""Knows what becomes of output that cannot be written: a sentence on standard error, where anybody reads that."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from typing import Any, TextIO, cast

from penstock.cli.trouble import TroubleError


class LostOutputError(TroubleError):
    """Standard output cannot be written."""


@contextlib.contextmanager
def guarded_streams() -> Iterator[None]:
    """Within, standard output raises LostOutputError where it cannot be written, and standard error nothing.

    A reader that leaves is a BrokenPipeError as before. Neither stream is None, as what is closed is for Python.
    """
    if sys.stderr is None:
        sys.stderr = _opened(os.O_WRONLY)
    # In place of a closed one something that fails when it is written.
    output = _opened(os.O_RDONLY) if sys.stdout is None else sys.stdout
    if isinstance(output, TextIOWrapper):  # a name may have letters that the locale has not
        output.reconfigure(errors="backslashreplace")
    with (
        contextlib.redirect_stdout(cast("TextIO", _Stream(output, _named))),
        contextlib.redirect_stderr(cast("TextIO", _Stream(sys.stderr, _forgotten))),
    ):
        try:
            yield
            sys.stdout.flush()
        except (LostOutputError, BrokenPipeError):
            _drop(output)
            raise


def give_up_what_cannot_be_written() -> None:
    """Drop what is left in the buffers of lost streams: Python would flush it at its end, and exit with 120 instead."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            _drop(stream)


def _drop(stream: TextIO) -> None:
    """What is left in its buffer goes nowhere: Python would complain when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _opened(flags: int) -> TextIO:
    return os.fdopen(os.open(os.devnull, flags), "w")


class _Stream:
    """A stream with something done about its trouble."""

    def __init__(self, stream: TextIO, lost: Callable[[OSError], None]) -> None:
        self._stream, self._lost = stream, lost

    def write(self, written: str) -> int:
        self._tried(lambda: self._stream.write(written))
        return len(written)

    def flush(self) -> None:
        self._tried(self._stream.flush)

    def _tried(self, act: Callable[[], object]) -> None:
        try:
            act()
        except BrokenPipeError:
            raise
        except OSError as trouble:
            self._lost(trouble)

    def __getattr__(self, name: str) -> Any:  # Any: whatever else the stream has
        return getattr(self._stream, name)


def _named(trouble: OSError) -> None:
    raise LostOutputError(f"standard output cannot be written: {trouble.strerror}") from trouble


def _forgotten(_trouble: OSError) -> None:
    """A terminal that was closed must not keep a command from its end in order."""
