"""A day of many hosts beside one bucket, of which one probes: how often all of them do, and what ends its turn.

Each host visits the bucket as the daemon does, and measures whenever it is not spared: quickly while it is new, then at
its own pace. What a measurement says does not matter here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from bench.shared_limit import Wrong
from penstock.daemon.fleet.exchange import Fleet
from penstock.daemon.schedule import LEARNING_COUNT, LEARNING_PACE, STEADY_PACE
from penstock.fleet import prior
from penstock.fleet.prior import Evidence
from penstock.lab.virtual_time import VirtualClock
from penstock.vocabulary import Observation, Place
from tests.factories import PLACE, an_observation
from tests.unit.daemon.fleet.test_exchange import a_fleet
from tests.unit.probes.fakes import MemoryStore, virtually

INTERVAL_SECONDS = 600.0
DAY_SECONDS = 86_400.0


@dataclass
class Host:
    """What it measured, and its way to the bucket."""

    fleet: Fleet
    clock: Wrong
    chance: random.Random
    measured: list[Observation[Any]] = field(default_factory=list)
    was_holding: bool = False
    is_ill: bool = False  # each of its probes fails

    async def live(self) -> None:
        await asyncio.gather(self._visit(), self._measure())

    async def own(self, _place: Place) -> Sequence[Evidence[Any]]:
        return prior.measured_here(self.fleet.host, self.measured[-100:], fit=None, now=self.clock.now())

    async def _visit(self) -> None:
        while True:
            await self.fleet.visit(self.own)
            self.was_holding = self.was_holding or self.fleet.seats.holds(PLACE)
            await asyncio.sleep(self.fleet.due_in_seconds)

    async def _measure(self) -> None:
        while True:
            pace = LEARNING_PACE if len(self.measured) < LEARNING_COUNT else STEADY_PACE
            await asyncio.sleep(INTERVAL_SECONDS * pace * min(5.0, self.chance.expovariate(1.0)))
            until = self.fleet.spared_until(PLACE)
            if until is None and not self.is_ill:
                self.measured.append(an_observation(started_at=self.clock.now()))


def a_day(host_count: int, *, dies_after_seconds: float = DAY_SECONDS, is_ill: bool = False) -> list[Host]:
    """Of so many hosts that start within a minute, the first with a seat dying after a while, clocks 10 min apart.

    Or it `is_ill` from then on, and lives.
    """

    async def lived(clock: VirtualClock) -> list[Host]:
        store = MemoryStore()

        def a_host(number: int) -> Host:
            wrong = Wrong(clock, timedelta(minutes=10.0 * (number % 2)))
            fleet = a_fleet(wrong, store, name=f"h{number}", probed={PLACE: INTERVAL_SECONDS})
            return Host(fleet, wrong, random.Random(number))

        async def begin(number: int, host: Host) -> None:
            await asyncio.sleep(60.0 * number / host_count)
            await host.live()

        hosts = [a_host(number) for number in range(host_count)]
        tasks = [asyncio.create_task(begin(number, host)) for number, host in enumerate(hosts)]
        await asyncio.sleep(dies_after_seconds)
        for host, task in zip(hosts, tasks, strict=True):
            if host.fleet.seats.holds(PLACE) and dies_after_seconds < DAY_SECONDS:
                host.is_ill = is_ill
                if not is_ill:
                    task.cancel()
        await asyncio.sleep(DAY_SECONDS - dies_after_seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return hosts

    return virtually(lived)


@pytest.mark.parametrize(
    "host_count", [4, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
def test_a_fleet_measures_as_much_as_one_host(host_count: int) -> None:
    """And nobody else does, once the first has a seat."""
    alone = sum(len(host.measured) for host in a_day(1))
    counts = sorted(len(host.measured) for host in a_day(host_count))
    assert sum(counts) <= 1.3 * alone
    assert counts[-1] >= 0.7 * alone


@pytest.mark.parametrize(
    "host_count", [4, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
def test_the_seat_of_a_host_that_died_is_taken_once(host_count: int) -> None:
    """By the clocks of the others, whatever its date said, and by one of them."""
    hosts = a_day(host_count, dies_after_seconds=DAY_SECONDS / 3)
    assert sum(host.was_holding for host in hosts) == 2
    newest = max(host.measured[-1].started_at for host in hosts if host.measured)
    assert newest > hosts[0].clock.clock.now() - timedelta(hours=2)


def test_a_host_whose_probes_fail_gives_its_seat_away() -> None:
    """It lives and visits the bucket, so nobody would take the seat, and all the others would measure instead."""
    well = sum(len(host.measured) for host in a_day(8))
    hosts = a_day(8, dies_after_seconds=DAY_SECONDS / 6, is_ill=True)
    assert sum(host.was_holding for host in hosts) == 2
    assert sum(len(host.measured) for host in hosts) <= 1.5 * well
