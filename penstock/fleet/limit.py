"""Knows how hosts divide a limit that none of them sees alone: a prefix, a store, an account, by what each would use.

    {"format": 1, "host": "5d1f0a9c27be33d0", "number": 17, "pause_seconds": 60.0,
     "limits": {"backups": {"wanted_per_second": 800.0, "made_per_second": 431.0, "refused_per_second": 0.0}}}

Each host writes such a heartbeat, reads those of the others, and works out its own part by the rule that divides leases
on one host; nobody hands parts out. What nobody would use is divided evenly on top, so that who suddenly wants more
need not ask first. A host takes no more than what the others can know of: its part by what it said in the heartbeat
before, where that is less, and from then on as much more as others will have read of it, each at a moment of its own.
Where requests are refused all the same, because somebody outside the fleet uses the limit
as well, all hosts see that in the heartbeats and lower what they divide; and a host that sees no heartbeats moves its
own part in the same way, by what it is refused itself.

No clock is compared with another: how old a heartbeat is says the store that keeps it.
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
STALE_PAUSES = 2.0  # of its own: a heartbeat that is older is of a host that is gone
REFUSED_FRACTION_MAX = 0.005  # of the requests: single ones are refused to anybody
DECREASE, INCREASE = 0.8, 0.02  # of what there is, at once; of the limit, with each heartbeat
FACTOR_MIN = 0.02
PART_MIN = 0.02  # of an even part: who came just now, and takes part from the next heartbeat on
HELD_FRACTION = 0.97  # of what was allowed: who makes as many requests would probably make more
GROWTH, HEADROOM = 3.0, 1.08  # over what is made, where it is held and where it is not
_Rate = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """What several hosts use together: a name that all of them know, whose requests count, and how many are borne."""

    name: str
    operations: tuple[str, ...]
    requests_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a host would use of a limit, what it asked for in the time before, and how much of that was refused."""

    wanted_per_second: _Rate
    made_per_second: _Rate = 0.0
    refused_per_second: _Rate = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What one host says of itself."""

    host: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    number: int
    pause_seconds: Annotated[float, msgspec.Meta(ge=1.0, le=86_400.0)]  # until its next one, at the most
    limits: Annotated[Mapping[str, Use], msgspec.Meta(max_length=LIMIT_COUNT_MAX)] = field(
        default_factory=dict
    )
    format: Literal[1] = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetShare:
    """What of a shared limit this host may use now. `host_count` hosts are known to share it, this one included."""

    limit: str
    limit_requests_per_second: float
    requests_per_second: float
    wanted_per_second: float
    host_count: int
    is_alone: bool  # the others are not seen: it goes by what it is refused itself

    @property
    def sentence(self) -> str:
        """For whoever reads the advice."""
        mine, most = f"{self.requests_per_second:,.0f}", f"{self.limit_requests_per_second:,.0f}"
        if self.is_alone:
            return (
                f"Of {most} requests/s of {self.limit}, {mine} are for this host: it does not see the others."
            )
        hosts = "host" if self.host_count == 1 else "hosts"
        return f"Of {most} requests/s of {self.limit}, {mine} are for this one of {self.host_count} {hosts}."


def parse(text: str) -> SharedLimit:
    """The limit that a text of this `PATTERN` says."""
    parts = _PARTS.fullmatch(text)
    assert parts is not None
    return SharedLimit(parts[1], tuple(parts[2].split(", ")), float(parts[3]))


def read(document: bytes) -> Heartbeat | None:
    """What a host says; None where that cannot be. Never raises."""
    try:
        found = msgspec.json.decode(document[: DOCUMENT_BYTES_MAX + 1], type=Heartbeat)
    except UNREADABLE:
        return None
    uses = found.limits.values()
    return found if all(use.refused_per_second <= use.made_per_second for use in uses) else None


def written(heartbeat: Heartbeat) -> bytes:
    """The document."""
    return msgspec.json.encode(heartbeat)


def is_stale(heartbeat: Heartbeat, age_seconds: float) -> bool:
    """Whether its host is gone."""
    return age_seconds > STALE_PAUSES * heartbeat.pause_seconds


def wanted(leased_per_second: float, made_per_second: float, allowed_per_second: float) -> float:
    """What a host would use: what its leases would, or somewhat more than it was seen to make without them."""
    if made_per_second <= HEADROOM * leased_per_second:
        return leased_per_second
    is_held = made_per_second >= HELD_FRACTION * allowed_per_second
    return made_per_second * (GROWTH if is_held else HEADROOM)


def part(
    limit_per_second: float, wanted_per_second: float, told_per_second: float, others: Sequence[float]
) -> float:
    """What one host takes, beside what the others say they want; `told_per_second` is what they know that it wants."""
    taken = (_part(limit_per_second, each, others) for each in (wanted_per_second, told_per_second))
    return max(min(taken), PART_MIN * limit_per_second / (1 + len(others)))


def known(told_per_second: float, wanted_per_second: float, passed_fraction: float) -> float:
    """What the others know of it on average, when so much of the time between two heartbeats has passed."""
    return told_per_second + min(1.0, passed_fraction) * (wanted_per_second - told_per_second)


def _part(limit_per_second: float, wanted_per_second: float, others: Sequence[float]) -> float:
    wanting = [wanted_per_second, *others]
    parts = water_fill(wanting, [1.0] * len(wanting), limit_per_second)
    return parts[0] + (limit_per_second - sum(parts)) / len(parts)


def lowered(factor: float, made: float, refused: float) -> float:
    """How much of a limit hosts divide that see each other: less by what is refused all the same, to others' use."""
    if refused > REFUSED_FRACTION_MAX * made:
        return max(FACTOR_MIN, factor * max(DECREASE, 1.0 - refused / made))
    return min(1.0, factor + INCREASE)


def adapted(fraction: float, made: float, refused: float) -> float:
    """Of a limit, what a host uses that sees no other: much less where it is refused, else little by little more."""
    if refused > REFUSED_FRACTION_MAX * made:
        return max(FACTOR_MIN, DECREASE * fraction)
    return min(1.0, fraction + INCREASE) if made > 0 else fraction
