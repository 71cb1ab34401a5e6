"""How hosts divide a limit: by what each wants, by what the others can know of it, and by what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.fleet import limit
from penstock.fleet.limit import Heartbeat, SharedLimit, Use

RATES = st.floats(0, 1e5)


def test_a_limit_is_said_in_a_line() -> None:
    """Its name, what counts, what is borne."""
    assert limit.parse("my-bucket/backups: s3_upload, s3_download at 3500/s") == SharedLimit(
        "my-bucket/backups", ("s3_upload", "s3_download"), 3500.0
    )


@given(st.lists(RATES, min_size=1, max_size=20))
def test_all_of_it_is_handed_out_and_no_more(wanted: list[float]) -> None:
    """Where all know of each other, whatever they want; who wants more does not get less."""
    parts = [limit.part(3500.0, mine, mine, wanted[:i] + wanted[i + 1 :]) for i, mine in enumerate(wanted)]
    assert 3499.9 <= sum(parts) <= 3500.0 * (1 + limit.PART_MIN)
    assert all(
        part >= min(mine, 3500.0 / len(wanted)) - 1e-6 for part, mine in zip(parts, wanted, strict=True)
    )


def test_what_others_do_not_know_of_is_not_taken_yet() -> None:
    """Who wants more says so first; who wants less leaves it at once."""
    assert limit.part(1000.0, 900.0, 100.0, [900.0]) == pytest.approx(100.0)
    assert limit.part(1000.0, 900.0, 900.0, [900.0]) == pytest.approx(500.0)
    assert limit.part(1000.0, 100.0, 900.0, [900.0]) == pytest.approx(100.0)
    assert limit.part(1000.0, 900.0, 0.0, [900.0]) == pytest.approx(50.0)  # what nobody would use, evenly


def test_a_part_grows_as_the_others_read_of_it() -> None:
    """Each at a moment of its own between two heartbeats."""
    assert [limit.known(100.0, 300.0, passed) for passed in (0.0, 0.25, 1.0, 2.0)] == [
        100.0,
        150.0,
        300.0,
        300.0,
    ]


def test_demand_is_what_leases_say_or_what_is_seen() -> None:
    """Seen demand that fills its part is likely more."""
    assert limit.wanted(400.0, 300.0, 300.0) == 400.0
    assert limit.wanted(0.0, 300.0, 300.0) == pytest.approx(900.0)
    assert limit.wanted(0.0, 200.0, 300.0) == pytest.approx(216.0)


def test_refusals_lower_what_is_divided() -> None:
    """By what was refused where all see each other; by a fifth where none sees the others."""
    assert limit.lowered(1.0, 1000.0, 100.0) == pytest.approx(0.9)
    assert limit.lowered(0.9, 1000.0, 1.0) == pytest.approx(0.92)
    assert limit.adapted(0.5, 1000.0, 100.0) == pytest.approx(0.4)
    assert limit.adapted(0.5, 0.0, 0.0) == 0.5  # nothing was learned


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"[" * 9000,
        b'{"host":"a","number":1,"pause_seconds":NaN}',
        b'{"host":"a","number":1,"pause_seconds":1e300}',
        b'{"host":"","number":1,"pause_seconds":60}',
        b'{"host":"a","number":1,"pause_seconds":60,"format":2}',
        b'{"host":"a","number":1,"pause_seconds":60,"limits":{"p":{"wanted_per_second":-1}}}',
        b'{"host":"a","number":1,"pause_seconds":60,"limits":{"p":{"wanted_per_second":1e99}}}',
        b'{"host":"a","number":1,"pause_seconds":60,"limits":{"p":{"wanted_per_second":1,"refused_per_second":1}}}',
    ],
)
def test_a_heartbeat_that_cannot_be_is_none(document: bytes) -> None:
    """Whoever may write may write anything."""
    assert limit.read(document) is None


def test_a_heartbeat_comes_back_as_it_was() -> None:
    """And is stale after two of its own pauses."""
    said = Heartbeat(host="a", number=3, pause_seconds=60.0, limits={"p": Use(wanted_per_second=5.0)})
    assert limit.read(limit.written(said)) == said
    assert not limit.is_stale(said, 119.0)
    assert limit.is_stale(said, 121.0)
