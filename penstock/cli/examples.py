"""Knows how the examples under a help text are written, so that they keep their lines."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """The epilog of a command: its examples, one on each line."""
    # \b keeps click from filling the paragraph.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
