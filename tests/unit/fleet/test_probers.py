"""Who probes while the others learn: seats that are renewed, taken over, and never held by two for long."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.fleet import probers
from penstock.fleet.probers import HOLD_SECONDS, TAKEOVER_SECONDS, Probers, Seat

NOBODY: Mapping[Seat, float] = {}


def claimed(
    there: Probers, host: str, *, count: int = 1, gone: frozenset[Seat] = frozenset()
) -> Probers | None:
    return probers.claimed(there, host, seat_count=count, gone=gone)


def test_there_are_as_many_seats_as_configured() -> None:
    """Who has one keeps it, and each write is another one."""
    one = claimed(Probers(), "a", count=2)
    assert one is not None
    two = claimed(one, "b", count=2)
    assert two is not None
    assert claimed(two, "c", count=2) is None
    again = claimed(two, "a", count=2)
    assert again is not None
    assert again.has("a")
    assert again.has("b")
    assert probers.written(again) != probers.written(two)
    assert claimed(two, "a", count=1) is None  # fewer than before: one of two stands up


def test_a_seat_that_is_not_renewed_is_taken_by_the_clock_of_who_looks() -> None:
    """However wrong the date of either host: no date is in the document."""
    there = claimed(Probers(), "dead")
    assert there is not None
    since = probers.seen(NOBODY, there, 100.0)
    since = probers.seen(since, there, 100.0 + TAKEOVER_SECONDS - 1)
    assert probers.expired(since, 100.0 + TAKEOVER_SECONDS - 1) == set()
    gone = probers.expired(since, 100.0 + TAKEOVER_SECONDS)
    taken = claimed(there, "heir", gone=frozenset(gone))
    assert taken is not None
    assert [seat.host for seat in taken.seats] == ["heir"]


def test_a_renewal_begins_the_time_anew() -> None:
    """Also where the object was written for another's sake."""
    there = claimed(Probers(), "alive", count=2)
    assert there is not None
    since = probers.seen(NOBODY, there, 0.0)
    renewed = claimed(there, "alive", count=2)
    assert renewed is not None
    since = probers.seen(since, renewed, TAKEOVER_SECONDS)
    assert probers.expired(since, TAKEOVER_SECONDS) == set()


def test_who_held_a_seat_gives_it_up_before_another_takes_it() -> None:
    """By either clock, with a visit between them."""
    assert HOLD_SECONDS + 900.0 < TAKEOVER_SECONDS


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"[" * 20_000,
        b'{"format": "1"}',
        b'{"generation": 1e300}',
        b'{"seats": [{"host": 1}]}',
        b'{"seats": [{"host": "x", "renewal": ' + b"9" * 4300 + b"}]}",
        b'{"seats": [' + b",".join([b'{"host": "x"}'] * 65) + b"]}",
    ],
)
def test_what_is_no_document_seats_nobody(document: bytes) -> None:
    """It is written anew."""
    assert probers.read(document) == Probers()


def test_what_a_newer_penstock_wrote_is_left_as_it_is() -> None:
    """Its hosts would find their seats gone; what an older one wrote is written anew."""
    newer, older = probers.read(b'{"format": 2, "seats": {"a": 1}}'), probers.read(b'{"format": 0}')
    assert claimed(newer, "here") is None
    anew = claimed(older, "here")
    assert anew is not None
    assert anew.format == probers.FORMAT


def test_what_is_written_is_read() -> None:
    """Seat by seat."""
    there = claimed(Probers(), "a")
    assert there is not None
    assert probers.read(probers.written(there)) == there
