"""Knows how the whole daemon, with the README's budgets, does over two days on random paths.

Uploads and downloads of 64 MiB and 1 GiB are probed in virtual time; apart from dips, neighbours and spells, the paths
do not change. For each operation: the longest time without a measurement, the fraction of time with expired advice, the
number of changes believed in, and the share of the best that the advice reached.

`python -m bench days`: without `--seed` one is drawn, and printed.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.spread import carried_out, fresh_seeds, log_uniform
from penstock.daemon.config import AdviceSection, BudgetSection
from penstock.daemon.memory.store import Store
from penstock.lab.link import Drift, Episodes, LinkTruth
from penstock.operations.s3.download import DOWNLOAD
from penstock.operations.s3.upload import UPLOAD
from penstock.operations.sections.downloads import DownloadSection
from penstock.operations.sections.objects import ObjectSection
from penstock.operations.table import setting_types
from penstock.units import GiB, MiB
from tests.scenario import BUCKET, START_AT, Scenario, play

PATHS = 4  # per seed
DAYS = 2.0
_SIZES = (64 * MiB, GiB)
_JUDGED_AT_DAYS = (1 / 24, 1 / 8, 1 / 4, 1 / 2, 1.0, 1.5, 2.0)
_WAYS = {  # ranges of round trip in seconds, and of bytes per second of a connection and of the path
    "near": ((0.0007, 0.002), (8e6, 60e6), (100e6, 1.5e9)),
    "regional": ((0.002, 0.012), (8e6, 60e6), (60e6, 900e6)),
    "far": ((0.06, 0.2), (8e6, 60e6), (50e6, 500e6)),
    "edge": ((0.02, 0.08), (1e6, 8e6), (8e6, 60e6)),
}
_WEATHER = ("quiet", "dips", "storms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """One operation on one path."""

    path: str
    operation: str
    measurements: int
    in_the_first_hour: int
    silent_hours_max: float
    expired_fraction: float
    changes: int
    share_of_best: float


def live(job: tuple[int, int]) -> list[Lived]:
    """Two days on one path, both ways."""
    chance = random.Random(f"{job}")
    way, weather = chance.choice(list(_WAYS)), chance.choice(_WEATHER)
    link = _path(chance, way, weather)
    inbound = replace(
        link,
        connection_rate_bytes_per_second=link.connection_rate_bytes_per_second * log_uniform(chance, 1, 4),
    )
    sections = {
        UPLOAD.name: ObjectSection(bucket=BUCKET, network_path="gateway-endpoint", usd_per_day=0.02),
        DOWNLOAD.name: DownloadSection(bucket=BUCKET, network_path="gateway-endpoint"),
    }
    scenario = Scenario(
        link=link,
        inbound=inbound,
        days=DAYS,
        seed=job[0],
        sections=sections,
        budget=BudgetSection(usd_per_day=0.06, transferred_bytes_per_day=64 * GiB),
        advice=AdviceSection(),
    )
    with tempfile.TemporaryDirectory() as folder:
        days = play(scenario, keep=Path(folder))
        with contextlib.closing(Store.open_read_only(Path(folder, "penstock.db"), setting_types())) as store:
            changes = [change.place.operation for change in store.changes(count_max=1000)]
    found = []
    for operation in sections:
        moments = [o.started_at for o in days.observations if o.context.operation == operation]
        silences = [b - a for a, b in pairwise([START_AT, *moments, START_AT + timedelta(days=DAYS)])]
        valid = timedelta(seconds=scenario.advice.validity_seconds)
        expired = sum((max(timedelta(), silence - valid) for silence in silences), timedelta())
        shares = [
            days.fraction_of_best(size, at_days=at, operation=operation)
            for size in _SIZES
            for at in _JUDGED_AT_DAYS
        ]
        found.append(
            Lived(
                path=f"{way}, {weather}",
                operation=operation,
                measurements=len(moments),
                in_the_first_hour=sum(moment < START_AT + timedelta(hours=1) for moment in moments),
                silent_hours_max=max(silences) / timedelta(hours=1),
                expired_fraction=expired / timedelta(days=DAYS),
                changes=changes.count(operation),
                share_of_best=statistics.mean(shares),
            )
        )
    return found


def _path(chance: random.Random, way: str, weather: str) -> LinkTruth:
    round_trip, connection, host = (log_uniform(chance, *reach) for reach in _WAYS[way])
    link = LinkTruth(
        round_trip_seconds=round_trip,
        connection_rate_bytes_per_second=connection,
        host_rate_bytes_per_second=host,
        window_bytes=log_uniform(chance, 1e6, 6e6) if way == "far" else None,
        service_latency_seconds_median=log_uniform(chance, 0.015, 0.08),
        service_latency_sigma=chance.uniform(0.2, 0.5),
        straggler_fraction=chance.choice((0.0, 0.0003, 0.001)),
        straggler_seconds=chance.choice((1.0, 2.0, 5.0)),
        oversubscription_loss=chance.choice((0.0, 0.1, 0.3)),
    )
    if weather == "quiet":
        return link
    dips = Episodes(
        gap_seconds_mean=log_uniform(chance, 60, 600),
        duration_seconds_mean=log_uniform(chance, 4, 20),
        fraction_low=0.1,
        fraction_high=0.5,
    )
    if weather == "dips":
        return replace(link, dips=dips)
    tenant = Episodes(
        gap_seconds_mean=log_uniform(chance, 300, 3000),
        duration_seconds_mean=log_uniform(chance, 30, 600),
        fraction_low=0.1,
        fraction_high=0.5,
    )
    drift = Drift(
        seconds_mean=log_uniform(chance, 600, 7200),
        rate_sigma=chance.uniform(0.05, 0.2),
        latency_sigma=chance.uniform(0.05, 0.2),
    )
    return replace(link, dips=dips, tenant=tenant, drift=drift)


def run(*, long: bool = False, seeds: Sequence[int] = ()) -> dict[str, Any]:
    """Every path of the seeds."""
    seeds = list(seeds) or fresh_seeds(long=long)
    print(f"paths of seeds {seeds}, {DAYS:.0f} days each")
    jobs = [(seed, index) for seed in seeds for index in range(PATHS)]
    found = [lived for both in carried_out(live, jobs) for lived in both]
    for lived in found:
        print(
            f"{lived.path:18s} {lived.operation:12s} {lived.measurements:4d} measured ({lived.in_the_first_hour} in "
            f"the first hour), silent for {lived.silent_hours_max:.1f} h at the most, expired "
            f"{lived.expired_fraction:.2f}, {lived.changes} changes, {lived.share_of_best:.3f} of the best"
        )
    return {
        "seeds": seeds,
        "expired_fraction": statistics.mean(lived.expired_fraction for lived in found),
        "silent_hours_max": max(lived.silent_hours_max for lived in found),
        "changes_per_measurement": sum(lived.changes for lived in found)
        / sum(lived.measurements for lived in found),
        "share_of_best": statistics.mean(lived.share_of_best for lived in found),
        "each": [asdict(lived) for lived in found],
    }
