"""Knows how learning is judged on fresh worlds: certain, rightly so, and with few connections.

After 6, 12, 24 and 40 cold probes of each world it checks: the share of the best that the advice reaches, and its
connections over those needed for 95 %; how often the 90 % interval holds a further measurement, and its width over the
narrowest interval that full knowledge of truth and noise allows; and whether the named limit is the true limit. For
comparison, an oracle knows the curve and follows the same rule. The frontier is what other bargains would have advised
from the same fits.

`python -m bench learning`: without `--seed` one is drawn, and printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np

from bench import results
from bench.figures import Figure
from bench.fresh_worlds import TUNING_EVERY, Kind, Weather, World, fresh_worlds, suite_worlds
from bench.harness import oracle, random_setting
from bench.penstock_tuner import PenstockTuner
from bench.physics import Array
from bench.spread import carried_out, fresh_seeds
from bench.surfaces import BenchSetting, Noise, Session, Surface
from penstock.optimizer.objective import BARGAIN, Bargain

CHECKED_AT = (6, 12, 24, 40)
SETTINGS_ANYWHERE = 8
FUTURES = 400  # simulated further measurements for each interval
ORACLE_FUTURES = 4000
HOPELESS = 0.3  # share of the best below which a probe can hardly change the advice
RIGHT_FROM = 0.8  # of the most important limit's effect counts as right: two limits may act together
FRONTIER = tuple(
    Bargain(within, worth) for within in (0.05, 0.08, 0.12) for worth in (1 / 8, 1 / 12, 1 / 16, 1 / 32)
)


@dataclass(frozen=True, slots=True)
class Job:
    """One run: a world of a set, with a seed."""

    seed: int | None  # of the worlds; None for the surfaces of the catalogue
    rounds: int
    index: int
    chance: int


@dataclass(slots=True)
class Check:
    """What was true of the advice after this many probes."""

    probes: int
    fraction: float
    ratio: float
    covered: float
    width: float
    covered_anywhere: float
    width_anywhere: float
    named: str
    is_right: bool | None  # None if no limit was named, or if the truth is unknown
    frontier: list[tuple[float, float]] = field(default_factory=list)


@dataclass(slots=True)
class Run:
    """One world and its results."""

    name: str
    kind: str
    weather: str
    split: str
    oracle_fraction: float
    oracle_ratio: float
    checks: list[Check] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)  # each probed setting's true share of the best
    probing_seconds: list[float] = field(default_factory=list)  # of each probe
    seconds: float = 0.0


def run(*, long: bool = False, seeds: Sequence[int] = ()) -> dict[str, Any]:
    """Run the worlds of all seeds (long: twice as many, and the catalogue), print the verdict and keep the rows."""
    seeds, rounds = list(seeds) or fresh_seeds(long=long), 2 if long else 1
    began = perf_counter()
    print(f"fresh worlds of seeds {seeds}")
    jobs = [
        Job(seed, rounds, index, seed) for seed in seeds for index in range(len(fresh_worlds(seed, rounds)))
    ]
    if long:
        jobs += [Job(None, 1, index, seed) for seed in seeds for index in range(len(suite_worlds()))]
    runs = carried_out(perform, jobs)
    figures = verdict(runs)
    results.keep("learning_rows", [asdict(r) for r in runs])
    print(f"\n{len(runs)} runs in {perf_counter() - began:.0f} s; rows in bench/results/")
    return {"seeds": seeds, "targets": [figure.document() for figure in figures]}


def world_of(job: Job) -> World:
    """A job's world."""
    return suite_worlds()[job.index] if job.seed is None else fresh_worlds(job.seed, job.rounds)[job.index]


def perform(job: Job) -> Run:
    """Forty probes, checked four times."""
    world, began = world_of(job), perf_counter()
    surface = world.surface
    tuner, session = PenstockTuner(surface.context, surface.limits), Session(surface, job.chance)
    fraction, ratio = oracle(surface, BARGAIN)
    found = Run(surface.name, world.kind, world.weather, surface.split, fraction, ratio)
    for probes in range(1, max(CHECKED_AT) + 1):
        setting = tuner.ask(job.chance)
        observation = session.measure(setting)
        tuner.tell(observation)
        tuner.recommend()
        found.shares.append(1.0 - surface.regret(setting))
        found.probing_seconds.append(observation.duration_seconds)
        if probes in CHECKED_AT:
            found.checks.append(check(world, tuner, session, job.chance))
    found.seconds = perf_counter() - began
    return found


def check(world: World, tuner: PenstockTuner, session: Session, chance: int) -> Check:
    """All checks of the current advice."""
    surface, advice = world.surface, tuner.recommended()
    rng = np.random.default_rng([chance, session.probe_count, 17])
    anywhere = [random_setting(surface, rng) for _ in range(SETTINGS_ANYWHERE)]
    here = _interval(surface, session, tuner, advice.setting, rng)
    others = [_interval(surface, session, tuner, setting, rng) for setting in anywhere]
    matters = world.holds_back(advice.setting)
    named = advice.bottleneck
    return Check(
        probes=session.probe_count,
        fraction=1.0 - surface.regret(advice.setting),
        ratio=surface.connections(advice.setting) / surface.optimum.n95,
        covered=here[0],
        width=here[1],
        covered_anywhere=float(np.mean([covered for covered, _ in others])),
        width_anywhere=float(np.median([width for _, width in others])),
        named=named,
        is_right=matters[named] >= RIGHT_FROM * max(matters.values()) if named in matters else None,
        frontier=[
            (1.0 - surface.regret(x), surface.connections(x) / surface.optimum.n95)
            for x in tuner.bargains(FRONTIER)
        ],
    )


def _interval(
    surface: Surface, session: Session, tuner: PenstockTuner, setting: BenchSetting, rng: np.random.Generator
) -> tuple[float, float]:
    """The fraction of possible next measurements inside the interval, and its width over the narrowest for 90 %."""
    low, high = tuner.predict_interval(setting)
    factors = futures(surface, setting.thread_count, session.slow_log, rng, FUTURES)
    measured = surface.truth(setting) * factors
    width = float(np.log(high / max(low, 1.0)))
    return float(np.mean((low <= measured) & (measured <= high))), width / narrowest(
        surface, setting.thread_count
    )


def futures(
    surface: Surface, thread_count: int, slow_log: float, rng: np.random.Generator, count: int
) -> Array:
    """Factors on the throughput of further probes.

    Probes minutes apart each meet a slow mode of their own; a tuning of a few minutes stays in the mode of its last
    probe.
    """
    noise = surface.noise
    rho = noise.slow_rho if surface.probe_every == TUNING_EVERY else 0.0
    slow = noise.slow_sigma * (rho * slow_log + (1 - rho**2) ** 0.5 * rng.standard_normal(count))
    sigma = float(np.log(1 + noise.cv(thread_count, surface.thread_count_max) ** 2)) ** 0.5
    dips = rng.random(count) < noise.dip_probability
    depth = np.where(dips, rng.uniform(noise.dip_low, noise.dip_high, count), 1.0)
    return np.asarray(np.exp(slow + sigma * rng.standard_normal(count) - sigma**2 / 2) * depth)


def narrowest(surface: Surface, thread_count: int) -> float:
    """The width, in logarithms, of the narrowest interval that holds 90 % of possible measurements."""
    return _narrowest(
        surface.noise, thread_count, surface.thread_count_max, surface.probe_every == TUNING_EVERY
    )


@cache
def _narrowest(noise: Noise, thread_count: int, thread_count_max: int, is_tuned: bool) -> float:  # noqa: FBT001
    slow = noise.slow_sigma * ((1 - noise.slow_rho**2) ** 0.5 if is_tuned else 1.0)
    rng = np.random.default_rng(0)
    sigma = float(np.log(1 + noise.cv(thread_count, thread_count_max) ** 2)) ** 0.5
    logs = (sigma**2 + slow**2) ** 0.5 * rng.standard_normal(ORACLE_FUTURES)
    dips = rng.random(ORACLE_FUTURES) < noise.dip_probability
    logs = np.sort(logs + np.where(dips, np.log(rng.uniform(noise.dip_low, noise.dip_high, len(logs))), 0.0))
    held = round(0.9 * len(logs))
    return float((logs[held:] - logs[:-held]).min())


# --- The verdict. ---


def verdict(runs: list[Run]) -> list[Figure]:
    """Print the tables and return the figures that have a target."""
    for line in [*_advice_table(runs), *_interval_table(runs), *_limit_table(runs), *_probe_table(runs)]:
        print(line)
    print("\n".join(_frontier_table(runs)))
    figures = targets(runs)
    print("\nTargets")
    print("\n".join(figure.line() for figure in figures))
    return figures


def targets(runs: list[Run]) -> list[Figure]:
    """The targets of learning."""
    flat = [r for r in runs if r.kind in (Kind.FLAT, Kind.STREAM)]
    figures = []
    for index, (probes, most) in enumerate(zip(CHECKED_AT, (1.45, 1.30, 1.20, 1.15), strict=True)):
        ratios = [r.checks[index].ratio for r in flat]
        shares = [r.checks[index].fraction for r in flat]
        figures += [
            Figure(f"flat tops, connections over needed after {probes}, mean", _mean(ratios), high=most),
            Figure(f"flat tops, share of the best after {probes}, mean", _mean(shares), low=0.975),
            Figure(f"flat tops, share of the best after {probes}, worst 5 %", _worst(shares), low=0.93),
        ]
    for title, chosen in _climates(runs).items():
        last = [c for r in chosen for c in r.checks[1:]]
        here, anywhere = (_mean([getattr(c, name) for c in last]) for name in ("covered", "covered_anywhere"))
        bound = 1.5 if title == Weather.QUIET else None
        figures += [
            Figure(f"intervals cover, {title}", here, low=0.85, high=0.95),
            Figure(f"intervals cover anywhere, {title}", anywhere, low=0.85, high=0.95),
            Figure(f"width over an oracle's, {title}", _median([c.width for c in last]), high=bound),
        ]
    judged = [c for r in runs if r.kind != Kind.OFF_MODEL for c in r.checks[1:]]
    named = [c.is_right for c in judged if c.is_right is not None]
    return [
        *figures,
        Figure("limit named: right where one is named", _mean([float(x) for x in named]), low=0.9),
        Figure("limit named: surfaces where one is", len(named) / len(judged) if judged else None, low=0.6),
    ]


def _climates(runs: list[Run]) -> dict[str, list[Run]]:
    lawful = [r for r in runs if r.kind != Kind.OFF_MODEL]
    found = {str(w): [r for r in lawful if r.weather == w] for w in Weather}
    return {**found, "off-model": [r for r in runs if r.kind == Kind.OFF_MODEL]}


def _advice_table(runs: list[Run]) -> list[str]:
    head = " ".join(f"{f'@{p}: share  worst  conn':>26s}" for p in CHECKED_AT)
    lines = [
        f"\nAdvice: share of the best (mean, worst 5 %), connections over needed (mean)\n{'':22s}{head}  oracle"
    ]
    for title, chosen in _groups(runs).items():
        cells = []
        for index in range(len(CHECKED_AT)):
            checks = [r.checks[index] for r in chosen]
            shares = [c.fraction for c in checks]
            cells.append(
                f"{_mean(shares):14.3f} {_worst(shares):6.3f} {_mean([c.ratio for c in checks]):5.2f}"
            )
        best = (
            f"{_mean([r.oracle_fraction for r in chosen]):.3f} {_mean([r.oracle_ratio for r in chosen]):.2f}"
        )
        lines.append(f"{title:18s}{len(chosen):4d} {' '.join(cells)}  {best}")
    return lines


def _groups(runs: list[Run]) -> dict[str, list[Run]]:
    kinds = {str(k): [r for r in runs if r.kind == k] for k in Kind}
    weathers = {f"{w}, all": [r for r in runs if r.weather == w] for w in Weather}
    return {title: chosen for title, chosen in {**kinds, **weathers}.items() if chosen}


def _interval_table(runs: list[Run]) -> list[str]:
    head = " ".join(f"{f'@{p}':>24s}" for p in CHECKED_AT)
    lines = [
        f"\nIntervals: cover, width over an oracle's (median); at the advice, and anywhere\n{'':14s}{head}"
    ]
    for title, chosen in _climates(runs).items():
        cells = []
        for index in range(len(CHECKED_AT)):
            checks = [r.checks[index] for r in chosen]
            here = f"{_mean([c.covered for c in checks]):.2f} {_median([c.width for c in checks]):5.2f}"
            cover = _mean([c.covered_anywhere for c in checks])
            there = f"{cover:.2f} {_median([c.width_anywhere for c in checks]):5.2f}"
            cells.append(f"{here}, {there}".rjust(24))
        lines.append(f"{title:14s}{' '.join(cells)}")
    return lines


def _limit_table(runs: list[Run]) -> list[str]:
    lines = ["\nLimit named: share where one is, share of these that is right, after 12 to 40 probes"]
    for kind in Kind:
        checks = [c for r in runs if r.kind == kind and kind != Kind.OFF_MODEL for c in r.checks[1:]]
        named = [c for c in checks if c.is_right is not None]
        if checks:
            wrong = sorted(c.named for c in named if not c.is_right)
            counts = ", ".join(f"{name} {wrong.count(name)}" for name in dict.fromkeys(wrong))
            right = _mean([float(bool(c.is_right)) for c in named])
            lines.append(f"{kind:14s} {len(named) / len(checks):.2f} {right:.2f}  {counts}")
    return lines


def _probe_table(runs: list[Run]) -> list[str]:
    """The cost of probing, and how much of it went to settings that nobody would advise."""
    first = _mean([r.probing_seconds[0] / sum(r.probing_seconds[:12]) for r in runs])
    hopeless = [_mean([float(share < HOPELESS) for share in r.shares[6:12]]) for r in runs]
    return [
        "\nProbes",
        f"seconds of the first over those of twelve, mean {first:.2f}",
        f"of probes 7 to 12 below {HOPELESS:g} of the best, mean {_mean(hopeless):.2f}",
    ]


def _frontier_table(runs: list[Run]) -> list[str]:
    """On flat tops, and on all lawful worlds: the share of the best, its worst 5 %, and connections."""
    lines = ["\nFrontier: share of the best (mean, worst 5 %), connections over needed (mean)"]
    flat = [r for r in runs if r.kind in (Kind.FLAT, Kind.STREAM)]
    lawful = [r for r in runs if r.kind != Kind.OFF_MODEL]
    for title, chosen in (("flat tops", flat), ("all on the model", lawful)):
        lines.append(title)
        for place, bargain in enumerate(FRONTIER):
            cells = []
            for index in range(len(CHECKED_AT)):
                points = [r.checks[index].frontier[place] for r in chosen]
                shares = [share for share, _ in points]
                cells.append(
                    f"{_mean(shares):10.3f} {_worst(shares):6.3f} {_mean([c for _, c in points]):5.2f}"
                )
            mark = " <" if bargain == BARGAIN else ""
            lines.append(
                f"  within {bargain.within:.2f} worth {bargain.connections_worth:.2f} {' '.join(cells)}{mark}"
            )
    return lines


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _median(values: list[float]) -> float:
    return float(np.median(values)) if values else float("nan")


def _worst(values: list[float]) -> float:
    return float(np.quantile(values, 0.05)) if values else float("nan")
