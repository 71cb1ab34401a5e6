"""Knows which hosts of a fleet probe a place while the others learn from them: seats in one object, taken in turn.

    {"format": 1, "generation": 17, "seats": [{"host": "5d1f0a9c27be33d0", "renewal": 9}]}

No clock is compared with another. Who holds a seat raises its renewal at each visit; who sees the same renewal for
`TAKEOVER_SECONDS` of its own clock takes the seat, and who did not come to renew for `HOLD_SECONDS` of its own gives it
up, which is less. Every write is made under the condition that the object is the one that was read, and raises the
generation, so that no two are alike: of many who take the same seat one does, and a holder that slept finds another one
in its place. That two probe for a while costs a few probes and spoils nothing: what both measured is true.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from penstock.fleet.prior import UNREADABLE, Head

FORMAT: Final = 1
HOLD_SECONDS = 3_300.0  # three visits
TAKEOVER_SECONDS = 4_500.0  # four visits, and some
SEAT_COUNT_MAX = 64
DOCUMENT_BYTES_MAX = 16_384
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]  # Python writes no number of thousands of digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One host that probes, and how often it has said so."""

    host: str
    renewal: _Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Probers:
    """Who probes a place."""

    format: int = FORMAT  # a newer one is not ours to write
    generation: _Count = 0
    seats: Annotated[tuple[Seat, ...], msgspec.Meta(max_length=SEAT_COUNT_MAX)] = ()

    def has(self, host: str) -> bool:
        return any(seat.host == host for seat in self.seats)


def read(document: bytes) -> Probers:
    """What is written there; nobody, where that cannot be read, or is of another format. Never raises."""
    try:
        if (found := msgspec.json.decode(document, type=Head).format) != FORMAT:
            return Probers(format=found)
        return msgspec.json.decode(document[: DOCUMENT_BYTES_MAX + 1], type=Probers)
    except UNREADABLE:
        return Probers()


def written(probers: Probers) -> bytes:
    """The document."""
    return msgspec.json.encode(probers)


def seen(before: Mapping[Seat, float], probers: Probers, at_seconds: float) -> dict[Seat, float]:
    """Since when each seat is known as it stands, by the clock of who looks."""
    return {seat: before.get(seat, at_seconds) for seat in probers.seats}


def expired(since: Mapping[Seat, float], at_seconds: float) -> set[Seat]:
    """Those that were not renewed for too long."""
    return {seat for seat, seconds in since.items() if at_seconds - seconds >= TAKEOVER_SECONDS}


def claimed(probers: Probers, host: str, *, seat_count: int, gone: Collection[Seat]) -> Probers | None:
    """The same with this host's seat renewed, or with a free one taken; None where there is none for it."""
    others = tuple(seat for seat in probers.seats if seat.host != host and seat not in gone)
    own = next((seat for seat in probers.seats if seat.host == host), None)
    if len(others) >= seat_count or probers.format > FORMAT:
        return None
    mine = Seat(host=host, renewal=own.renewal + 1 if own else 1)
    return Probers(generation=probers.generation + 1, seats=(*others, mine))
