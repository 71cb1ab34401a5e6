"""Knows what the configuration sections of all operations share: common keys, and what the daemon asks of a section."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import Struct

from penstock.operations.sections.values import Regions, Seconds, ThreadCount, Usd
from penstock.probes.probe import Leftover
from penstock.vocabulary import Cost, Tariff


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Values that are valid alone but contradict each other. Keys are dotted paths."""

    key: str
    sentence: str
    because: tuple[str, ...] = ()  # other keys in which the mistake may be


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanPlace:
    """Where to look for runs of hosts that are gone."""

    bucket: str
    key_prefix: str


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[probes.<operation>]: the configuration of an operation, and what follows from it.

    An operation's own section adds its keys, narrows `service_class` and `network_path` to the words it allows, and
    defines what the daemon asks of every section: the properties below.
    """

    is_enabled: bool = False
    regions: Regions = ()
    mean_interval_seconds: Seconds = 600.0
    duration_seconds_max: Seconds = 10.0
    thread_count_max: ThreadCount = 64  # for probes and for advice
    usd_per_day: Usd = 0.01  # for all probes of the operation, within the budget of all operations
    service_class: str = "standard"
    network_path: str = "auto"  # the path that bytes take, on which their price depends

    @property
    def payload_size_bytes(self) -> tuple[int, ...]:
        """The sizes that are probed."""
        raise NotImplementedError

    def cost_max(self, tariff: Tariff) -> Cost:
        """The most that one probe may cost; a field of 0 means that the operation has no limit of its own there."""
        raise NotImplementedError

    @property
    def memory_bytes_max(self) -> int | None:
        """The most memory that a probe may use, in bytes; None if that is not limited."""
        return None

    @property
    def connection_count_max(self) -> int:
        """The most requests a probe has in flight: with fewer connections, the pool would be measured."""
        return self.thread_count_max

    def contradictions(self, path: str) -> Iterator[Contradiction]:  # noqa: ARG002 - for those that have some
        """The contradictions within this section; `path` is its dotted path."""
        return iter(())

    def region_of(self, leftover: Leftover, home_region: str) -> str | None:
        """The region in which probes create such a thing; None if they do not, as it is configured now."""
        raise NotImplementedError

    @property
    def price_class(self) -> str:
        """The class by which requests and bytes are priced."""
        return self.service_class

    @property
    def puts_what_it_needs(self) -> bool:
        """Whether probes create what they need before they can measure; else the operator provides it."""
        return True

    @property
    def kept_bytes_max(self) -> int:
        """The most bytes that probes keep stored while the daemon runs, which are paid for by the day."""
        return 0

    def orphan_place(self, region: str) -> OrphanPlace | None:  # noqa: ARG002 - for those that have one
        """Where to look in this region for what probes of dead hosts left; None if they leave nothing behind."""
        return None
