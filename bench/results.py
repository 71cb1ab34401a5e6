"""Knows where the figures of a benchmark are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def keep(name: str, found: Any) -> None:  # anything that JSON can say
    """As `results/NAME.json`, in place of those of the last run."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
