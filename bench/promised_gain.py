"""Knows whether applications that were heard gain what they were promised: before and after following the advice.

    python -m bench promised-gain

Thirty links of random physics, in virtual time. On each, a few of the daemon's probes teach its own optimizer; an
application uploads with threads and parts of its own choice, and reports each attempt and call in the datagrams of an
SDK; these are judged against the advice as the daemon does it. Then the application follows the advice. Its gain is the
ratio of throughputs over several uploads each way, in turns.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from bench import results
from bench.penstock_tuner import START_AT, Learner, s3_probe
from bench.spread import log_uniform
from penstock.daemon.heard.hearing import Hearing
from penstock.lab.link import LinkTruth
from penstock.lab.s3 import S3Service
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.listening.tally import Series
from penstock.models.model import Fit
from penstock.models.s3.upload import S3UploadSetting
from penstock.operations.heard import by_operation, verdict_on
from penstock.operations.table import OPERATIONS
from penstock.optimizer.comparison import gain
from penstock.units import MiB
from penstock.vocabulary import UNKNOWN, Context, Estimate, Inconclusive, Place, Recommendation

WITHIN_FRACTION_MIN = 0.85
RUN_COUNT = {False: 30, True: 90}
PROBE_COUNT = 8
ROUND_COUNT = 6  # uploads each way
_SEED = 1905
PART_SIZE_BYTES = 8 * MiB  # boto3's
ROW = OPERATIONS["s3_upload"]
_REGION = "eu-west-1"
CONTEXT = Context(
    place=Place(operation=ROW.name, region=_REGION, instance_type=UNKNOWN),
    payload_size_bytes=ROW.untold_payload_bytes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One application on one link."""

    thread_count: int
    in_flight_count: float  # as heard
    advised: S3UploadSetting
    promised: Estimate
    gained: float

    @property
    def is_within(self) -> bool:
        """Whether its gain was within what was promised."""
        return self.promised.low <= self.gained <= self.promised.high


def run(*, long: bool = False) -> dict[str, Any]:
    """Play all links, print each, keep the figures under `results/`."""
    kept = [one for number in range(RUN_COUNT[long]) if (one := played(number)) is not None]
    within = sum(one.is_within for one in kept) / max(len(kept), 1)
    is_met = within >= WITHIN_FRACTION_MIN and len(kept) == RUN_COUNT[long]
    verdict = "met" if is_met else "missed"
    print(
        f"{len(kept)} applications, seed {_SEED}: {within:.0%} gained what they were promised "
        f"(at least {WITHIN_FRACTION_MIN:.0%}): {verdict}"
    )
    found = {
        "seed": _SEED,
        "within_fraction": within,
        "runs": [asdict(one) | {"is_within": one.is_within} for one in kept],
        "verdict": verdict,
    }
    results.keep("promised_gain", found)
    return found


def played(number: int) -> Kept | None:
    """One of the links; None if nothing is promised."""
    chance = random.Random(f"{_SEED}/{number}")
    found = run_virtually(lambda clock: _played(clock, _truth(chance), chance), start_at=START_AT)
    if found is not None:
        print(line(number, found), flush=True)
    return found


def line(number: int, found: Kept) -> str:
    """A line of output."""
    return (
        f"{number:3d}: {found.thread_count:2d} threads, {found.in_flight_count:4.1f} heard in flight; promised "
        f"{found.promised.expected:.2f} ({found.promised.low:.2f} to {found.promised.high:.2f}), gained "
        f"{found.gained:.2f}{'' if found.is_within else '  outside'}"
    )


def _truth(chance: random.Random) -> LinkTruth:
    around = partial(log_uniform, chance)

    connection_rate = around(4e6, 30e6)
    return LinkTruth(
        round_trip_seconds=around(0.001, 0.08),
        connection_rate_bytes_per_second=connection_rate,
        host_rate_bytes_per_second=connection_rate * around(3, 40),
        service_latency_seconds_median=around(0.015, 0.06),
        service_latency_sigma=0.3,
    )


async def _played(clock: VirtualClock, truth: LinkTruth, chance: random.Random) -> Kept | None:
    service = S3Service(truth, clock=clock, seed=chance.randrange(2**31))
    known = await learned(service, clock)
    application, advised = _Application(service, clock), known.advice.setting
    own, hearing = own_setting(chance, (2, 4, 10, 10, 20)), Hearing(clock)
    seconds: dict[S3UploadSetting, list[float]] = {own: [], advised: []}
    for _ in range(ROUND_COUNT):
        seconds[own].append(await application.upload(own, hearing))
        seconds[advised].append(await application.upload(advised))
    apis = next(apis for row, _, apis in by_operation(hearing.series()) if row is ROW)
    return kept(known, apis, own, sum(seconds[own]) / sum(seconds[advised]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What some probes taught the daemon's optimizer."""

    advice: Recommendation[S3UploadSetting]
    fit: Fit


async def learned(service: S3Service, clock: VirtualClock) -> Learned:
    """Learn this service in virtual time; it gets its bucket here."""
    probe, advisor = s3_probe(ROW.name, service, clock), Learner(ROW.model, CONTEXT)
    for _ in range(PROBE_COUNT):
        outcome = await probe.run(advisor.planned())
        if isinstance(outcome, Inconclusive):
            raise RuntimeError(outcome.reason)  # noqa: TRY004  # caused by the link, not by the caller
        advisor.tell(outcome)
    return Learned(advice=advisor.recommended(), fit=advisor.known)


def own_setting(chance: random.Random, thread_counts: Sequence[int]) -> S3UploadSetting:
    """An application's own choice, with boto3's parts."""
    return S3UploadSetting(thread_count=chance.choice(thread_counts), part_size_bytes=PART_SIZE_BYTES)


def kept(known: Learned, apis: Mapping[str, Series], own: S3UploadSetting, gained: float) -> Kept | None:
    """The gain beside what was promised to an application that was heard so; None if nothing was."""
    advice = known.advice
    verdict = verdict_on(
        apis,
        advice,
        lambda heard: gain(
            ROW.model, known.fit, CONTEXT, advice.demand, setting=advice.setting, reference=heard
        ),
    )
    if verdict is None or verdict.gain is None:
        return None
    return Kept(
        thread_count=own.thread_count,
        in_flight_count=apis["UploadPart"].in_flight_count_max,
        advised=advice.setting,
        promised=verdict.gain,
        gained=gained,
    )


class _Application:
    """Uploads one object after another, as a transfer manager does."""

    def __init__(self, service: S3Service, clock: VirtualClock) -> None:
        self._service = service
        self._clock = clock

    async def upload(self, setting: S3UploadSetting, hearing: Hearing | None = None) -> float:
        """Upload once; returns the seconds, and reports each part if `hearing` is given."""
        began_seconds = self._clock.monotonic_seconds()
        await self._service.small_request("b")
        upload_id = self._service.shelf.create_upload("b", "k")
        size, part = CONTEXT.payload_size_bytes, setting.part_size_bytes
        sizes = [min(part, size - start) for start in range(0, size, part)]
        waiting, etags = itertools.count(), dict[int, str]()

        async def worker() -> None:
            while (number := next(waiting)) < len(sizes):
                part_began_seconds = self._clock.monotonic_seconds()
                etags[number + 1] = await self._service.upload_part(
                    "b", "k", upload_id, number + 1, sizes[number]
                )
                if hearing is not None:
                    _tell(hearing, self._clock.monotonic_seconds() - part_began_seconds)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(setting.thread_count, len(sizes))):
                tasks.create_task(worker())
        await self._service.complete_upload("b", "k", upload_id, sorted(etags.items()))
        return self._clock.monotonic_seconds() - began_seconds


def _tell(hearing: Hearing, seconds: float) -> None:
    said = {
        "Version": 1,
        "ClientId": "backup",
        "Service": "S3",
        "Api": "UploadPart",
        "Region": _REGION,
        "UserAgent": "Boto3/1.43.117",
    }
    attempt = {"Type": "ApiCallAttempt", "AttemptLatency": round(1000 * seconds), "HttpStatusCode": 200}
    call = {"Type": "ApiCall", "Latency": round(1000 * seconds), "AttemptCount": 1}
    for more in (attempt, call):
        hearing.hear(json.dumps(said | more).encode())
