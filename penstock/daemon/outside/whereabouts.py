"""Knows where probes make things as it is configured now, and writes it into their journal.

So a thing is found where it lies after an endpoint, a bucket or a region was configured anew, also by another host that
was given this one's disk.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from penstock.daemon.config import Configuration
from penstock.operations.sections.section import Section
from penstock.operations.table import OPERATIONS
from penstock.probes.probe import Journal, Leftover


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What the configuration says of where things are."""

    configuration: Configuration
    home_region: str
    machine: str = ""  # this one; nothing where nobody tells it

    def located(self, leftover: Leftover) -> Leftover:
        """With what its entry does not say: one of a probe of today, or of a penstock that did not write it down."""
        row = OPERATIONS.get(leftover.service)
        machine = leftover.machine or self.machine or None
        if row is None:  # of another version of penstock
            return dataclasses.replace(leftover, region=leftover.region or self.home_region, machine=machine)
        return dataclasses.replace(
            leftover,
            machine=machine,
            region=leftover.region or self._region_of(leftover) or self.home_region,
            endpoint_url=self.configuration.aws.endpoint_urls[row.service]
            if leftover.endpoint_url is None
            else leftover.endpoint_url,
        )

    def is_of_another(self, leftover: Leftover) -> bool:
        """Whether another machine made it, which may use it still: this one was given a copy of its disk."""
        return leftover.machine is not None and self.machine not in {"", leftover.machine}

    def is_probed(self, leftover: Leftover) -> bool:
        """Whether the next probe would put its like beside it."""
        region = self._region_of(leftover)
        here = self.located(dataclasses.replace(leftover, region=region, endpoint_url=None))
        return region is not None and self.located(leftover).place == here.place

    def remark(self, leftover: Leftover) -> str:
        """That it lies elsewhere than where its like is made now, as the end of a sentence; else nothing."""
        if self.is_probed(leftover):
            return ""
        located = self.located(leftover)
        at = f" at {located.endpoint_url}" if located.endpoint_url else ""
        return f" (it lies in {located.container}, {located.region}{at}, which is not probed any more)"

    def _region_of(self, leftover: Leftover) -> str | None:
        row = OPERATIONS.get(leftover.service)
        section: Section | None = None if row is None else self.configuration.section_of(row)
        return None if section is None else section.region_of(leftover, self.home_region)


@dataclass(frozen=True, slots=True)
class PlacedJournal:
    """The journal as probes see it, who know nothing of endpoints."""

    journal: Journal
    whereabouts: Whereabouts

    async def record(self, leftover: Leftover) -> None:
        await self.journal.record(self.whereabouts.located(leftover))

    async def strike(self, leftover: Leftover) -> None:
        await self.journal.strike(self.whereabouts.located(leftover))

    async def abandon(self, leftover: Leftover) -> None:
        await self.journal.abandon(self.whereabouts.located(leftover))

    async def open_entries(self) -> list[Leftover]:
        """As probes name them, where they would be written down so now."""
        entries = await self.journal.open_entries()
        plain = [dataclasses.replace(e, region=None, endpoint_url=None, machine=None) for e in entries]
        return [
            name if self.whereabouts.located(name) == entry else entry
            for name, entry in zip(plain, entries, strict=True)
        ]
