import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.sqs.duplicate_loop import DeleteLoop, rescue


def a_loop(load: float, delete_rate_per_second: float = 50.0, timeout_seconds: float = 30.0) -> DeleteLoop:
    return DeleteLoop(
        arrival_rate_per_second=load * delete_rate_per_second,
        delete_rate_per_second=delete_rate_per_second,
        visibility_timeout_seconds=timeout_seconds,
    )


def test_a_deleter_a_little_too_slow_collapses_after_half_an_hour() -> None:
    """V rho / (rho - 1): 30 s at 1.43 % is the seed's 35 minutes, and the seed's scatter of several minutes."""
    loop = a_loop(1.0143)
    assert loop.collapse_after_seconds() / 60 == pytest.approx(35.5, abs=0.1)
    interval = loop.collapse_after_interval(variation=0.6)
    assert 20 <= interval.low / 60 < 35 < interval.high / 60 <= 50


def test_with_capacity_to_spare_it_never_collapses_by_itself() -> None:
    """Below capacity only an interruption can start the loop."""
    assert math.isinf(a_loop(0.99).collapse_after_seconds())
    assert a_loop(0.99).outage_seconds_max() == pytest.approx(30.0, abs=0.1)
    assert a_loop(1.01).outage_seconds_max() == 0.0


@pytest.mark.parametrize(("load", "outage_seconds"), [(0.95, 30.1), (0.80, 31.5), (0.60, 38.0), (0.45, 46.5)])
def test_the_basin_is_as_derived(load: float, outage_seconds: float) -> None:
    """D* = V (1 + (1-rho)^2 / rho) from half load on, V (2 - rho) below."""
    assert a_loop(load).outage_seconds_max() == pytest.approx(outage_seconds, abs=0.1)


@given(st.floats(0.05, 3.0), st.floats(1.0, 5000.0), st.floats(2.0, 43200.0))
def test_the_receive_window_keeps_every_wait_below_the_timeout(
    load: float, rate: float, timeout_seconds: float
) -> None:
    """A full window is deleted within half the timeout, whatever arrives."""
    loop = a_loop(load, rate, timeout_seconds)
    window = loop.receive_window_message_count()
    assert window == 1 or window / rate <= 0.5 * timeout_seconds


def test_a_rescue_deletes_in_batches_and_clears_the_backlog_in_time() -> None:
    """Full batches first, then as many deleters as five minutes need; the sender goes on."""
    found = rescue(
        a_loop(0.95),
        undeleted_message_count=30_000,
        visible_message_count=1_000,
        delete_request_seconds=0.017,
        delete_message_seconds=0.003,
        receiver_rate_per_second=166.0,
    )
    assert found.batch_message_count == 10
    assert found.recovered_after_seconds <= 300
    assert found.receive_window_message_count == math.floor(0.5 * 30 * found.delete_rate_per_second)
