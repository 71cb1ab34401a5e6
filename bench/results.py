"""Knows where a benchmark's figures are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def keep(name: str, found: Any) -> None:  # anything that JSON can say
    """Write `results/NAME.json`, in place of the last run's."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
