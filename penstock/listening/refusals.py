"""Knows when refusals (throttled requests) of independent witnesses speak against the advice for long transfers.

What is heard is weak evidence: it names neither size nor setting, and any user can send it. But the kernel tells whose
socket it came from, so one user alone changes nothing, whatever he sends. Two independent witnesses (users, as heard or
reported, and probes), at least one of which was heard, speak against the advice if both were refused with no more
connections on the whole host than are advised. They count for transfers that take at least as long as both ran before:
stores let some run for gigabytes before they refuse, which no short probe sees.

The advice is then reduced to `HELD_FRACTION`, until `HELD_SECONDS` later. Further refusals change nothing more: there
is one step down, and none up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HELD_FRACTION = 0.5
HELD_SECONDS = 3600.0
_WITNESS_COUNT_MIN = 2
_HEARD_TOLERANCE = 1.1  # connections in flight, as heard, are right within 10 %: tests/real/test_heard.py

Way = tuple[str, str]
"""An operation and a region."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Refusals that one witness met, and more than a stray one."""

    way: Way
    who: int | None  # a user's id; None for a probe
    is_heard: bool  # rather than reported or probed
    connection_count: float  # of the whole host, as far as it is heard
    after_seconds: float  # how long requests had succeeded before
    ended_seconds: float  # when the last one was seen, on the monotonic clock

    @property
    def name(self) -> str:
        """The witness, for people."""
        return "a probe" if self.who is None else f"user {self.who}"


def against(
    refused: Iterable[Refused], way: Way, *, connection_count: float, transfer_seconds: float
) -> list[Refused]:
    """The refusals that speak against this many connections for this long; none without two witnesses."""
    found = [
        one
        for one in refused
        if one.way == way
        and one.connection_count <= _HEARD_TOLERANCE * connection_count
        and one.after_seconds <= transfer_seconds
    ]
    are_enough = len({one.who for one in found}) >= _WITNESS_COUNT_MIN and any(one.is_heard for one in found)
    return found if are_enough else []
