"""Knows how a running probe is watched, and stopped when other traffic of this host collapses or slows down beside it.

It also adds to the observation what the host's network held back meanwhile, where the driver counts that:
`bw_out_allowance_exceeded` and the like, as ENA spells them, are packets that were queued or dropped because the
instance exceeded its allowance; `host_transmitted_packet_count` is the count of all packets sent meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock.clock import Clock
from penstock.daemon.host import HostSample
from penstock.daemon.yielding.harm_watch import HarmWatch
from penstock.daemon.yielding.host_watch import Flow, others_flow
from penstock.probes.probe import Probe, inconclusive
from penstock.vocabulary import Cost, Observation, Outcome, ProbePlan

WINDOW_SECONDS = 0.25
SETTLE_SECONDS = 1.0  # at the start a probe fills the kernel's buffers: bytes handed over, but not sent yet
BEFORE_COUNT = 4  # windows before the probe: the smallest flow of them is the reference
COLLAPSED_COUNT = 3  # windows in a row with too little flow: a single one may be a pause of the application

_Watch = Callable[[], Coroutine[Any, Any, str]]
"""Returns when the probe has to end, with the reason."""


@dataclass(frozen=True, eq=False)
class AttendedProbe:
    """A probe that yields to the host's other traffic."""

    probe: Probe[Any]
    look: Callable[[], HostSample]
    clock: Clock
    harm_watch: HarmWatch | None = None

    @property
    def used(self) -> Cost:
        return self.probe.used

    async def run(self, plan: ProbePlan[Any]) -> Outcome[Any]:
        """Run the probe, stop it if it harms others, and add the change of the network's counters to its measures."""
        steady = await self._before()
        before = self.look()
        watches: list[_Watch] = [] if steady is None else [partial(self._watch, steady)]
        if self.harm_watch is not None and self.harm_watch.is_hearing:
            watches.append(partial(self.harm_watch.watch, plan.context))
        outcome = await (self._run_beside(watches, plan) if watches else self.probe.run(plan))
        if not isinstance(outcome, Observation):
            return outcome
        return replace(outcome, measures={**outcome.measures, **_network_measures(before, self.look())})

    async def close(self) -> None:
        await self.probe.close()

    async def _run_beside(self, watches: Iterable[_Watch], plan: ProbePlan[Any]) -> Outcome[Any]:
        """Run the probe until it ends, or until one of the watches has a reason to stop it.

        A stopped probe removes what it created, as always, and its cost is counted.
        """
        started_at, reasons = self.clock.now(), list[str]()
        try:
            async with asyncio.timeout(None) as patience:

                async def attend(watch: _Watch) -> None:
                    reasons.append(await watch())
                    patience.reschedule(asyncio.get_running_loop().time())

                watching = [asyncio.create_task(attend(watch)) for watch in watches]
                try:
                    return await self.probe.run(plan)
                finally:
                    for task in watching:
                        task.cancel()
        except TimeoutError:
            if not patience.expired():
                raise
            return inconclusive(plan, started_at, reasons[0], self.probe.used)

    async def _before(self) -> Flow | None:
        """The smallest flow of others in the windows before the probe; None where it is negligible or not counted."""
        least: Flow | None = None
        before = self.look()
        if not before.received_bytes and not before.transmitted_bytes:
            return None  # nothing is counted here
        for _ in range(BEFORE_COUNT):
            begun_seconds = self.clock.monotonic_seconds()
            await asyncio.sleep(WINDOW_SECONDS)
            after = self.look()
            flow = others_flow(before, after, self.clock.monotonic_seconds() - begun_seconds)
            if flow is None or not flow.is_worth_watching():
                return None
            least, before = flow if least is None else least.least(flow), after
        return least

    async def _watch(self, steady: Flow) -> str:
        """Return when the others' traffic has collapsed, with a sentence about it."""
        await asyncio.sleep(SETTLE_SECONDS)
        begun_seconds, before, collapsed_count = self.clock.monotonic_seconds(), self.look(), 0
        while collapsed_count < COLLAPSED_COUNT:
            await asyncio.sleep(WINDOW_SECONDS)
            now_seconds, after = self.clock.monotonic_seconds(), self.look()
            flow = others_flow(before, after, now_seconds - begun_seconds)
            if flow is None:
                continue  # extend the window
            collapsed_count = collapsed_count + 1 if flow.has_collapsed_since(steady) else 0
            begun_seconds, before = now_seconds, after
        return (
            f"broken off: other traffic on this host was {steady} before the probe, and less than half of "
            "that during it"
        )


def _network_measures(before: HostSample, after: HostSample) -> dict[str, float]:
    """The increase of the network's counters; empty where the driver has none."""
    moved = {
        name: float(max(0, count - before.allowance_exceeded.get(name, count)))
        for name, count in after.allowance_exceeded.items()
    }
    if not moved:
        return {}
    received = after.received_packet_count - before.received_packet_count
    sent = after.transmitted_packet_count - before.transmitted_packet_count
    return moved | {
        "host_received_packet_count": float(max(0, received)),
        "host_transmitted_packet_count": float(max(0, sent)),
    }
