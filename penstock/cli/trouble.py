"""Knows the exit codes, and how expected trouble ends a command: with a sentence, never with a traceback.

0 done    1 failed    2 wrong usage    3 no daemon    4 stale or not ready    130 interrupted

click.ClickException
  TroubleError        1
    WrongUsageError   2
    NoDaemonError     3
      SilentDaemonError
    NotReadyError     4
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

INTERRUPTED = 130


class TroubleError(click.ClickException):
    """It failed; the message says why and what to do."""

    exit_code = 1


class WrongUsageError(TroubleError):
    """The question itself is wrong."""

    exit_code = 2


class NoDaemonError(TroubleError):
    """No daemon answers."""

    exit_code = 3


class SilentDaemonError(NoDaemonError):
    """Something holds the socket but does not answer, so it is unknown whether a daemon works."""

    def __init__(self, sentence: str, remedy: str) -> None:
        super().__init__(f"{sentence}: {remedy}")
        self.sentence = sentence
        self.remedy = remedy


class NotReadyError(TroubleError):
    """The daemon has no fresh advice."""

    exit_code = 4


@contextlib.contextmanager
def ended_by(*expected: type[Exception]) -> Iterator[None]:
    """Turn these exceptions into a TroubleError with the same message."""
    try:
        yield
    except expected as trouble:
        raise TroubleError(str(trouble)) from trouble


def cannot_run(trouble: OSError) -> str | None:
    """Why a program did not start."""
    is_missing = isinstance(trouble, FileNotFoundError)
    return "it is not installed here, or not on the PATH" if is_missing else trouble.strerror
