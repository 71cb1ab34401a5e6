"""Knows when refusals that several tell of, each for himself, speak against what is advised for transfers of a length.

What is heard is weak: it names neither size nor setting, and any user can send it. Whose socket it came from is told by
the kernel, though. So one user moves nothing, whatever he sends. Two witnesses who cannot speak for each other, of whom
one at least was heard (users, by what is heard or reported, and a probe), speak against the advice when both were
refused with no more connections on the whole host than are advised. They speak of transfers that take as long as both
ran before it: stores let some run for gigabytes and refuse them then, which no short probe sees.

The advice then gets `HELD_FRACTION` of itself, until `HELD_SECONDS` after. What is told again says nothing more: there
is one step, and none upwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HELD_FRACTION = 0.5
HELD_SECONDS = 3600.0
_WITNESS_COUNT_MIN = 2
_HEARD_TOLERANCE = 1.1  # what is heard to be in flight is right within 10 %: tests/real/test_heard.py

Way = tuple[str, str]
"""An operation and a region."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Somebody's requests were refused, and not just a stray one."""

    way: Way
    who: int | None  # a user; None is a probe
    is_heard: bool
    connection_count: float  # of the whole host, as far as it is heard
    after_seconds: float  # for so long they had gone well
    ended_seconds: float  # when the last was seen

    @property
    def name(self) -> str:
        """Who it is, for people."""
        return "a probe" if self.who is None else f"user {self.who}"


def against(
    refused: Iterable[Refused], way: Way, *, connection_count: float, transfer_seconds: float
) -> list[Refused]:
    """Those that speak against so many connections for so long; none where they are no two."""
    found = [
        one
        for one in refused
        if one.way == way
        and one.connection_count <= _HEARD_TOLERANCE * connection_count
        and one.after_seconds <= transfer_seconds
    ]
    are_enough = len({one.who for one in found}) >= _WITNESS_COUNT_MIN and any(one.is_heard for one in found)
    return found if are_enough else []
