"""Knows how well small objects are tuned if a store limits requests per second after an initial burst.

A store admits `depth` requests before it limits, and `rate` per second from then on. It refuses the rest, and the
client waits before it tries again: like boto3 (five attempts, the random wait doubling each time; then it gives up, and
the trial fails) or like s5cmd (eleven attempts, with waits from half a second on). `penstock tune` makes twelve trials
as large as with real clients, in virtual time. The advice is judged in long runs against the best thread count of a
ladder, and again with a client that respects the advised rate. An oracle is judged likewise: it knows the long runs of
the ladder and the rate, and takes no more threads than the advice's rule would (`BARGAIN`).

`python -m bench small-objects`: without `--seed` one is drawn, and printed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from math import exp, inf
from typing import Any

import numpy as np

from bench.spread import carried_out, fresh_seeds, log_uniform
from penstock.clock import SystemClock
from penstock.models.s3.ranges import UploadRanges
from penstock.optimizer.objective import BARGAIN
from penstock.tuning.clients import small_object_count
from penstock.tuning.command import Failure, Report
from penstock.tuning.session import Task, advise, propose
from penstock.tuning.state import Trial
from penstock.tuning.streams import steady_rate_per_second
from penstock.units import KiB
from penstock.vocabulary import Demand

WORLDS = 12  # per seed
SEEN_AT = (6, 12)
ASKED = 0.93  # the target after the last trials, of the ladder's best
LADDER = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256)
_FIRST_AT = datetime(2026, 1, 5, tzinfo=UTC)
_LONG_SECONDS = 120.0  # of the runs that judge advice
_LONG_COUNT_MAX = 20_000
_REFUSED_SOONER = 0.3  # a refusal's time over that of an admitted request


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How a client waits after its k-th refusal in a row: `least` and a share of `chance` seconds, times 2^k."""

    attempts: int
    least_seconds: float
    chance_seconds: float


CLIENTS = {
    "boto3": Patience(attempts=5, least_seconds=0.0, chance_seconds=1.0),
    "s5cmd": Patience(attempts=11, least_seconds=0.5, chance_seconds=0.5),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The truth about one store and its client."""

    depth: float
    rate_per_second: float
    request_seconds: float
    spread: float
    size_bytes: int
    client: str


def fresh_store(seed: int, index: int) -> Store:
    """A store that nobody has tuned against."""
    rng = random.Random(f"{seed} {index}")
    between = partial(log_uniform, rng)
    return Store(
        depth=between(3, 100),
        rate_per_second=between(20, 3500),
        request_seconds=between(0.008, 0.08),
        spread=rng.uniform(0.15, 0.4),
        size_bytes=round(between(4, 256)) * KiB,
        client=rng.choice(sorted(CLIENTS)),
    )


@dataclass(slots=True)
class Ran:
    """The result of a run."""

    seconds: float = 0.0
    moved_count: int = 0
    refused_count: int = 0
    has_failed: bool = False
    moved_seconds: list[float] = field(default_factory=list)  # when each object had arrived


def run_client(
    store: Store,
    thread_count: int,
    object_count: int,
    seed: int,
    *,
    is_endless: bool = False,
    rate_limit_per_second: float = inf,
) -> Ran:
    """Move this many objects with this many threads; if one is given up, the whole run fails.

    An endless run does not wait for the last objects, and loses only those that are given up.
    """
    rng, patience, found = random.Random(seed), CLIENTS[store.client], Ran()
    level, counted_at, allowed_at, left = store.depth, 0.0, 0.0, object_count
    # When each thread tries again, and how often it was refused.
    free = [(0.0, thread, 0) for thread in range(thread_count)]
    heapq.heapify(free)
    while free:
        at, thread, refusals = heapq.heappop(free)
        if refusals == 0:
            if left == 0 and is_endless:
                found.seconds = at
                return found
            if left == 0:
                continue
            if at < allowed_at:
                heapq.heappush(free, (allowed_at, thread, 0))
                continue
            left -= 1
        allowed_at = max(allowed_at, at) + 1.0 / rate_limit_per_second
        level, counted_at = min(store.depth, level + (at - counted_at) * store.rate_per_second), at
        seconds = store.request_seconds * exp(rng.gauss(0.0, store.spread))
        if level >= 1.0:
            level -= 1.0
            found.moved_count += 1
            found.seconds = max(found.seconds, at + seconds)
            found.moved_seconds.append(at + seconds)
            heapq.heappush(free, (at + seconds, thread, 0))
            continue
        found.refused_count += 1
        if refusals + 1 >= patience.attempts:
            found.has_failed = True
            if not is_endless:
                return found
            heapq.heappush(free, (at + seconds, thread, 0))
            continue
        pause = (patience.least_seconds + patience.chance_seconds * rng.random()) * 2.0**refusals
        heapq.heappush(free, (at + _REFUSED_SOONER * seconds + pause, thread, refusals + 1))
    return found


def goodput(store: Store, thread_count: int, *, rate_limit_per_second: float = inf) -> float:
    """Objects per second in long runs, beyond the initial burst; objects given up do not count."""
    run = long_run(store, thread_count, rate_limit_per_second)
    return run.moved_count / run.seconds


def long_run(store: Store, thread_count: int, rate_limit_per_second: float) -> Ran:
    """An interrupted endless stream."""
    most = min(store.rate_per_second, thread_count / store.request_seconds, rate_limit_per_second)
    count = int(min(_LONG_SECONDS * most + 10 * store.depth, _LONG_COUNT_MAX))
    return run_client(
        store, thread_count, count, 17, is_endless=True, rate_limit_per_second=rate_limit_per_second
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The advice in one store after so many trials."""

    store: Store
    probes: int
    thread_count: int
    best_thread_count: int
    fraction: float
    fraction_within_rate: float
    refused_fraction_within_rate: float  # of its requests
    oracle_fraction: float
    oracle_fraction_within_rate: float
    named: str
    seconds: float  # of all trials so far, as the client spent them


def judge_store(job: tuple[int, int]) -> list[Judged]:
    """Twelve trials, judged twice."""
    seed, index = job
    store, trials, found = fresh_store(seed, index), list[Trial](), list[Judged]()
    known = {count: goodput(store, count) for count in LADDER}
    task = Task(object_size_bytes=store.size_bytes, ranges=UploadRanges(), demand=Demand(), seed=seed)
    for number in range(max(SEEN_AT)):
        trials.append(_tried(store, task, trials, 1000 * index + number))
        if number + 1 in SEEN_AT:
            found.append(_judged(store, task, trials, known))
    return found


def _tried(store: Store, task: Task, trials: list[Trial], chance: int) -> Trial:
    plan = propose(task, trials)
    threads = plan.setting.thread_count
    ran = run_client(store, threads, small_object_count(store.size_bytes, threads), chance)
    rate = steady_rate_per_second(ran.moved_seconds, threads)
    report = Report(
        transferred_bytes=max(ran.moved_count, 1) * store.size_bytes,
        duration_seconds=max(ran.seconds, 1e-6),
        throttled_count=ran.refused_count,
        steady_throughput_bytes_per_second=rate and rate * store.size_bytes,
    )
    return Trial(
        probe_index=len(trials),
        setting=plan.setting,
        reason=plan.reason.value,
        started_at=_FIRST_AT + timedelta(seconds=30 * len(trials)),
        report=None if ran.has_failed else report,
        failure=Failure(reason="refused for good") if ran.has_failed else None,
    )


def _judged(store: Store, task: Task, trials: list[Trial], known: dict[int, float]) -> Judged:
    best = max(known, key=lambda count: known[count])
    threads, limit, named = 0, inf, "nothing worked"
    kept = Ran(seconds=1.0, refused_count=1)
    if any(trial.report for trial in trials):
        advice = advise(task, trials, SystemClock())
        threads, named = advice.setting.thread_count, advice.bottleneck
        limit = advice.derived.get("request_rate_limit_per_second", inf)
        kept = long_run(store, threads, limit)
    oracle = by_the_rule(known)
    at_the_rate = goodput(store, oracle, rate_limit_per_second=store.rate_per_second)
    return Judged(
        store=store,
        probes=len(trials),
        thread_count=threads,
        best_thread_count=best,
        fraction=goodput(store, threads) / known[best] if threads else 0.0,
        fraction_within_rate=kept.moved_count / kept.seconds / known[best],
        refused_fraction_within_rate=kept.refused_count / (kept.moved_count + kept.refused_count),
        oracle_fraction=known[oracle] / known[best],
        oracle_fraction_within_rate=at_the_rate / known[best],
        named=named,
        seconds=sum(trial.report.duration_seconds for trial in trials if trial.report),
    )


def by_the_rule(known: dict[int, float]) -> int:
    """The thread count that the rule advises if the result of each is known."""
    counts = list(known)
    rank = BARGAIN.rank(np.array([known[count] for count in counts]), np.log(counts))
    return counts[int(np.argmin(rank))]


def run(*, long: bool = False, seeds: Sequence[int] = ()) -> dict[str, Any]:
    """Every store of the seeds."""
    seeds = list(seeds) or fresh_seeds(long=long)
    print(f"fresh stores of seeds {seeds}")
    jobs = [(seed, index) for seed in seeds for index in range(WORLDS)]
    found = [each for rows in carried_out(judge_store, jobs) for each in rows]
    print("\n".join(_table(found)))
    return {
        "seeds": seeds,
        **{
            f"fraction_after_{count}": float(np.mean([row.fraction for row in found if row.probes == count]))
            for count in SEEN_AT
        },
    }


def _table(found: list[Judged]) -> list[str]:
    lines = ["  depth rate/s    ms client  probes threads best fraction within rate oracle  trials s  named"]
    lines += [
        f"{row.store.depth:7.0f} {row.store.rate_per_second:6.0f} {1e3 * row.store.request_seconds:5.0f} "
        f"{row.store.client:8s} {row.probes:5d} {row.thread_count:7d} {row.best_thread_count:4d} "
        f"{row.fraction:8.2f} {row.fraction_within_rate:11.2f} {row.oracle_fraction:6.2f} "
        f"{row.seconds:9.0f}  {row.named}"
        for row in sorted(found, key=lambda row: (row.probes, row.fraction))
    ]
    return [*lines, *(_summary([row for row in found if row.probes == count]) for count in SEEN_AT)]


def _summary(chosen: list[Judged]) -> str:
    def mean(name: str) -> float:
        return float(np.mean([getattr(row, name) for row in chosen]))

    return (
        f"after {chosen[0].probes}: of the best {mean('fraction'):.3f}, "
        f"worst {min(row.fraction for row in chosen):.2f}; kept to the rate that was advised "
        f"{mean('fraction_within_rate'):.3f}, with {mean('refused_fraction_within_rate'):.3f} of its requests refused; "
        f"asked {ASKED} of both after {max(SEEN_AT)}, an oracle by the same rule {mean('oracle_fraction'):.3f}, "
        f"kept to the true rate {mean('oracle_fraction_within_rate'):.3f}"
    )
