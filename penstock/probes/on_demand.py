"""Knows how a probe is made when it is first needed, and again after that failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.clock import Clock
from penstock.probes.outside import RequestError
from penstock.probes.probe import Probe, inconclusive
from penstock.vocabulary import Cost, Outcome, ProbePlan


class ProbeOnDemand:
    """A daemon without usable credentials or network still starts, serves what it knows, and says what is wrong."""

    def __init__(self, make: Callable[[], Awaitable[Probe[Any]]], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self.probe: Probe[Any] | None = None  # once it is made

    @property
    def used(self) -> Cost:
        return self.probe.used if self.probe is not None else Cost()

    async def made(self) -> Probe[Any]:
        """The probe itself, made if need be. Raises RequestError."""
        if self.probe is None:
            self.probe = await self._make()
        return self.probe

    async def run(self, plan: ProbePlan[Any]) -> Outcome[Any]:
        try:
            probe = await self.made()
        except RequestError as trouble:
            return inconclusive(plan, self._clock.now(), str(trouble))
        return await probe.run(plan)

    async def close(self) -> None:
        if self.probe is not None:
            await self.probe.close()
