"""Knows how tuners are judged on S3 uploads and downloads: the runs, spread over two processes, and their raw rows.

Each run is a job of plain values, so that any process can carry it out; `bench.verdict` interprets the rows. The table
of benchmarks calls `run(long=...)`; `python -m bench.harness [--long] TUNER ...` judges only the named tuners.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from time import perf_counter, process_time
from typing import Any

import numpy as np

from bench import results
from bench.catalogue import CHANGES, UPLOADS, Drift, Neighbour, Suite
from bench.downloads import DOWNLOADS
from bench.penstock_tuner import PenstockTuner
from bench.spread import carried_out, log_uniform
from bench.surfaces import BenchSetting, Session, Surface
from bench.tuners import Tuner, tuners
from bench.verdict import (
    DRIFT_AT,
    GOOD,
    OWN,
    RIVAL,
    GridCost,
    Row,
    format_table,
    is_on_model,
    regret_table,
    verdict,
)
from penstock.optimizer.objective import BARGAIN, Bargain
from penstock.units import MiB

COLD_PROBES = 20
WARM_PROBES = 10
DRIFT_PROBES_AFTER = 30
PRIOR_PROBES = 20
COVERAGE_AT = (10, 20)
COVERAGE_SETTINGS = 10
FIT_OBSERVATIONS = 100
FIT_SEEDS = 4
FIT_REPEATS = 5
QUIET_NOISE = 0.05  # times a surface's own, and no dips: what noise costs is what is lost beyond this
PEAK = "penstock-peak"
SLOW = {OWN, PEAK, RIVAL, "optuna-tpe"}  # these compute for milliseconds per probe
RULES = {"boto3-default", "crt-rule", "aws-87.5-rule", "s3fs-blocks"}


SUITES = {"s3_upload": UPLOADS, "s3_download": DOWNLOADS}  # by operation


@dataclass(frozen=True, slots=True)
class Job:
    """One run: its kind, its tuner, the row of its kind's table, and the seed."""

    kind: str  # "cold", "quiet", "warm", "warm-cold", "drift", "steady"
    tuner: str
    index: int
    seed: int
    operation: str = "s3_upload"
    steady_probes: int = 0

    @property
    def suite(self) -> Suite:
        """The suite with its surfaces."""
        return SUITES[self.operation]


def run(
    *,
    long: bool = False,
    seeds: Sequence[int] = (0,),
    names: Collection[str] | None = None,
    operation: str = "s3_upload",
) -> dict[str, Any]:
    """Carry out every job (of the named tuners), print the verdict, and keep rows and verdict under `results/`.

    A form uses as many seeds as it needs, counting from each of `seeds`.
    """
    began, form = perf_counter(), LONG if long else SHORT
    rows = carried_out(perform, [job for seed in seeds for job in jobs(form, names, operation, seed)])
    seconds = perf_counter() - began
    suite = SUITES[operation]
    fits = fit_seconds(suite.steady) if any(row.tuner == OWN for row in rows) else []
    found = verdict(rows, probing_of_the_grid(suite.surfaces), fits)
    found["oracle"] = oracles(suite.surfaces)
    print("\nAn oracle by the same rule: regret %, median and p90; connections over needed, median and mean")
    for group, figures in found["oracle"].items():
        print(f"  {group:12s}", " ".join(f"{value:6.2f}" for value in figures.values()))
    found["quiet"] = regret_table([row for row in rows if row.kind == "quiet" and is_on_model(row)])
    if found["quiet"]:
        print("\nMeasured with a twentieth of the noise and no dips: regret %, median / p90")
        print("\n".join(format_table(found["quiet"])))
    found["form"], found["seconds"] = ("long" if long else "short"), seconds
    results.keep(f"{operation}_rows", [asdict(row) for row in rows])
    results.keep(operation, found)
    print(f"\n{len(rows)} runs in {seconds:.0f} s; rows and figures in bench/results/")
    return found


run_downloads = partial(run, operation="s3_download")


@dataclass(frozen=True, slots=True)
class Form:
    """How many seeds each kind of run has: seven minutes of one processor, or as long as it takes."""

    cold_seeds: int
    cold_seeds_cheap: int  # for tuners that compute for less than a millisecond
    warm_seeds: int
    drift_seeds: int
    drift_hosts: int
    steady_surfaces: int
    steady_probes: int  # limited, because a fit's cost grows with its observations
    rival_drifts: bool


SHORT = Form(
    cold_seeds=1,
    cold_seeds_cheap=1,
    warm_seeds=1,
    drift_seeds=1,
    drift_hosts=1,
    steady_surfaces=1,
    steady_probes=100,
    rival_drifts=False,
)
LONG = Form(
    cold_seeds=10,
    cold_seeds_cheap=20,
    warm_seeds=10,
    drift_seeds=5,
    drift_hosts=3,
    steady_surfaces=3,
    steady_probes=200,
    rival_drifts=True,
)


def jobs(
    form: Form, names: Collection[str] | None = None, operation: str = "s3_upload", seed: int = 0
) -> list[Job]:
    """Every run of a form, counting seeds from this one; the longest first, so that both processes end together."""
    suite = SUITES[operation]
    present = [name for name in tuners(operation) if names is None or name in names]
    found: list[Job] = []
    if OWN in present:
        found += [
            Job("steady", OWN, i, s, operation, form.steady_probes)
            for s in range(seed, seed + form.drift_seeds)
            for i in range(form.steady_surfaces)
        ]
        found += [
            Job("warm", OWN, i, s, operation)
            for s in range(seed, seed + form.warm_seeds)
            for i in range(len(suite.warm_pairs))
        ]
    both = [name for name in (OWN, RIVAL) if name in present]
    drift_count = form.drift_hosts * len(CHANGES)
    found += [
        Job("drift", name, i, s, operation)
        for name in both
        if name == OWN or form.rival_drifts
        for s in range(seed, seed + form.drift_seeds)
        for i in range(drift_count)
    ]
    found += [
        Job("warm-cold", name, i, s, operation)
        for name in both
        for s in range(seed, seed + form.warm_seeds)
        for i in range(len(suite.warm_pairs))
    ]
    cold = [
        Job("cold", name, i, s, operation)
        for name in present
        for s in range(seed, seed + _cold_seeds(form, name))
        for i in range(len(suite.surfaces))
    ]
    return [*found, *(replace(job, kind="quiet") for job in cold if job.tuner in {OWN, PEAK}), *cold]


def _cold_seeds(form: Form, name: str) -> int:
    if name in RULES:
        return 1  # a rule does not learn
    return form.cold_seeds if name in SLOW else form.cold_seeds_cheap


def perform(job: Job) -> Row:
    """Carry out one job."""
    kinds = {
        "cold": _cold,
        "quiet": _quiet,
        "warm": _warm,
        "warm-cold": _warm,
        "drift": _drift,
        "steady": _steady,
    }
    return kinds[job.kind](job)


def _cold(job: Job) -> Row:
    return _alone(job, job.suite.surfaces[job.index], COLD_PROBES)


def _quiet(job: Job) -> Row:
    surface = job.suite.surfaces[job.index]
    return _alone(job, replace(surface, noise=surface.noise.times(QUIET_NOISE)), COLD_PROBES)


def _steady(job: Job) -> Row:
    return _alone(job, job.suite.steady[job.index], job.steady_probes)


def _alone(job: Job, surface: Surface, count: int) -> Row:
    """A cold start on a place that does not change."""
    tuner = tuners(job.operation)[job.tuner](surface.description)
    row = _row(job, surface.name, surface)
    _probe(row, tuner, Session(surface, job.seed), surface, count)
    return row


def _warm(job: Job) -> Row:
    pair = job.suite.warm_pairs[job.index]
    tuner = tuners(job.operation)[job.tuner](pair.target.description)
    row = _row(job, pair.name, pair.target)
    row.neighbour = pair.kind
    if job.kind == "warm":
        assert isinstance(tuner, PenstockTuner)  # noqa: S101  # the only one that starts from a neighbour
        seen = prior_observations(pair.source, job.seed)
        if pair.kind is Neighbour.SIZE:
            tuner.remember(seen)
        else:
            tuner.warm(seen, pair.source.description)
    count = COLD_PROBES if pair.kind is Neighbour.WRONG else WARM_PROBES
    _probe(row, tuner, Session(pair.target, job.seed), pair.target, count)
    return row


def prior_observations(surface: Surface, seed: int) -> list[Any]:
    """Twenty earlier probes of a neighbour: powers of four of the threads, random ones, some around its optimum."""
    session, limits, best = Session(surface, seed + 1000), surface.limits, surface.optimum.setting
    rng = np.random.default_rng([seed, 7])
    settings = [limits.clip(n, 16 * MiB) for n in (4, 16, 64, 256)]
    settings += [random_setting(surface, rng) for _ in range(8)]
    while len(settings) < PRIOR_PROBES:
        settings.append(
            limits.clip(
                best.thread_count * 2 ** rng.uniform(-1, 1), best.request_size_bytes * 2 ** rng.uniform(-1, 1)
            )
        )
    seen = [session.measure(setting) for setting in settings]
    return [replace(o, started_at=o.started_at - PRIOR_PROBES * surface.probe_every) for o in seen]


def random_setting(surface: Surface, rng: np.random.Generator) -> BenchSetting:
    """Log-uniform over the legal range."""
    limits = surface.limits
    size = log_uniform(rng, limits.part_size_bytes_min, limits.part_size_bytes_max)
    return limits.clip(log_uniform(rng, 1, limits.thread_count_max), size)


def _drift(job: Job) -> Row:
    drift = job.suite.drifts[job.index]
    tuner = tuners(job.operation)[job.tuner](drift.before.description)
    row = _row(job, drift.name, drift.before)
    row.is_felt = _is_felt(drift)
    session = Session(drift.before, job.seed)
    _probe(row, tuner, session, drift.before, DRIFT_AT)
    session.surface = drift.after
    _probe(row, tuner, session, drift.after, DRIFT_PROBES_AFTER)
    return row


def _is_felt(drift: Drift) -> bool:
    stale = drift.before.optimum.setting
    ratio = drift.after.truth(stale) / drift.before.truth(stale)
    return abs(ratio - 1.0) > 0.1 or drift.after.regret(stale) > GOOD


def _row(job: Job, place: str, surface: Surface) -> Row:
    return Row(job.kind, job.tuner, place, surface.group, surface.split, job.seed)


def _probe(row: Row, tuner: Tuner, session: Session, surface: Surface, count: int) -> None:
    """Let the tuner make `count` probes, and note after each what it would advise."""
    thought = 0.0
    for _ in range(count):
        began = perf_counter()
        setting = tuner.ask(row.seed)
        thought += perf_counter() - began
        observation = session.measure(setting)
        began = perf_counter()
        tuner.tell(observation)
        advised = tuner.recommend()
        thought += perf_counter() - began
        row.regrets.append(surface.regret(advised))
        row.connection_ratios.append(surface.connections(advised) / surface.optimum.n95)
        row.seconds.append(session.seconds)
        row.bytes.append(session.bytes)
        if isinstance(tuner, PenstockTuner):  # the only one that states intervals and detects changes
            if tuner.has_drifted():
                row.alarms.append(session.probe_count)
            if row.kind == "cold" and session.probe_count in COVERAGE_AT:
                _check_intervals(row, tuner, surface, session.probe_count)
    row.think_seconds = thought / count


def _check_intervals(row: Row, tuner: PenstockTuner, surface: Surface, probe_count: int) -> None:
    """Whether the interval holds one future measurement, at each of ten random settings."""
    rng = np.random.default_rng([row.seed, probe_count, 99])
    covered, widths = [], []
    for _ in range(COVERAGE_SETTINGS):
        setting = random_setting(surface, rng)
        low, high = tuner.predict_interval(setting)
        covered.append(low <= surface.measure(setting, rng).throughput_bytes_per_second <= high)
        widths.append(high / max(low, 1.0))
    row.covered[probe_count], row.interval_widths[probe_count] = covered, widths


def fit_seconds(surfaces: Sequence[Surface]) -> list[float]:
    """CPU time of fits of a hundred observations, on calm and noisy places, while nothing else runs."""
    return [_fit_seconds(surface, seed) for surface in surfaces for seed in range(FIT_SEEDS)]


def _fit_seconds(surface: Surface, seed: int) -> float:
    """The least of a few, to exclude the machine's noise; half of the observations are at the optimum."""
    session, rng = Session(surface, seed), np.random.default_rng(seed)
    settings = [
        surface.optimum.setting if rng.random() < 0.5 else random_setting(surface, rng)
        for _ in range(FIT_OBSERVATIONS)
    ]
    tuner = PenstockTuner(surface.context, surface.limits)
    history, taken = [session.measure(setting) for setting in settings], []
    for _ in range(FIT_REPEATS):
        began = process_time()
        tuner.fit(history)
        taken.append(process_time() - began)
    return min(taken)


def probing_of_the_grid(surfaces: Sequence[Surface]) -> dict[str, GridCost]:
    """By surface: the cost of a full factorial of powers of two of threads and, where variable, of part sizes."""
    return {surface.name: _grid_cost(surface) for surface in surfaces}


def _grid_cost(surface: Surface) -> GridCost:
    limits, settings = surface.limits, set()
    for n in (2**i for i in range(11) if 2**i <= limits.thread_count_max):
        for size in (5 * MiB, *(2**i * MiB for i in range(3, 10))):
            settings.add(limits.clip(n, size))
    return GridCost(
        sum(surface.object_size_bytes / surface.truth(s) for s in settings),
        len(settings) * surface.object_size_bytes,
    )


def oracle(surface: Surface, bargain: Bargain) -> tuple[float, float]:
    """The rule's advice if the curve is known: the share of the best, and connections over those needed."""
    n, s = surface.grid
    share = surface.field(n, s).throughput / surface.optimum.bytes_per_second
    connections = np.minimum(n, np.ceil(surface.object_size_bytes / s))
    best = int(np.argmin(bargain.rank(share, np.log(connections))))
    return float(share[best]), float(connections[best] / surface.optimum.n95)


def oracles(surfaces: Sequence[Surface]) -> dict[str, dict[str, float]]:
    """By group, what the rule gives up and takes if everything is known: no tuner that follows it can do better."""
    found = {}
    for group in dict.fromkeys(surface.group for surface in surfaces):
        shares, ratios = np.array([oracle(each, BARGAIN) for each in surfaces if each.group == group]).T
        found[str(group)] = {
            "regret_percent_median": float(np.median(100 - 100 * shares)),
            "regret_percent_p90": float(np.quantile(100 - 100 * shares, 0.9)),
            "connection_ratio_median": float(np.median(ratios)),
            "connection_ratio_mean": float(np.mean(ratios)),
        }
    return found


if __name__ == "__main__":
    run(long="--long" in sys.argv, names=[name for name in sys.argv[1:] if name != "--long"] or None)
