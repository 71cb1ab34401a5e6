"""Knows what happens to output that cannot be written: an error on standard error, if that can be written."""

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
    """Within, standard output raises LostOutputError if it cannot be written; standard error ignores failures.

    A reader that leaves still causes BrokenPipeError. Neither stream is None, as Python makes a closed one.
    """
    if sys.stderr is None:
        sys.stderr = _opened(os.O_WRONLY)
    # Replace a closed stream by one that fails when written to.
    output = _opened(os.O_RDONLY) if sys.stdout is None else sys.stdout
    if isinstance(output, TextIOWrapper):  # names may have characters that the locale lacks
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
    """Discard the buffers of lost streams: Python would flush them at exit, fail, and exit with 120 instead."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            _drop(stream)


def _drop(stream: TextIO) -> None:
    """Discard its buffer, which Python would try to flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _opened(flags: int) -> TextIO:
    return os.fdopen(os.open(os.devnull, flags), "w")


class _Stream:
    """A stream that hands its OSErrors to a function."""

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
    """A closed terminal must not keep a command from ending properly."""
