import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.queueing import (
    erlang_b_blocked_fractions,
    erlang_b_window,
    mean_batch_message_count,
    peak_thread_count,
)


def blocked_fraction(window: int, offered: float) -> float:
    """Erlang's formula as it is written: a^W/W! over the sum of a^k/k!, in logarithms."""
    logs = np.arange(window + 1) * np.log(offered)
    logs[1:] -= np.cumsum(np.log(np.arange(1, window + 1)))
    return float(np.exp(logs[-1] - np.logaddexp.reduce(logs)))


@pytest.mark.parametrize(
    ("latency_seconds", "carried_per_second"), [(0.016, 50.0), (0.100, 49.1), (0.153, 44.7), (0.300, 29.5)]
)
def test_a_window_of_ten_carries_what_erlang_says(latency_seconds: float, carried_per_second: float) -> None:
    """A window of 10 costs nothing nearby, a tenth at 153 ms, and two fifths at 300 ms."""
    blocked = erlang_b_blocked_fractions(np.array([10.0]), np.array([50.0 * latency_seconds]))[0]
    assert 50.0 * (1.0 - blocked) == pytest.approx(carried_per_second, abs=0.1)


@given(st.floats(0.01, 500.0), st.floats(0.0005, 0.2))
def test_the_window_is_the_smallest_that_will_do(offered: float, blocked_max: float) -> None:
    """One place fewer would block more than what is allowed."""
    window = erlang_b_window(offered, blocked_max)
    assert blocked_fraction(window, offered) <= blocked_max * (1 + 1e-9)
    assert window == 1 or blocked_fraction(window - 1, offered) > blocked_max * (1 - 1e-9)


@given(st.integers(1, 2000), st.floats(0.1, 2000.0))
def test_arrays_block_as_the_formula_says(window: int, offered: float) -> None:
    """Exact for small windows; the limit for large ones is within half a hundredth."""
    fast = erlang_b_blocked_fractions(np.array([float(window)]), np.array([offered]))[0]
    assert fast == pytest.approx(blocked_fraction(window, offered), abs=5e-3 if window > 128 else 1e-9)


def test_throughput_peaks_where_the_scalability_law_says() -> None:
    """Fitted to published receive calls (best at 100 threads of 10 to 250), the peak is near 120; without it, never."""
    assert 100 <= peak_thread_count(0.0042, 6.9e-5) <= 140
    assert peak_thread_count(0.0042, 0.0) == float("inf")


def test_batches_fill_as_long_as_they_may_wait() -> None:
    """Nobody waits: single messages. Long enough: full batches, and no more."""
    assert mean_batch_message_count(100.0, 0.0, 10) == 1.0
    assert mean_batch_message_count(100.0, 0.03, 10) == 4.0
    assert mean_batch_message_count(100.0, 1.0, 10) == 10.0
