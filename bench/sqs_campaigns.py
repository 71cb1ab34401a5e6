"""Knows the SQS figures by which penstock is judged: its advice for a queue that collapsed, and its warning.

`python -m bench sqs-delivery` prints them; tests check the same functions in a faster form. Everything is in virtual
time: the measuring application on the lab's SQS, which shares no formula with the models. The collapse itself, its
rescue, and the rules published with it are experiments (`penstock measure run sqs-blast --lab`).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.backlog_walk import oldest_undeleted_seconds
from bench.sqs_world import (
    CONTEXT,
    PLACE,
    HinderedWorld,
    a_setting,
    a_world,
    limited,
    observe,
    play,
    with_actions,
)
from penstock.experiments.calibrations import QUEUE as SEED_WORLD
from penstock.experiments.calibrations import QUEUE_WEST as WEST
from penstock.experiments.calibrations import timed
from penstock.experiments.queues import PUBLISHED_CONDITIONS as SEED_CONDITIONS
from penstock.models.sqs.backlog_warning import ACT_FRACTION, WARN_FRACTION
from penstock.models.sqs.delivery import SqsDeliveryModel
from penstock.models.sqs.duplicate_loop import DeleteLoop
from penstock.models.sqs.plan import Conditions, SqsPlan, plan
from penstock.probes.sqs.conduct import BLAST, Conduct, conduct_of
from penstock.probes.sqs.queue_application import advised_conduct
from penstock.probes.sqs.tally import Tally
from penstock.trial.simulated_host import World
from penstock.vocabulary import Demand

HOUR = 3600.0
HELD_OUT_WORLDS = range(400, 440)  # no model was tuned on these
_APPLIED_SECONDS = 6.5  # of an application: five whole seconds after the first


def advised(found: SqsPlan, rate_per_second: float, *, long_polls: bool = False) -> Conduct:
    """The application that follows a plan. The original server had no long polls, so they are off by default."""
    conduct = advised_conduct(found, rate_per_second)
    return replace(conduct, polls_only_when_sent=not long_polls, long_polls=long_polls)


def under_advice(world: World, conditions: Conditions, *, duration_seconds: float) -> Tally:
    """The same server with penstock's plan."""
    conduct = advised(plan(conditions), conditions.message_rate_per_second)
    return play(world, conduct, duration_seconds, seed=1)


WEST_CONDITIONS = replace(SEED_CONDITIONS, delivery_latency_seconds=0.300, latency_objective_seconds=0.310)


def behind_a_receive_window(
    load: float, *, outages: tuple[tuple[float, float], ...] = (), duration_seconds: float = HOUR
) -> tuple[Tally, float]:
    """Blast with only a receive window; and the deleter's capacity."""
    world = replace(with_actions(SEED_WORLD, delete=timed(0.020 * load)), deleter_outages=outages)
    loop = DeleteLoop(
        arrival_rate_per_second=50.0, delete_rate_per_second=50.0 / load, visibility_timeout_seconds=30.0
    )
    conduct = replace(
        BLAST,
        receive_window=loop.receive_window_message_count(),
        receive_pause_seconds=loop.receive_pause_seconds(),
    )
    return play(world, conduct, duration_seconds, seed=3), 50.0 / load


def heals(load: float, stop_seconds: float) -> bool:
    """Whether a queue recovers from a stop of its deleter, at a quarter of the original rate, which changes nothing."""
    queue = replace(
        SEED_WORLD.queue,
        send=timed(0.080, variation=0.1),
        receive=timed(0.020, 0.004, variation=0.1),
        delete=timed(0.080 * load, variation=0.1),
    )
    world = HinderedWorld(queue=queue, deleter_outages=((30.0, 30.0 + stop_seconds),))
    tally = play(world, BLAST, 450.0, seed=1)
    return tally.rate_between("duplicate_count", 360.0, 450.0) < 0.5


def basin_seconds(load: float) -> float:
    """The longest stop of the deleter from which it recovers, by bisection between 25 and 45 s."""
    low, high = 25.0, 45.0
    for _ in range(7):
        middle = (low + high) / 2
        low, high = (middle, high) if heals(load, middle) else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Warnings:
    """How a level of the oldest age performs as an alarm."""

    alarm_count: int
    collapse_count: int
    missed_count: int
    lead_minutes_p5: float
    lead_minutes_median: float


def warnings(load: float, *, run_count: int, fraction: float = WARN_FRACTION) -> Warnings:
    """Runs of four hours with samples every 10 s."""
    alarms = collapses = missed = 0
    leads: list[float] = []
    for seed in range(run_count):
        ages = oldest_undeleted_seconds(
            arrival_rate_per_second=50.0,
            load=load,
            variation=0.6,
            duration_seconds=4 * HOUR,
            sample_seconds=10.0,
            seed=seed,
        )
        warned, collapsed = _first(ages >= 30.0 * fraction), _first(ages >= 30.0)
        alarms += warned is not None
        collapses += collapsed is not None
        missed += collapsed is not None and (warned is None or warned >= collapsed)
        if collapsed is not None and warned is not None:
            leads.append((collapsed - warned) * 10.0 / 60.0)
    p5, median = np.quantile(leads, [0.05, 0.5]) if leads else (0.0, 0.0)
    return Warnings(
        alarm_count=alarms,
        collapse_count=collapses,
        missed_count=missed,
        lead_minutes_p5=float(p5),
        lead_minutes_median=float(median),
    )


def _first(holds: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> int | None:
    return int(holds.argmax()) if holds.any() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The predictions of one measure: median relative error, and coverage of 90 % intervals."""

    error_median: float
    coverage: float
    count: int


def prediction_quality(world_seeds: Sequence[int]) -> dict[str, Quality]:
    """Fit to probes of the ramp and of some settings in each world; predict an application's results at others.

    Half of those are at full speed, half at part of it. Keys: goodput, latency_mean, latency_p99.
    """
    model = SqsDeliveryModel()
    ratios: dict[str, list[float]] = {"goodput": [], "latency_mean": [], "latency_p99": []}
    held: dict[str, list[bool]] = {name: [] for name in ratios}
    for world_seed in world_seeds:
        world = a_world(world_seed)
        tried = [*model.ramp(CONTEXT), *(a_setting(1000 * world_seed + i) for i in range(8))]
        seen = [observe(world, s, seed=10_000 * world_seed + i, number=i) for i, s in enumerate(tried)]
        fit = model.fit(PLACE, seen, prior=None, seed=1)
        choices = model.candidates(fit, CONTEXT, Demand())
        for index in range(10):
            setting = a_setting(1000 * world_seed + 500 + index)
            if index % 2:
                choice = choices[(7 * index + world_seed) % len(choices)]
                share = 0.3 + 0.7 * (index % 5) / 5
                setting = limited(choice, choice.send_rate_limit_messages_per_second * share)
            conduct = replace(conduct_of(setting), receive_batch=setting.batch_message_count)
            tally = play(world, conduct, _APPLIED_SECONDS, seed=10_000 * world_seed + 5000 + index)
            prediction = model.predict(fit, CONTEXT, setting, Demand())
            for name, metric, measured in (
                (
                    "goodput",
                    "goodput_messages_per_second",
                    tally.rate_between("deleted_count", 1.5, _APPLIED_SECONDS),
                ),
                ("latency_mean", "delivery_latency_seconds_mean", tally.total.latency_seconds_mean),
                ("latency_p99", "delivery_latency_seconds_p99", tally.latency_seconds_quantile(0.99)),
            ):
                estimate = prediction[metric]
                ratios[name].append(abs(measured / estimate.expected - 1.0))
                held[name].append(estimate.low <= measured <= estimate.high)
    return {
        name: Quality(
            error_median=statistics.median(ratios[name]),
            coverage=statistics.mean(held[name]),
            count=len(held[name]),
        )
        for name in ratios
    }


def run(*, long: bool) -> dict[str, object]:
    """Print every figure; the long form uses the full durations and all seeds."""
    figures: dict[str, object] = {}
    hours = 8 * HOUR if long else HOUR
    figures["advised"] = _row(under_advice(SEED_WORLD, SEED_CONDITIONS, duration_seconds=hours))
    figures["advised, west"] = _row(under_advice(WEST, WEST_CONDITIONS, duration_seconds=hours))
    for load, outages in ((1.2, ()), (0.95, ((600.0, 660.0),))):
        tally, capacity = behind_a_receive_window(load, outages=outages)
        figures[f"receive window at {load}"] = {
            "goodput_of_capacity": tally.rate_between("deleted_count", 60.0, HOUR) / capacity,
            **_row(tally),
        }
    for load in (0.6, 0.8, 0.95):
        theory = DeleteLoop(
            arrival_rate_per_second=50.0, delete_rate_per_second=50.0 / load, visibility_timeout_seconds=30.0
        ).outage_seconds_max()
        figures[f"basin at {load}"] = {"simulated": basin_seconds(load), "theory": theory}
    for load, count in ((0.99, 400 if long else 20), (1.0143, 100 if long else 20)):
        for fraction in (WARN_FRACTION, ACT_FRACTION):
            figures[f"age over {fraction:.2f} V at {load}"] = warnings(
                load, run_count=count, fraction=fraction
            )
    for name, quality in prediction_quality(HELD_OUT_WORLDS if long else HELD_OUT_WORLDS[:10]).items():
        figures[f"unseen settings, {name}"] = quality
    for name, value in figures.items():
        print(f"{name:34} {value}", flush=True)
    return figures


def _row(tally: Tally) -> dict[str, float]:
    return {
        "goodput": round(tally.total.received_count / tally.duration_seconds, 2),
        "latency_ms": round(1e3 * tally.total.latency_seconds_mean, 1),
        "duplicates": tally.total.duplicate_count,
        "oldest_undeleted_seconds_max": round(tally.oldest_undeleted_seconds_max, 2),
    }
