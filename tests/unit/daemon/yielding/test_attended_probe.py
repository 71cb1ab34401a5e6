"""A probe beside the traffic of others, in virtual time: it yields to them, and cleans up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.daemon.config import ListenSection
from penstock.daemon.host import HostSample
from penstock.daemon.yielding.attended_probe import (
    BEFORE_COUNT,
    SETTLE_SECONDS,
    WINDOW_SECONDS,
    AttendedProbe,
)
from penstock.daemon.yielding.harm_watch import BROKEN_OFF_COUNT_MAX, HarmWatch
from penstock.lab.virtual_time import VirtualClock, run_virtually
from penstock.listening.tally import Tally
from penstock.probes.probe import inconclusive
from penstock.vocabulary import Cost, Inconclusive, Observation, Outcome, ProbePlan
from tests.factories import NOON, an_observation
from tests.unit.listening.test_tally import ATTEMPT
from tests.unit.probes.fakes import an_upload_plan

BEFORE_SECONDS = BEFORE_COUNT * WINDOW_SECONDS
Rate = Callable[[float], float]
"""Bytes per second at so many seconds after the probe began; negative before."""


@dataclass
class Wire:
    """A network that counts what others send, and the probe beside it."""

    clock: VirtualClock
    others: Rate
    own_bytes_per_second: float = 800e6
    counted_every_seconds: float = 0.0  # as the driver does
    sent: float = 1.0
    own_sent: float = 0.0
    is_probing: bool = False
    _at: float = 0.0

    def look(self) -> HostSample:
        """What the counters say now."""
        now = self.clock.monotonic_seconds()
        while self._at < now - 1e-9:  # rates change by the hundredth of a second
            self.sent += 0.01 * self.others(self._at - BEFORE_SECONDS)
            if self.is_probing:
                self.own_sent += 0.01 * self.own_bytes_per_second
                self.sent += 0.0101 * self.own_bytes_per_second  # segments are counted before they are cut
            self._at += 0.01
        if self.counted_every_seconds and now % self.counted_every_seconds > 0.01:
            return HostSample(transmitted_bytes=int(self._counted), own_transmitted_bytes=int(self.own_sent))
        self._counted = self.sent
        return HostSample(transmitted_bytes=int(self.sent), own_transmitted_bytes=int(self.own_sent))

    _counted: float = 1.0


@dataclass
class LongProbe:
    """Takes ten seconds, and removes what it made whatever happens."""

    used = Cost(transferred_bytes=7000, request_count=3)

    wire: Wire
    outcome: Outcome[Any] = field(default_factory=an_observation)
    is_clean: bool = False

    async def run(self, _plan: ProbePlan[Any]) -> Outcome[Any]:
        self.wire.look()
        self.wire.is_probing = True
        try:
            await asyncio.sleep(10.0)
        finally:
            self.wire.look()
            self.wire.is_probing = False
            await asyncio.sleep(0.5)
            self.is_clean = True
        return self.outcome

    async def close(self) -> None:
        pass


def outcome_beside(others: Rate, **changes: Any) -> tuple[Outcome[Any], float]:
    """What becomes of a probe beside others who send at this rate, and how long it took."""

    async def probed(clock: VirtualClock) -> tuple[Outcome[Any], float]:
        wire = Wire(clock, others, **changes)
        probe = LongProbe(wire)
        begun = clock.monotonic_seconds()
        outcome = await AttendedProbe(probe, wire.look, clock).run(an_upload_plan())
        assert probe.is_clean
        return outcome, clock.monotonic_seconds() - begun

    return run_virtually(probed, start_at=NOON)


def test_a_probe_ends_when_the_traffic_of_others_collapses_beside_it() -> None:
    """Within seconds, with its reason, with its cost, and with nothing left behind."""
    outcome, took_seconds = outcome_beside(lambda s: 100e6 if s < 0 else 20e6)
    assert isinstance(outcome, Inconclusive)
    assert outcome.reason.startswith("broken off: other traffic on this host was 100 MB/s out")
    assert (outcome.transferred_bytes, outcome.request_count) == (7000, 3)
    assert took_seconds < BEFORE_SECONDS + SETTLE_SECONDS + 2.0


@pytest.mark.parametrize(
    "others",
    [
        lambda _s: 100e6,
        lambda s: 100e6 if s < 0 else 70e6,
        lambda s: 0.0 if 3.0 < s < 3.4 else 100e6,
        lambda s: 0.3e6 if s < 0 else 0.0,
        lambda s: 100e6 if s % 1.0 < 0.5 else 0.0,
    ],
    ids=["steady", "a little less", "a pause", "next to nothing", "on and off before"],
)
def test_a_probe_goes_on_beside_what_does_not_collapse(others: Rate) -> None:
    """What a probe did not take is no reason to end it, and one pause is an application's own."""
    outcome, took_seconds = outcome_beside(others)
    assert isinstance(outcome, Observation)
    assert took_seconds > 10.0


def test_counters_that_move_by_the_second_raise_no_alarm() -> None:
    """Between two of their steps they say that everything stands still."""
    outcome, _ = outcome_beside(lambda _s: 100e6, counted_every_seconds=1.0)
    assert isinstance(outcome, Observation)


async def test_a_host_that_counts_nothing_is_not_waited_for(clock: VirtualClock) -> None:
    """A lab has no network: the probe begins at once."""
    probe = LongProbe(Wire(clock, lambda _s: 0.0))
    await AttendedProbe(probe, HostSample, clock).run(an_upload_plan())
    assert clock.monotonic_seconds() == pytest.approx(10.5)


async def test_a_stop_is_a_stop_also_beside_others(clock: VirtualClock) -> None:
    """Whoever cancels the probe hears that it was cancelled; it cleans up all the same."""
    probe = LongProbe(Wire(clock, lambda _s: 100e6))
    running = asyncio.create_task(AttendedProbe(probe, probe.wire.look, clock).run(an_upload_plan()))
    await asyncio.sleep(4.0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert probe.is_clean


# --- What the driver refused meanwhile


class CannedProbe:
    """Measures the same again and again, or cannot."""

    used = Cost(request_count=3)

    def __init__(self, outcome: Outcome[Any]) -> None:
        self.outcome = outcome

    async def run(self, _plan: ProbePlan[Any]) -> Outcome[Any]:
        return self.outcome

    async def close(self) -> None:
        pass


def observed_beside(counters: Sequence[Mapping[str, int]]) -> Mapping[str, float]:
    """The measures of a probe during which the driver's counters went from the first to the last."""
    looks = iter([(counters[0], 0), (counters[0], 0), (counters[1], 500)])

    def look() -> HostSample:
        found, packet_count = next(looks)
        exceeded = {name: count for name, count in found.items() if name.endswith("_allowance_exceeded")}
        return HostSample(transmitted_packet_count=packet_count, allowance_exceeded=exceeded)

    async def probed(clock: VirtualClock) -> Outcome[Any]:
        probe = AttendedProbe(CannedProbe(an_observation(measures={"part_count": 8})), look, clock)
        outcome = await probe.run(an_upload_plan())
        assert probe.used.request_count == 3
        return outcome

    outcome = run_virtually(probed, start_at=NOON)
    assert isinstance(outcome, Observation)
    return outcome.measures


def test_an_observation_says_what_the_network_held_back() -> None:
    """By the driver's own names, also when a counter stood still; and of how many packets."""
    before = {"bw_out_allowance_exceeded": 5, "pps_allowance_exceeded": 1, "tx_queue_stops": 7}
    assert observed_beside([before, before | {"bw_out_allowance_exceeded": 45}]) == {
        "part_count": 8,
        "bw_out_allowance_exceeded": 40,
        "pps_allowance_exceeded": 0,
        "host_received_packet_count": 0,
        "host_transmitted_packet_count": 500,
    }


def test_a_network_that_counts_nothing_adds_nothing() -> None:
    """Most hosts have another driver; zeros would say that nothing was held back."""
    assert observed_beside([{"tx_queue_stops": 7}] * 2) == {"part_count": 8}


async def test_what_could_not_be_measured_stays_as_it_is(clock: VirtualClock) -> None:
    """An inconclusive probe has no measures."""
    plan = an_upload_plan()
    outcome = inconclusive(plan, NOON, "no network")

    assert await AttendedProbe(CannedProbe(outcome), HostSample, clock).run(plan) is outcome


async def test_a_probe_that_makes_applications_wait_is_broken_off_a_few_times_a_day(
    clock: VirtualClock,
) -> None:
    """At once, with what it cost them; more often nobody can end probes by saying that he waits."""
    tally, latency = Tally(), [0.05]
    harm_watch = HarmWatch(tally.totals, clock, ListenSection())

    async def attempts() -> None:
        while True:
            tally.hear(replace(ATTEMPT, latency_seconds=latency[0]), clock.monotonic_seconds())
            await asyncio.sleep(0.02)

    attempting, found = asyncio.create_task(attempts()), []
    for _ in range(BROKEN_OFF_COUNT_MAX + 1):
        latency[0] = 0.05
        for _ in range(3):
            harm_watch.look()
            await asyncio.sleep(10.0)
        latency[0] = 0.3
        probe = LongProbe(Wire(clock, lambda _s: 0.0))
        outcome = await AttendedProbe(probe, HostSample, clock, harm_watch).run(an_upload_plan())
        found.append(outcome.reason if isinstance(outcome, Inconclusive) else "measured")
        assert probe.is_clean
    latency[0] = 0.1  # and it stays a little slower by itself
    for _ in range(2):
        harm_watch.look()
        await asyncio.sleep(10.0)
    attempting.cancel()
    kept = harm_watch.take_told()
    assert [harm.is_broken_off for harm in kept] == [True] * BROKEN_OFF_COUNT_MAX + [False]
    assert kept[-1].is_held_against_after
    assert kept[-1].latency_increase_seconds.expected == pytest.approx(0.225, rel=0.1)
    told = harm_watch.document()
    assert told["last"]["latency_increase_seconds"]["expected"] == pytest.approx(0.225, rel=0.1)
    assert told["broken_off_count"] == BROKEN_OFF_COUNT_MAX
    *ended, last = found
    assert all("attempts of applications took" in reason for reason in ended)
    assert last == "measured"
