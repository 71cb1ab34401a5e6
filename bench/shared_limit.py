"""Knows what eight hosts get from one prefix limited to 3,500 requests a second, by how each limits its requests.

    fleet              penstock's shares by heartbeats, as daemons compute them, and applications that hold leases
    fleet, reports     the same without leases: demand is estimated from what applications report
    fleet, no bucket   no host sees the others: each lowers and raises its part by its own refusals
    alone              each host at the optimum that it found with the prefix to itself, with the SDKs' retries
    adaptive           botocore's own adaptive mode: its classes, in virtual time

All meet the same demand, from a fifth of the limit to three times it, newly distributed over the hosts every ten
minutes. Requests that a host cannot send within a second are dropped: workers wait. Refused requests are retried twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

import numpy as np
from botocore.retries.adaptive import ClientRateLimiter, RateClocker
from botocore.retries.bucket import TokenBucket
from botocore.retries.throttling import CubicCalculator
from numpy.typing import NDArray

from bench import results as kept
from penstock.daemon.config import FleetSection
from penstock.daemon.fleet.shared_limits import SharedLimits
from penstock.lab.link import LinkTruth
from penstock.lab.s3 import S3Service
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.models.sharing import water_fill
from penstock.probes.outside import MessageQueues, NoBucket, ObjectStore
from penstock.trial.simulated_aws import SimulatedObjectStore
from penstock.vocabulary import FREE

Array = NDArray[np.float64]

LIMIT_PER_SECOND = 3500.0
BURST_SECONDS = 0.2  # the burst that a prefix admits, in seconds of its rate
HOST_COUNT = 8
LOADS = (0.2, 0.5, 0.8, 1.0, 1.3, 2.0, 3.0, 0.6)  # demand over limit, by phase
QUEUE_SECONDS = 1.0
ATTEMPT_COUNT_MAX = 3
BACKOFF_SECONDS_MAX = 20.0
OPERATION, BUCKET = "s3_upload", "fleet-bucket"


@dataclass(frozen=True)
class Weather:
    """The hosts' demand by phase, (phases, hosts), in requests per second."""

    offered: Array
    phase_seconds: float
    tick_seconds: float
    seed: int

    @classmethod
    def of(cls, seed: int, *, phase_seconds: float, tick_seconds: float, limit: float) -> Weather:
        """Unevenly distributed: the busiest host wants about ten times as much as the idlest."""
        chance = np.random.default_rng(seed)
        spread = chance.lognormal(0.0, 0.7, (len(LOADS), HOST_COUNT))
        offered = limit * np.array(LOADS)[:, None] * spread / spread.sum(axis=1, keepdims=True)
        return cls(offered, phase_seconds, tick_seconds, seed)

    @property
    def tick_count(self) -> int:
        """Ticks of all phases."""
        return round(len(self.offered) * self.phase_seconds / self.tick_seconds)

    def phase(self, tick: int) -> int:
        """The phase of a tick."""
        return min(int(tick * self.tick_seconds / self.phase_seconds), len(self.offered) - 1)


class Sender(Protocol):
    """How one host decides what to send."""

    def take(self, tick: int, wanted: int) -> int:
        """How many of these are sent now."""
        ...

    def told(self, admitted: int, refused: int) -> None:
        """The outcome of those of the last tick."""
        ...


@dataclass
class Outcome:
    """The result, by phase and host."""

    offered: Array
    possible: Array
    attempted: Array
    admitted: Array
    refused: Array

    def figures(self) -> dict[str, float]:
        """The three figures; Jain's index is for the worst phase, relative to each host's fair part."""
        return {
            "admitted_over_possible": float(self.admitted.sum() / self.possible.sum()),
            "refused": float(self.refused.sum() / max(self.attempted.sum(), 1.0)),
            "jain_min": min(map(self._jain, range(len(self.offered)))),
        }

    def _jain(self, phase: int) -> float:
        offered = self.offered[phase]
        fair = np.array(water_fill(offered, [1.0] * len(offered), float(self.possible[phase])))
        got = self.admitted[phase] / np.maximum(fair, 1e-9)
        return float(got.sum() ** 2 / (len(got) * (got**2).sum()))


@dataclass
class Prefix:
    """A token bucket; among requests at the same time, chance decides which are admitted."""

    per_second: float
    chance: np.random.Generator
    tokens: float = 0.0

    def admit(self, counts: NDArray[np.int64], seconds: float) -> NDArray[np.int64]:
        """The number admitted for each host."""
        self.tokens = min(
            self.tokens + self.per_second * seconds, self.per_second * max(BURST_SECONDS, seconds)
        )
        most = int(min(self.tokens, counts.sum()))
        self.tokens -= most
        admitted: NDArray[np.int64] = self.chance.multivariate_hypergeometric(counts, most)
        return admitted


@dataclass
class Again:
    """Refused requests to be retried, by tick: (hosts,) for each attempt."""

    tick_seconds: float
    chance: np.random.Generator
    waiting: dict[int, Array] = field(default_factory=dict)

    def due(self, tick: int) -> Array:
        """Those that are due, (attempts, hosts); they wait no longer."""
        return self.waiting.pop(tick, np.zeros((ATTEMPT_COUNT_MAX, HOST_COUNT)))

    def wait(self, tick: int, attempt: int, host: int, count: int) -> None:
        """Schedule a retry at a random point of an interval that doubles, as the SDKs do."""
        if attempt + 1 >= ATTEMPT_COUNT_MAX or count == 0:
            return
        longest = min(2.0**attempt, BACKOFF_SECONDS_MAX)
        delays = 1 + (self.chance.random(count) * longest / self.tick_seconds).astype(int)
        for later, how_many in zip(*np.unique(delays, return_counts=True), strict=True):
            into = self.waiting.setdefault(tick + int(later), np.zeros((ATTEMPT_COUNT_MAX, HOST_COUNT)))
            into[attempt + 1, host] += how_many


class Course:
    """One way of limiting through all the weather, tick by tick."""

    def __init__(self, weather: Weather, senders: Sequence[Sender], limit: float) -> None:
        self.weather, self._senders = weather, senders
        chance = np.random.default_rng(weather.seed + 1)
        self._arrivals = np.random.default_rng(weather.seed + 2)  # the same for all
        self._prefix, self._ideal = Prefix(limit, chance), Prefix(limit, np.random.default_rng(0))
        self._again = Again(weather.tick_seconds, chance)
        self._backlog = np.zeros(HOST_COUNT, dtype=np.int64)  # not yet sent
        self._ideal_backlog = 0
        shape = weather.offered.shape
        self.outcome = Outcome(np.zeros(shape), np.zeros(shape[0]), *np.zeros((3, *shape)))

    def tick(self, tick: int) -> None:
        """All hosts send, the prefix admits, all are told."""
        weather, outcome = self.weather, self.outcome
        phase, seconds = weather.phase(tick), weather.tick_seconds
        fresh = self._arrivals.poisson(weather.offered[phase] * seconds)
        attempts = self._again.due(tick).astype(np.int64)
        attempts[0] += np.minimum(
            fresh + self._backlog, 1 + (weather.offered[phase] * QUEUE_SECONDS).astype(int)
        )
        sent = np.array(
            [sender.take(tick, int(attempts[:, host].sum())) for host, sender in enumerate(self._senders)]
        )
        admitted = self._prefix.admit(sent, seconds)
        for host, sender in enumerate(self._senders):
            sender.told(int(admitted[host]), int(sent[host] - admitted[host]))
            self._retry(tick, host, attempts[:, host], int(sent[host]), int(admitted[host]))
        outcome.offered[phase] += fresh
        waiting = min(
            self._ideal_backlog + int(fresh.sum()), int(weather.offered[phase].sum() * QUEUE_SECONDS)
        )
        done = int(self._ideal.admit(np.array([waiting]), seconds).sum())
        self._ideal_backlog = waiting - done
        outcome.possible[phase] += done
        outcome.attempted[phase] += sent
        outcome.admitted[phase] += admitted
        outcome.refused[phase] += sent - admitted

    def _retry(self, tick: int, host: int, attempts: NDArray[np.int64], sent: int, admitted: int) -> None:
        """Refused requests are scheduled again; unsent retries go on waiting."""
        refused = sent - admitted
        self._backlog[host] = max(0, int(attempts.sum()) - sent - int(attempts[1:].sum()))
        if not refused and sent == attempts.sum():
            return
        for attempt in reversed(range(ATTEMPT_COUNT_MAX)):  # those that waited longest go first
            mine = min(int(attempts[attempt]), sent)
            sent -= mine
            lost = min(refused, mine)
            refused -= lost
            self._again.wait(tick, attempt, host, lost)
            if attempt and attempts[attempt] > mine:  # the rest still waits for its turn
                self._again.wait(tick, attempt - 1, host, int(attempts[attempt]) - mine)


class Boundless:
    """A host that believes it has the prefix to itself."""

    def __init__(self, per_tick: float) -> None:
        self._per_tick = int(per_tick)

    def take(self, tick: int, wanted: int) -> int:  # noqa: ARG002  # it is always the same
        return min(wanted, self._per_tick)

    def told(self, admitted: int, refused: int) -> None:
        """Ignored."""


class _Clock:
    """botocore's clock, in virtual time."""

    seconds = 0.0

    def current_time(self) -> float:
        return self.seconds

    def sleep(self, amount: float) -> None:
        raise NotImplementedError(amount)


class _Detector:
    """Says which answers are refusals; botocore decides what follows."""

    def is_throttling_error(self, *, is_refused: bool) -> bool:
        return is_refused


class Adaptive:
    """botocore's `retries={"mode": "adaptive"}`, assembled as botocore does."""

    def __init__(self, tick_seconds: float) -> None:
        self._tick_seconds = tick_seconds
        self._clock = _Clock()
        self._bucket = TokenBucket(max_rate=1, clock=self._clock)
        self._limiter = ClientRateLimiter(
            rate_adjustor=CubicCalculator(starting_max_rate=0, start_time=0.0),
            rate_clocker=RateClocker(self._clock),
            token_bucket=self._bucket,
            throttling_detector=_Detector(),
            clock=self._clock,
        )

    def take(self, tick: int, wanted: int) -> int:
        self._clock.seconds = tick * self._tick_seconds
        if not self._limiter._enabled:  # noqa: SLF001  # as its own handler asks
            return wanted
        with self._bucket._lock:  # noqa: SLF001  # `acquire` would wait in real time
            self._bucket._refill()  # noqa: SLF001
            taken = min(wanted, int(self._bucket._current_capacity))  # noqa: SLF001
            self._bucket._current_capacity -= taken  # noqa: SLF001
        return taken

    def told(self, admitted: int, refused: int) -> None:
        answers = [False] * admitted + [True] * refused
        random.Random(len(answers)).shuffle(answers)
        step = self._tick_seconds / max(len(answers), 1)
        for is_refused in answers:
            self._clock.seconds += step
            self._limiter.on_receiving_response(is_refused=is_refused)


class Told:
    """A host that limits itself to penstock's share."""

    def __init__(self, limits: SharedLimits, tick_seconds: float) -> None:
        self.limits, self._tick_seconds = limits, tick_seconds
        self._tokens, self._per_second = 0.0, 0.0
        self._sent = 0

    def take(self, tick: int, wanted: int) -> int:
        if tick % max(1, round(1.0 / self._tick_seconds)) == 0:  # an application looks once a second
            share = self.limits.share(OPERATION)
            self._per_second = share.requests_per_second if share else 0.0
        step = self._per_second * self._tick_seconds
        # Plus the fraction of a request that is left, which the bound must not round away.
        self._tokens = min(self._tokens + step, max(step, 0.1 * self._per_second, 1.0) + self._tokens % 1.0)
        taken = min(wanted, int(self._tokens))
        self._tokens -= taken
        return taken

    def told(self, admitted: int, refused: int) -> None:
        self.limits.note(OPERATION, admitted + refused, refused)


def baseline(weather: Weather, make: Callable[[], Sender], limit: float) -> dict[str, float]:
    """Hosts that do not communicate."""
    course = Course(weather, [make() for _ in range(HOST_COUNT)], limit)
    for tick in range(weather.tick_count):
        course.tick(tick)
    return course.outcome.figures()


class Outside:
    """One bucket; each host's clock has its own error."""

    def __init__(self, clock: VirtualClock, *, is_lost: bool = False) -> None:
        link = LinkTruth(
            round_trip_seconds=0.01,
            connection_rate_bytes_per_second=1e8,
            host_rate_bytes_per_second=1e9,
            service_latency_seconds_median=0.02,
        )
        self.service, self.is_lost = S3Service(link, clock=clock, seed=0), is_lost
        self.service.shelf.create_bucket(BUCKET)

    async def object_store(self, region: str, endpoint_url: str | None = None) -> ObjectStore:  # noqa: ARG002  # there is one
        if self.is_lost:
            raise NoBucket("it is gone")
        return SimulatedObjectStore(self.service)

    async def message_queues(self, region: str, endpoint_url: str | None = None) -> MessageQueues:
        raise NotImplementedError(region)


@dataclass
class Wrong:
    """A clock whose date is wrong."""

    clock: VirtualClock
    ahead: timedelta

    def monotonic_seconds(self) -> float:
        return self.clock.monotonic_seconds()

    def now(self) -> datetime:
        return self.clock.now() + self.ahead


def host_limits(
    number: int, clock: VirtualClock, outside: Outside, limit: float, wanted: Callable[[str], float]
) -> SharedLimits:
    """The limits of one daemon; clocks differ by up to ten minutes."""
    section = FleetSection(
        bucket=BUCKET, may_write=True, shared_limits=(f"prefix: {OPERATION} at {limit:.0f}/s",)
    )
    wrong = Wrong(clock, timedelta(minutes=10.0 * (number % 2)))
    return SharedLimits(section, outside, wrong, region="r", tariff=FREE, host=f"h{number}", wanted=wanted)


async def heartbeats(limits: SharedLimits) -> None:
    """As in the conductor."""
    while True:
        await asyncio.sleep(max(0.0, limits.due_in_seconds))
        if limits.is_heartbeat_due:
            await limits.visit()
        else:
            limits.step()


def fleet(
    weather: Weather, limit: float, *, are_leases_held: bool = True, is_lost: bool = False
) -> dict[str, float]:
    """Hosts that see each other in a bucket."""

    async def lived(clock: VirtualClock) -> dict[str, float]:
        outside, now = Outside(clock, is_lost=is_lost), [0]

        def wanted(host: int) -> Callable[[str], float]:
            return lambda _: float(weather.offered[weather.phase(now[0]), host]) if are_leases_held else 0.0

        all_limits = [host_limits(n, clock, outside, limit, wanted(n)) for n in range(HOST_COUNT)]
        course = Course(weather, [Told(one, weather.tick_seconds) for one in all_limits], limit)

        async def begin(number: int) -> None:
            await asyncio.sleep(number * 7.3)
            await heartbeats(all_limits[number])

        tasks = [asyncio.create_task(begin(number)) for number in range(HOST_COUNT)]
        for tick in range(weather.tick_count):
            now[0] = tick
            course.tick(tick)
            await asyncio.sleep(weather.tick_seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return course.outcome.figures()

    return run_virtually(lived, start_at=datetime(2026, 1, 5, tzinfo=UTC))


def run(*, long: bool) -> dict[str, Any]:
    """Every way of limiting in the same weather."""
    results: dict[str, Any] = {}
    for seed in (11, 12, 13) if long else (11,):
        limit = LIMIT_PER_SECOND if long else LIMIT_PER_SECOND / 5
        weather = Weather.of(seed, phase_seconds=600.0, tick_seconds=0.2, limit=limit)
        step = weather.tick_seconds
        ways: dict[str, Callable[[], dict[str, float]]] = {
            "fleet": partial(fleet, weather, limit),
            "fleet, reports": partial(fleet, weather, limit, are_leases_held=False),
            "fleet, no bucket": partial(fleet, weather, limit, is_lost=True),
            "alone": partial(baseline, weather, partial(Boundless, limit * step), limit),
            "adaptive": partial(baseline, weather, partial(Adaptive, step), limit),
        }
        print(f"seed {seed}, {limit:.0f} requests/s   admitted/possible   refused   Jain, worst phase")
        for name, way in ways.items():
            found = results[f"{name} {seed}"] = way()
            admitted, refused, jain = found.values()
            print(f"{name:28}   {admitted:17.3f}   {refused:7.2%}   {jain:.3f}", flush=True)
    kept.keep("shared-limit", results)
    return results
