"""What CONTRIBUTING.md shows of the code is what the code has."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

from penstock.lab import worlds
from penstock.units import MiB
from tests import scenario

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def test_the_scenario_that_is_shown_is_one() -> None:
    """Its worlds and arguments exist; what comes of it is what `tests/simulation/test_weeks.py` asks."""
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    played: list[scenario.Scenario] = []

    class Week:
        def fraction_of_best(self, *words: Any, **named: Any) -> float:
            inspect.signature(scenario.Week.fraction_of_best).bind(self, *words, **named)
            return 1.0

    def play(one: scenario.Scenario) -> Week:
        played.append(one)
        return Week()

    words = {"dataclasses": dataclasses, "worlds": worlds, "MiB": MiB, "play": play}
    exec(shown, {**words, "At": scenario.At, "Scenario": scenario.Scenario})  # noqa: S102 - our own words
    assert isinstance(played[0].link, type(worlds.NEAR.link))
