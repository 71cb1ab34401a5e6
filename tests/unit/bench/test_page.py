"""The page of the benchmarks tells how each is run."""

import re
from pathlib import Path

from bench.__main__ import BENCHMARKS

PAGE = (Path(__file__).parents[3] / "docs/benchmarks.md").read_text(encoding="utf-8")


def test_the_page_has_the_command_of_every_benchmark() -> None:
    """A new one is described, and one that is gone is not."""
    commands = re.findall(r"`python -m bench ([a-z0-9-]+)", PAGE)
    assert set(commands) == set(BENCHMARKS)
