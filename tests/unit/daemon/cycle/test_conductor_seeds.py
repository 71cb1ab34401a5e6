"""Whence the chance in a decision comes: from the history, and from nothing else."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.models.model import PerformanceModel
from penstock.optimizer.deliberation import Case, Conclusion
from tests.factories import CONTEXT, NOON
from tests.unit.daemon.house import CannedThinker, House, lived_in

HISTORY_COUNT_MAX = 3


class NotingThinker(CannedThinker):
    """Notes the seed of every proposal."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds: list[int] = []

    async def deliberate(self, model: PerformanceModel[Any], case: Case[Any]) -> Conclusion[Any]:
        assert len(case.observations) <= HISTORY_COUNT_MAX
        if case.next_context is not None:
            self.seeds.append(case.seed)
        return await super().deliberate(model, case)


async def seeds_of(house: House, *, cycle_count: int) -> list[int]:
    """Of so many proposals, each after one more observation."""
    house.conductor.learner.thinker = thinker = NotingThinker()
    house.conductor.learner.observation_count_max = HISTORY_COUNT_MAX
    for _ in range(cycle_count):
        await house.conductor.run_cycle(CONTEXT)
    return thinker.seeds


async def test_the_seed_goes_on_changing_when_the_history_is_full(house: House) -> None:
    """Only so many observations are looked at; each new one still brings chances of its own."""
    seeds = await seeds_of(house, cycle_count=3 * HISTORY_COUNT_MAX)
    assert len(set(seeds)) == len(seeds) == 3 * HISTORY_COUNT_MAX


def test_the_same_history_gives_the_same_seeds(tmp_path: Path) -> None:
    """A decision can be replayed."""

    async def lived(clock: VirtualClock) -> list[int]:
        async with lived_in(Path(mkdtemp(dir=tmp_path)), clock) as house:
            return await seeds_of(house, cycle_count=6)

    assert run_virtually(lived, start_at=NOON) == run_virtually(lived, start_at=NOON)
