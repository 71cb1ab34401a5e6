"""Days of probing over bad paths in virtual time: whatever goes wrong at a clean-up, nothing stays outside."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.daemon.config import BudgetSection
from penstock.lab import worlds
from penstock.operations.sections.objects import ObjectSection
from penstock.operations.sections.queues import QueueSection
from penstock.units import KiB, MiB, TiB
from penstock.vocabulary import Inconclusive
from tests.inline_thinker import DiceThinker
from tests.scenario import BUCKET, REGION, Scenario, Week, play

AMPLE = BudgetSection(
    transferred_bytes_per_day=1000 * TiB,
    request_count_per_day=10**9,
    usd_per_day=1e6,
    credit_fraction_per_day=1.0,
    duty_cycle_fraction=1.0,
)
# One answer in fifty takes 40 s, longer than a clean-up waits: objects 130 ms away are left behind again and again.
SLOW = dataclasses.replace(worlds.CROSS_REGION.link, straggler_fraction=0.02, straggler_seconds=40.0)
THROTTLED = worlds.THROTTLED.link  # which refuses deletions, too


def lived(days: float, *, seed: int) -> Week:
    """Three regions, one of them far and slow and one that throttles, two sizes each, and a queue."""
    return play(
        Scenario(
            link=worlds.REGIONAL.link,
            far_links={"far-1": SLOW, "busy-1": THROTTLED},
            queue=worlds.CROSS_REGION.queue,
            sections={
                "s3_upload": ObjectSection(
                    bucket=BUCKET + "-{region}",
                    regions=(REGION, "far-1", "busy-1"),
                    object_size_bytes=(64 * KiB, 64 * MiB),
                    mean_interval_seconds=3600.0,
                    usd_per_day=1e6,
                ),
                "sqs_delivery": QueueSection(mean_interval_seconds=3600.0, usd_per_day=1e6),
            },
            budget=AMPLE,
            days=days,
            seed=seed,
            thinker=DiceThinker,
        )
    )


def assert_nothing_stays(week: Week) -> None:
    """At the end of no hour was anything there that was there ten minutes later; in the end there is nothing."""
    contexts = {cycle.context for cycle in week.cycles if cycle.outcome is not None}
    assert len(contexts) == 7
    measured = [c for c in week.cycles if c.outcome is not None and not isinstance(c.outcome, Inconclusive)]
    assert len(measured) > 3 * 24 * week.scenario.days
    assert week.lingering_names == ()
    assert week.leftover_names == ()


@pytest.mark.days
def test_a_morning_of_bad_paths_leaves_nothing() -> None:
    """Objects, unfinished uploads, messages: what a probe could not remove is gone within ten minutes."""
    assert_nothing_stays(lived(0.25, seed=1))


@pytest.mark.days
def test_a_morning_of_a_slow_queue_leaves_no_message() -> None:
    """One request in fifty takes 3 s: what was sent cannot always be taken out again in a probe's time."""
    slow = dataclasses.replace(worlds.REGIONAL.queue, straggler_fraction=0.02, straggler_seconds=3.0)
    week = play(
        Scenario(
            link=worlds.REGIONAL.link,
            queue=slow,
            sections={"sqs_delivery": QueueSection(mean_interval_seconds=900.0, usd_per_day=1e6)},
            budget=AMPLE,
            days=0.25,
            seed=1,
            thinker=DiceThinker,
        )
    )
    assert len(week.observations) > 10
    assert week.lingering_names == week.leftover_names == ()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_week_of_bad_paths_leaves_nothing() -> None:
    """The same for a week."""
    assert_nothing_stays(lived(7.0, seed=2))
