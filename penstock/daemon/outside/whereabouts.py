"""Knows where probes create things under the present configuration, and writes that into their journal.

So a leftover is still found after an endpoint, a bucket or a region was changed in the configuration, also by another
host that was given this one's disk.
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
    """Where things are created, by the present configuration."""

    configuration: Configuration
    home_region: str
    machine: str = ""  # this machine's identifier; empty where it is unknown

    def located(self, leftover: Leftover) -> Leftover:
        """The leftover with region, endpoint and machine filled in where the entry has none.

        Probes do not know them, and earlier versions did not record them.
        """
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
        """Whether another machine created it and may still use it: this one runs on a copy of its disk."""
        return leftover.machine is not None and self.machine not in {"", leftover.machine}

    def is_probed(self, leftover: Leftover) -> bool:
        """Whether the next probe would create its like in the same place."""
        region = self._region_of(leftover)
        here = self.located(dataclasses.replace(leftover, region=region, endpoint_url=None))
        return region is not None and self.located(leftover).place == here.place

    def remark(self, leftover: Leftover) -> str:
        """A note if it lies where nothing is probed any more, as the end of a sentence; else an empty string."""
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
    """The journal for probes, which know nothing of endpoints: adds where things are."""

    journal: Journal
    whereabouts: Whereabouts

    async def record(self, leftover: Leftover) -> None:
        await self.journal.record(self.whereabouts.located(leftover))

    async def strike(self, leftover: Leftover) -> None:
        await self.journal.strike(self.whereabouts.located(leftover))

    async def abandon(self, leftover: Leftover) -> None:
        await self.journal.abandon(self.whereabouts.located(leftover))

    async def open_entries(self) -> list[Leftover]:
        """All entries, without region, endpoint and machine where these are the present ones, as probes name them."""
        entries = await self.journal.open_entries()
        plain = [dataclasses.replace(e, region=None, endpoint_url=None, machine=None) for e in entries]
        return [
            name if self.whereabouts.located(name) == entry else entry
            for name, entry in zip(plain, entries, strict=True)
        ]
