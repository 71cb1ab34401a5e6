"""Knows how the snapshot file is replaced, so that a reader sees all of the old advice or all of the new."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

_MODE = 0o644  # reading advice needs no permission


def write_snapshot(path: Path, pieces: Iterable[bytes], *, mode: int = _MODE) -> None:
    """Replace the file atomically; of a link the link itself. Raises OSError; then the old file stands.

    There is no fsync: the file lives on a tmpfs and is written again at the next start.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
            os.fchmod(file.fileno(), mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
