"""Knows what advice gains if single requests are late: the mean time of transfers against boto3's own setting.

    python -m bench late-requests

Links of the lab in virtual time, on which a small fraction of requests waits for a second or more at random. The
daemon's own probes teach its optimizer; then an object is moved very often, as advised and by boto3's default, on the
same link without dips and neighbours. The mean is over all of these transfers: few are late, but by a lot.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from bench import results
from bench.penstock_tuner import START_AT, Learner, s3_probe
from bench.spread import carried_out
from penstock.lab import worlds
from penstock.lab.link import LinkTruth
from penstock.lab.optimum import DOWNLOADS, UPLOADS, IdealClient
from penstock.lab.s3 import S3Service
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.operations.table import OPERATIONS
from penstock.units import GiB, MiB, format_bytes
from penstock.vocabulary import UNKNOWN, Context, Inconclusive, Place, setting_values

OF_DEFAULT_MIN = 0.97  # on average over seeds: advice may give up this much throughput for fewer connections
LEARNED = 24  # probes, from which on the target applies: before, few have met a late request
CHECKED_AT = (6, 12, 24, 48)  # probes
SEEDS = {False: range(4), True: range(12)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A path, an object, and how often it is moved each way."""

    name: str
    operation: str
    link: LinkTruth
    size_bytes: int
    transfer_count: int

    @property
    def context(self) -> Context:
        """The context of a place that no table knows."""
        place = Place(operation=self.operation, region="eu-west-1", instance_type=UNKNOWN)
        return Context(place=place, payload_size_bytes=self.size_bytes)


def _late(link: LinkTruth, fraction: float, seconds: float) -> LinkTruth:
    return replace(link, straggler_fraction=fraction, straggler_seconds=seconds)


_NEAR_READS, _REGIONAL_READS = (world.inbound or world.link for world in (worlds.NEAR, worlds.REGIONAL))
_SLOW_READS = replace(_REGIONAL_READS, service_latency_seconds_median=0.12)
_NEAR_WRITES, _REGIONAL_WRITES = worlds.NEAR.link, worlds.REGIONAL.link
_CASES_BY_OPERATION = {  # name, link, object size, number of transfers
    "s3_download": (
        ("near, 1 in 1,000 late by 1 s", _late(_NEAR_READS, 1e-3, 1.0), 64 * MiB, 4000),
        ("near, 1 in 1,000 late by 5 s", _late(_NEAR_READS, 1e-3, 5.0), 64 * MiB, 8000),
        ("near, none late", _late(_NEAR_READS, 0.0, 0.0), 64 * MiB, 1000),
        ("regional, 1 in 1,000 late by 1 s", _late(_REGIONAL_READS, 1e-3, 1.0), 64 * MiB, 4000),
        ("regional, slow service, 1 in 1,000 late by 1 s", _late(_SLOW_READS, 1e-3, 1.0), 64 * MiB, 4000),
        ("regional, 1 in 1,000 late by 1 s", _late(_REGIONAL_READS, 1e-3, 1.0), GiB, 400),
    ),
    "s3_upload": (
        ("near, 1 in 1,000 late by 5 s", _late(_NEAR_WRITES, 1e-3, 5.0), 64 * MiB, 4000),
        ("regional, 1 in 1,000 late by 1 s", _late(_REGIONAL_WRITES, 1e-3, 1.0), GiB, 400),
    ),
}
CASES = tuple(
    Case(name=name, operation=operation, link=link, size_bytes=size_bytes, transfer_count=count)
    for operation, rows in _CASES_BY_OPERATION.items()
    for name, link, size_bytes, count in rows
)


@dataclass(frozen=True, slots=True)
class Job:
    """One case with a seed."""

    index: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was advised after this many probes, and boto3's time over that of the advice."""

    probes: int
    setting: Mapping[str, float]
    of_default_mean: float
    of_default_median: float


def run(*, long: bool = False, seeds: Sequence[int] = ()) -> dict[str, Any]:
    """Every case with every seed; print the verdict and keep the figures under `results/`."""
    chosen = list(seeds) or list(SEEDS[long])
    jobs = [Job(index, seed) for index in range(len(CASES)) for seed in chosen]
    found = list(zip(jobs, carried_out(perform, jobs), strict=True))
    lines, figures = [], []
    for index, case in enumerate(CASES):
        title = f"{case.operation}, {format_bytes(case.size_bytes)}, {case.name}"
        for place, probes in enumerate(CHECKED_AT):
            checks = [checks[place] for job, checks in found if job.index == index]
            means = [check.of_default_mean for check in checks]
            figure: dict[str, Any] = {
                "case": title,
                "probes": probes,
                "mean": statistics.mean(means),
                "least": min(means),
                "median": statistics.mean(check.of_default_median for check in checks),
                "settings": [dict(check.setting) for check in checks],
            }
            figures.append(figure)
            lines.append(_line(figure))
    print("boto3's default over the advice: mean time (mean and least of the seeds), time of the middle one")
    print("\n".join(lines))
    least = min(figure["mean"] for figure in figures if figure["probes"] >= LEARNED)
    verdict = "met" if least >= OF_DEFAULT_MIN else "missed"
    print(
        f"no worse than boto3's default in the mean ({OF_DEFAULT_MIN:g} at least after {LEARNED} probes): {verdict}"
    )
    kept = {"seeds": chosen, "figures": figures, "verdict": verdict}
    results.keep("late_requests", [asdict(job) | {"checks": [asdict(c) for c in cs]} for job, cs in found])
    return kept


def _line(figure: Mapping[str, Any]) -> str:
    settings = " ".join(
        "x".join(f"{value / MiB:.3g}" if value >= MiB else f"{value:g}" for value in setting.values())
        for setting in figure["settings"]
    )
    return (
        f"{figure['case']}, {figure['probes']} probes: {figure['mean']:.3f} (least {figure['least']:.3f}), "
        f"median {figure['median']:.3f}; {settings}"
    )


def perform(job: Job) -> list[Check]:
    """One place, learned and judged."""
    case = CASES[job.index]
    advised = run_virtually(lambda clock: _learned(case, clock, job.seed), start_at=START_AT)
    default = OPERATIONS[case.operation].model.default_setting(case.context)
    usual = _seconds(job.index, default)
    checks = []
    for probes, setting in zip(CHECKED_AT, advised, strict=True):
        seconds = _seconds(job.index, setting)
        checks.append(
            Check(
                probes=probes,
                setting=setting_values(setting),
                of_default_mean=statistics.mean(usual) / statistics.mean(seconds),
                of_default_median=statistics.median(usual) / statistics.median(seconds),
            )
        )
    return checks


async def _learned(case: Case, clock: VirtualClock, seed: int) -> list[Any]:
    """The settings advised after each number of probes."""
    service = S3Service(case.link, clock=clock, seed=seed)
    learner = Learner(OPERATIONS[case.operation].model, case.context, seed=seed)
    probe, advised = s3_probe(case.operation, service, clock), []
    for number in range(1, max(CHECKED_AT) + 1):
        outcome = await probe.run(learner.planned())
        if not isinstance(outcome, Inconclusive):
            learner.tell(outcome)
        setting = learner.recommended().setting
        if number in CHECKED_AT:
            advised.append(setting)
    return advised


_CLIENTS: Mapping[str, IdealClient] = {"s3_upload": UPLOADS, "s3_download": DOWNLOADS}


@cache
def _seconds(index: int, setting: Any) -> list[float]:
    """The time of each of many transfers, without dips and neighbours, which would drown the effect."""
    case = CASES[index]
    link, client = replace(case.link, dips=None, tenant=None), _CLIENTS[case.operation]
    n, s = setting.thread_count, setting.request_size_bytes
    rates = (
        client.throughput_bytes_per_second(
            link, case.size_bytes, thread_count=n, request_size_bytes=s, seed=seed
        )
        for seed in range(case.transfer_count)
    )
    return [case.size_bytes / rate for rate in rates]
