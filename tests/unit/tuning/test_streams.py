"""What of a trial of small objects was a stream, and what its beginning and its end."""

from __future__ import annotations

import pytest

from penstock.tuning.streams import steady_rate_per_second

STEADY = [0.01 * number for number in range(1, 401)]  # a hundred a second, one after another


def test_the_last_ones_that_wait_make_no_stream_slower() -> None:
    """Four threads that were refused end four seconds later: the total says half of what went through."""
    late = [*STEADY[:-4], 5.0, 6.0, 7.0, 8.0]
    assert steady_rate_per_second(late, 4) == pytest.approx(100.0)
    assert len(late) / late[-1] == pytest.approx(50.0)


def test_what_is_admitted_at_once_makes_no_stream_faster() -> None:
    """Fifty go through before the store counts."""
    assert steady_rate_per_second([*([0.01] * 50), *STEADY[:-50]], 4) == pytest.approx(100.0)


def test_in_which_order_they_are_told_does_not_matter() -> None:
    """Threads tell of theirs when they are there."""
    assert steady_rate_per_second(STEADY[::-1], 4) == steady_rate_per_second(STEADY, 4)


@pytest.mark.parametrize("ends", [(), (1.0,), (1.0, 2.0, 3.0, 4.0), (1.0,) * 16])
def test_of_too_few_nothing_is_said(ends: tuple[float, ...]) -> None:
    """Nor of what was all there at the same moment."""
    assert steady_rate_per_second(ends, 4) is None
