"""Knows what the sections of all operations have: keys that mean the same in each, and what the daemon asks of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import Struct

from penstock.operations.sections.values import Regions, Seconds, ThreadCount, Usd
from penstock.probes.probe import Leftover
from penstock.vocabulary import Cost, Tariff


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Values of a section that are fine alone and wrong together. Keys are dotted paths."""

    key: str
    sentence: str
    because: tuple[str, ...] = ()  # other keys that may be where the mistake was made


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanPlace:
    """Where runs of hosts that are no more may lie."""

    bucket: str
    key_prefix: str


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[probes.<operation>]: what the operator says of an operation, and what follows from it.

    An operation's own section adds its keys, narrows `service_class` and `network_path` to the words that it
    knows, and says what the daemon asks of all sections alike: the properties below.
    """

    is_enabled: bool = False
    regions: Regions = ()
    mean_interval_seconds: Seconds = 600.0
    duration_seconds_max: Seconds = 10.0
    thread_count_max: ThreadCount = 64  # of what is tried and of what is advised
    usd_per_day: Usd = 0.01  # of all probes of the operation, within what all operations may cost
    service_class: str = "standard"
    network_path: str = "auto"  # which way its bytes take: what they cost depends on it

    @property
    def payload_size_bytes(self) -> tuple[int, ...]:
        """The sizes that are probed."""
        raise NotImplementedError

    def cost_max(self, tariff: Tariff) -> Cost:
        """The most that one probe may cost; 0 is "no limit of its own" where the operation has none."""
        raise NotImplementedError

    @property
    def memory_bytes_max(self) -> int | None:
        """The most that a probe may hold; None where that is not bounded."""
        return None

    @property
    def connection_count_max(self) -> int:
        """Requests that a probe has in flight at a time: a pool with fewer would be what is measured."""
        return self.thread_count_max

    def contradictions(self, path: str) -> Iterator[Contradiction]:  # noqa: ARG002 - for those that have some
        """What is wrong together in this section, which is at this dotted path."""
        return iter(())

    def region_of(self, leftover: Leftover, home_region: str) -> str | None:
        """In which region a probe makes such a thing; None: in none, as it is configured now."""
        raise NotImplementedError

    @property
    def price_class(self) -> str:
        """By which its requests and bytes are priced."""
        return self.service_class

    @property
    def puts_what_it_needs(self) -> bool:
        """Whether probes make what has to be there before they can measure; else the operator does."""
        return True

    @property
    def kept_bytes_max(self) -> int:
        """What probes keep outside for as long as the daemon runs: it is paid for by the day."""
        return 0

    def orphan_place(self, region: str) -> OrphanPlace | None:  # noqa: ARG002 - for those that have one
        """Where to look in this region for what probes of dead hosts left; None: they leave nothing that stays."""
        return None
