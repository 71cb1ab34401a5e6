"""Knows how a test runs a program to its end, and hears what it says."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def ran(
    command: Sequence[str | Path], *, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """The program when it has ended, with both its outputs. It may fail unless that is checked."""
    return subprocess.run(command, capture_output=True, text=True, check=check, **options)
