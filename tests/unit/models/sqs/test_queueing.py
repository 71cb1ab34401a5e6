import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from penstock.models.sqs.queueing import (
    erlang_b_window,
    gamma_probability,
    mean_batch_message_count,
    peak_thread_count,
    reflected_walk_mean,
    windowed_rate,
)


def blocked_fraction(window: int, offered: float) -> float:
    """Erlang's formula as it is written: a^W/W! over the sum of a^k/k!, in logarithms."""
    logs = np.arange(window + 1) * np.log(offered)
    logs[1:] -= np.cumsum(np.log(np.arange(1, window + 1)))
    return float(np.exp(logs[-1] - np.logaddexp.reduce(logs)))


def carried_by_a_window(
    window: float, latency_seconds: float, *, variation: float = 1.0, sender_count: float = 1.0
) -> float:
    """Of 50 messages a second from senders that need 20 ms for each."""
    return float(
        windowed_rate(
            window=np.array([window]),
            rate_per_second=np.array([50.0 * sender_count]),
            sender_count=np.array([sender_count]),
            send_seconds=np.array([0.020]),
            on_the_way_seconds=np.array([latency_seconds]),
            variation=np.array([variation]),
        )[0]
    )


@pytest.mark.parametrize(
    ("latency_seconds", "carried_per_second"), [(0.016, 50.0), (0.100, 49.1), (0.153, 44.7), (0.300, 29.5)]
)
def test_a_window_of_ten_carries_what_erlang_says(latency_seconds: float, carried_per_second: float) -> None:
    """A window of 10 costs nothing nearby, a tenth at 153 ms, and two fifths at 300 ms."""
    assert carried_by_a_window(10.0, latency_seconds) == pytest.approx(carried_per_second, abs=0.1)


def test_regular_senders_lose_less() -> None:
    """Simulated: 48.5 where sends vary by 0.3 of their mean, 44.9 where they are left to chance."""
    assert 46.0 < carried_by_a_window(10.0, 0.153, variation=0.3) < 49.0


@given(st.floats(1.0, 2000.0), st.floats(0.001, 10.0), st.floats(0.1, 1.0), st.floats(1.0, 64.0))
def test_no_window_carries_more_than_its_bounds(
    window: float, latency_seconds: float, variation: float, sender_count: float
) -> None:
    """Never more than the senders send, nor than a full window arrives."""
    carried = carried_by_a_window(window, latency_seconds, variation=variation, sender_count=sender_count)
    assert 0 < carried <= min(50.0 * sender_count, window / latency_seconds) * (1 + 1e-6)


@given(st.floats(0.01, 500.0), st.floats(0.0005, 0.2))
def test_the_window_is_the_smallest_that_will_do(offered: float, blocked_max: float) -> None:
    """One place fewer would block more than what is allowed."""
    window = erlang_b_window(offered, blocked_max)
    assert blocked_fraction(window, offered) <= blocked_max * (1 + 1e-9)
    assert window == 1 or blocked_fraction(window - 1, offered) > blocked_max * (1 - 1e-9)


@pytest.mark.parametrize("load", [0.5, 0.8, 0.95])
def test_a_queue_waits_as_kingman_says_in_the_end(load: float) -> None:
    """Below its capacity the mean wait settles at s^2 / (2 (1 - rho)); above it, it grows by rho - 1."""
    settled = reflected_walk_mean(np.array([load - 1.0]), np.array([0.02]), np.array([1e5]))[0]
    assert settled == pytest.approx(0.02 / (2.0 * (1.0 - load)), rel=1e-3)
    grown = reflected_walk_mean(np.array([1.0 / load - 1.0]), np.array([0.02]), np.array([1e5]))[0]
    assert grown == pytest.approx(1e5 * (1.0 / load - 1.0), rel=0.01)


def test_a_queue_at_its_capacity_walks_as_the_root_of_time() -> None:
    """No drift: s sqrt(2 t / pi)."""
    walked = reflected_walk_mean(np.array([0.0]), np.array([0.02]), np.array([9.0]))[0]
    assert walked == pytest.approx(np.sqrt(2.0 * 0.02 * 9.0 / np.pi), rel=1e-3)


@pytest.mark.parametrize("shape", [1.0, 4.0, 25.0])
def test_gamma_probabilities_are_near_the_exact_ones(shape: float) -> None:
    """From an exponential to nearly normal, within a hundredth at the quantiles that are asked for."""
    for fraction in (0.5, 0.9, 0.99):
        value = special.gammaincinv(shape, fraction)
        found = gamma_probability(np.array([value]), np.array([shape]), np.array([np.sqrt(shape)]))[0]
        assert found == pytest.approx(fraction, abs=0.01)


def test_throughput_peaks_where_the_scalability_law_says() -> None:
    """Fitted to published receive calls (best at 100 threads of 10 to 250), the peak is near 120; without it, never."""
    assert 100 <= peak_thread_count(0.0042, 6.9e-5) <= 140
    assert peak_thread_count(0.0042, 0.0) == float("inf")


def test_batches_fill_as_long_as_they_may_wait() -> None:
    """Nobody waits: single messages. Long enough: full batches, and no more."""
    assert mean_batch_message_count(100.0, 0.0, 10) == 1.0
    assert mean_batch_message_count(100.0, 0.03, 10) == 4.0
    assert mean_batch_message_count(100.0, 1.0, 10) == 10.0
