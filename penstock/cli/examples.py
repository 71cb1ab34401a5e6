"""Knows how to write the examples under a help text so that they keep their lines."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """A command's epilog: its examples, one per line."""
    # \b keeps click from re-wrapping the paragraph.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
