import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.queueing import (
    erlang_b_blocked_fraction,
    erlang_b_blocked_fractions,
    erlang_b_window,
    peak_thread_count,
    queue_wait_seconds,
    scaled_rate_per_second,
)


@pytest.mark.parametrize(
    ("latency_seconds", "carried_per_second"), [(0.016, 50.0), (0.100, 49.1), (0.153, 44.7), (0.300, 29.5)]
)
def test_a_window_of_ten_carries_what_erlang_says(latency_seconds: float, carried_per_second: float) -> None:
    """The seed's window of 10 costs nothing nearby, a tenth at 153 ms, and two fifths in the West."""
    carried = 50.0 * (1.0 - erlang_b_blocked_fraction(10, 50.0 * latency_seconds))
    assert carried == pytest.approx(carried_per_second, abs=0.1)


@given(st.floats(0.01, 500.0), st.floats(0.0005, 0.2))
def test_the_window_is_the_smallest_that_will_do(offered: float, blocked_max: float) -> None:
    """One place fewer would block more than what is allowed."""
    window = erlang_b_window(offered, blocked_max)
    assert erlang_b_blocked_fraction(window, offered) <= blocked_max
    assert window == 1 or erlang_b_blocked_fraction(window - 1, offered) > blocked_max


@given(st.integers(1, 2000), st.floats(0.1, 2000.0))
def test_arrays_block_as_numbers_do(window: int, offered: float) -> None:
    """The limit for large windows is within half a hundredth of the recursion."""
    exact = erlang_b_blocked_fraction(window, offered)
    fast = erlang_b_blocked_fractions(np.array([float(window)]), np.array([offered]))[0]
    assert fast == pytest.approx(exact, abs=5e-3)


def test_the_scalability_law_fits_a_published_curve() -> None:
    """Receive calls at concurrency 10 to 250 as go-cloud measured them, each within 5 %, with the peak near 120."""
    published = {10: 510, 25: 1081, 50: 1887, 100: 2493, 250: 2022}
    for thread_count, rate in published.items():
        assert scaled_rate_per_second(thread_count, 51.7, 0.0042, 6.9e-5) == pytest.approx(rate, rel=0.05)
    assert 100 <= peak_thread_count(0.0042, 6.9e-5) <= 140


def test_waiting_matches_the_textbook_for_one_server() -> None:
    """M/M/1 at half load waits one service time; at capacity the wait has no bound."""
    assert queue_wait_seconds(5.0, 0.1, 1) == pytest.approx(0.1)
    assert math.isinf(queue_wait_seconds(10.0, 0.1, 1))
