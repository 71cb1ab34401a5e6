"""Knows ninety days of weather, and what has to hold in each hour of them.

    python -m tests.soak [--days 90] [--seeds 20] [--first 1] [--processes 2]

Everything that a path, a store, a queue and a clock do to a host in a season comes by chance, from a seed: the whole
daemon lives through it in virtual time. In each hour: nothing outlives its probe by more than ten minutes where the
store could be reached, no budget is overdrawn, and no advice has expired of a place that was measured meanwhile. Once
a day, what is advised is held against the best that the calm link allows, and against what boto3 does by itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from penstock.daemon.assembly import App
from penstock.daemon.config import AdviceSection, BudgetSection
from penstock.daemon.spending.budget import DAY, HOUR, Ledger, total
from penstock.lab import worlds
from penstock.lab.link import Episodes, LinkTruth
from penstock.lab.sqs import QueueTruth
from penstock.operations.sections.downloads import DownloadSection
from penstock.operations.sections.objects import ObjectSection
from penstock.operations.sections.queues import QueueSection
from penstock.operations.table import OPERATIONS
from penstock.units import GiB, KiB, MiB
from penstock.vocabulary import Demand, Inconclusive
from tests.scenario import BUCKET, REGION, At, Scenario, play
from tests.transfers import TRANSFERS

FAR = "far-1"
SIZES = (512 * KiB, 16 * MiB, 64 * MiB)
MESSAGE_SIZES = (256, KiB, 64 * KiB)
INTERVAL_SECONDS = 3 * 86400.0  # of each of fifteen contexts
VALIDITY_SECONDS = 30 * 86400.0  # five such intervals at the slow pace
BUDGET = BudgetSection(usd_per_day=0.05, transferred_bytes_per_day=20 * GiB)
SETTLED_DAYS = 6.0  # without a change; from then on advice is held to the truth
BELOW_DEFAULT_MAX = 0.9  # of what boto3's own setting reaches, where the advice is worse
NAMES = ("usd", "transferred_bytes", "request_count", "duration_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """Weather, from then to then, in days."""

    what: str
    begins: float
    ends: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Season:
    """What one seed makes of the days."""

    spells: tuple[Spell, ...]
    changes: tuple[At, ...]

    def is_out_of_reach(self, days: float) -> bool:
        """Or was within the hour: the sweeper tries less and less often."""
        return any(s.what == "outage" and s.begins <= days <= s.ends + 1.5 / 24.0 for s in self.spells)

    def settled(self, days: float) -> bool:
        """Nothing has changed for so long that it should be known."""
        begun = [s for s in self.spells if s.begins <= days]
        return all(days - s.ends >= SETTLED_DAYS for s in begun) and days >= SETTLED_DAYS


@dataclass(slots=True)
class Findings:
    """What did not hold, and what was reached."""

    violations: list[str] = field(default_factory=list)
    # By day, of the best.
    fractions: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    measured_count: int = 0
    lasted_seconds: float = 0.0


def season(seed: int, days: float) -> Season:
    """One spell after another, with calm between them; what has passed leaves the world as it was."""
    dice, spells, changes = random.Random(seed), list[Spell](), list[At]()
    link, inbound, queue = worlds.REGIONAL.link, worlds.REGIONAL.inbound, worlds.REGIONAL.queue
    assert link is not None
    assert inbound is not None
    assert queue is not None
    at = dice.uniform(1.0, 4.0)
    while at < days:
        what = dice.choice(tuple(_WEATHER))
        ends = at + dice.uniform(*_WEATHER[what])
        there, back = _turned(what, dice, link, inbound, queue)
        changes += [dataclasses.replace(there, days=at), dataclasses.replace(back, days=ends)]
        if what == "new host":  # stays
            changes.pop()
            link, inbound = there.link or link, there.inbound or inbound
        spells.append(Spell(what=what, begins=at, ends=ends))
        at = ends + dice.uniform(0.5, 9.0)
    return Season(spells=tuple(spells), changes=tuple(c for c in changes if c.days < days))


# How many days each lasts.
_WEATHER: Mapping[str, tuple[float, float]] = {
    "throttling": (0.05, 0.6),
    "outage": (0.02, 0.5),
    "delayed refusals": (0.5, 3.0),
    "noisy neighbours": (0.3, 3.0),
    "credits": (1.0, 5.0),
    "slow path": (0.3, 4.0),
    "new host": (0.01, 0.02),
    "slow queue": (0.2, 2.0),
    "clock forward": (0.01, 0.02),
    "clock back": (0.01, 0.02),
    "restart": (0.01, 0.02),
}


def _turned(
    what: str, dice: random.Random, link: LinkTruth, inbound: LinkTruth, queue: QueueTruth
) -> tuple[At, At]:
    """The change into the weather, and out of it."""
    after = At(days=0.0, link=link, inbound=inbound, queue=queue)

    def on_links(**fields: Any) -> At:  # of LinkTruth, each of its own type
        changed = (dataclasses.replace(truth, **fields) for truth in (link, inbound))
        return At(days=0.0, link=next(changed), inbound=next(changed))

    rate = link.host_rate_bytes_per_second
    step_seconds = dice.choice((90.0, 3600.0, 6 * 3600.0, 2 * 86400.0))
    turns = {
        "throttling": on_links(prefix_request_rate_per_second=dice.uniform(5.0, 60.0)),
        "outage": on_links(prefix_request_rate_per_second=1e-6),
        "delayed refusals": on_links(patience_bytes=dice.uniform(2, 8) * GiB, refusal_seconds=60.0),
        "noisy neighbours": on_links(
            tenant=Episodes(
                gap_seconds_mean=600.0, duration_seconds_mean=300.0, fraction_low=0.1, fraction_high=0.7
            )
        ),
        "credits": on_links(
            host_rate_bytes_per_second=rate / 4, burst_rate_bytes_per_second=rate, credit_bytes=20e9
        ),
        "slow path": on_links(
            service_latency_seconds_median=dice.uniform(2, 8) * link.service_latency_seconds_median
        ),
        "new host": on_links(host_rate_bytes_per_second=rate * dice.uniform(0.3, 2.0)),
        "slow queue": At(
            days=0.0, queue=dataclasses.replace(queue, straggler_fraction=0.02, straggler_seconds=3.0)
        ),
        "clock forward": At(days=0.0, clock_step_seconds=step_seconds),
        "clock back": At(days=0.0, clock_step_seconds=-step_seconds),
        "restart": At(days=0.0, is_restart=True),
    }
    return turns[what], after


def lived(seed: int, days: float) -> Findings:
    """One season."""
    began, found, weather = time.process_time(), Findings(), season(seed, days)
    home: dict[str, Any] = {
        "bucket": BUCKET + "-{region}",
        "regions": (REGION, FAR),
        "object_size_bytes": SIZES,
    }
    paced: dict[str, Any] = {"mean_interval_seconds": INTERVAL_SECONDS}
    week = play(
        Scenario(
            link=worlds.REGIONAL.link,
            inbound=worlds.REGIONAL.inbound,
            far_links={FAR: worlds.CROSS_REGION.link},
            queue=worlds.REGIONAL.queue,
            sections={
                "s3_upload": ObjectSection(**home, **paced, network_path="gateway-endpoint"),
                "s3_download": DownloadSection(**home, **paced, network_path="gateway-endpoint"),
                "sqs_delivery": QueueSection(
                    **paced, message_size_bytes=MESSAGE_SIZES, network_path="public-address"
                ),
            },
            budget=BUDGET,
            advice=AdviceSection(fit_observation_count_max=20, validity_seconds=VALIDITY_SECONDS),
            changes=weather.changes,
            days=days,
            seed=seed,
            each_hour=partial(_look, found, weather),
        )
    )
    for hour in week.lingering_hours:
        if not weather.is_out_of_reach(hour / 24.0):
            found.violations.append(f"day {hour / 24:.2f}: something outlived its probe")
    if week.leftover_names and not weather.is_out_of_reach(days):
        found.violations.append(f"the end: {week.leftover_names}")
    for day, fraction, of_default in _reached(week, weather):
        found.fractions[day].append(fraction)
        if of_default < BELOW_DEFAULT_MAX:
            found.violations.append(
                f"day {day}: {fraction:.2f} of the best, {of_default:.2f} of boto3 by itself"
            )
    found.measured_count = len(week.observations)
    found.lasted_seconds = time.process_time() - began
    return found


def _look(found: Findings, weather: Season, app: App, days: float) -> None:
    """At one hour's end."""
    conductor, now = app.conductor, app.conductor.clock.now()
    found.violations += [f"day {days:.2f}: {overdraft}" for overdraft in _overdrafts(conductor.ledger, now)]
    fresh = now - timedelta(seconds=VALIDITY_SECONDS)
    measured = {
        c.context.place
        for c in conductor.cycles
        if c.outcome is not None and not isinstance(c.outcome, Inconclusive) and fresh < c.at <= now
    }
    for context in conductor.contexts:
        if context.place in measured and app.board.recommend(context, Demand(), now).has_expired(now):
            found.violations.append(f"day {days:.2f}: the advice of {context} has expired")


def _overdrafts(ledger: Ledger, now: datetime) -> Iterator[str]:
    """Any 24 hours of the calendar that hold more than the limit.

    What counts at a moment may be more: behind a clock that was set back it is what was spent in several days.
    """
    counted = ledger.spent(now)
    for name in NAMES:
        limit = getattr(ledger.limit, name) * (1 + 1e-9)
        if getattr(counted, name) <= limit:
            continue
        near = [s for s in ledger.spends if s.hour_at > now - DAY - HOUR]
        for first in near:
            day = total(s for s in near if first.hour_at <= s.hour_at < first.hour_at + DAY)
            if getattr(day, name) > limit:
                yield f"{name} {getattr(day, name)} of {limit} from {first.hour_at}"


def _reached(week: Any, weather: Season) -> Iterator[tuple[int, float, float]]:
    """(day, fraction of the best, of boto3 by itself) of transfers at home, where nothing has changed lately."""
    stepped = sum(c.clock_step_seconds for c in weather.changes)
    for day in range(int(SETTLED_DAYS), int(week.scenario.days)):
        if stepped or not weather.settled(day):
            continue
        for name in TRANSFERS:
            truth = week.link_at(day, name)
            for size in SIZES:
                advised = week.advised(name, size, at_days=day)
                if advised is not None and advised.context.place.region == REGION:
                    default = OPERATIONS[name].model.default_setting(advised.context)
                    yield day, *judged(name, truth, size, advised.setting, default)


def judged(name: str, truth: LinkTruth, size: int, advised: Any, default: Any) -> tuple[float, float]:
    """What the advised setting reaches of the best on the calm link, and of the default."""
    fraction_of_best = TRANSFERS[name].fraction_of_best
    fraction = fraction_of_best(truth, size, advised)
    of_default = fraction / fraction_of_best(truth, size, default)
    if of_default < BELOW_DEFAULT_MAX:
        of_default = _usual(name, truth, size, advised) / _usual(name, truth, size, default)
    return fraction, of_default


def _usual(name: str, truth: LinkTruth, size: int, setting: Any) -> float:
    """What the transfer in the middle of many reaches: without chance all requests of a wave end at once."""
    reached, by_chance = TRANSFERS[name].reached, dataclasses.replace(truth, dips=None, tenant=None)
    return statistics.median(reached(by_chance, size, setting, seed) for seed in range(_TRANSFER_COUNT))


_TRANSFER_COUNT = 51


def main(arguments: Sequence[str] | None = None) -> int:
    """Live through them, and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Seasons of weather.")
    parser.add_argument("--days", type=float, default=90.0)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    by_day: dict[int, list[float]] = defaultdict(list)
    is_sound = True
    # Read by the processes of the pool: more threads are a sixth more work.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(options.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for seed, found in zip(seeds, pool.map(partial(lived, days=options.days), seeds), strict=True):
            print(
                f"seed {seed}: {found.measured_count} measurements, {found.lasted_seconds:.0f} s, "
                f"{len(found.violations)} violations",
                flush=True,
            )
            for violation in found.violations[:10]:
                print(f"  {violation}")
            is_sound = is_sound and not found.violations
            for day, fractions in found.fractions.items():
                by_day[day] += fractions
    print(f"\n{'days':>10}{'regret, mean':>16}{'worst':>10}{'count':>8}")
    for first in range(0, int(options.days), 10):
        some = [
            1.0 - f for day, found_here in by_day.items() if first <= day < first + 10 for f in found_here
        ]
        if some:
            print(
                f"{f'{first} to {first + 10}':>10}{statistics.mean(some):>16.3f}{max(some):>10.3f}{len(some):>8}"
            )
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
