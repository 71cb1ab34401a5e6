"""Knows how a probe is made when it is first needed, and tried again after that failed, and counts requests to AWS KMS.

It adds to the `measures` of an observation:

- `key_request_count`: requests to AWS KMS, as the answers tell; `key_request_count_each`: per request that wrote or
  read. Both are absent where no answer told of any.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from penstock.clock import Clock
from penstock.probes.outside import KEY_REQUESTS, KeyRequests, RequestError
from penstock.probes.probe import Probe, inconclusive
from penstock.vocabulary import Cost, Observation, Outcome, ProbePlan

KEY_REQUEST_COUNT_EACH = "key_request_count_each"


class ProbeOnDemand:
    """Makes a probe at its first run: a daemon without credentials or network still starts and serves advice."""

    def __init__(self, make: Callable[[], Awaitable[Probe[Any]]], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self.probe: Probe[Any] | None = None  # once it is made
        self._heard = KeyRequests()
        self._usd_per_key_request = 0.0

    @property
    def used(self) -> Cost:
        if self.probe is None:
            return Cost()
        return self.probe.used + Cost(usd=self._heard.count * self._usd_per_key_request)

    async def made(self) -> Probe[Any]:
        """The probe, made if there is none yet. Raises RequestError."""
        if self.probe is None:
            self.probe = await self._make()
        return self.probe

    async def run(self, plan: ProbePlan[Any]) -> Outcome[Any]:
        try:
            probe = await self.made()
        except RequestError as trouble:
            return inconclusive(plan, self._clock.now(), str(trouble))
        heard = self._heard = KeyRequests()
        self._usd_per_key_request = plan.tariff.usd_per_key_request
        hearing = KEY_REQUESTS.set(heard)
        try:
            # The plan's cost includes expected KMS requests; here the real ones are counted instead.
            outcome = await probe.run(replace(plan, tariff=replace(plan.tariff, key_request_count=0.0)))
        finally:
            KEY_REQUESTS.reset(hearing)
        if not heard.count or not isinstance(outcome, Observation):
            return outcome
        told = {"key_request_count": heard.count, KEY_REQUEST_COUNT_EACH: heard.count_each}
        return replace(outcome, measures={**outcome.measures, **told})

    async def close(self) -> None:
        if self.probe is not None:
            await self.probe.close()
