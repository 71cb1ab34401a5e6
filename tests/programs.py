"""Knows how a test runs a program to its end, and hears what it says; and what a process holds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SHOWN_CHARACTERS = 2000  # the last of what a program that failed has printed


def ran(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """The program when it has ended, with both its outputs; it may have failed."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def printed(command: Sequence[str | Path], **options: Any) -> str:
    """What a program prints that ends well."""
    done = ran(command, **options)
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout[-_SHOWN_CHARACTERS:]}"
    return done.stdout


def resident_bytes(process_id: int | str = "self") -> int:
    """What it holds in memory."""
    pages = Path(f"/proc/{process_id}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def descriptor_count(process_id: int | str = "self") -> int:
    """How many files and connections it has open."""
    return sum(1 for _ in Path(f"/proc/{process_id}/fd").iterdir())
