"""Knows how busy the host is with other work, and when a probe has to wait or end for it.

Before a probe: no probe begins while others use more of the processors, or move more over the network, than the budget
allows. Use is measured over windows of seconds, and penstock's own part is subtracted.

During a probe: packets are counted by interface, so nobody can tell whose bytes the network carries. But what penstock
hands to the kernel is counted, so the flow of others is known to within the headers of penstock's own packets (1 %
where a driver counts segments before they are cut, as ENA does) and what waits in the kernel. When it falls below half
of what it was just before, in several windows in a row, the probe has displaced it.
Loopback traffic does not count.

The operator's quiet hours also make probes wait: none begins in them unless it is requested.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime

from penstock.clock import Clock
from penstock.daemon import host
from penstock.daemon.config import BudgetSection
from penstock.daemon.quiet_hours import QuietHours, quiet_until
from penstock.daemon.spending import budget
from penstock.models import burst
from penstock.models.model import Fit
from penstock.units import format_rate

WINDOW_SECONDS_MIN = 1.0  # shorter ones are noise
_WIRE_OVER_PAYLOAD = 1.1  # headers, acknowledgements and retransmissions; 1.05 on a good path
_LEARNED_OBSERVATION_COUNT_MIN = 5
_CEILING = "host_bytes_per_second"  # a parameter that some fits have


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """What others on this host use at present. `network_ceiling_bytes_per_second` is None where it is unknown."""

    cpu_fraction: float
    received_bytes_per_second: float
    transmitted_bytes_per_second: float
    network_ceiling_bytes_per_second: float | None

    @property
    def network_fraction(self) -> float | None:
        """The used fraction of the ceiling in the busier direction; the same ceiling applies to each direction."""
        if self.network_ceiling_bytes_per_second is None:
            return None
        busiest = max(self.received_bytes_per_second, self.transmitted_bytes_per_second)
        return busiest / self.network_ceiling_bytes_per_second


@dataclass(eq=False)
class HostWatch:
    """Measures the host's use by others, now and then and on demand."""

    section: BudgetSection
    clock: Clock
    sample: Callable[[], host.HostSample]
    _: KW_ONLY
    ceiling_bytes_per_second: Callable[[], float | None]
    quiet_hours: tuple[QuietHours, ...] = ()
    _samples: deque[tuple[float, host.HostSample]] = field(init=False)

    def __post_init__(self) -> None:
        self._samples = deque([(self.clock.monotonic_seconds(), self.sample())], maxlen=2)

    def look(self) -> None:
        """Begin a new window; to be called every few seconds."""
        self._samples.append((self.clock.monotonic_seconds(), self.sample()))

    def neighbours(self) -> Neighbours:
        """The use by others, in a window of at least a second that ends now."""
        now_seconds = self.clock.monotonic_seconds()
        at_seconds, before = self._samples[-1]
        if now_seconds - at_seconds < WINDOW_SECONDS_MIN:
            at_seconds, before = self._samples[0]
        usage, seconds = host.usage(before, self.sample()), max(now_seconds - at_seconds, WINDOW_SECONDS_MIN)
        received = usage.received_bytes - _WIRE_OVER_PAYLOAD * usage.own_received_bytes
        transmitted = usage.transmitted_bytes - _WIRE_OVER_PAYLOAD * usage.own_transmitted_bytes
        return Neighbours(
            cpu_fraction=usage.others_busy_fraction,
            received_bytes_per_second=max(0.0, received) / seconds,
            transmitted_bytes_per_second=max(0.0, transmitted) / seconds,
            network_ceiling_bytes_per_second=self.ceiling_bytes_per_second(),
        )

    def verdict(self, now: datetime) -> budget.Verdict:
        """Whether the host has room for a probe now, and it is not a quiet hour."""
        if (ends_at := quiet_until(self.quiet_hours, now)) is not None:
            sentence = f"these are quiet hours, until {ends_at:%Y-%m-%d %H:%M} UTC"
            return budget.Verdict(sentence, ends_at)
        found = self.neighbours()
        return budget.host_verdict(found.cpu_fraction, found.network_fraction, self.section, now)

    def document(self, now: datetime) -> dict[str, float | datetime | None]:
        """What others use, and the limits up to which a probe begins, as JSON values and a date."""
        found = self.neighbours()
        return {
            "quiet_until": quiet_until(self.quiet_hours, now),
            "others_cpu_fraction": found.cpu_fraction,
            "host_cpu_fraction_max": self.section.host_cpu_fraction_max,
            "others_network_fraction": found.network_fraction,
            "host_network_fraction_max": self.section.host_network_fraction_max,
            "others_received_bytes_per_second": found.received_bytes_per_second,
            "others_transmitted_bytes_per_second": found.transmitted_bytes_per_second,
            "network_ceiling_bytes_per_second": found.network_ceiling_bytes_per_second,
        }


def ceiling_bytes_per_second(instance_type: str, fits: Iterable[Fit]) -> float | None:
    """What the host's network sustains: the table's value, or more where more was measured; None where unknown.

    A measured ceiling may be that of one path alone, so it never lowers the table's value.
    """
    table = burst.ceiling(instance_type)
    known = [table.baseline_bytes_per_second] if table is not None else []
    known += [
        fit.parameters[_CEILING].expected
        for fit in fits
        if _CEILING in fit.parameters
        and fit.place.instance_type == instance_type
        and fit.observation_count >= _LEARNED_OBSERVATION_COUNT_MIN
        and not fit.is_from_reports
    ]
    return max(known, default=None)


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes per second that others move, in each direction."""

    received: float
    transmitted: float

    def __str__(self) -> str:
        directions = ((self.transmitted, "out"), (self.received, "in"))
        return " and ".join(
            f"{format_rate(rate)} {way}" for rate, way in directions if rate >= _WATCHED_BYTES_PER_SECOND_MIN
        )

    def least(self, other: Flow) -> Flow:
        """The smaller one, direction by direction."""
        return Flow(min(self.received, other.received), min(self.transmitted, other.transmitted))

    def is_worth_watching(self) -> bool:
        """Whether the flow is large enough that a probe could displace it noticeably."""
        return max(self.received, self.transmitted) >= _WATCHED_BYTES_PER_SECOND_MIN

    def has_collapsed_since(self, before: Flow) -> bool:
        """Whether less than half is left in a direction that was worth watching."""
        return any(
            then >= _WATCHED_BYTES_PER_SECOND_MIN and now < _LEFT_FRACTION_MIN * then
            for then, now in ((before.received, self.received), (before.transmitted, self.transmitted))
        )


_WATCHED_BYTES_PER_SECOND_MIN = 1e6  # smaller flows cannot be told from noise
_LEFT_FRACTION_MIN = 0.5
_COUNTED_FRACTION_MIN = 0.8  # of penstock's own bytes: with less, the network's counters lag behind


def others_flow(before: host.HostSample, after: host.HostSample, seconds: float) -> Flow | None:
    """An upper bound on the flow of others; None while the counters lag behind what penstock itself moved.

    Drivers that update once a second, and bytes that wait in the kernel, make a short window useless; use a longer one.
    """
    usage = host.usage(before, after)
    pairs = (
        (usage.received_bytes, usage.own_received_bytes),
        (usage.transmitted_bytes, usage.own_transmitted_bytes),
    )
    # A margin, because own bytes include those of pipes.
    little = _WATCHED_BYTES_PER_SECOND_MIN * seconds
    if any(counted + little < _COUNTED_FRACTION_MIN * own for counted, own in pairs):
        return None
    received, transmitted = (max(0, counted - own) / seconds for counted, own in pairs)
    return Flow(received, transmitted)
