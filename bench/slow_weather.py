"""Knows how often slow weather over weeks is mistaken for a change of a place that never changed, and what that costs.

For a month, the rate of connections, of the path, or of both varies in a fresh world, by hour of the day or irregularly
from day to day, by a tenth to a quarter. There is a probe every six hours. It counts the detected changes, each of
which turns what was learned into a mere prior, and the share of the current best that the advice reaches.

`python -m bench slow-weather`: without `--seed` one is drawn, and printed.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import exp, pi, sin
from typing import Any

import numpy as np

from bench.fresh_worlds import Scaled, World, fresh_worlds
from bench.penstock_tuner import PenstockTuner
from bench.physics import Array, Flow
from bench.spread import carried_out, fresh_seeds, log_uniform
from bench.surfaces import Field, Session
from penstock.models.model import is_newly_changed

PLACES = 12  # per seed
PROBES = 120
PROBE_EVERY = timedelta(hours=6.3)  # so that probes fall on each hour of the day
LEARNED = 16  # probes, after which every eighth advice is judged
_JUDGED_EVERY = 8
_LIMITS = ("connections", "host-ceiling", "all")
_SIZE = (0.1, 0.25)  # standard deviation of the logarithm
_LASTS_HOURS = (6.0, 240.0)


@dataclass(frozen=True, slots=True)
class Lived:
    """One place through a month."""

    what: str
    changes: int
    suspicions: int
    shares: tuple[float, ...]  # of the current best


def live(job: tuple[int, int]) -> Lived:
    """Probe by probe, as the daemon does."""
    seed, index = job
    rng, limit = np.random.default_rng([seed, index, 61]), _LIMITS[index % len(_LIMITS)]
    worlds = [w for w in fresh_worlds(seed) if limit in w.limits or (limit == "all" and w.limits)]
    world = worlds[int(rng.integers(len(worlds)))]
    surface = replace(world.surface, probe_every=PROBE_EVERY)
    scaled, (weather, factors) = _scaled(world, limit), _weather(rng, is_daily=index // 3 % 4 == 0)
    session, tuner = Session(surface, seed), PenstockTuner(surface.context, surface.limits)
    known, changes, suspicions, shares = None, 0, 0, list[float]()
    for number, factor in enumerate(factors):
        session.surface = replace(surface, field=scaled(factor))
        tuner.tell(session.measure(tuner.ask(seed)))
        advised = tuner.recommend()
        suspicions += tuner.known.suspicion.is_raised
        if is_newly_changed(tuner.known, known):
            changes, known = changes + 1, tuner.known.newest_observation_at
        if number >= LEARNED and number % _JUDGED_EVERY == 0:
            shares.append(1.0 - session.surface.regret(advised))
    return Lived(f"{surface.name}, {limit} {weather}", changes, suspicions, tuple(shares))


def _scaled(world: World, limit: str) -> Scaled:
    inner = world.surface.field

    def every(by: float) -> Field:
        def field(n: Array, s: Array) -> Flow:
            return inner(n, s).times(by)

        return field

    return every if limit == "all" else world.limits[limit]


def _weather(rng: np.random.Generator, *, is_daily: bool) -> tuple[str, list[float]]:
    """Its name, and the factor on the limit at each probe."""
    size, hours = rng.uniform(*_SIZE), log_uniform(rng, *_LASTS_HOURS)
    gap = PROBE_EVERY / timedelta(hours=1)
    if is_daily:
        waves = [sin(2 * pi * number * gap / 24) for number in range(PROBES)]
        return f"daily {size:.2f}", [exp(size * 2**0.5 * wave) for wave in waves]
    rho, log_now, found = exp(-gap / hours), rng.normal(), list[float]()
    for _ in range(PROBES):
        log_now = rho * log_now + (1 - rho**2) ** 0.5 * rng.normal()
        found.append(exp(size * log_now))
    return f"lasting {hours:.0f} h, {size:.2f}", found


def run(*, long: bool = False, seeds: Sequence[int] = ()) -> dict[str, Any]:
    """Every place of the seeds."""
    seeds = list(seeds) or fresh_seeds(long=long)
    print(f"fresh places of seeds {seeds}")
    found = carried_out(live, [(seed, index) for seed in seeds for index in range(PLACES)])
    for lived in found:
        print(
            f"{lived.what}: {lived.changes} changes, {lived.suspicions} suspicions,"
            f" share {statistics.mean(lived.shares):.3f}, at the least {min(lived.shares):.2f}"
        )
    probes = PROBES * len(found)
    figures: dict[str, Any] = {
        "seeds": seeds,
        "probes": probes,
        "changes": sum(lived.changes for lived in found),
        "suspicion_fraction": sum(lived.suspicions for lived in found) / probes,
        "share_mean": statistics.mean(share for lived in found for share in lived.shares),
        "share_p10": float(np.quantile([share for lived in found for share in lived.shares], 0.1)),
    }
    print("\n".join(f"  {name:20s}{value}" for name, value in figures.items()))
    return figures
