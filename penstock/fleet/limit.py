"""Knows how hosts divide a limit that they share, such as of a prefix, a store or an account, by what each would use.

    {"format": 1, "host": "5d1f0a9c27be33d0", "number": 17, "pause_seconds": 60.0,
     "limits": {"backups": {"wanted_per_second": 800.0, "made_per_second": 431.0, "refused_per_second": 0.0}}}

Each host writes such a heartbeat, reads those of the others, and works out its own part by the rule that divides leases
on one host; nobody hands parts out. What nobody would use is divided evenly on top, so that a host that suddenly wants
more need not ask first. A host takes no more than the others can know of: at first its part by its previous heartbeat,
where that is less, and then more in proportion to how many of the others will have read the new one, each at its own
moment. If requests are throttled all the same, because somebody outside the fleet uses the limit as well, all hosts see
that in the heartbeats and divide less. A host that sees no heartbeats adapts its own part in the same way, to what is
throttled here.

Clocks of hosts are not compared: the store that keeps the heartbeats tells their age.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import msgspec

from penstock.fleet.prior import UNREADABLE
from penstock.models.sharing import water_fill

FORMAT: Final = 1
DOCUMENT_BYTES_MAX = 8192
LIMIT_COUNT_MAX = 16
PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}: [a-z0-9_]+(, [a-z0-9_]+)* at [0-9]{1,7}/s\Z"
_PARTS = re.compile(r"([^:]+): (.+) at ([0-9]+)/s")
STALE_PAUSES = 2.0  # in its own pauses: an older heartbeat is of a host that is gone
REFUSED_FRACTION_MAX = 0.005  # of the requests: single ones are throttled anyway
DECREASE, INCREASE = 0.8, 0.02  # factor on what there is after refusals; else fraction of the limit to add
FACTOR_MIN = 0.02
PART_MIN = 0.02  # of an even part: for a host that has just come, until its next heartbeat
HELD_FRACTION = 0.97  # of what was allowed: a host that makes this many requests would probably make more
GROWTH, HEADROOM = 3.0, 1.08  # factors on the requests made, where the limit holds them back and where not
_Rate = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """A limit that several hosts share: a name known to all, the operations that count, and the rate it allows."""

    name: str
    operations: tuple[str, ...]
    requests_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a host would use of a limit, and what it requested and was refused since its last heartbeat."""

    wanted_per_second: _Rate
    made_per_second: _Rate = 0.0
    refused_per_second: _Rate = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What one host tells the others."""

    host: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    number: int
    pause_seconds: Annotated[float, msgspec.Meta(ge=1.0, le=86_400.0)]  # until its next one, at the most
    limits: Annotated[Mapping[str, Use], msgspec.Meta(max_length=LIMIT_COUNT_MAX)] = field(
        default_factory=dict
    )
    format: Literal[1] = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetShare:
    """This host's part of a shared limit now. `host_count` hosts are known to share it, this one included."""

    limit: str
    limit_requests_per_second: float
    requests_per_second: float
    wanted_per_second: float
    host_count: int
    is_alone: bool  # the others are not seen: the part follows what is refused here

    @property
    def sentence(self) -> str:
        """The part in one sentence, for the explanation of the advice."""
        mine, most = f"{self.requests_per_second:,.0f}", f"{self.limit_requests_per_second:,.0f}"
        if self.is_alone:
            return (
                f"Of {most} requests/s of {self.limit}, {mine} are for this host: it does not see the others."
            )
        hosts = "host" if self.host_count == 1 else "hosts"
        return f"Of {most} requests/s of {self.limit}, {mine} are for this one of {self.host_count} {hosts}."


def parse(text: str) -> SharedLimit:
    """The limit in a text that matches `PATTERN`."""
    parts = _PARTS.fullmatch(text)
    assert parts is not None
    return SharedLimit(parts[1], tuple(parts[2].split(", ")), float(parts[3]))


def read(document: bytes) -> Heartbeat | None:
    """The heartbeat in a document; None where it is not valid. Never raises."""
    try:
        found = msgspec.json.decode(document[: DOCUMENT_BYTES_MAX + 1], type=Heartbeat)
    except UNREADABLE:
        return None
    uses = found.limits.values()
    return found if all(use.refused_per_second <= use.made_per_second for use in uses) else None


def written(heartbeat: Heartbeat) -> bytes:
    """The heartbeat as a document."""
    return msgspec.json.encode(heartbeat)


def is_stale(heartbeat: Heartbeat, age_seconds: float) -> bool:
    """Whether the heartbeat is so old that its host is gone."""
    return age_seconds > STALE_PAUSES * heartbeat.pause_seconds


def wanted(leased_per_second: float, made_per_second: float, allowed_per_second: float) -> float:
    """What a host would use, per second: what its leases would, or somewhat more than it makes where that is more."""
    if made_per_second <= HEADROOM * leased_per_second:
        return leased_per_second
    is_held = made_per_second >= HELD_FRACTION * allowed_per_second
    return made_per_second * (GROWTH if is_held else HEADROOM)


def part(
    limit_per_second: float, wanted_per_second: float, told_per_second: float, others: Sequence[float]
) -> float:
    """What one host may take, given what the others want; `told_per_second` is what they know that it wants."""
    taken = (_part(limit_per_second, each, others) for each in (wanted_per_second, told_per_second))
    return max(min(taken), PART_MIN * limit_per_second / (1 + len(others)))


def known(told_per_second: float, wanted_per_second: float, passed_fraction: float) -> float:
    """What the others know on average that it wants, after this fraction of the pause between two heartbeats."""
    return told_per_second + min(1.0, passed_fraction) * (wanted_per_second - told_per_second)


def _part(limit_per_second: float, wanted_per_second: float, others: Sequence[float]) -> float:
    wanting = [wanted_per_second, *others]
    parts = water_fill(wanting, [1.0] * len(wanting), limit_per_second)
    return parts[0] + (limit_per_second - sum(parts)) / len(parts)


def lowered(factor: float, made: float, refused: float) -> float:
    """The factor on the limit that hosts divide while they see each other: lower after refusals, else slowly higher."""
    if refused > REFUSED_FRACTION_MAX * made:
        return max(FACTOR_MIN, factor * max(DECREASE, 1.0 - refused / made))
    return min(1.0, factor + INCREASE)


def adapted(fraction: float, made: float, refused: float) -> float:
    """The fraction of the limit for a host that sees no other: much lower after refusals, else slowly higher."""
    if refused > REFUSED_FRACTION_MAX * made:
        return max(FACTOR_MIN, DECREASE * fraction)
    return min(1.0, fraction + INCREASE) if made > 0 else fraction
