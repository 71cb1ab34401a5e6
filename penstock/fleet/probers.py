"""Knows which hosts of a fleet probe a place while the others learn from them: those who hold seats in one object.

    {"format": 1, "generation": 17, "seats": [{"host": "5d1f0a9c27be33d0", "renewal": 9}]}

Clocks of hosts are not compared. The holder of a seat raises its renewal at each visit. A host that sees the same
renewal for `TAKEOVER_SECONDS` of its own clock takes the seat; a holder that could not renew for `HOLD_SECONDS` of its
own clock, which is less, gives it up. Every write requires that the object is the one that was read, and raises the
generation, so that no two versions are alike: of many hosts that want the same seat only one gets it, and a holder that
slept finds another one in its place. If two probe for a while, that costs a few probes and spoils nothing: both
measured the truth.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from penstock.fleet.prior import UNREADABLE, Head

FORMAT: Final = 1
HOLD_SECONDS = 3_300.0  # three visits
TAKEOVER_SECONDS = 4_500.0  # somewhat more than four visits
SEAT_COUNT_MAX = 64
DOCUMENT_BYTES_MAX = 16_384
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]  # Python prints no number of thousands of digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One host that probes, and how often it has renewed its seat."""

    host: str
    renewal: _Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Probers:
    """The hosts that probe a place."""

    format: int = FORMAT  # a document of a newer format must not be written
    generation: _Count = 0
    seats: Annotated[tuple[Seat, ...], msgspec.Meta(max_length=SEAT_COUNT_MAX)] = ()

    def has(self, host: str) -> bool:
        return any(seat.host == host for seat in self.seats)


def read(document: bytes) -> Probers:
    """The probers in a document; none where it cannot be read or has another format. Never raises."""
    try:
        if (found := msgspec.json.decode(document, type=Head).format) != FORMAT:
            return Probers(format=found)
        return msgspec.json.decode(document[: DOCUMENT_BYTES_MAX + 1], type=Probers)
    except UNREADABLE:
        return Probers()


def written(probers: Probers) -> bytes:
    """The probers as a document."""
    return msgspec.json.encode(probers)


def seen(before: Mapping[Seat, float], probers: Probers, at_seconds: float) -> dict[Seat, float]:
    """Since when each seat is unchanged, in seconds of the reader's own clock."""
    return {seat: before.get(seat, at_seconds) for seat in probers.seats}


def expired(since: Mapping[Seat, float], at_seconds: float) -> set[Seat]:
    """The seats that were not renewed for `TAKEOVER_SECONDS`."""
    return {seat for seat, seconds in since.items() if at_seconds - seconds >= TAKEOVER_SECONDS}


def claimed(probers: Probers, host: str, *, seat_count: int, gone: Collection[Seat]) -> Probers | None:
    """The probers with this host's seat renewed, or a free one taken; None where no seat is free. `gone` seats are."""
    others = tuple(seat for seat in probers.seats if seat.host != host and seat not in gone)
    own = next((seat for seat in probers.seats if seat.host == host), None)
    if len(others) >= seat_count or probers.format > FORMAT:
        return None
    mine = Seat(host=host, renewal=own.renewal + 1 if own else 1)
    return Probers(generation=probers.generation + 1, seats=(*others, mine))
