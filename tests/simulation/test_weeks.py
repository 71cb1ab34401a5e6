"""Days of the whole daemon in virtual time: what holds however the weather is."""

import dataclasses

import pytest

from penstock.daemon.config import BudgetSection
from penstock.lab import worlds
from penstock.trial.scenario import At, Scenario, play
from penstock.units import GiB, MiB

SIZE = 64 * MiB


def test_the_same_seed_gives_the_same_days() -> None:
    """Every sentence, measurement and advice is replayed exactly."""
    scenario = Scenario(link=worlds.REGIONAL.link, queue=worlds.REGIONAL.queue, days=0.2, seed=4)
    first, second = play(scenario), play(scenario)

    assert [c.sentence for c in first.cycles] == [c.sentence for c in second.cycles]
    assert first.advice == second.advice


def test_another_seed_gives_other_days() -> None:
    """Probes are spaced by chance: hosts of a fleet do not probe in step."""
    one, other = (play(Scenario(link=worlds.NEAR.link, days=0.2, seed=seed)) for seed in (1, 2))
    assert [c.at for c in one.cycles] != [c.at for c in other.cycles]


@pytest.mark.parametrize("world", [worlds.NEAR, worlds.CROSS_REGION, worlds.CROWDED], ids=lambda w: w.name)
def test_a_day_is_enough_to_come_near_the_best(world: worlds.World) -> None:
    """After half a day of hourly probes the advice reaches nine tenths of the best setting there is."""
    days = play(Scenario(link=world.link, days=0.5, seed=7))
    assert days.fraction_of_best(SIZE, at_days=0.5) > 0.9


def test_a_slower_host_is_noticed() -> None:
    """When the host loses most of its rate, the advice follows within a day."""
    slower = dataclasses.replace(worlds.NEAR.link, host_rate_bytes_per_second=60e6)
    days = play(Scenario(link=worlds.NEAR.link, days=2.0, seed=5, changes=(At(days=0.7, link=slower),)))
    before = days.advised("s3_upload", SIZE, at_days=0.7)
    after = days.advised("s3_upload", SIZE, at_days=2.0)

    assert before is not None
    assert after is not None
    assert days.fraction_of_best(SIZE, at_days=2.0) > 0.9
    expected_before = before.prediction["throughput_bytes_per_second"].expected
    assert after.prediction["throughput_bytes_per_second"].expected < 0.6 * expected_before


def test_a_restart_forgets_nothing() -> None:
    """The advice after a restart is the advice before it, and probing goes on where it was."""
    restarted = play(
        Scenario(link=worlds.NEAR.link, days=0.4, seed=9, changes=(At(days=0.2, is_restart=True),))
    )
    at_restart = restarted.advised("s3_upload", SIZE, at_days=0.2)
    soon_after = restarted.advised("s3_upload", SIZE, at_days=0.201)

    assert at_restart is not None
    assert soon_after is not None
    assert soon_after.setting == at_restart.setting
    assert len(restarted.observations) > 5


def test_the_budget_is_never_exceeded() -> None:
    """However often probes are due, no 24 hours cost more than is allowed."""
    budget = BudgetSection(transferred_bytes_per_day=4 * GiB, usd_per_day=0.01)
    days = play(Scenario(link=worlds.NEAR.link, days=1.5, seed=3, budget=budget))
    in_order = sorted(days.spends, key=lambda spend: spend.hour_at)
    for index, first in enumerate(in_order):
        window = [s for s in in_order[index:] if (s.hour_at - first.hour_at).total_seconds() < 86400]
        assert sum(s.cost.transferred_bytes for s in window) <= 4 * GiB
        assert sum(s.cost.usd for s in window) <= 0.01


def test_throttling_does_not_stop_the_days() -> None:
    """Under a low request limit it goes on measuring, and leaves nothing behind."""
    days = play(Scenario(link=worlds.THROTTLED.link, queue=worlds.THROTTLED.queue, days=0.3, seed=2))
    assert len(days.observations) > 6
    assert days.leftover_names == ()
